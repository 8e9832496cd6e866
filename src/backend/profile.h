// Where the time of a pass goes, stage by stage, for whoever asks.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

enum class Stage : std::uint8_t {
  kEmbed,            // rows of the embedding, tables of the rotation
  kNormalise,        // norms with their quantization, and results joining the residual stream
  kQueryKeyValue,    // the three matrices
  kStore,            // biases, head norms, rotation; keys and values into the cache
  kAttention,        // scores, softmax, values
  kAttentionOutput,  // its quantization and matrix
  kGateUp,           // both matrices
  kActivate,         // activation and its quantization
  kDown,             // matrix
  kExperts,          // a whole mixture of experts
  kLogits,           // last norm and output matrix
};
inline constexpr std::size_t kStages = 11;

constexpr std::string_view stage_name(Stage stage) {
  constexpr std::array<std::string_view, kStages> names = {
      "embedding",        "norms and sums", "query, key, value",
      "rotate and store", "attention",      "attention output",
      "gate and up",      "activation",     "down",
      "experts",          "logits"};
  return names[static_cast<std::size_t>(stage)];
}

// Sums over passes.
struct PassProfile {
  struct Cost {
    double ms = 0;
    std::uint64_t bytes = 0;  // of weights and cache
  };
  std::array<Cost, kStages> stage;
};

// Stops the time between one call and the next. Does nothing without a profile.
class StageClock {
 public:
  explicit StageClock(PassProfile* profile) : profile_(profile) {
    if (profile_ != nullptr) last_ = std::chrono::steady_clock::now();
  }
  // What ran since the last call was `stage`, and read so many bytes.
  void done(Stage stage, std::uint64_t bytes = 0) {
    if (profile_ == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    PassProfile::Cost& cost = profile_->stage[static_cast<std::size_t>(stage)];
    cost.ms += std::chrono::duration<double, std::milli>(now - last_).count();
    cost.bytes += bytes;
    last_ = now;
  }

 private:
  PassProfile* profile_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace sluice
