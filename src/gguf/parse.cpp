#include "src/gguf/parse.h"

#include <bit>
#include <cstring>
#include <new>
#include <optional>

#include "src/base/checked.h"
#include "src/gguf/describe.h"
#include "src/gguf/limits.h"

namespace sluice {
namespace {

// Limits far above any real file. They keep memory and time small whatever a header claims.
constexpr std::uint64_t kMaxKeys = 1 << 16;
constexpr std::uint64_t kMaxTensors = 1 << 20;
constexpr std::uint64_t kMaxArrayItems = 1 << 24;  // strings and nested arrays in one file
constexpr int kMaxArrayDepth = 8;

// Smallest sizes in bytes, to hold counts against the rest of the file.
constexpr std::uint64_t kMinKeyValueBytes = 8 + 4 + 1;            // key, type, value
constexpr std::uint64_t kMinTensorInfoBytes = 8 + 4 + 8 + 4 + 8;  // name, dims, type, offset
constexpr std::uint64_t kMinStringBytes = 8;                      // length
constexpr std::uint64_t kMinArrayBytes = 4 + 8;                   // type, count

// Bytes of a number or bool; 0 for strings and arrays.
std::uint64_t scalar_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Result<ParsedGguf> run() {
    SLUICE_RETURN_IF_ERROR(read_header());
    SLUICE_RETURN_IF_ERROR(read_metadata());
    SLUICE_RETURN_IF_ERROR(read_alignment());
    SLUICE_RETURN_IF_ERROR(read_tensor_infos());
    SLUICE_RETURN_IF_ERROR(place_tensors());
    return std::move(out_);
  }

 private:
  std::uint64_t left() const { return bytes_.size() - at_; }

  Error cut_short(std::string_view what) const {
    return bad_input("'{}' ends inside {} (byte {}): the file seems cut short or damaged", name_,
                     what, bytes_.size());
  }

  template <class T>
  Result<T> number(std::string_view what) {
    if (left() < sizeof(T)) return cut_short(what);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  Result<std::string_view> string(std::string_view what) {
    SLUICE_ASSIGN_OR_RETURN(const auto length, number<std::uint64_t>(what));
    if (length > left()) {
      return bad_input(
          "'{}': {} has a string of {} bytes, but only {} are left in the file: it is damaged or "
          "cut short",
          name_, what, length, left());
    }
    const auto* start = reinterpret_cast<const char*>(bytes_.data() + at_);
    at_ += length;
    return std::string_view(start, length);
  }

  Status read_header() {
    if (left() < 4) return cut_short("the magic number");
    char magic[4];
    std::memcpy(magic, bytes_.data(), 4);
    const std::string_view found(magic, 4);
    at_ = 4;
    if (found == "FUGG") return wrong_byte_order();
    if (found != "GGUF") {
      std::string_view hint;
      if (found == "lmgg" || found == "fmgg" || found == "tjgg") {
        hint = "; this is the older GGML format, which must be converted to GGUF";
      } else if (found == "vers") {
        hint = "; this looks like a Git LFS pointer: download the file itself";
      }
      return bad_input("'{}' is not a GGUF file: it begins with \"{}\", expected \"GGUF\"{}", name_,
                       printable(found), hint);
    }
    SLUICE_ASSIGN_OR_RETURN(out_.version, number<std::uint32_t>("the version"));
    if (out_.version != 0 && (out_.version & 0xffff) == 0) return wrong_byte_order();
    if (out_.version != 2 && out_.version != 3) {
      return bad_input("'{}' has GGUF version {}; versions 2 and 3 can be read", name_,
                       out_.version);
    }
    SLUICE_ASSIGN_OR_RETURN(tensor_count_, number<std::uint64_t>("the tensor count"));
    SLUICE_ASSIGN_OR_RETURN(key_count_, number<std::uint64_t>("the metadata count"));
    if (key_count_ > kMaxKeys || key_count_ > left() / kMinKeyValueBytes) {
      return bad_input("'{}' claims {} metadata keys, more than its {} bytes can hold (limit {})",
                       name_, key_count_, bytes_.size(), kMaxKeys);
    }
    if (tensor_count_ > kMaxTensors || tensor_count_ > left() / kMinTensorInfoBytes) {
      return bad_input("'{}' claims {} tensors, more than its {} bytes can hold (limit {})", name_,
                       tensor_count_, bytes_.size(), kMaxTensors);
    }
    return {};
  }

  Error wrong_byte_order() const {
    return bad_input(
        "'{}' has the wrong byte order (it was written for a big-endian machine); a little-endian "
        "GGUF file is needed",
        name_);
  }

  Status read_metadata() {
    for (std::uint64_t i = 0; i < key_count_; ++i) {
      SLUICE_ASSIGN_OR_RETURN(const auto key, string(fmt::format("the name of key {}", i)));
      if (key.empty() || key.size() > kGgufMaxNameBytes) {
        return bad_input("'{}': the name of key {} has {} bytes, expected 1 to {}", name_, i,
                         key.size(), kGgufMaxNameBytes);
      }
      const std::string what = fmt::format("key '{}'", printable(key));
      if (!out_.metadata_index.emplace(key, out_.metadata.size()).second) {
        return bad_input("'{}': {} is there twice", name_, what);
      }
      SLUICE_ASSIGN_OR_RETURN(const auto type, value_type(what));
      SLUICE_ASSIGN_OR_RETURN(auto value, read_value(type, what));
      out_.metadata.emplace_back(key, std::move(value));
    }
    return {};
  }

  Result<GgufValueType> value_type(const std::string& what) {
    SLUICE_ASSIGN_OR_RETURN(const auto type, number<std::uint32_t>(what));
    if (type > static_cast<std::uint32_t>(GgufValueType::kFloat64)) {
      return bad_input("'{}': {} has value type {}, expected 0 to {}", name_, what, type,
                       static_cast<std::uint32_t>(GgufValueType::kFloat64));
    }
    return static_cast<GgufValueType>(type);
  }

  template <class Stored, class Kept>
  Result<GgufValue> scalar(GgufValueType type, const std::string& what) {
    SLUICE_ASSIGN_OR_RETURN(const auto value, number<Stored>(what));
    return GgufValue{type, static_cast<Kept>(value)};
  }

  Result<GgufValue> read_value(GgufValueType type, const std::string& what) {
    switch (type) {
      case GgufValueType::kUint8:
        return scalar<std::uint8_t, std::uint64_t>(type, what);
      case GgufValueType::kInt8:
        return scalar<std::int8_t, std::int64_t>(type, what);
      case GgufValueType::kUint16:
        return scalar<std::uint16_t, std::uint64_t>(type, what);
      case GgufValueType::kInt16:
        return scalar<std::int16_t, std::int64_t>(type, what);
      case GgufValueType::kUint32:
        return scalar<std::uint32_t, std::uint64_t>(type, what);
      case GgufValueType::kInt32:
        return scalar<std::int32_t, std::int64_t>(type, what);
      case GgufValueType::kUint64:
        return scalar<std::uint64_t, std::uint64_t>(type, what);
      case GgufValueType::kInt64:
        return scalar<std::int64_t, std::int64_t>(type, what);
      case GgufValueType::kFloat32:
        return scalar<float, double>(type, what);
      case GgufValueType::kFloat64:
        return scalar<double, double>(type, what);
      case GgufValueType::kBool: {
        SLUICE_ASSIGN_OR_RETURN(const auto value, number<std::uint8_t>(what));
        if (value > 1) return bad_bool(what, value);
        return GgufValue{type, std::uint64_t{value}};
      }
      case GgufValueType::kString: {
        SLUICE_ASSIGN_OR_RETURN(const auto value, string(what));
        return GgufValue{type, value};
      }
      case GgufValueType::kArray: {
        SLUICE_ASSIGN_OR_RETURN(auto value, read_array(what, 1));
        return GgufValue{type, std::move(value)};
      }
    }
    return bad_input("'{}': {} has an unknown value type", name_, what);
  }

  Error bad_bool(const std::string& what, unsigned value) const {
    return bad_input("'{}': {} is a bool with value {}, expected 0 or 1", name_, what, value);
  }

  // Recursion is bounded by kMaxArrayDepth.
  Result<GgufArray> read_array(const std::string& what, int depth) {
    if (depth > kMaxArrayDepth) {
      return bad_input("'{}': {} nests arrays more than {} deep", name_, what, kMaxArrayDepth);
    }
    GgufArray array;
    SLUICE_ASSIGN_OR_RETURN(array.element_type, value_type(what));
    SLUICE_ASSIGN_OR_RETURN(array.count, number<std::uint64_t>(what));
    const std::uint64_t size = scalar_bytes(array.element_type);
    const bool strings = array.element_type == GgufValueType::kString;
    const std::uint64_t smallest = size != 0 ? size : strings ? kMinStringBytes : kMinArrayBytes;
    if (array.count > left() / smallest) {
      return bad_input(
          "'{}': {} is an array of {} elements, more than the {} bytes left in the file can hold",
          name_, what, array.count, left());
    }
    if (size != 0) {
      array.packed = bytes_.subspan(at_, array.count * size);
      at_ += array.count * size;
      if (array.element_type == GgufValueType::kBool) {
        for (const std::byte b : array.packed) {
          if (b > std::byte{1}) return bad_bool(what, std::to_integer<unsigned>(b));
        }
      }
      return array;
    }
    array_items_ += array.count;  // no overflow: each summand is at most 2^61, see the limit below
    if (array_items_ > kMaxArrayItems) {
      return bad_input("'{}': {} brings the array elements of the file to {}, the limit is {}",
                       name_, what, array_items_, kMaxArrayItems);
    }
    for (std::uint64_t i = 0; i < array.count; ++i) {
      if (strings) {
        SLUICE_ASSIGN_OR_RETURN(const auto element, string(what));
        array.strings.push_back(element);
      } else {
        SLUICE_ASSIGN_OR_RETURN(auto element, read_array(what, depth + 1));
        array.arrays.push_back(std::move(element));
      }
    }
    return array;
  }

  Status read_alignment() {
    out_.alignment = kGgufDefaultAlignment;
    const auto found = out_.metadata_index.find("general.alignment");
    if (found == out_.metadata_index.end()) return {};
    const GgufValue& value = out_.metadata[found->second].second;
    if (value.type != GgufValueType::kUint32) {
      return bad_input("'{}': key 'general.alignment' has type {}, expected UINT32", name_,
                       gguf_value_type_name(value.type));
    }
    out_.alignment = std::get<std::uint64_t>(value.data);
    if (!std::has_single_bit(out_.alignment)) {
      return bad_input("'{}': key 'general.alignment' is {}, expected a power of two", name_,
                       out_.alignment);
    }
    return {};
  }

  Status read_tensor_infos() {
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
      GgufTensor tensor;
      SLUICE_ASSIGN_OR_RETURN(tensor.name, string(fmt::format("the name of tensor {}", i)));
      if (tensor.name.empty() || tensor.name.size() > kGgufMaxNameBytes) {
        return bad_input("'{}': the name of tensor {} has {} bytes, expected 1 to {}", name_, i,
                         tensor.name.size(), kGgufMaxNameBytes);
      }
      const std::string what = fmt::format("tensor '{}'", printable(tensor.name));
      if (!out_.tensor_index.emplace(tensor.name, out_.tensors.size()).second) {
        return bad_input("'{}': {} is there twice", name_, what);
      }
      SLUICE_RETURN_IF_ERROR(read_dims(tensor, what));
      SLUICE_RETURN_IF_ERROR(read_type(tensor, what));
      SLUICE_ASSIGN_OR_RETURN(const auto offset, number<std::uint64_t>(what));
      SLUICE_ASSIGN_OR_RETURN(const auto size, tensor_bytes(tensor, what));
      // Files list tensors in the order of their data without gaps. Anything else is refused, not
      // only overlaps: a misplaced offset would otherwise load as garbage weights.
      if (offset != next_offset_) {
        return bad_input(
            "'{}': {} has data offset {}, expected {} (the end of the tensor before it, rounded up "
            "to the alignment {})",
            name_, what, offset, next_offset_, out_.alignment);
      }
      placed_.push_back({offset, size});
      const auto padded = checked_align(size, out_.alignment);
      if (!padded) {
        return bad_input("'{}': {} has {} bytes; rounding up to the alignment {} overflows 64 bits",
                         name_, what, size, out_.alignment);
      }
      const auto end = checked_add(next_offset_, *padded);
      if (!end) {
        return bad_input("'{}': the sizes of all tensors up to {} overflow 64 bits", name_, what);
      }
      next_offset_ = *end;
      out_.tensors.push_back(std::move(tensor));
    }
    return {};
  }

  Status read_dims(GgufTensor& tensor, const std::string& what) {
    SLUICE_ASSIGN_OR_RETURN(const auto count, number<std::uint32_t>(what));
    if (count < 1 || count > 4) {
      return bad_input("'{}': {} has {} dimensions, expected 1 to 4", name_, what, count);
    }
    tensor.elements = 1;
    for (std::uint32_t i = 0; i < count; ++i) {
      SLUICE_ASSIGN_OR_RETURN(const auto size, number<std::uint64_t>(what));
      if (size == 0) {
        return bad_input("'{}': {} has size 0 in dimension {}, expected at least 1", name_, what,
                         i);
      }
      const auto elements = checked_mul(tensor.elements, size);
      if (!elements) {
        return bad_input("'{}': {} has dimensions whose product overflows 64 bits", name_, what);
      }
      tensor.elements = *elements;
      tensor.dims.push_back(size);
    }
    return {};
  }

  Status read_type(GgufTensor& tensor, const std::string& what) {
    SLUICE_ASSIGN_OR_RETURN(const auto stored, number<std::uint32_t>(what));
    const auto type = block_type_from_number(stored);
    if (!type) {
      const std::string_view known = known_type_name(stored);
      if (known.empty()) {
        return bad_input("'{}': {} has the unknown type number {}", name_, what, stored);
      }
      return bad_input(
          "'{}': {} has type {} (number {}), which is not supported; use a file with {}", name_,
          what, known, stored, readable_types());
    }
    tensor.type = *type;
    return {};
  }

  static std::string readable_types() {
    std::string list;
    for (const BlockTypeInfo& row : block_types()) {
      if (!list.empty()) list += &row == &block_types().back() ? " or " : ", ";
      list += row.name;
    }
    return list;
  }

  Result<std::uint64_t> tensor_bytes(const GgufTensor& tensor, const std::string& what) const {
    const BlockTypeInfo& info = block_type_info(tensor.type);
    if (tensor.dims[0] % info.block_size != 0) {
      return bad_input("'{}': {} has rows of {} elements, expected a multiple of {} for type {}",
                       name_, what, tensor.dims[0], info.block_size, info.name);
    }
    const auto size =
        checked_mul<std::uint64_t>(tensor.elements / info.block_size, info.block_bytes);
    if (!size) return bad_input("'{}': the bytes of {} overflow 64 bits", name_, what);
    return *size;
  }

  // Every tensor must lie inside the file before anything touches its data.
  Status place_tensors() {
    if (out_.tensors.empty()) return {};
    const auto start = checked_align<std::uint64_t>(at_, out_.alignment);
    for (std::size_t i = 0; i < out_.tensors.size(); ++i) {
      const auto [offset, size] = placed_[i];
      std::optional<std::uint64_t> end;
      if (start) end = checked_add(*start, offset);
      if (end) end = checked_add(*end, size);
      const std::string_view tensor_name = out_.tensors[i].name;
      if (!end) {
        return bad_input("'{}': the end of tensor '{}' overflows 64 bits", name_,
                         printable(tensor_name));
      }
      if (*end > bytes_.size()) {
        return bad_input(
            "'{}': tensor '{}' ends at byte {}, but the file has {} bytes: it seems cut short; "
            "download or copy it again",
            name_, printable(tensor_name), *end, bytes_.size());
      }
      out_.tensors[i].data = bytes_.subspan(*start + offset, size);
    }
    return {};
  }

  struct Place {
    std::uint64_t offset;
    std::uint64_t size;
  };

  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::uint64_t at_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t key_count_ = 0;
  std::uint64_t array_items_ = 0;
  std::uint64_t next_offset_ = 0;
  std::vector<Place> placed_;  // of each tensor, from the start of the data
  ParsedGguf out_;
};

}  // namespace

Result<ParsedGguf> parse_gguf(std::span<const std::byte> bytes, const std::string& name) {
  try {
    return Parser(bytes, name).run();
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kNoMemory, "not enough memory to read the header of '{}'", name);
  }
}

}  // namespace sluice
