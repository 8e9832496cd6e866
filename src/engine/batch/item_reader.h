// From lines to items.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "src/base/status.h"
#include "src/engine/batch/item.h"
#include "src/engine/batch/line_reader.h"
#include "src/engine/batch/shard.h"

namespace sluice {

struct ItemReaderOptions {
  bool plain = false;  // a line is a prompt, and its id its number
  Shard shard;
};

class ItemReader {
 public:
  // Longer lines are errors.
  static constexpr std::size_t kMostLineBytes = std::size_t{32} << 20;

  ItemReader(LineReader lines, const ItemReaderOptions& options);

  // The next item of the shard; a line that can't be run is an item with an error. Blank lines
  // are passed over. States and errors as LineReader::next.
  Result<LineReader::State> next(BatchItem& item, bool wait, const std::atomic<bool>* cancel);

  std::uint64_t lines_read() const { return lines_read_; }  // without blank ones
  // Lines of plain text that had bytes which are not UTF-8, read as U+FFFD.
  std::uint64_t repaired() const { return repaired_; }

 private:
  void read_plain(const LineReader::Line& line, BatchItem& item);
  void read_json(const LineReader::Line& line, BatchItem& item);
  // Reads the id; false: it is an error, which the item has then.
  bool read_id(const BatchJson& object, BatchItem& item);

  LineReader lines_;
  ItemReaderOptions options_;
  std::uint64_t lines_read_ = 0;
  std::uint64_t repaired_ = 0;
  // Of the first line that is an object; errors in front of it are told in our own format.
  enum class FileForm : std::uint8_t { kUnknown, kNative, kOpenAi };
  FileForm form_ = FileForm::kUnknown;
  // The ids of the shard and their lines.
  std::unordered_map<std::string, std::uint64_t> seen_;
};

// "line-7": of a line that has no id of its own.
std::string line_id(std::uint64_t line);

}  // namespace sluice
