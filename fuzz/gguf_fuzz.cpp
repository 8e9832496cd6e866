// Any bytes as a GGUF file: parse, use every getter on every key, describe and copy all values,
// decode the first blocks of every tensor.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/gguf/describe.h"
#include "src/gguf/gguf.h"
#include "src/gguf/writer.h"
#include "src/quant/codec.h"

namespace {

// Keeps results alive, so that the compiler cannot drop the calls.
volatile std::size_t sink;

void use_array(const sluice::GgufArray& array) {
  for (const std::string_view text : array.strings) sink = text.size();
  for (const sluice::GgufArray& inner : array.arrays) use_array(inner);
  if (array.packed.empty()) return;
  for (std::uint64_t i = 0; i < array.count; i += 1 + array.count / 64) {
    sink = static_cast<std::size_t>(array.integer_at(i));
    sink = static_cast<std::size_t>(array.number_at(i) > 0);
  }
}

template <class Result>
void use(const Result& result) {
  sink = result.ok() ? 1 : result.error().message.size();
}

void use_metadata(const sluice::GgufFile& file) {
  sluice::GgufWriter writer;
  for (const auto& [key, value] : file.metadata()) {
    sink = sluice::printable(key).size() + sluice::gguf_value_to_string(value, 80).size();
    use(file.get_uint(key));
    use(file.get_float(key));
    use(file.get_bool(key));
    use(file.get_string(key));
    use(file.get_uint_or(key, 1));
    use(file.get_float_or(key, 1));
    use(file.get_bool_or(key, true));
    use(file.get_string_or(key, ""));
    const auto array = file.get_array(key);
    if (array.ok()) use_array(**array);
    writer.add_value(key, value);
  }
  sink = writer.file_bytes();
}

void use_tensors(const sluice::GgufFile& file) {
  constexpr std::uint64_t kMaxBlocks = 4;
  std::vector<float> floats;
  for (const sluice::GgufTensor& tensor : file.tensors()) {
    if (file.find_tensor(tensor.name) != &tensor) __builtin_trap();
    sink = sluice::gguf_dims_to_string(tensor).size() + tensor.rows();
    const sluice::BlockTypeInfo& info = sluice::block_type_info(tensor.type);
    const std::uint64_t blocks = std::min(tensor.elements / info.block_size, kMaxBlocks);
    floats.resize(blocks * info.block_size);
    sluice::decode_blocks(tensor.type, tensor.data.first(blocks * info.block_bytes), floats);
    // The last byte too: it must lie inside the file.
    sink = std::to_integer<std::size_t>(tensor.data.back());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = sluice::GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.ok()) {
    sink = file.error().message.size();
    return 0;
  }
  use_metadata(*file);
  use_tensors(*file);
  return 0;
}
