// Writes synthetic models: random weights of any architecture, shape and block type, with all the
// metadata that loaders need and a small made-up vocabulary. For tests, benchmarks and comparisons.
//
// Weights are reproducible on every machine and with any number of threads. Weight i of tensor t
// (in file order) is
//     mean + deviation * (b0 + b1 + b2 + b3 - 510) / 147.8,
// near a normal distribution cut at 3.45 deviations, where b0..b3 are the bytes of word i % 4 of
// Philox-4x32-10 with key `seed` and counter (i / 4 low, i / 4 high, t, 0). Matrices have mean 0
// and deviation 1 / sqrt(columns), so that activations keep their size from layer to layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/gguf/writer.h"
#include "tools/model_maker/shape.h"

namespace sluice {

struct PlannedTensor {
  std::string name;
  BlockType type = BlockType::kF32;
  std::vector<std::uint64_t> dims;  // fastest first
  float mean = 0;
  float deviation = 0;
  // Set instead of random values: all values of a one-dimensional tensor.
  std::vector<float> fixed;
  // Added to the random values, at these indices.
  std::vector<std::pair<std::uint64_t, float>> added;
  // Rows 0 to 2 (unknown, begin, end) are made ten times smaller: a random model should hardly
  // ever choose to end.
  bool vocabulary_rows = false;

  std::uint64_t elements() const;
};

// All tensors of a model in file order. Requires a checked shape.
std::vector<PlannedTensor> plan_tensors(const ModelShape& shape);

// Adds hyperparameters and the vocabulary. Requires a checked shape.
void add_metadata(const ModelShape& shape, GgufWriter& writer);

// The texts of a vocabulary of `count` (>= 260) tokens for tokenizer model "llama": <unk>, <s>,
// </s>, 256 bytes, printable ASCII characters, then all words of lower-case letters with and
// without a space before them, short ones first.
std::vector<std::string> make_vocabulary(std::uint64_t count);

struct MadeModel {
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;
};

// Checks the shape and writes the model to `path`, using `threads` threads.
Result<MadeModel> make_model(const ModelShape& shape, const std::string& path, int threads);

}  // namespace sluice
