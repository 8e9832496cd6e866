// Reading GGUF files: metadata and tensors of a model, memory-mapped and checked.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "src/base/mapped_file.h"
#include "src/base/status.h"
#include "src/quant/block_type.h"

namespace sluice {

// Metadata value types, numbered as in files.
enum class GgufValueType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
std::string_view gguf_value_type_name(GgufValueType type);

// An array of one element type, kept as views into the file; nested arrays are kept too.
struct GgufArray {
  GgufValueType element_type = GgufValueType::kUint8;
  std::uint64_t count = 0;
  // Numbers and bools: `count` packed little-endian elements (unaligned). Strings: empty.
  std::span<const std::byte> packed;
  std::vector<std::string_view> strings;  // element_type kString: one view each
  std::vector<GgufArray> arrays;          // element_type kArray

  // Element i of a numeric or bool array, converted. Requires i < count and a numeric type.
  // integer_at cuts fractions, clamps floats that no int64 holds, and wraps uint64 above 2^63 - 1.
  double number_at(std::uint64_t i) const;
  std::int64_t integer_at(std::uint64_t i) const;
};

struct GgufValue {
  GgufValueType type = GgufValueType::kUint8;
  // Unsigned and bool as uint64_t, signed as int64_t, floats as double.
  std::variant<std::uint64_t, std::int64_t, double, std::string_view, GgufArray> data;
};

struct GgufTensor {
  std::string_view name;
  BlockType type = BlockType::kF32;
  std::vector<std::uint64_t> dims;  // 1 to 4 sizes, fastest first: {columns, rows, ...}
  std::span<const std::byte> data;  // lies inside the mapped file
  std::uint64_t elements = 0;

  std::uint64_t columns() const { return dims[0]; }
  std::uint64_t rows() const { return elements / dims[0]; }
};

// The path of a part of a split model, number from 1: PREFIX-00001-of-00003.gguf.
std::string gguf_part_path(std::string_view prefix, std::uint64_t number, std::uint64_t count);

// A model's metadata and tensors. Cheap to move; views stay valid as long as the object lives.
//
// Opening checks everything that later code relies on, and refuses with a message that names the
// file and the key or tensor: damaged or cut files, counts and sizes that the file cannot hold or
// that overflow, repeated names, block types that sluice does not read, rows that are no whole
// number of blocks. As in llama.cpp, tensors must lie in the order of their list without gaps
// (each padded to the alignment), so none overlap and a misplaced offset cannot load as garbage.
// Limits beside the format's: 65536 keys, 2^20 tensors, 2^24 strings and nested arrays in arrays,
// arrays nested 8 deep, names of 65535 bytes. Extra bytes after the last tensor are ignored.
class GgufFile {
 public:
  // Maps a file, or all files of a split model when `path` is any "-00001-of-0000N" part.
  static Result<GgufFile> open(const std::string& path);
  // Reads one file from memory. `name` is used in messages; `bytes` must outlive the object.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  std::uint32_t version() const { return version_; }
  std::uint64_t file_bytes() const { return file_bytes_; }  // of all parts
  bool is_mapped() const { return !files_.empty(); }        // not in memory of the caller
  std::vector<std::string> paths() const;                   // of the mapped files

  // In file order. Split models list the first part's metadata and the tensors of all parts.
  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  // nullptr when absent.
  const GgufValue* find(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;

  // Typed look-ups. An absent key, another type or a value out of range is an error that names the
  // key, what was found and what was expected. Any integer type serves for an integer.
  Result<std::uint64_t> get_uint(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<const GgufArray*> get_array(std::string_view key) const;
  // The same, with a value for an absent key (another type is still an error).
  Result<std::uint64_t> get_uint_or(std::string_view key, std::uint64_t absent) const;
  Result<double> get_float_or(std::string_view key, double absent) const;
  Result<bool> get_bool_or(std::string_view key, bool absent) const;
  Result<std::string_view> get_string_or(std::string_view key, std::string_view absent) const;

 private:
  // All parts of PREFIX-0000K-of-0000N.gguf.
  static Result<GgufFile> open_split(std::string_view prefix, std::uint64_t count);

  Error missing(std::string_view key, std::string_view expected) const;
  Error wrong_type(std::string_view key, const GgufValue& value, std::string_view expected) const;
  Result<std::uint64_t> as_uint(std::string_view key, const GgufValue& value) const;
  Result<double> as_float(std::string_view key, const GgufValue& value) const;
  Result<bool> as_bool(std::string_view key, const GgufValue& value) const;
  Result<std::string_view> as_string(std::string_view key, const GgufValue& value) const;

  std::string name_;
  std::uint32_t version_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::vector<MappedFile> files_;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::unordered_map<std::string_view, std::size_t> metadata_index_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;
};

}  // namespace sluice
