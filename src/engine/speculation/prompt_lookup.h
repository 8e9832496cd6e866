// Drafts copied from earlier text: what followed the last occurrence of the last few tokens.
// Source: Saxena, "Prompt Lookup Decoding", 2023.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/engine/speculation/drafter.h"

namespace sluice {

// Where each n-gram of a text was last followed by something. Constant time a token.
class NgramIndex {
 public:
  static constexpr std::size_t kShortest = 2;  // tokens of an n-gram
  static constexpr std::size_t kLongest = 4;   // longer agreement is measured

  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  void append(std::int32_t token);
  void clear();
  // The place behind the last occurrence of this n-gram that is followed by a token, if any. A hash
  // decides: the caller compares.
  std::optional<std::size_t> find(std::span<const std::int32_t> ngram) const;

 private:
  std::vector<std::int32_t> tokens_;
  // For each length, by hash.
  std::array<std::unordered_map<std::uint64_t, std::uint32_t>, kLongest - kShortest + 1> last_;
};

class PromptLookup final : public Drafter {
 public:
  // `corpus`: more text to copy from (files), shared by many; may be null.
  explicit PromptLookup(std::shared_ptr<const NgramIndex> corpus = nullptr);
  static std::shared_ptr<const NgramIndex> index(std::span<const std::int32_t> corpus);

  std::string_view name() const override { return "lookup"; }
  Status begin(std::span<const std::int32_t> tokens, const SamplingParams& sampling,
               std::uint32_t stream) override;
  Status accept(std::int32_t token) override;
  std::size_t peek() const override;
  Result<Draft> propose(const DraftContext& context, std::size_t most) override;

 private:
  struct Match {
    const std::vector<std::int32_t>* source = nullptr;
    std::size_t next = 0;    // place in it of the token that followed
    std::size_t length = 0;  // tokens that agree; 0: none
  };
  Match match() const;
  static std::size_t confidence_of(std::size_t length);

  std::shared_ptr<const NgramIndex> corpus_;
  NgramIndex text_;
};

}  // namespace sluice
