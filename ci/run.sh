#!/usr/bin/env bash
# What continuous integration runs: each stage is one xtask command, to be run alone in the same way.
# Needs cargo with rustfmt and clippy, a C compiler, python3 with pip, and Node.js with npm; the stages install what else they need.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# The cheap ones first: a formatting mistake should not cost a test run.
stages=(lint tidy docs deny no-std "bindings --check" "headers --check" abi-check test page)

for tool in cargo cargo-fmt cargo-clippy python3 cc npm; do
    if ! command -v "$tool" >/dev/null; then
        echo "ci: $tool is missing; install rustup's stable toolchain with rustfmt and clippy, gcc, python3 with pip, and Node.js with npm" >&2
        exit 1
    fi
done

table=""
for stage in "${stages[@]}"; do
    echo "=== $stage"
    start=$SECONDS
    # A stage may carry an option, hence the words.
    # shellcheck disable=SC2086
    cargo xtask $stage
    code=$?
    table+=$(printf '%-16s %5d s' "$stage" $((SECONDS - start)))$'\n'
    if [ "$code" -ne 0 ]; then
        printf '\n%s' "$table"
        echo "ci: $stage failed; run it alone with: cargo xtask $stage" >&2
        exit 1
    fi
done
printf '\n%s' "$table"
printf '%-16s %5d s\n' total "$SECONDS"
