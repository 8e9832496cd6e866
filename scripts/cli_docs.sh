#!/usr/bin/env bash
# Writes docs/CLI.md from the program's own help:  scripts/cli_docs.sh [PROGRAM] [--check]
# PROGRAM is build/release/sluice by default. With --check nothing is written; exit code 1 says that the page is
# out of date.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=$root/build/release/sluice
check=false
for argument in "$@"; do
  case $argument in
    -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit ;;
    --check) check=true ;;
    *) program=$argument ;;
  esac
done
page=$root/docs/CLI.md

# What depends on the machine is left out.
help() { "$program" "$@" | sed 's/; here: [^)]*)/)/'; }

write_page() {
  cat <<'TEXT'
# Command line

Made by `scripts/cli_docs.sh` from the program's help; change the help, or the text in that script.

```text
TEXT
  help --help
  cat <<'TEXT'
```

## Rules for all commands

- stdout holds the answer and nothing else; everything else goes to stderr: `sluice: ...` for information,
  `sluice: warning: ...`, `sluice: error: ...`. Progress appears on a terminal only, after two seconds, and is wiped out.
- Exit codes: 0 done, 1 failed at run time (a closed pipe and a full disk too), 2 wrong usage, 3 unusable model or
  input file, 4 not enough memory, 130 interrupted (Ctrl-C, SIGTERM or SIGHUP). A second Ctrl-C ends the program at once.
- Numbers have a decimal point in every locale. Text is bytes; bytes that are not UTF-8 are read as U+FFFD.
- On a terminal, control characters that a model, a file or a user supplies are shown as `\x1b` and the like. Into a
  pipe or a file the text goes as it is.
- A flag is given once, except where its help says otherwise. `--flag=VALUE` and `--flag VALUE` mean the same; after `--`
  nothing is a flag.
- Without `-m` the bundled model runs, which is said on stderr.

## What `run` does

- **Prompt.** One of `-p`, `-f`, `--prompt-tokens`, `-` or a piped stdin. With one of the others stdin is not touched. One line
  end at the end of a file or of stdin is dropped. An empty stdin is an error; `-p ""` is an empty prompt: an empty
  message for a chat template, else the text begins from BOS alone.
- **Template.** A model's own chat template is used if it has one; where it refuses the conversation, its words are the error.
  Control tokens count only where the template wrote them: typed into a message they are plain text.
- **`--raw`** continues the text, BOS in front where the model wants it. Control tokens written in the text count. Two BOS
  (one typed, one added) bring a warning. A model without a template gets its prompt the same way, but control tokens
  are plain text.
- **End.** The text ends at a token that ends a generation, in front of a `--stop` text, after `-n` tokens, or when the context is
  full; the last two are said on stderr. On a terminal a line end follows, elsewhere the text alone is written.
- **Sampling settings** come from the flags, then from the model file (`general.sampling.*`), then the defaults shown.
  `--stats` shows each and where it is from.
- **`--json`** prints one object: `model`, `prompt_tokens` (how many), `tokens` (ids), `text` (U+FFFD for broken bytes), `finish_reason`
  (`stop`, `length`, `context`, `interrupted`), `stop` (the stop text that ended it, or null), `seed`, `timings` with `load_ms`,
  `ttft_ms` (to the first token), `tpot_ms` (per further token), `tokens_per_s`, `bytes_per_token`, `bandwidth_share` (of the
  measured read bandwidth; null where a figure is unknown), and with `--logprobs` for each token `token`, `logprob` and
  `top`, natural logarithms under the model's raw logits. An interrupted run prints it too, unless the model was still loading.

## What the others print

- `template` prints the prompt and nothing else; a line end is added on a terminal only. `--json`: `text`, `parts` (each with its `text`
  and whether it is `content`, that is, from the conversation) and with `--tokens` the `ids`, which are those that `run` would use. The
  conversation is an object with `messages` and perhaps `tools`, `add_generation_prompt` (false), `bos_token` and `eos_token` (those
  of the model); all other keys are variables of the template. A list stands for the messages alone. At most 64 MiB, 4 million
  values, 200 levels. A template that refuses the conversation (`raise_exception`) ends it with exit code 1 and its own
  words; any other fault of it is exit code 3, with line and column.
- `tokenize --json`: `{"ids": [...]}`; where stdin is a JSON array of strings, a list of these.
- `inspect --json`: one object with the overview, all metadata, all tensors, and with `--fit` the memory plans, those for GPUs as
  `gpu_fit` where the program has a GPU backend.
- `perplexity` ends with a line `perplexity: P +- E over N tokens`, E being the standard error. With a saved reference it also
  prints the mean Kullback-Leibler divergence, how often the likeliest token is the same, and the change of
  perplexity. The file's format is in [FORMATS.md](FORMATS.md).
- `batch` prints nothing to stdout but the answers with `-o -`; its formats are in [FORMATS.md](FORMATS.md), how to use it in
  [BATCH.md](BATCH.md).
- `bench --json`: `prompt`, `decode` and `passes`, with milliseconds, bytes read and the share of the measured bandwidth.
TEXT
  local command
  for command in $("$program" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    printf '\n## sluice %s\n\n```text\n' "$command"
    help "$command" --help-all
    printf '```\n'
  done
}

if $check; then
  write_page | diff -u "$page" - || { echo "docs/CLI.md is out of date: run scripts/cli_docs.sh" >&2; exit 1; }
else
  write_page >"$page.new"
  mv "$page.new" "$page"
fi
