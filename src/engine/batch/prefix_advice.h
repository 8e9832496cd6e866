// Notices prompts that have much in common behind something that differs: run from there on each
// time, where another order would let them share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice {

class PrefixAdvice {
 public:
  // The prompt of the next item. Only the first kMostItems are looked at.
  void add(std::span<const std::int32_t> prompt);

  struct Advice {
    std::size_t differ_from = 0;          // index of the first token that differs
    std::vector<std::int32_t> different;  // the tokens there, of one of the items
    double could_save = 0;                // share of all prompt tokens, 0 to 1
  };
  // Nothing where too few items were seen or it would save less than a fifth.
  std::optional<Advice> advice() const;

 private:
  static constexpr std::size_t kMostItems = 200;
  static constexpr std::size_t kRun = 32;  // tokens in common that count: a block of the cache

  std::vector<std::int32_t> last_;
  std::size_t items_ = 0;
  std::size_t pairs_ = 0;     // of items that have something in common behind the difference
  std::uint64_t tokens_ = 0;  // of prompts that were compared
  std::uint64_t common_ = 0;  // behind the difference
  Advice first_;              // of the pair that differs first
};

}  // namespace sluice
