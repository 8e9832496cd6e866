// Memory for the logits of a pass, and what one pass left in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/backend/backend.h"
#include "src/engine/sampling/logit_row.h"

namespace sluice {

class LogitRows {
 public:
  // For passes of up to `most` rows with logits. `candidates`: the tokens from 0 on that may be
  // drawn; a model's rows may be padded beyond them.
  LogitRows(std::size_t most, std::size_t vocabulary, std::size_t candidates);

  // Where a pass with `rows` rows of logits is to put them. `top`: how many of the largest logits
  // of each row are enough; 0: all of them.
  LogitsOut out(std::size_t rows, std::size_t top);
  // Row i of the last pass.
  LogitRow row(std::size_t i) const;

 private:
  std::size_t vocabulary_;
  std::size_t candidates_;
  std::size_t top_ = 0;
  std::vector<float> whole_;  // [most, vocabulary]
  std::vector<std::int32_t> ids_;
  std::vector<float> logits_;
};

}  // namespace sluice
