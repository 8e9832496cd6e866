#include "src/gguf/writer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "src/base/checked.h"
#include "src/gguf/describe.h"
#include "src/gguf/limits.h"

namespace sluice {
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::string_view kAlignmentKey = "general.alignment";

// Bytes are gathered in strings.
void append_bytes(std::string& out, std::span<const std::byte> bytes) {
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

template <class T>
void append_number(std::string& out, T value) {
  append_bytes(out, std::as_bytes(std::span(&value, 1)));
}

void append_text(std::string& out, std::string_view text) {
  append_number<std::uint64_t>(out, text.size());
  out += text;
}

}  // namespace

GgufWriter::GgufWriter(std::uint32_t alignment) : alignment_(alignment) {
  if (!std::has_single_bit(alignment)) {
    fail(failed("the alignment is {}, expected a power of two", alignment));
    alignment_ = kGgufDefaultAlignment;
  }
}

void GgufWriter::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

void GgufWriter::start_value(std::string_view key, GgufValueType type) {
  if (key.empty() || key.size() > kGgufMaxNameBytes) {
    fail(failed("a metadata key has {} bytes, expected 1 to {}", key.size(), kGgufMaxNameBytes));
  } else if (key == kAlignmentKey) {
    fail(failed("'{}' is set by the writer's alignment, not as a key", key));
  } else if (!keys_.emplace(key).second) {
    fail(failed("metadata key '{}' is added twice", printable(key)));
  }
  ++key_count_;
  put_text(key);
  put(static_cast<std::uint32_t>(type));
}

void GgufWriter::start_array(std::string_view key, GgufValueType type, std::uint64_t count) {
  start_value(key, GgufValueType::kArray);
  put(static_cast<std::uint32_t>(type));
  put(count);
}

void GgufWriter::put_bytes(std::span<const std::byte> bytes) { append_bytes(metadata_, bytes); }

void GgufWriter::put_text(std::string_view text) { append_text(metadata_, text); }

void GgufWriter::add(std::string_view key, std::string_view text) {
  start_value(key, GgufValueType::kString);
  put_text(text);
}

void GgufWriter::add_array(std::string_view key, std::span<const std::string> texts) {
  start_array(key, GgufValueType::kString, texts.size());
  for (const std::string& text : texts) put_text(text);
}

void GgufWriter::put_array(const GgufArray& array) {
  put(static_cast<std::uint32_t>(array.element_type));
  put(array.count);
  put_bytes(array.packed);
  for (const std::string_view text : array.strings) put_text(text);
  for (const GgufArray& inner : array.arrays) put_array(inner);
}

void GgufWriter::add_value(std::string_view key, const GgufValue& value) {
  const auto unsigned_value = [&] { return std::get<std::uint64_t>(value.data); };
  const auto signed_value = [&] { return std::get<std::int64_t>(value.data); };
  switch (value.type) {
    case GgufValueType::kUint8:
      return add(key, static_cast<std::uint8_t>(unsigned_value()));
    case GgufValueType::kUint16:
      return add(key, static_cast<std::uint16_t>(unsigned_value()));
    case GgufValueType::kUint32:
      return add(key, static_cast<std::uint32_t>(unsigned_value()));
    case GgufValueType::kUint64:
      return add(key, unsigned_value());
    case GgufValueType::kBool:
      return add(key, unsigned_value() != 0);
    case GgufValueType::kInt8:
      return add(key, static_cast<std::int8_t>(signed_value()));
    case GgufValueType::kInt16:
      return add(key, static_cast<std::int16_t>(signed_value()));
    case GgufValueType::kInt32:
      return add(key, static_cast<std::int32_t>(signed_value()));
    case GgufValueType::kInt64:
      return add(key, signed_value());
    case GgufValueType::kFloat32:
      return add(key, static_cast<float>(std::get<double>(value.data)));
    case GgufValueType::kFloat64:
      return add(key, std::get<double>(value.data));
    case GgufValueType::kString:
      return add(key, std::get<std::string_view>(value.data));
    case GgufValueType::kArray:
      start_value(key, GgufValueType::kArray);
      return put_array(std::get<GgufArray>(value.data));
  }
}

void GgufWriter::add_tensor(std::string_view name, BlockType type,
                            std::vector<std::uint64_t> dims) {
  const BlockTypeInfo& info = block_type_info(type);
  if (name.empty() || name.size() > kGgufMaxNameBytes) {
    return fail(
        failed("a tensor name has {} bytes, expected 1 to {}", name.size(), kGgufMaxNameBytes));
  }
  if (!tensor_names_.emplace(name).second) {
    return fail(failed("tensor '{}' is added twice", printable(name)));
  }
  if (dims.empty() || dims.size() > 4 || dims[0] % info.block_size != 0) {
    return fail(
        failed("tensor '{}' has sizes {}, expected 1 to 4, the first a multiple of {} for "
               "type {}",
               printable(name), fmt::join(dims, " x "), info.block_size, info.name));
  }
  std::optional<std::uint64_t> bytes = info.block_bytes;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const std::uint64_t count = i == 0 ? dims[0] / info.block_size : dims[i];
    bytes = count == 0 ? std::nullopt : checked_mul(*bytes, count);
    if (!bytes) break;
  }
  const auto size = bytes ? checked_align<std::uint64_t>(*bytes, alignment_) : std::nullopt;
  const auto total = size ? checked_add(data_bytes_, *size) : std::nullopt;
  if (!total) {
    return fail(failed("tensor '{}' has sizes {}: zero, or more than 64 bits can count",
                       printable(name), fmt::join(dims, " x ")));
  }
  data_bytes_ = *total;
  tensors_.push_back({std::string(name), type, std::move(dims), *bytes});
}

std::uint64_t GgufWriter::padded(std::uint64_t bytes) const {
  return (bytes + alignment_ - 1) & ~std::uint64_t{alignment_ - 1};
}

std::string GgufWriter::header() const {
  const bool has_alignment = alignment_ != kGgufDefaultAlignment;
  std::string out = "GGUF";
  append_number(out, kVersion);
  append_number<std::uint64_t>(out, tensors_.size());
  append_number<std::uint64_t>(out, key_count_ + (has_alignment ? 1 : 0));
  out += metadata_;
  if (has_alignment) {
    append_text(out, kAlignmentKey);
    append_number(out, static_cast<std::uint32_t>(GgufValueType::kUint32));
    append_number(out, alignment_);
  }
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    append_text(out, tensor.name);
    append_number(out, static_cast<std::uint32_t>(tensor.dims.size()));
    for (const std::uint64_t size : tensor.dims) append_number(out, size);
    append_number(out, static_cast<std::uint32_t>(tensor.type));
    append_number(out, offset);
    offset += padded(tensor.bytes);
  }
  out.resize(padded(out.size()));
  return out;
}

std::uint64_t GgufWriter::file_bytes() const { return header().size() + data_bytes_; }

Status GgufWriter::begin(const std::string& path) {
  if (error_) return failed("cannot write '{}': {}", path, error_->message);
  const std::string head = header();
  const auto total = checked_add<std::uint64_t>(head.size(), data_bytes_);
  if (!total || *total > static_cast<std::uint64_t>(INT64_MAX)) {
    return failed("cannot write '{}': {} bytes of tensors are more than a file can hold", path,
                  data_bytes_);
  }
  SLUICE_ASSIGN_OR_RETURN(file_, OutputFile::create(path, *total));
  current_ = 0;
  written_ = 0;
  return file_->write(std::as_bytes(std::span(head)));
}

Status GgufWriter::append(std::span<const std::byte> bytes) {
  if (!file_) return failed("tensor data is appended before the file was begun");
  constexpr std::byte kZeros[256] = {};
  while (!bytes.empty()) {
    if (current_ == tensors_.size()) {
      return failed("{} bytes are appended beyond the last tensor", bytes.size());
    }
    const std::uint64_t size = tensors_[current_].bytes;
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), size - written_);
    SLUICE_RETURN_IF_ERROR(file_->write(bytes.first(count)));
    bytes = bytes.subspan(count);
    written_ += count;
    if (written_ < size) break;
    for (std::uint64_t left = padded(size) - size; left != 0;) {
      const std::uint64_t piece = std::min<std::uint64_t>(left, sizeof(kZeros));
      SLUICE_RETURN_IF_ERROR(file_->write(std::span(kZeros).first(piece)));
      left -= piece;
    }
    ++current_;
    written_ = 0;
  }
  return {};
}

Status GgufWriter::finish() {
  if (!file_) return failed("the file is finished before it was begun");
  if (current_ != tensors_.size()) {
    const std::uint64_t size = tensors_[current_].bytes;
    file_.reset();
    return failed("tensor '{}' got {} of its {} bytes", printable(tensors_[current_].name),
                  written_, size);
  }
  const Status status = file_->commit();
  file_.reset();
  return status;
}

}  // namespace sluice
