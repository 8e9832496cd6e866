#include "src/engine/batch/item_reader.h"

#include <algorithm>

#include "src/engine/batch/native_format.h"
#include "src/engine/batch/openai_format.h"
#include "src/text/bounded_json.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

constexpr std::size_t kLongestId = 512;
constexpr JsonBounds kLineBounds = {.bytes = ItemReader::kMostLineBytes,
                                    .values = std::size_t{1} << 20,
                                    .depth = 100,
                                    .members = 1024};
constexpr std::string_view kLinePrefix = "line-";

// Whether an id has the form of those that lines without one get.
bool is_line_id(std::string_view id) {
  if (!id.starts_with(kLinePrefix) || id.size() == kLinePrefix.size()) return false;
  id.remove_prefix(kLinePrefix.size());
  return std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Gives up the line's own id, which belongs to another line or can't be used.
void refuse_id(BatchItem& item, std::string message) {
  item.id = line_id(item.line);
  item.id_is_number = false;
  item.error = std::move(message);
}

}  // namespace

std::string line_id(std::uint64_t line) { return fmt::format("{}{}", kLinePrefix, line); }

ItemReader::ItemReader(LineReader lines, const ItemReaderOptions& options)
    : lines_(std::move(lines)), options_(options) {}

Result<LineReader::State> ItemReader::next(BatchItem& item, bool wait,
                                           const std::atomic<bool>* cancel) {
  for (;;) {
    LineReader::Line line;
    SLUICE_ASSIGN_OR_RETURN(const LineReader::State state, lines_.next(line, wait, cancel));
    if (state != LineReader::State::kLine) return state;
    if (!line.too_long && is_blank(line.text)) continue;
    ++lines_read_;
    item = BatchItem();
    item.line = line.number;
    item.id = line_id(line.number);
    if (options_.plain) {
      item.id = std::to_string(line.number);
      item.id_is_number = true;
      if (!options_.shard.owns(item.id)) continue;
      read_plain(line, item);
      return state;
    }
    BatchJson object;
    if (form_ == FileForm::kOpenAi) item.form = ItemForm::kChat;
    if (line.too_long) {
      item.unreadable = true;
      item.error = fmt::format("the line has {} bytes; the most that is read are {}", line.bytes,
                               kMostLineBytes);
    } else {
      const std::string_view kExpected =
          form_ == FileForm::kOpenAi
              ? R"(an object as {"custom_id": "1", "method": "POST", "url": ..., "body": {...}})"
              : R"(an object as {"id": "1", "prompt": "Hi"})";
      Result<BatchJson> parsed = parse_bounded_json(line.text, "the line", kExpected, kLineBounds);
      item.unreadable = !parsed.ok() || !parsed->is_object();
      if (!parsed.ok()) {
        item.error = parsed.error().message;
      } else if (item.unreadable) {
        item.error = fmt::format("the line is {}; expected {}", json_type_name(*parsed), kExpected);
      } else {
        object = std::move(*parsed);
      }
    }
    if (item.unreadable) {
      if (!options_.shard.owns(item.id)) continue;
      return state;
    }
    if (form_ == FileForm::kUnknown) {
      form_ = looks_like_openai(object) ? FileForm::kOpenAi : FileForm::kNative;
    }
    if (form_ == FileForm::kOpenAi) item.form = ItemForm::kChat;
    if (!read_id(object, item)) continue;
    if (!item.error.empty()) return state;
    const Status status =
        form_ == FileForm::kOpenAi ? read_openai(object, item) : read_native(object, item);
    if (!status.ok()) item.error = status.error().message;
    return state;
  }
}

void ItemReader::read_plain(const LineReader::Line& line, BatchItem& item) {
  if (line.too_long) {
    item.error = fmt::format("the line has {} bytes; the most that is read are {}", line.bytes,
                             kMostLineBytes);
    return;
  }
  if (!is_valid_utf8(line.text)) ++repaired_;
  item.prompt = replace_invalid_utf8(line.text);
}

bool ItemReader::read_id(const BatchJson& object, BatchItem& item) {
  const auto found = object.find(form_ == FileForm::kOpenAi ? "custom_id" : "id");
  std::string problem;
  if (found == object.end() || found->is_null()) {
    return options_.shard.owns(item.id);
  }
  if (found->is_string()) {
    item.id = found->get<std::string>();
  } else if (found->is_number_integer()) {
    item.id = found->dump();
    item.id_is_number = true;
  } else {
    problem =
        fmt::format("the id is {}; expected a text or a whole number", json_type_name(*found));
  }
  if (problem.empty() && (item.id.empty() || item.id.size() > kLongestId)) {
    problem = fmt::format("the id has {} bytes; expected 1 to {}", item.id.size(), kLongestId);
  }
  if (problem.empty() && is_line_id(item.id) && item.id != line_id(item.line)) {
    problem = fmt::format("the id '{}' is that of a line without one, and this is line {}", item.id,
                          item.line);
  }
  if (!problem.empty()) {
    refuse_id(item, std::move(problem));
    return options_.shard.owns(item.id);
  }
  if (!options_.shard.owns(item.id)) return false;
  const auto [entry, fresh] = seen_.try_emplace(item.id, item.line);
  if (!fresh) {
    refuse_id(item, fmt::format("the id '{}' was on line {} already", item.id, entry->second));
  }
  return true;
}

}  // namespace sluice
