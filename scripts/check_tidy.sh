#!/usr/bin/env bash
# clang-tidy on the C++ sources that a change touches:  scripts/check_tidy.sh [SECONDS [FILE...]]
# Without FILEs: the sources that differ from the merge base with origin/main; where there is none, or it is this
# very commit (as in a fresh clone), all sources, latest change first. A file that was found clean is not
# looked at again until it or something it may include changes. Starts no new file after SECONDS and says
# how many files are left unchecked.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"
cd "$(repo_root)"

seconds=${1:-100000}
shift $(($# < 1 ? $# : 1))
build_dir=build/tidy # only configured: one command a file
cmake --preset release -B "$build_dir" -DSLUICE_UNITY=OFF >build/tidy.log 2>&1 || { cat build/tidy.log; exit 1; }

candidates() {
  local base
  if base=$(git merge-base origin/main HEAD 2>/dev/null) && [ "$base" != "$(git rev-parse HEAD)" ]; then
    git diff --name-only --diff-filter=d "$base" -- '*.cpp'
  else
    { git diff --name-only --diff-filter=d HEAD -- '*.cpp'
      git log --format= --name-only --diff-filter=d -n 200 -- '*.cpp'
      git ls-files '*.cpp'; } | awk '!seen[$0]++'
  fi
}

# Any header may reach any source: one hash over all of them and the settings.
common_hash=$({ git ls-files -z '*.h' .clang-tidy | xargs -0 cat; clang-tidy --version; } | sha256sum)
cache=build/tidy-clean
mkdir -p "$cache"
key_of() { { printf '%s' "$common_hash"; cat "$1"; } | sha256sum | cut -d' ' -f1; }

end=$(($(date +%s) + seconds))
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

check_file() {
  local file=$1 key=$2 out
  if [ "$(date +%s)" -ge "$end" ]; then
    echo "$file" >>"$results/unchecked"
  elif out=$(clang-tidy --quiet -p "$build_dir" --extra-arg=-Wno-unknown-warning-option "$file" 2>&1); then
    touch "$cache/$key"
    echo "$file" >>"$results/clean"
  else
    printf '%s\n' "$out" | grep -vE '^[0-9]+ warnings? |^Suppressed |^Error while processing|^Use -header-filter' >&2
    echo "$file" >>"$results/bad"
  fi
}
export -f check_file
export results cache build_dir end

files=0
if [ $# -gt 0 ]; then printf '%s\n' "$@"; else candidates; fi >"$results/candidates"
while read -r file; do
  case $file in
    *avx512*) continue ;;  # clang-tidy 14 does not know all of GCC's feature names
    *_bench.cpp) continue ;;  # what Google Benchmark registers is never freed, which it finds there
  esac
  [ -f "$file" ] && grep -q "/$file\"" "$build_dir/compile_commands.json" || continue
  files=$((files + 1))
  key=$(key_of "$file")
  [ -e "$cache/$key" ] || printf '%s\0%s\0' "$file" "$key"
done <"$results/candidates" >"$results/todo"

xargs -0 -r -n 2 -P "$(nproc)" bash -c 'check_file "$@"' _ <"$results/todo"
count() { if [ -f "$results/$1" ]; then wc -l <"$results/$1"; else echo 0; fi; }
say "$files files: $(count clean) found clean now, $(count bad) with findings, $(count unchecked) left for lack of time," \
  "the rest clean before"
[ "$(count bad)" -eq 0 ]
