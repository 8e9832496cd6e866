// Steps of load_model, shared between its files.
#pragma once

#include "src/gguf/gguf.h"
#include "src/model/architectures.h"
#include "src/model/model_spec.h"

namespace sluice::model_internal {

// Reads and checks everything but ropes and tensors.
Result<ModelSpec> read_hyperparameters(const GgufFile& file, const Architecture& arch);

// Adds spec.ropes; `context` as in load_model. Requires the hyperparameters.
Status read_ropes(const GgufFile& file, const Architecture& arch, std::uint32_t context,
                  ModelSpec& spec);

// Finds every tensor and checks its shape against the spec; tensors that the architecture does not
// know are an error inside layers and a warning outside.
Result<Weights> find_weights(const GgufFile& file, const Architecture& arch, ModelSpec& spec);

}  // namespace sluice::model_internal
