// The exact evaluation of a model: the same weights, plain loops, everything in double. The oracle
// of every backend; slow on purpose.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/model/model_spec.h"

namespace sluice::test {

// Roundings that llama.cpp's CPU code makes and this project does not; on, the oracle reproduces
// its published logits.
struct ReferenceOptions {
  bool half_gelu = false;         // GELU read from a table of half floats, argument and result
  bool half_activations = false;  // inputs of F16 matrices rounded to F16
  unsigned threads = 1;           // share the rows of large matrices; no effect on results
};

// Logits of every position, [tokens][vocabulary].
std::vector<std::vector<double>> reference_logits(const Model& model,
                                                  const std::vector<std::int32_t>& tokens,
                                                  const ReferenceOptions& options = {});

// The same from position `first` on, a few rows at a time for large vocabularies: visit(position,
// logits).
void visit_reference_logits(
    const Model& model, const std::vector<std::int32_t>& tokens, std::size_t first,
    const std::function<void(std::size_t, const std::vector<double>&)>& visit,
    const ReferenceOptions& options = {});

}  // namespace sluice::test
