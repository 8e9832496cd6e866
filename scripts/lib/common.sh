# Shared by the scripts of this folder; source it, do not run it.
# Output discipline: progress and errors on stderr, so that a script's stdout is its result alone.

repo_root() { cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd; }

say() { printf '%s\n' "$*" >&2; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# as_root COMMAND...: runs it as root, by sudo where we are somebody else.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "'$*' needs root and sudo is not installed: run it as root, then start this script again"
  fi
}

# need_packages NAME...: installs the Debian packages that are not there yet; nothing to do, nothing asked.
need_packages() {
  local missing=() name
  command -v dpkg-query >/dev/null ||
    die "this system has no dpkg: install the equivalents of these Debian packages by hand, then follow" \
      "'Building by hand' in CONTRIBUTING.md: $*"
  for name in "$@"; do
    dpkg-query -W -f '${Status}\n' "$name" 2>/dev/null | grep -q '^install ok installed$' ||
      missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  say "installing: ${missing[*]}"
  local log
  log=$(mktemp)
  # The package lists may be absent (fresh containers) or old: update only when the first try fails.
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    "${missing[@]}" >"$log" 2>&1 </dev/null; then
    as_root apt-get update >"$log" 2>&1 </dev/null || { cat "$log" >&2; die "apt-get update failed"; }
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      "${missing[@]}" >"$log" 2>&1 </dev/null ||
      { cat "$log" >&2; die "apt-get could not install: ${missing[*]}"; }
  fi
  rm -f "$log"
}

# stage NAME COMMAND...: runs it and tells what it took. Its output goes to stderr; on failure the
# caller gets the command's status.
stage() {
  local name=$1 start status=0
  shift
  say "==> $name"
  start=$(date +%s)
  "$@" >&2 || status=$?
  if [ $status -eq 0 ]; then
    say "<== $name: $(($(date +%s) - start)) s"
  else
    say "<== $name: FAILED (status $status) after $(($(date +%s) - start)) s"
  fi
  return $status
}

# What a build needs: compiler, CMake with Ninja, and the libraries of the README's table.
BUILD_PACKAGES=(g++ cmake ninja-build pkg-config ccache libfmt-dev libcli11-dev nlohmann-json3-dev
  libpcre2-dev libedit-dev)
# What the tests need beyond that; clang is for the fuzzers, the style checks and the lint.
TEST_PACKAGES=(doctest-dev libbenchmark-dev libsimde-dev clang-14 libclang-rt-14-dev clang-format
  clang-tidy git python3 python3-venv)
