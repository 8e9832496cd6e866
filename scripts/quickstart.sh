#!/usr/bin/env bash
# From a fresh clone to text:  scripts/quickstart.sh [PROMPT]
# Installs the Debian packages that the build misses, builds build/release/sluice, and lets the bundled
# model answer. Quick the second time. The answer is on stdout, everything else on stderr.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"
cd "$(repo_root)"

case ${1:-} in
  -h | --help) sed -n '2,4s/^# \{0,1\}//p' scripts/quickstart.sh; exit ;;
esac
prompt=${1:-Tell me a story about a fox and a lantern.}

need_packages "${BUILD_PACKAGES[@]}"
# A first configuration leaves out tests and benchmarks, which need more packages; one that is there
# already (scripts/test.sh makes it) stays as it is.
if [ ! -f build/release/build.ninja ]; then
  stage "configure" cmake --preset release -DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF
fi
stage "build (log: build/release/build.log)" \
  bash -c 'cmake --build --preset release --target sluice >build/release/build.log 2>&1 || { cat build/release/build.log; exit 1; }'
say ""
exec build/release/sluice run -p "$prompt"
