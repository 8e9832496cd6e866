// Encoding with a "llama" (SentencePiece BPE) vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/merge.h"
#include "src/text/vocab.h"

namespace sluice {

class SpmEncoder {
 public:
  // Adds a warning to `vocab` when it has no token for some byte.
  explicit SpmEncoder(Vocab& vocab);

  // Working memory of one call, reused from one piece of text to the next.
  struct Scratch {
    std::string text;
    std::vector<MergeSymbol> symbols;
    std::vector<MergeCandidate<float>> heap;
  };

  // Appends the ids of `text` (valid UTF-8), spaces becoming ▁, with another one in front when
  // `space_in_front`. Characters that no token spells become byte tokens, or failing that the
  // unknown token.
  void encode(const Vocab& vocab, std::string_view text, bool space_in_front, Scratch& scratch,
              std::vector<std::int32_t>& ids) const;

 private:
  std::array<std::int32_t, 256> byte_ids_{};
};

}  // namespace sluice
