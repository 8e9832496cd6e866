// Several backends, each with some of a model's layers, as one: the residual stream goes from one
// to the next through the host.
#pragma once

#include <memory>
#include <vector>

#include "src/backend/backend.h"

namespace sluice {

struct BackendPart {
  std::unique_ptr<Backend> backend;
  LayerRange layers;
};

// `parts` follow each other and cover all layers; all have the same block_tokens().
std::unique_ptr<Backend> make_split_backend(std::vector<BackendPart> parts);

}  // namespace sluice
