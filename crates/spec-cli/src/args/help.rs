//! What `--help` says beyond the list of flags: examples, and the questions that the list does not answer.

use spec_core::LENGTH_POLICIES;

/// Below `spec --help`.
pub(super) const OVERVIEW: &str = "\
Examples:
  spec generate --model MODEL.gguf --chat -p 'Write a haiku about rivers.'
  spec chat --model hf:ORG/REPO:FILE.gguf
  spec serve --model MODEL.gguf --port 8080     an OpenAI-compatible server
  spec demo --model MODEL.gguf --prompts DIR    what speculation gains here

Flags can be set for good. SPEC_THREADS=2 in the environment is --threads 2,
and so is `threads = 2` in $XDG_CONFIG_HOME/spec/config.toml, or in ~/.config
without that variable; a table such as [chat] is for one command. The command
line counts before the environment, that before the file, the file before the
default. --print-config shows what is in force, and why.

Exit codes: 0 done, 1 failed, 2 the command line was wrong.
SPEC_CPU_ISA chooses the kernels: amx, avx512vnni, avx2vnni, avx2 or portable;
by default the fastest that the processor runs.";

/// Below `spec generate -h`.
pub(super) const GENERATE: &str = "\
Examples:
  spec generate --model MODEL.gguf -p 'def fibonacci(n):' -n 200
  spec generate --model MODEL.gguf --chat -f question.txt --temperature 0.7
  spec generate --model MODEL.gguf --draft-model SMALLER.gguf -p TEXT --show-accept

--help says which drafter to use.";

/// Below `spec chat -h`.
pub(super) const CHAT: &str = "\
Examples:
  spec chat --model MODEL.gguf --system 'Answer in one sentence.'
  printf 'What is a tree?\\nAnd a wood?\\n' | spec chat --model MODEL.gguf --json

--help says which drafter to use, and what can be typed.";

/// Below `spec audit --help`.
pub(super) const AUDIT: &str = "\
Examples:
  spec audit --model MODEL.gguf --rule rejection --temperature 0.8 -p 'Once upon a time'
  spec audit --model MODEL.gguf --draft-model SMALLER.gguf --all --prompts DIR --draws 1000

Every emitted token is held against the law that plain decoding has at that
place, computed by passes of their own. Under greedy and coupled the texts are
also compared token by token. A lossy rule is measured. The models are held
twice where a draft model is given; five tokens are drafted a round unless
--draft-len or --length-policy says otherwise. Exit codes: 0 consistent, or lossy as the
rule says; 1 it differs, or there were too few tokens; 2 the command line was
wrong.";

/// Below `spec batch --help`.
pub(super) const BATCH: &str = "\
Examples:
  spec batch --model MODEL.gguf --input requests.jsonl --output results.jsonl

A run that was interrupted goes on where it stopped. Exit codes: 0 every request
was answered, 1 some failed or are left, 2 the command line was wrong.";

/// Below `spec tune --help`.
pub(super) const TUNE: &str = "\
Examples:
  spec demo --model MODEL.gguf --prompts DIR --length-policy survey --record rounds.jsonl
  spec tune rounds.jsonl
  spec tune epsilon --model MODEL.gguf --draft-model SMALLER.gguf --prompts DIR

A survey drafts every length in turn, so that the record has a price for each.
Records of one target are taken together, of one drafter a table each.";

/// Below `spec serve --help`.
pub(super) const SERVE: &str = "\
Examples:
  spec serve --model MODEL.gguf --draft-model SMALLER.gguf
  spec serve --model MODEL.gguf --host 0.0.0.0 --api-keys keys.txt --max-batch 16

Paths: /v1/chat/completions, /v1/completions, /v1/models, /tokenize, /detokenize,
/health, /ready, /metrics, /openapi.json. SIGTERM and Ctrl-C let answers under way
end; the second one does not.";

/// Below `spec explain --help`.
pub(super) const EXPLAIN: &str = "\
Examples:
  spec explain                                      the last run of generate, chat or demo
  spec explain -- generate --model MODEL.gguf -p TEXT    run it, then explain it
  spec explain --log run.jsonl                      what --record run.jsonl has written

The last run is kept as figures alone, without its text, in spec/last-run.jsonl
of $XDG_CACHE_HOME or ~/.cache. --no-last-run, or SPEC_NO_LAST_RUN=1, keeps none.";

/// Below `spec profile --help`.
pub(super) const PROFILE: &str = "\
Examples:
  spec profile -o NAME -- generate --model MODEL.gguf -p 'def fibonacci(n):'
  spec profile stats NAME.json

The lanes are the host, the draft's stream and the target's; the counters are
acceptance and memory.";

/// Below `spec bench sweep --help`.
pub(super) const SWEEP: &str = "\
Examples:
  spec bench sweep --model MODEL.gguf --prompts DIR --out study
  spec bench sweep --model MODEL.gguf --draft-model SMALLER.gguf --draft model \\
    --lengths 3,5,7 --rules greedy,epsilon:0.1 --prompts DIR --out study
  spec bench sweep --model MODEL.gguf --temperature 0.8 --seeds 5 \\
    --rules coupled,rejection --prompts DIR --out study

The table goes to standard output; DIR gets sweep.json, sweep.csv and three plots.
The epsilon rules compare with a draft model's probabilities, and draft with nothing
else; typical judges look-ups too.";

/// Below `spec completions --help`.
pub(super) const COMPLETIONS: &str = "\
  bash: spec completions bash > ~/.local/share/bash-completion/completions/spec
  zsh:  spec completions zsh > \"${fpath[1]}/_spec\"
  fish: spec completions fish > ~/.config/fish/completions/spec.fish";

const DRAFTERS: &str = "\
Which drafter should I use?
  None of them changes the answer; they differ in what they cost.
  - Leave it at `auto`. It copies from earlier text where that pays, needs no
    second model, and stops where it does not pay. Editing, summarising, code
    and conversations about a text gain most.
  - With a smaller model of the same family, add --draft-model SMALLER.gguf. It
    pays where its pass takes a fifth of the target's or less; `auto` leaves it
    alone where it does not. It takes memory of its own.
  - `ngram` is the leanest: a few bytes a token. `suffix` finds longer
    repetitions.
  - `none` is plain decoding, to compare with. `self` is a check of this
    program and never a gain.
  `spec demo` measures it on your prompts; --show-accept shows it in the answer.";

const TYPED: &str = "\
What can be typed:
  A line is a turn. A backslash at its end continues it on the next line, and
  so does all between \"\"\" and \"\"\". A line that begins with / is a command,
  /help lists them; // begins a turn with a slash.
  Ctrl-C stops an answer, which stays as far as it came. At the prompt, Ctrl-C
  twice or Ctrl-D leaves.
  From turn to turn only what is new is computed: /stats and `cached_tokens` of
  --json show it.
  Answers go to standard output, everything else to standard error.";

/// Below `spec generate --help`.
pub(super) fn generate_long() -> String {
    format!("{}\n\n{DRAFTERS}", examples(GENERATE))
}

/// Below `spec chat --help`.
pub(super) fn chat_long() -> String {
    format!("{}\n\n{TYPED}\n\n{DRAFTERS}", examples(CHAT))
}

/// Without the pointer to the long help, which this is.
fn examples(short: &str) -> &str {
    short.rsplit_once("\n\n").map_or(short, |(examples, _)| examples)
}

/// Below `--length-policy`.
pub(super) fn length_policies() -> String {
    let mut help = String::from("How many tokens to guess, round by round:\n");
    for entry in &LENGTH_POLICIES {
        help += &format!("  {}[:x]: {}; x is {} when not given\n", entry.name, entry.summary, entry.parameter);
    }
    help
}
