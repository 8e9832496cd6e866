// Shared by the tests of the CPU kernels: random matrices in stored blocks, aligned memory, and the
// property "this table gives the same bits as that one".
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "src/backend/cpu/kernels.h"
#include "src/backend/cpu/pack.h"

namespace sluice::cpu::testing {

using Random = std::mt19937_64;

// Zeroed memory at a multiple of 64 bytes.
template <class T>
class Aligned {
 public:
  explicit Aligned(std::size_t n) : size_(n), bytes_(n * sizeof(T) + 64) {}
  T* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return reinterpret_cast<T*>(bytes_.data() + (64 - address % 64) % 64);
  }
  T& operator[](std::size_t i) { return data()[i]; }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  std::vector<std::byte> bytes_;
};

inline float uniform(Random& random, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(random);
}
inline std::uint32_t pick(Random& random, std::uint32_t low, std::uint32_t high) {
  return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
}

// Stored blocks of any content, but with scales that are finite and moderate.
std::vector<std::byte> random_blocks(BlockType type, std::uint32_t rows, std::uint32_t cols,
                                     Random& random);

// A packed matrix and its bytes.
struct Packed {
  PackedMatrix matrix;
  Aligned<std::byte> bytes;
  Packed(BlockType type, std::span<const std::byte> source, std::uint32_t rows, std::uint32_t cols);
};

// Quantized activations and their memory.
struct Activations {
  Aligned<std::int8_t> q;
  Aligned<float> scale;
  Aligned<std::int32_t> sum;
  QuantizedRows rows;
  Activations(const Kernels& kernels, const std::vector<float>& x, std::uint32_t rows,
              std::uint32_t cols);
};

// One attention problem with all its memory; positions 0 .. context - 1 are stored.
struct AttentionCase {
  KvLayout layout;
  std::uint32_t rows = 1;
  std::uint32_t heads = 1;
  std::uint32_t context = 1;
  std::uint32_t window = 0;  // 0: none
  float scale = 1;
  float softcap = 0;
  std::uint32_t outliers = 0;
  std::vector<float> query, key, value, coeff, table;
  std::vector<std::uint32_t> first, last;
  std::vector<Aligned<std::byte>> blocks;
  std::vector<Aligned<std::byte>> f16_blocks;  // kInt4: the same, of which full ones were made

  // Row r sees positions up to context - rows + r.
  static AttentionCase make(KvLayout layout, std::uint32_t rows, std::uint32_t heads,
                            std::uint32_t context, std::uint32_t window, float softcap,
                            std::uint32_t outliers, Random& random);
  // Stores all tokens; bytes of slots not stored are NaNs.
  void store(const Kernels& kernels);
  struct State {
    std::vector<float> maximum, sum, output;
  };
  // Runs all pieces for query rows [row_begin, row_end) (the others stay as they start).
  State run(const Kernels& kernels, std::uint32_t row_begin, std::uint32_t row_end) const;

 private:
  void run_rows(const Kernels& kernels, std::uint32_t row_begin, std::uint32_t row_end,
                State& state) const;
};

// Checks that `table` gives the same bits as `reference` in every function, over random shapes of
// all types.
void check_same_bits(const Kernels& reference, const Kernels& table, std::uint64_t seed);

}  // namespace sluice::cpu::testing
