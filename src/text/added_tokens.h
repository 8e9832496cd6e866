// Finding added tokens (control, unknown and user-defined ones) in a text: leftmost first, at each
// place the longest, in one pass whatever the tokens are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace sluice {

struct AddedToken {
  std::string_view text;  // not empty
  std::int32_t id = 0;
  bool special = false;  // control or unknown: recognised only where the caller allows it
};

// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct AddedMatch {
  std::size_t begin = 0;
  std::size_t length = 0;
  std::int32_t id = 0;
};

// An automaton of Aho and Corasick over the reversed texts, run from the end of the text to its
// start: what ends there begins here, so the longest token at every place is known directly and
// choosing the leftmost ones is one more pass.
class AddedTokens {
 public:
  // More bytes of added texts in sum are refused.
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 24;

  // Keeps views of the texts. No text may occur twice.
  static Result<AddedTokens> build(std::vector<AddedToken> tokens);

  // Matches in order, none overlapping another. Special tokens are found only inside one of the
  // `special_ranges`, which are ascending and do not touch.
  std::vector<AddedMatch> find(std::string_view text,
                               std::span<const TextRange> special_ranges) const;

 private:
  static constexpr std::int32_t kNone = -1;

  // States are numbered breadth first, so the children of one lie side by side, sorted by byte.
  struct State {
    std::uint32_t first_child = 0;
    std::uint32_t fail = 0;            // longest proper suffix that is a state too
    std::int32_t token = kNone;        // index of the token that this state spells
    std::int32_t next_output = kNone;  // nearest state on the fail path that spells a token
    std::int32_t user_output = kNone;  // the same, this one included, for user-defined tokens only
    std::uint16_t children = 0;
    unsigned char byte = 0;
  };

  std::uint32_t child(std::uint32_t state, unsigned char byte) const;  // 0: none
  std::uint32_t step(std::uint32_t state, unsigned char byte) const;
  const AddedToken* longest_allowed(std::uint32_t state, std::size_t special_room) const;
  void link_states();

  std::vector<AddedToken> tokens_;
  std::vector<State> states_;
  std::array<std::uint32_t, 256> root_child_{};
  bool any_user_ = false;
};

}  // namespace sluice
