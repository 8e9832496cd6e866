// What an output was made with, in a small file beside it (OUT.run), so that a resume with other
// settings is noticed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/base/status.h"
#include "src/engine/batch/item.h"
#include "src/engine/batch/line_reader.h"

namespace sluice {

struct RunFile {
  // Everything that answers depend on beside the items, by the names of the flags.
  BatchJson settings = BatchJson::object();
  std::uint64_t seed = 0;
  std::int64_t began = 0;  // Unix time; templates see it as the current one
  // Of the input when the output was begun; nothing: it was no regular file.
  std::optional<InputSummary> input;

  static std::string path_for(const std::string& output) { return output + ".run"; }

  // Nothing if there is none; kBadInput for what is none of these.
  static Result<std::optional<RunFile>> read(const std::string& path);
  // Whole or not at all, and on the disk when it returns.
  Status write(const std::string& path) const;
};

// One line a difference: "--temp was 0.7 and is 0.9".
std::vector<std::string> differences(const BatchJson& before, const BatchJson& now);

}  // namespace sluice
