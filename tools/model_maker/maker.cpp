#include "tools/model_maker/maker.h"

#include <algorithm>
#include <array>
#include <optional>
#include <thread>

#include "src/base/rng.h"
#include "src/quant/codec.h"

namespace sluice {
namespace {

// Weights that a thread makes at a time: 4 MiB of floats. A multiple of every block size.
constexpr std::uint64_t kSlab = std::uint64_t{1} << 20;

// The sum of four bytes has mean 510 and variance 4 * (256^2 - 1) / 12 = 21845.
constexpr int kByteSumMean = 510;
constexpr float kByteSumDeviation = 147.8f;

// Weights start .. start + out.size() of tensor `index`; start is a multiple of 4.
void fill_random(const PlannedTensor& tensor, std::uint32_t index, std::uint64_t seed,
                 std::uint64_t start, std::span<float> out) {
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed),
                                         static_cast<std::uint32_t>(seed >> 32)};
  const float scale = tensor.deviation / kByteSumDeviation;
  for (std::uint64_t i = 0; i < out.size(); i += 4) {
    const std::uint64_t counter = (start + i) / 4;
    const auto words = philox4x32(
        {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), index, 0},
        key);
    const std::uint64_t count = std::min<std::uint64_t>(4, out.size() - i);
    for (std::uint64_t k = 0; k < count; ++k) {
      const std::uint32_t pairs = (words[k] & 0x00ff00ffu) + ((words[k] >> 8) & 0x00ff00ffu);
      const int sum = static_cast<int>((pairs & 0xffffu) + (pairs >> 16));
      out[i + k] = tensor.mean + scale * static_cast<float>(sum - kByteSumMean);
    }
  }
}

void fill(const PlannedTensor& tensor, std::uint32_t index, std::uint64_t seed, std::uint64_t start,
          std::span<float> out) {
  if (!tensor.fixed.empty()) {
    std::copy_n(tensor.fixed.begin() + static_cast<std::ptrdiff_t>(start), out.size(), out.begin());
    return;
  }
  fill_random(tensor, index, seed, start, out);
  for (const auto& [at, value] : tensor.added) {
    if (at >= start && at - start < out.size()) out[at - start] += value;
  }
  if (tensor.vocabulary_rows) {
    const std::uint64_t special_end = 3 * tensor.dims[0];
    for (std::uint64_t i = start; i < special_end && i - start < out.size(); ++i) {
      out[i - start] *= 0.1f;
    }
  }
}

// One thread's part of a tensor: made, encoded, then written in turn.
struct Slab {
  std::vector<float> floats;
  std::vector<std::byte> bytes;
  Status status;
};

void make_slab(const PlannedTensor& tensor, std::uint32_t index, std::uint64_t seed,
               std::uint64_t start, std::uint64_t count, Slab& slab) {
  const BlockTypeInfo& info = block_type_info(tensor.type);
  slab.floats.resize(count);
  slab.bytes.resize(count / info.block_size * info.block_bytes);
  fill(tensor, index, seed, start, slab.floats);
  slab.status = encode_blocks(tensor.type, slab.floats, slab.bytes);
}

Status write_tensor(const PlannedTensor& tensor, std::uint32_t index, std::uint64_t seed,
                    std::vector<Slab>& slabs, GgufWriter& writer) {
  const std::uint64_t elements = tensor.elements();
  for (std::uint64_t wave = 0; wave < elements; wave += kSlab * slabs.size()) {
    std::vector<std::thread> threads;
    std::size_t used = 0;
    for (; used < slabs.size() && wave + used * kSlab < elements; ++used) {
      const std::uint64_t start = wave + used * kSlab;
      const std::uint64_t count = std::min(kSlab, elements - start);
      Slab& slab = slabs[used];
      if (used == 0) continue;
      threads.emplace_back([&tensor, index, seed, start, count, &slab] {
        make_slab(tensor, index, seed, start, count, slab);
      });
    }
    make_slab(tensor, index, seed, wave, std::min(kSlab, elements - wave), slabs[0]);
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < used; ++i) {
      if (!slabs[i].status.ok()) {
        return failed("tensor '{}', weights from {}: {}", tensor.name, wave + i * kSlab,
                      slabs[i].status.error().message);
      }
      SLUICE_RETURN_IF_ERROR(writer.append(slabs[i].bytes));
    }
  }
  return {};
}

// The next word of n lower-case letters in alphabetical order; "aaa..." of n + 1 after "zzz...".
void next_word(std::string& word) {
  for (std::size_t i = word.size(); i-- > 0;) {
    if (word[i] != 'z') {
      ++word[i];
      return;
    }
    word[i] = 'a';
  }
  word.insert(word.begin(), 'a');
}

}  // namespace

std::vector<std::string> make_vocabulary(std::uint64_t count) {
  const std::string space = "\xe2\x96\x81";  // U+2581 stands for a space
  std::vector<std::string> texts{"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) texts.push_back(fmt::format("<0x{:02X}>", byte));
  texts.push_back(space);
  for (char c = '!'; c <= '~'; ++c) texts.push_back(std::string(1, c));
  texts.push_back(space + "a");
  std::string word = "a";
  while (texts.size() < count) {
    next_word(word);
    // Single letters are there already without a space.
    if (word.size() > 1) texts.push_back(word);
    texts.push_back(space + word);
  }
  texts.resize(count);
  return texts;
}

Result<MadeModel> make_model(const ModelShape& shape, const std::string& path, int threads) {
  SLUICE_RETURN_IF_ERROR(check_shape(shape));
  const std::vector<PlannedTensor> tensors = plan_tensors(shape);
  GgufWriter writer;
  add_metadata(shape, writer);
  MadeModel made;
  for (const PlannedTensor& tensor : tensors) {
    writer.add_tensor(tensor.name, tensor.type, tensor.dims);
    made.parameters += tensor.elements();
  }
  made.bytes = writer.file_bytes();
  SLUICE_RETURN_IF_ERROR(writer.begin(path));
  std::vector<Slab> slabs(static_cast<std::size_t>(std::max(threads, 1)));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        write_tensor(tensors[i], static_cast<std::uint32_t>(i), shape.seed, slabs, writer));
  }
  SLUICE_RETURN_IF_ERROR(writer.finish());
  return made;
}

}  // namespace sluice
