// What proposes tokens for the verifier. A draft is only a guess: whatever it says, the tokens that
// come out are those of plain decoding.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/engine/sampling/params.h"
#include "src/engine/token_tree.h"

namespace sluice {

struct Draft {
  std::vector<std::int32_t> tokens;
  // Index in `tokens` of each token's predecessor, -1 for the last token of the text; parents come
  // before their children. Empty: a chain, each token after the one before it.
  std::vector<std::int32_t> parents;
  // How sure the drafter is, in its own classes: 0 to kDraftClasses - 1. Acceptance is counted for
  // each.
  std::size_t confidence = 0;
  // [tokens] The drafter's own probability of each token, where it has one; else empty.
  std::vector<float> sure;
  // Of the time that the draft took: what was spent once, on text that the drafter had not read
  // yet. The next draft is not expected to cost it.
  double reading_ms = 0;
};

// What of a draft can be verified, behind the text's last token `root`: at most `most` tokens, ids
// below `vocabulary` only, and nothing behind a token that can't be. Of equal tokens in one place
// the first counts.
TokenTree usable_tree(std::int32_t root, const Draft& draft, std::size_t most,
                      std::size_t vocabulary);

inline constexpr std::size_t kDraftClasses = 4;

// What a drafter may look at.
struct DraftContext {
  std::span<const std::int32_t> tokens;  // prompt and text so far; the draft continues the last one
  // [embedding] of the last layer at the last token of the text that was run, for trained heads;
  // empty when nobody asked for it (wants_hidden).
  std::span<const float> hidden;
  std::size_t vocabulary = 0;  // ids below it can be drawn
  const std::atomic<bool>* cancel = nullptr;
  // Asked, by a drafter that pays for every token, before each but the first: whether one more is
  // worth its time behind those that it is so sure of. Empty: always.
  std::function<bool(std::span<const float> sure)> worth_more;
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;  // "lookup", "draft"
  virtual bool wants_hidden() const { return false; }
  // What a token of a draft is likely to take, as a share of a pass of the target.
  virtual double expected_cost() const { return 0; }

  // A request begins with these tokens; what an earlier request left is used again where it fits.
  virtual Status begin(std::span<const std::int32_t> tokens, const SamplingParams& sampling,
                       std::uint32_t stream) = 0;
  // The text grew by this token. Constant time.
  virtual Status accept(std::int32_t token) = 0;
  // How sure a draft made now would be; kDraftClasses if it has none. Costs next to nothing.
  virtual std::size_t peek() const = 0;
  // At most `most` tokens; fewer or none where it knows no more.
  virtual Result<Draft> propose(const DraftContext& context, std::size_t most) = 0;
};

}  // namespace sluice
