#!/usr/bin/env bash
# All checks:  scripts/test.sh [--quick]
# Installs what the tests need, then: formatting, release build, static analysis of changed files, unit tests
# under ASan and UBSan, a short run of each fuzzer, the threaded tests under TSan, the kernels on 64-bit ARM
# under qemu (the same bits as here), and last the release suite, whose closing lines end the output. Exit code 0 only when every part
# passed; all parts run even if one fails. Quick the second time: builds are incremental, clean analysis
# results are kept.
#
# --quick: only formatting, release build, fuzzers and release suite.
#
# Environment: SLUICE_TIDY_SECONDS (60) bounds the analysis, SLUICE_FUZZ_SECONDS (10) each fuzzer's run. Where the
# whole has a time limit: SLUICE_LAST_STAGE_SECONDS, after which only the release suite begins; what is
# left out is said, and is no failure.
set -uo pipefail
. "$(dirname "$0")/lib/common.sh"
cd "$(repo_root)" || exit 1
exec 2>&1

quick=false
case ${1:-} in
  -h | --help) sed -n '2,13s/^# \{0,1\}//p' scripts/test.sh; exit ;;
  --quick) quick=true ;;
  '') ;;
  *) die "unknown argument '$1'; try --help" ;;
esac

need_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"

failed=()
left_out=()
check() { stage "$@" || failed+=("$1"); }
# A part that may be impossible here (exit code 77), which is said.
aarch64() {
  local status=0
  scripts/check_aarch64.sh --quick || status=$?
  [ $status -ne 77 ] || { left_out+=("kernels on aarch64"); say "==> LEFT OUT: what it needs can't be installed"; return 0; }
  return $status
}
check_in_time() {
  if [ "$SECONDS" -lt "${SLUICE_LAST_STAGE_SECONDS:-1000000}" ]; then
    check "$@"
  else
    left_out+=("$1")
    say "==> $1: LEFT OUT after $SECONDS s"
  fi
}

cores=$(nproc)

# build PRESET TARGET [CMAKE ARGUMENT]...: configures and builds; the log is shown only on failure.
build() {
  local preset=$1 target=$2 log
  shift 2
  mkdir -p build
  log="build/$preset.log"
  { cmake --preset "$preset" "$@" && cmake --build --preset "$preset" --target "$target" -j "$cores"; } \
    >"$log" 2>&1 || { grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking)' "$log" | tail -n 200; return 1; }
}

run_tests() { # PRESET [CTEST ARGUMENT]...
  local preset=$1
  shift
  ctest --preset "$preset" --no-tests=error -j "$cores" "$@"
}

asan() { build asan unit_tests && run_tests asan -LE not_sanitized; }
tsan() { build tsan threaded_tests && run_tests tsan -L threaded; }
fuzz() {
  build fuzz fuzz_targets "-DSLUICE_FUZZ_SECONDS=${SLUICE_FUZZ_SECONDS:-10}" && run_tests fuzz
}

# Load widths are read from machine code; the disassembler is no part of Debian. Without it that part of the
# report is left out, which the report says.
disassembler() {
  command -v nvdisasm >/dev/null || compgen -G "build/venv-cuda/lib/python*/site-packages/nvidia/*/bin/nvdisasm" >/dev/null && return 0
  { python3 -m venv build/venv-cuda && build/venv-cuda/bin/pip install --quiet nvidia-cuda-nvdisasm; } ||
    say "nvdisasm can't be installed: load widths of kernels are not checked"
}

check "formatting" scripts/check_format.sh
if ! $quick && { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }; then disassembler; fi
check "release build" build release all -DSLUICE_TESTS=ON -DSLUICE_BENCHMARKS=ON
if ! $quick; then
check_in_time "static analysis of changed files" scripts/check_tidy.sh "${SLUICE_TIDY_SECONDS:-60}"
check_in_time "kernels on aarch64 under qemu" aarch64
check_in_time "unit tests under ASan and UBSan" asan
fi
check_in_time "fuzzers, briefly" fuzz
$quick || check_in_time "threaded tests under TSan" tsan

say "==> release tests"
[ ${#failed[@]} -eq 0 ] || say "parts that failed so far: $(printf '%s; ' "${failed[@]}")"
[ ${#left_out[@]} -eq 0 ] || say "parts left out for lack of time: $(printf '%s; ' "${left_out[@]}")"
run_tests release || exit 1
[ ${#failed[@]} -eq 0 ]
