#include <cstring>
#include <utility>

#include "src/gguf/describe.h"
#include "src/gguf/gguf.h"
#include "src/gguf/parse.h"

namespace sluice {
namespace {

template <class T>
double number_as_double(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<double>(value);
}

template <class T>
std::int64_t number_as_integer(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<std::int64_t>(value);
}

}  // namespace

std::string_view gguf_value_type_name(GgufValueType type) {
  constexpr std::string_view kNames[] = {"UINT8",  "INT8",    "UINT16", "INT16",  "UINT32",
                                         "INT32",  "FLOAT32", "BOOL",   "STRING", "ARRAY",
                                         "UINT64", "INT64",   "FLOAT64"};
  return kNames[static_cast<std::uint32_t>(type)];
}

double GgufArray::number_at(std::uint64_t i) const {
  const std::byte* data = packed.data();
  switch (element_type) {
    case GgufValueType::kUint8:
    case GgufValueType::kBool:
      return number_as_double<std::uint8_t>(data + i);
    case GgufValueType::kInt8:
      return number_as_double<std::int8_t>(data + i);
    case GgufValueType::kUint16:
      return number_as_double<std::uint16_t>(data + 2 * i);
    case GgufValueType::kInt16:
      return number_as_double<std::int16_t>(data + 2 * i);
    case GgufValueType::kUint32:
      return number_as_double<std::uint32_t>(data + 4 * i);
    case GgufValueType::kInt32:
      return number_as_double<std::int32_t>(data + 4 * i);
    case GgufValueType::kFloat32:
      return number_as_double<float>(data + 4 * i);
    case GgufValueType::kUint64:
      return number_as_double<std::uint64_t>(data + 8 * i);
    case GgufValueType::kInt64:
      return number_as_double<std::int64_t>(data + 8 * i);
    case GgufValueType::kFloat64:
      return number_as_double<double>(data + 8 * i);
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return 0;
}

std::int64_t GgufArray::integer_at(std::uint64_t i) const {
  const std::byte* data = packed.data();
  switch (element_type) {
    case GgufValueType::kUint8:
    case GgufValueType::kBool:
      return number_as_integer<std::uint8_t>(data + i);
    case GgufValueType::kInt8:
      return number_as_integer<std::int8_t>(data + i);
    case GgufValueType::kUint16:
      return number_as_integer<std::uint16_t>(data + 2 * i);
    case GgufValueType::kInt16:
      return number_as_integer<std::int16_t>(data + 2 * i);
    case GgufValueType::kUint32:
      return number_as_integer<std::uint32_t>(data + 4 * i);
    case GgufValueType::kInt32:
      return number_as_integer<std::int32_t>(data + 4 * i);
    case GgufValueType::kUint64:
      return number_as_integer<std::uint64_t>(data + 8 * i);
    case GgufValueType::kInt64:
      return number_as_integer<std::int64_t>(data + 8 * i);
    case GgufValueType::kFloat32:
    case GgufValueType::kFloat64: {
      const double value = number_at(i);
      // Not every float is an int64: clamp, and take NaN for 0.
      if (!(value > -0x1p63)) return value <= -0x1p63 ? INT64_MIN : 0;
      if (value >= 0x1p63) return INT64_MAX;
      return static_cast<std::int64_t>(value);
    }
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return 0;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  SLUICE_ASSIGN_OR_RETURN(auto parsed, parse_gguf(bytes, name));
  GgufFile file;
  file.name_ = std::move(name);
  file.version_ = parsed.version;
  file.file_bytes_ = bytes.size();
  file.metadata_ = std::move(parsed.metadata);
  file.metadata_index_ = std::move(parsed.metadata_index);
  file.tensors_ = std::move(parsed.tensors);
  file.tensor_index_ = std::move(parsed.tensor_index);
  return file;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata_index_.find(key);
  return found == metadata_index_.end() ? nullptr : &metadata_[found->second].second;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

Error GgufFile::missing(std::string_view key, std::string_view expected) const {
  return bad_input("'{}': key '{}' is missing, expected {}", name_, printable(key), expected);
}

Error GgufFile::wrong_type(std::string_view key, const GgufValue& value,
                           std::string_view expected) const {
  return bad_input("'{}': key '{}' is {} of type {}, expected {}", name_, printable(key),
                   gguf_value_to_string(value, 60), gguf_value_type_name(value.type), expected);
}

Result<std::uint64_t> GgufFile::as_uint(std::string_view key, const GgufValue& value) const {
  if (value.type != GgufValueType::kBool) {
    if (const auto* number = std::get_if<std::uint64_t>(&value.data)) return *number;
    if (const auto* number = std::get_if<std::int64_t>(&value.data); number && *number >= 0) {
      return static_cast<std::uint64_t>(*number);
    }
  }
  return wrong_type(key, value, "an integer that is not negative");
}

Result<double> GgufFile::as_float(std::string_view key, const GgufValue& value) const {
  if (const auto* number = std::get_if<double>(&value.data)) return *number;
  return wrong_type(key, value, "a float");
}

Result<bool> GgufFile::as_bool(std::string_view key, const GgufValue& value) const {
  if (value.type == GgufValueType::kBool) return std::get<std::uint64_t>(value.data) != 0;
  return wrong_type(key, value, "a bool");
}

Result<std::string_view> GgufFile::as_string(std::string_view key, const GgufValue& value) const {
  if (const auto* text = std::get_if<std::string_view>(&value.data)) return *text;
  return wrong_type(key, value, "a string");
}

Result<std::uint64_t> GgufFile::get_uint(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key, "an integer that is not negative");
  return as_uint(key, *value);
}

Result<double> GgufFile::get_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key, "a float");
  return as_float(key, *value);
}

Result<bool> GgufFile::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key, "a bool");
  return as_bool(key, *value);
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key, "a string");
  return as_string(key, *value);
}

Result<const GgufArray*> GgufFile::get_array(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key, "an array");
  if (const auto* array = std::get_if<GgufArray>(&value->data)) return array;
  return wrong_type(key, *value, "an array");
}

Result<std::uint64_t> GgufFile::get_uint_or(std::string_view key, std::uint64_t absent) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return absent;
  return as_uint(key, *value);
}

Result<double> GgufFile::get_float_or(std::string_view key, double absent) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return absent;
  return as_float(key, *value);
}

Result<bool> GgufFile::get_bool_or(std::string_view key, bool absent) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return absent;
  return as_bool(key, *value);
}

Result<std::string_view> GgufFile::get_string_or(std::string_view key,
                                                 std::string_view absent) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return absent;
  return as_string(key, *value);
}

std::vector<std::string> GgufFile::paths() const {
  std::vector<std::string> paths;
  for (const MappedFile& file : files_) paths.push_back(file.path());
  return paths;
}

}  // namespace sluice
