// Where the reference results are, and a loud word when they are not.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

namespace sluice::test {

// Path of a file of the reference results, or "" after saying on stderr that the test is skipped.
inline std::string conformance_file(const std::string& relative) {
  std::string path = std::string(SLUICE_CONFORMANCE_DIR) + "/" + relative;
  if (std::filesystem::exists(path)) return path;
  std::fprintf(stderr,
               "SKIPPED: reference file '%s' is missing (set -DSLUICE_CONFORMANCE_DIR=...)\n",
               path.c_str());
  return "";
}

}  // namespace sluice::test
