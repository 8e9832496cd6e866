// Drafts copied from earlier text: what followed the last occurrence of the last few tokens.
// Source: Saxena, "Prompt Lookup Decoding", 2023.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "src/engine/speculation/drafter.h"

namespace sluice {

class PromptLookup final : public Drafter {
 public:
  // `corpus`: more text to copy from (files); may be empty.
  explicit PromptLookup(std::vector<std::int32_t> corpus = {});

  std::string_view name() const override { return "lookup"; }
  Status begin(std::span<const std::int32_t> tokens, const SamplingParams& sampling,
               std::uint32_t stream) override;
  Status accept(std::int32_t token) override;
  std::size_t peek() const override;
  Result<Draft> propose(const DraftContext& context, std::size_t most) override;

 private:
  static constexpr std::size_t kShortest = 2;  // tokens that must agree
  static constexpr std::size_t kLongest =
      4;  // tokens that are looked up; longer agreement is measured

  struct Match {
    std::size_t next = 0;    // place in all_ of the token that followed
    std::size_t length = 0;  // tokens that agree; 0: none
  };
  // Adds the n-grams that end in front of place `at`, so that the text after them is known.
  void add(std::size_t at);
  Match match() const;
  static std::size_t confidence_of(std::size_t length);

  std::vector<std::int32_t> all_;  // corpus, then the text
  std::size_t corpus_;             // length of the corpus
  std::size_t indexed_ = 0;        // places whose n-grams are known
  // For each n-gram length, by hash: the last place after it. Constant time a token.
  std::array<std::unordered_map<std::uint64_t, std::uint32_t>, kLongest - kShortest + 1> last_;
};

}  // namespace sluice
