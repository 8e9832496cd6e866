// Messages typed earlier, kept in a file: one a line, newlines written as \n and backslashes as \\.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace sluice {

// $XDG_STATE_HOME/sluice/history, or ~/.local/state/sluice/history; empty when neither variable
// names an absolute path.
std::string default_history_path();

class HistoryFile {
 public:
  static constexpr std::size_t kMaxEntries = 1000;
  // Longer messages are not kept.
  static constexpr std::size_t kMaxEntryBytes = std::size_t{64} << 10;

  // An empty path: nothing is read or kept.
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}

  // The newest kMaxEntries, oldest first. A missing file is an empty history. A file that has
  // become far longer is shortened, in one step. Errors: not a regular file, unreadable.
  Result<std::vector<std::string>> load();

  // Appends in one write, so that several programs may do so at a time. Creates missing folders
  // with mode 0700 and the file with 0600; a file that others may read is set to 0600.
  Status append(std::string_view message);

 private:
  Status shorten(const std::vector<std::string>& entries);

  std::string path_;
};

}  // namespace sluice
