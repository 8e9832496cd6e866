// Builds GGUF bytes by hand, right or wrong: unlike the writer it checks nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/gguf/gguf.h"

namespace sluice::test {

class GgufBuilder {
 public:
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;  // of the data; says nothing about the metadata
  std::uint64_t claimed_keys = 0;
  std::uint64_t claimed_tensors = 0;  // 0: those that are there
  std::uint64_t extra_bytes = 0;      // after the last tensor

  template <class T>
  static void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  static void put_text(std::string& out, std::string_view text) {
    put<std::uint64_t>(out, text.size());
    out += text;
  }

  // A key with a type number and the bytes of its value as they are.
  GgufBuilder& key_bytes(std::string_view key, std::uint32_t type, std::string_view value) {
    put_text(metadata_, key);
    put(metadata_, type);
    metadata_ += value;
    ++keys_;
    return *this;
  }
  template <class T>
  GgufBuilder& key(std::string_view key, GgufValueType type, T value) {
    std::string bytes;
    put(bytes, value);
    return key_bytes(key, static_cast<std::uint32_t>(type), bytes);
  }
  GgufBuilder& text(std::string_view key, std::string_view value) {
    std::string bytes;
    put_text(bytes, value);
    return key_bytes(key, static_cast<std::uint32_t>(GgufValueType::kString), bytes);
  }
  GgufBuilder& number(std::string_view name, std::uint32_t value) {
    return key(name, GgufValueType::kUint32, value);
  }

  // A tensor with `data_bytes` bytes of data at the next aligned place.
  GgufBuilder& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type,
                      std::uint64_t data_bytes) {
    while (data_.size() % alignment != 0) data_ += '\0';
    tensor_at(name, std::move(dims), type, data_.size());
    for (std::uint64_t i = 0; i < data_bytes; ++i) data_ += static_cast<char>(i);
    return *this;
  }
  // A tensor description without data.
  GgufBuilder& tensor_at(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type,
                         std::uint64_t offset) {
    put_text(infos_, name);
    put(infos_, static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t size : dims) put(infos_, size);
    put(infos_, type);
    put(infos_, offset);
    ++tensors_;
    return *this;
  }

  std::string bytes() const {
    std::string out = magic;
    put(out, version);
    put(out, claimed_tensors != 0 ? claimed_tensors : tensors_);
    put(out, claimed_keys != 0 ? claimed_keys : keys_);
    out += metadata_;
    out += infos_;
    while (out.size() % alignment != 0) out += '\0';
    out += data_;
    out.append(extra_bytes, 'x');
    return out;
  }

 private:
  std::string metadata_;
  std::string infos_;
  std::string data_;
  std::uint64_t keys_ = 0;
  std::uint64_t tensors_ = 0;
};

// Parses a copy of the bytes in a block of exactly their size, so that the address sanitizer sees
// any read beyond it. The result must not be used after `storage` is gone.
inline Result<GgufFile> parse_exact(std::string_view bytes, std::vector<std::byte>& storage) {
  const auto* start = reinterpret_cast<const std::byte*>(bytes.data());
  storage.assign(start, start + bytes.size());
  storage.shrink_to_fit();
  return GgufFile::parse(storage, "test.gguf");
}

}  // namespace sluice::test
