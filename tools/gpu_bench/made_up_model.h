// Models to measure with: the shape counts, what they say does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/model/model_spec.h"

namespace sluice::cuda {

struct MadeUp {
  const char* name;
  std::uint32_t layers, embedding, heads, kv_heads, head_dim, feed_forward, vocabulary;
};

inline constexpr MadeUp kTiny = {"tiny", 2, 64, 2, 1, 32, 96, 100};  // for the emulator
inline constexpr MadeUp k1B = {"1B", 16, 2048, 32, 8, 64, 8192, 128256};
inline constexpr MadeUp k8B = {"8B", 32, 4096, 32, 8, 128, 14336, 128256};
inline constexpr MadeUp k70B = {"70B", 80, 8192, 64, 8, 128, 28672, 128256};

// A model all of whose layers have the same weights in host memory, Q4_0 with random codes.
class MadeUpModel {
 public:
  explicit MadeUpModel(const MadeUp& s);
  const Model& model() const { return model_; }

 private:
  Model model_;
  std::vector<std::byte> blocks_;
};

}  // namespace sluice::cuda
