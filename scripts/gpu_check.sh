#!/usr/bin/env bash
# Proves and measures the CUDA backend on this machine's GPU, in one go and without a network:
#
#   scripts/gpu_check.sh             builds for the present GPU; its logits must be those of the emulator, bit for bit, and near
#                                    the CPU's; then the tables of tools/gpu_bench/
#   scripts/gpu_check.sh --dry-run   everything but the GPU: the same builds, and the same programs on the emulator
#   scripts/gpu_check.sh --dry-run --quick   the same without building the whole program a second time, for the tests
#
# Needs nvcc (PATH, CUDA_PATH, CUDA_HOME or /usr/local/cuda). Builds in build/gpu_check; output also goes to build/gpu_check.txt, that
# of a dry run to build/gpu_check_dry_run.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

dry=no quick=no report=build/gpu_check.txt
case "$*" in
  "") ;;
  --dry-run) dry=yes report=build/gpu_check_dry_run.txt ;;
  "--dry-run --quick") dry=yes quick=yes report=build/gpu_check_dry_run.txt ;;
  *) echo "usage: scripts/gpu_check.sh [--dry-run [--quick]]" >&2; exit 2 ;;
esac
export CUDA_DEVICE_ORDER=PCI_BUS_ID  # as nvidia-smi counts

target=90
if [ $dry = no ]; then
  if ! capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1) || [ -z "$capability" ]; then
    echo "gpu_check: nvidia-smi finds no GPU; --dry-run does what can be done without one" >&2
    exit 1
  fi
  target=${capability//./}
  nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem --format=csv
fi

mkdir -p build
exec > >(tee $report) 2>&1
started=$SECONDS
step() { echo "== $1 ($((SECONDS - started)) s)"; }

build() {  # FOLDER TARGET...
  cmake --build "$1" -j "$(nproc)" --target "${@:2}" >> build/gpu_check_build.log ||
    { tail -n 30 build/gpu_check_build.log; exit 1; }
}
bin=build/gpu_check
step "build for sm_$target"
cmake --preset cuda -B $bin -DSLUICE_CUDA_TARGETS="$target-real" -DSLUICE_BENCHMARKS=OFF > build/gpu_check_build.log
build $bin gpu_digest gpu_bench
[ $quick = yes ] || build $bin sluice test_cuda_device
if [ $dry = yes ]; then
  # The emulator is there already, where the tests run this.
  [ -f build/release/build.ninja ] || cmake --preset release >> build/gpu_check_build.log
  build build/release gpu_digest_emulated gpu_bench_emulated
  emulated=build/release/tests
else
  build $bin gpu_digest_emulated
  emulated=$bin/tests
fi

if [ $dry = yes ]; then
  step "emulated models and passes"
  $emulated/gpu_digest_emulated --quick
  step "emulated tables (the figures mean nothing)"
  $emulated/gpu_bench_emulated --quick
  if [ $quick = yes ]; then
    step "done"
    exit 0
  fi
  step "the program without a GPU"
  text=$($bin/sluice run --device auto --temp 0 -n 5 -p "A fox" 2> build/gpu_check_auto.txt)
  cat build/gpu_check_auto.txt
  [ -n "$text" ]
  grep -q "running on the CPU" build/gpu_check_auto.txt
  if $bin/sluice run --device cuda -p "A fox" -n 1 2> build/gpu_check_cuda.txt; then
    echo "gpu_check: --device cuda succeeded without a GPU"; exit 1
  fi
  cat build/gpu_check_cuda.txt
  step "done"
  exit 0
fi

step "bits: emulator and device"
parts=$(nproc)
jobs=()
for ((k = 0; k < parts; ++k)); do
  $emulated/gpu_digest_emulated --part "$k/$parts" > "build/gpu_digest_emulated_$k.txt" &
  jobs+=($!)
done
$bin/tools/gpu_digest > build/gpu_digest.txt
for job in "${jobs[@]}"; do wait "$job"; done
sort -n build/gpu_digest_emulated_*.txt > build/gpu_digest_emulated.txt
rm build/gpu_digest_emulated_*.txt
cat build/gpu_digest.txt
diff build/gpu_digest_emulated.txt build/gpu_digest.txt || { echo "gpu_check: emulator and device differ in bits"; exit 1; }
echo "equal to the bit"
step "logits against the CPU backend"
$bin/tests/test_cuda_device
step "text from the bundled model"
$bin/sluice run --device cuda --verify --temp 0 -n 60 -p "Tell me a story about a fox and a lantern." --stats
step "tables"
$bin/tools/gpu_bench
step "done"
