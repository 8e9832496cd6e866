// Writing GGUF files, version 3. The header is small and kept in memory; tensor data is streamed,
// so a model never has to fit in memory.
//
//   GgufWriter writer;
//   writer.add("general.architecture", std::string_view("llama"));
//   writer.add("llama.block_count", std::uint32_t{16});
//   writer.add_tensor("token_embd.weight", BlockType::kQ8_0, {2048, 32000});
//   SLUICE_RETURN_IF_ERROR(writer.begin("model.gguf"));
//   SLUICE_RETURN_IF_ERROR(writer.append(bytes));  // any pieces, tensors in the order declared
//   SLUICE_RETURN_IF_ERROR(writer.finish());
//
// Until `finish` succeeds there is only a temporary file beside the target, which is removed on any
// error and when the writer is destroyed: nobody ever sees half a model under its name.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "src/base/status.h"
#include "src/gguf/gguf.h"
#include "src/gguf/output_file.h"

namespace sluice {

// The metadata type of a C++ type.
template <class T>
inline constexpr std::optional<GgufValueType> kGgufTypeOf = std::nullopt;
template <>
inline constexpr std::optional<GgufValueType> kGgufTypeOf<std::uint8_t> = GgufValueType::kUint8;
template <>
inline constexpr std::optional<GgufValueType> kGgufTypeOf<std::int8_t> = GgufValueType::kInt8;
template <>
inline constexpr std::optional<GgufValueType> kGgufTypeOf<std::uint16_t> = GgufValueType::kUint16;
template <>
inline constexpr std::optional<GgufValueType> kGgufTypeOf<std::int16_t> = GgufValueType::kInt16;
template <>
inline constexpr std::optional<GgufValueType> kGgufTypeOf<std::uint32_t> = GgufValueType::kUint32;
template <>
inline constexpr std::optional<GgufValueType> kGgufTypeOf<std::int32_t> = GgufValueType::kInt32;
template <>
inline constexpr std::optional<GgufValueType> kGgufTypeOf<float> = GgufValueType::kFloat32;
template <>
inline constexpr std::optional<GgufValueType> kGgufTypeOf<bool> = GgufValueType::kBool;
template <>
inline constexpr std::optional<GgufValueType> kGgufTypeOf<std::uint64_t> = GgufValueType::kUint64;
template <>
inline constexpr std::optional<GgufValueType> kGgufTypeOf<std::int64_t> = GgufValueType::kInt64;
template <>
inline constexpr std::optional<GgufValueType> kGgufTypeOf<double> = GgufValueType::kFloat64;

template <class T>
concept GgufScalar = kGgufTypeOf<T>
.has_value();

class GgufWriter {
 public:
  // `alignment` of the tensor data in bytes, a power of two; one that is not 32 is written as
  // general.alignment.
  explicit GgufWriter(std::uint32_t alignment = 32);

  // Metadata, kept in the order of the calls. Errors (a key that is empty, repeated, or
  // general.alignment; a value that cannot be stored) are kept and returned by `begin`.
  template <GgufScalar T>
  void add(std::string_view key, T value) {
    start_value(key, *kGgufTypeOf<T>);
    put(value);
  }
  void add(std::string_view key, std::string_view text);
  template <GgufScalar T>
  void add_array(std::string_view key, std::span<const T> values) {
    start_array(key, *kGgufTypeOf<T>, values.size());
    put_bytes(std::as_bytes(values));
  }
  void add_array(std::string_view key, std::span<const std::string> texts);
  // A value of any type as it was read, for instance to copy a file's metadata.
  void add_value(std::string_view key, const GgufValue& value);

  // Declares the next tensor: 1 to 4 sizes, fastest first, the first one a multiple of the block
  // size. Errors are returned by `begin`.
  void add_tensor(std::string_view name, BlockType type, std::vector<std::uint64_t> dims);

  // Bytes of the finished file.
  std::uint64_t file_bytes() const;

  // Makes the temporary file, reserves its space on disk and writes the header.
  Status begin(const std::string& path);
  // The next bytes of tensor data. Paddings between tensors are added here.
  Status append(std::span<const std::byte> bytes);
  // Checks that every tensor is complete, and gives the file its name (replacing an older one).
  Status finish();

 private:
  struct Tensor {
    std::string name;
    BlockType type;
    std::vector<std::uint64_t> dims;
    std::uint64_t bytes;
  };

  void start_value(std::string_view key, GgufValueType type);
  void start_array(std::string_view key, GgufValueType type, std::uint64_t count);
  void put_bytes(std::span<const std::byte> bytes);
  void put_text(std::string_view text);
  void put_array(const GgufArray& array);
  template <class T>
  void put(T value) {
    put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void fail(Error error);
  std::uint64_t padded(std::uint64_t bytes) const;
  std::string header() const;

  std::uint32_t alignment_;
  std::optional<Error> error_;  // the first one
  std::string metadata_;        // encoded
  std::uint64_t key_count_ = 0;
  std::unordered_set<std::string> keys_;
  std::vector<Tensor> tensors_;
  std::unordered_set<std::string> tensor_names_;
  std::uint64_t data_bytes_ = 0;  // with paddings

  std::optional<OutputFile> file_;
  std::size_t current_ = 0;    // tensor being appended
  std::uint64_t written_ = 0;  // bytes of it so far
};

}  // namespace sluice
