#!/usr/bin/env bash
# Checks the formatting of all tracked C++ files:  scripts/check_format.sh [--fix]
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"
cd "$(repo_root)"

if [ "${1:-}" = --fix ]; then
  git ls-files -z '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 clang-format -i
else
  git ls-files -z '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 clang-format --dry-run -Werror ||
    die "run scripts/check_format.sh --fix"
fi
