//! The server from outside: OpenAI's own clients drive it, and a soak shows that nothing is left of what clients did.

use crate::arguments::Arguments;
use crate::process;
use crate::{UsageError, binary, fetch, workspace};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The packages that the scripts in `crates/spec-bench/clients` were written against, as pip and npm name them.
const PYTHON_CLIENT: &str = "openai==3.57.0";
const NODE_CLIENT: &str = "openai@7.59.0";
/// Reads GGUF files as llama.cpp's own tools do.
const GGUF_READER: &str = "gguf==0.19.0";
/// What the scripts present; any other key has to be refused.
const KEY: &str = "clients-key";
const STARTED_WITHIN: Duration = Duration::from_secs(120);

/// Starts the server on SmolLM2 and both clients after each other, and has a file of ours read; a check that does not hold fails it.
pub(crate) fn clients() -> Result<()> {
    let model = fetch::models(false)?.into_iter().next().context("the table of models is empty")?;
    let spec = binary::build_quick("spec-cli", "spec")?;
    let folder = binary::target_folder()?.join("clients");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let (python, module) = (install_python(&folder)?, install_node(&folder)?);
    let scripts = workspace::root().join("crates/spec-bench/clients");
    read_quantized(&spec, &model, &folder, &python, &scripts)?;
    let server = Server::start(&spec, &model, &folder)?;
    process::run(Command::new(python).arg(scripts.join("client.py")).args([&server.address, KEY]))
        .and_then(|()| {
            process::run(Command::new("node").arg(scripts.join("client.mjs")).args([&server.address, KEY]).arg(&module))
        })
        .with_context(|| format!("the server's own words are in {}", server.log.display()))
}

/// A file with fewer bits a weight, for another program to read.
fn read_quantized(spec: &Path, model: &Path, folder: &Path, python: &Path, scripts: &Path) -> Result<()> {
    const TYPE: &str = "q4_0";
    let file = folder.join("quantized.gguf");
    if file.is_file() {
        fs::remove_file(&file).with_context(|| format!("cannot replace {}", file.display()))?;
    }
    process::run(
        Command::new(spec).env("SPEC_CONFIG", "none").arg("quantize").args([model, &file]).args(["--type", TYPE]),
    )?;
    process::run(Command::new(python).arg(scripts.join("gguf_reader.py")).args([model, &file]).arg(TYPE.to_uppercase()))
}

fn install_python(folder: &Path) -> Result<PathBuf> {
    let environment = folder.join("python");
    let python = environment.join("bin/python");
    if !python.is_file() {
        process::run(Command::new("python3").args(["-m", "venv"]).arg(&environment))
            .context("Python 3 with venv is needed (on Debian and Ubuntu: apt-get install python3-venv)")?;
    }
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PYTHON_CLIENT, GGUF_READER];
    process::run(Command::new(&python).args(pip))?;
    Ok(python)
}

/// The address of the module, as `import` takes it.
fn install_node(folder: &Path) -> Result<String> {
    let home = folder.join("node");
    fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-save", "--no-audit", "--no-fund", "--prefix"]).arg(&home).arg(NODE_CLIENT);
    process::run(&mut npm).context("Node.js 20 or newer with npm is needed")?;
    let module = home.join("node_modules/openai/index.mjs");
    if !module.is_file() {
        bail!("npm ended well, but {} is not there", module.display());
    }
    Ok(format!("file://{}", module.display()))
}

/// A server that ends with this.
struct Server {
    process: Child,
    address: String,
    log: PathBuf,
}

impl Server {
    fn start(spec: &Path, model: &Path, folder: &Path) -> Result<Self> {
        let keys = folder.join("keys");
        fs::write(&keys, format!("{KEY} clients\n")).with_context(|| format!("cannot write {}", keys.display()))?;
        let log = folder.join("server.log");
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(spec);
        command.env("SPEC_CONFIG", "none").arg("serve").arg("--model").arg(model);
        command.args(["--port", "0", "--api-keys"]).arg(&keys);
        let process = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("{} cannot be started", spec.display()))?;
        let mut server = Self { process, address: String::new(), log };
        let begun = Instant::now();
        while begun.elapsed() < STARTED_WITHIN {
            let said = fs::read_to_string(&server.log).unwrap_or_default();
            if let Some(address) = address_in(&said) {
                server.address = address;
                return Ok(server);
            }
            if let Some(status) = server.process.try_wait()? {
                bail!("`spec serve` ended ({status}): {}", said.trim());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("`spec serve` named no address within {} s; see {}", STARTED_WITHIN.as_secs(), server.log.display());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Neither fails unless it has ended, which is what they are for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The first address of this machine in what a server said, once the number is followed by something.
fn address_in(said: &str) -> Option<String> {
    const HOST: &str = "http://127.0.0.1:";
    let rest = &said[said.find(HOST)?..];
    let digits = rest[HOST.len()..].find(|c: char| !c.is_ascii_digit())?;
    (digits > 0).then(|| rest[..HOST.len() + digits].to_owned())
}

/// What `cargo xtask soak` was asked for; the rest is the measuring crate's.
#[derive(Debug)]
pub(crate) struct Soak {
    /// Optimised: not for a minute in CI, where the dev profile is built already.
    release: bool,
    model: Option<PathBuf>,
    rest: Vec<String>,
}

impl Soak {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<Self> {
        let (release, model) =
            (arguments.take_switch("--release"), arguments.take_value("--model")?.map(PathBuf::from));
        let rest = arguments.rest();
        if let Some(word) = rest.first().filter(|word| !word.starts_with('-')) {
            return Err(UsageError(format!("`{word}` is no option of soak")).into());
        }
        Ok(Self { release, model, rest })
    }
}

/// Starts the soak on SmolLM2 or the file given.
pub(crate) fn soak(options: &Soak) -> Result<ExitCode> {
    let model = match &options.model {
        Some(file) => file.clone(),
        None => fetch::models(false)?.into_iter().next().context("the table of models is empty")?,
    };
    let build = if options.release { binary::build } else { binary::build_quick };
    let mut soak = Command::new(build("spec-bench", "spec-bench")?);
    soak.arg("soak").arg("--spec").arg(build("spec-cli", "spec")?).arg("--model").arg(model);
    soak.arg("--out").arg(binary::target_folder()?.join("soak"));
    binary::run(soak.args(&options.rest))
}

/// The tests of a real server that are commands of their own: both in short.
pub(crate) fn test() -> Result<()> {
    clients()?;
    if soak(&Soak { release: false, model: None, rest: Vec::new() })? != ExitCode::SUCCESS {
        bail!("the soak of the server failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Soak, address_in};
    use crate::arguments::Arguments;

    #[test]
    fn the_servers_address_is_found_once_its_line_is_whole() {
        let said = "loading\nserving on http://127.0.0.1:4012/\n";
        assert_eq!(address_in(said).as_deref(), Some("http://127.0.0.1:4012"));
        assert_eq!(address_in("serving on http://127.0.0.1:40"), None);
        assert_eq!(address_in("loading"), None);
    }

    #[test]
    fn what_a_soak_understands_itself_is_passed_on() {
        let soak = Soak::parse(Arguments::from_words("--minutes 10 --release --model=a.gguf")).unwrap();
        assert_eq!((soak.release, soak.rest), (true, vec!["--minutes".to_owned(), "10".to_owned()]));
        assert!(Soak::parse(Arguments::from_words("forever")).is_err());
    }
}
