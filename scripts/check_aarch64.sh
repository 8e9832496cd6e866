#!/usr/bin/env bash
# The plain kernels on 64-bit ARM:  scripts/check_aarch64.sh [--quick]
# Installs a cross-compiler, qemu and the libraries for arm64 (which adds that architecture to this Debian), builds the
# kernels' tests and runs them under qemu; then builds the program and compares its tokens with those of the
# program built for this machine (build/release/sluice). Nothing to install and little to build the second time.
#
# --quick: the kernels' tests only. Exit code 77: what it needs can't be installed here.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"
cd "$(repo_root)"

quick=false
case ${1:-} in
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' scripts/check_aarch64.sh; exit ;;
  --quick) quick=true ;;
  '') ;;
  *) die "unknown argument '$1'; try --help" ;;
esac

install() {
  if [ "$(dpkg --print-architecture)" != arm64 ] && ! dpkg --print-foreign-architectures | grep -qx arm64; then
    as_root dpkg --add-architecture arm64
    as_root apt-get update >/dev/null
  fi
  need_packages g++-aarch64-linux-gnu qemu-user nlohmann-json3-dev libcli11-dev doctest-dev libfmt-dev:arm64 \
    libpcre2-dev:arm64 libedit-dev:arm64
}
(install) || exit 77

build() {
  local log="build/aarch64.log"
  mkdir -p build
  { cmake --preset aarch64 && cmake --build --preset aarch64 --target "$1" -j "$(nproc)"; } >"$log" 2>&1 ||
    { tail -n 100 "$log" >&2; die "the build for aarch64 failed"; }
}

build test_kernels
qemu-aarch64 build/aarch64/tests/test_kernels
$quick && exit

[ -x build/release/sluice ] || die "build/release/sluice is not there to compare with: scripts/quickstart.sh builds it"
build sluice
compare() { # ARGUMENT...
  local here there
  here=$(build/release/sluice run --quiet --json "$@" | grep -o '"tokens": *\[[^]]*\]')
  there=$(qemu-aarch64 build/aarch64/sluice run --quiet --json "$@" | grep -o '"tokens": *\[[^]]*\]')
  [ -n "$here" ] && [ "$here" = "$there" ] || die "other tokens on aarch64 for: sluice run $*"
  say "same tokens: sluice run $*"
}
for kv in int4 int8 f16 f32; do
  compare -p "Tell me about a fox and a lantern." -n 60 --temp 0 --kv "$kv"
  compare -p "Why do owls sleep?" -n 60 --seed 5 --temp 1 --kv "$kv"
done
compare -p "Tell me about an owl." -n 60 --temp 0 --draft models/storyteller-draft-q4_0.gguf
