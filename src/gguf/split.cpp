// Opening files by path, and models that are split over several files.
#include <optional>
#include <utility>

#include "src/gguf/describe.h"
#include "src/gguf/gguf.h"

namespace sluice {
namespace {

// The pieces of "PREFIX-00002-of-00005.gguf".
struct PartName {
  std::string prefix;
  std::uint64_t number = 0;  // from 1
  std::uint64_t count = 0;
};

// All digits, or nothing.
std::optional<std::uint64_t> number_of_digits(std::string_view text) {
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

std::optional<PartName> parse_part_name(std::string_view path) {
  constexpr std::string_view kShape = "-NNNNN-of-NNNNN.gguf";
  if (path.size() <= kShape.size()) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kShape.size());
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf") {
    return std::nullopt;
  }
  const auto number = number_of_digits(tail.substr(1, 5));
  const auto count = number_of_digits(tail.substr(10, 5));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return PartName{std::string(path.substr(0, path.size() - kShape.size())), *number, *count};
}

}  // namespace

Result<GgufFile> GgufFile::open(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(auto mapped, MappedFile::open(path));
  SLUICE_ASSIGN_OR_RETURN(auto given, parse(mapped.bytes(), path));
  SLUICE_ASSIGN_OR_RETURN(const auto count, given.get_uint_or("split.count", 1));
  if (count <= 1) {
    given.files_.push_back(std::move(mapped));
    return given;
  }
  const auto name = parse_part_name(path);
  if (!name) {
    return bad_input(
        "'{}' is a part of a model split into {} files (key 'split.count'), but its name does not "
        "end in '-00001-of-{:05}.gguf': give the parts their original names",
        path, count, count);
  }
  if (name->count != count) {
    return bad_input("'{}': key 'split.count' is {}, but the name says {} parts", path, count,
                     name->count);
  }
  return open_split(name->prefix, count);
}

std::string gguf_part_path(std::string_view prefix, std::uint64_t number, std::uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

Result<GgufFile> GgufFile::open_split(std::string_view prefix, std::uint64_t count) {
  GgufFile whole;
  for (std::uint64_t number = 1; number <= count; ++number) {
    const std::string path = gguf_part_path(prefix, number, count);
    auto mapped = MappedFile::open(path);
    if (!mapped.ok()) {
      return bad_input("part {} of {} cannot be used: {}; all parts must be in one folder", number,
                       count, mapped.error().message);
    }
    SLUICE_ASSIGN_OR_RETURN(auto part, parse(mapped->bytes(), path));
    SLUICE_ASSIGN_OR_RETURN(const auto part_count, part.get_uint("split.count"));
    SLUICE_ASSIGN_OR_RETURN(const auto part_number, part.get_uint("split.no"));
    if (part_count != count || part_number != number - 1) {
      return bad_input(
          "'{}': keys 'split.no' {} and 'split.count' {} do not fit its name, expected {} and {}: "
          "a part was renamed or is of another model",
          path, part_number, part_count, number - 1, count);
    }
    if (number == 1) {
      whole = std::move(part);
    } else {
      for (GgufTensor& tensor : part.tensors_) {
        if (!whole.tensor_index_.emplace(tensor.name, whole.tensors_.size()).second) {
          return bad_input("'{}': tensor '{}' is in an earlier part too", path,
                           printable(tensor.name));
        }
        whole.tensors_.push_back(std::move(tensor));
      }
      whole.file_bytes_ += part.file_bytes_;
    }
    whole.files_.push_back(std::move(*mapped));
  }
  SLUICE_ASSIGN_OR_RETURN(const auto expected,
                          whole.get_uint_or("split.tensors.count", whole.tensors_.size()));
  if (expected != whole.tensors_.size()) {
    return bad_input("'{}': all parts together have {} tensors, expected {} (split.tensors.count)",
                     whole.name_, whole.tensors_.size(), expected);
  }
  return whole;
}

}  // namespace sluice
