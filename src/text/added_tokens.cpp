#include "src/text/added_tokens.h"

#include <algorithm>

namespace sluice {
namespace {

// The trie while it is built: children as a list that grows at its end, which suffices because the
// texts come sorted.
struct BuildNode {
  std::uint32_t first_child = 0;  // 0: none
  std::uint32_t last_child = 0;
  std::uint32_t next_sibling = 0;
  std::int32_t token = -1;
  unsigned char byte = 0;
};

bool reversed_less(const AddedToken& a, const AddedToken& b) {
  const auto less = [](char x, char y) {
    return static_cast<unsigned char>(x) < static_cast<unsigned char>(y);
  };
  return std::lexicographical_compare(a.text.rbegin(), a.text.rend(), b.text.rbegin(),
                                      b.text.rend(), less);
}

std::vector<BuildNode> build_trie(std::span<const AddedToken> tokens, std::size_t bytes) {
  std::vector<BuildNode> nodes;
  nodes.reserve(bytes + 1);
  nodes.emplace_back();
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::string_view text = tokens[t].text;
    std::uint32_t at = 0;
    for (std::size_t i = text.size(); i-- > 0;) {
      const auto byte = static_cast<unsigned char>(text[i]);
      std::uint32_t next = nodes[at].last_child;
      if (next == 0 || nodes[next].byte != byte) {
        next = static_cast<std::uint32_t>(nodes.size());
        nodes.push_back({0, 0, 0, -1, byte});
        if (nodes[at].first_child == 0) {
          nodes[at].first_child = next;
        } else {
          nodes[nodes[at].last_child].next_sibling = next;
        }
        nodes[at].last_child = next;
      }
      at = next;
    }
    nodes[at].token = static_cast<std::int32_t>(t);
  }
  return nodes;
}

}  // namespace

Result<AddedTokens> AddedTokens::build(std::vector<AddedToken> tokens) {
  std::size_t bytes = 0;
  for (const AddedToken& token : tokens) {
    if (token.text.size() > kMaxTextBytes - bytes) {
      return bad_input("the texts of the {} added tokens have more than {} bytes, the limit",
                       tokens.size(), kMaxTextBytes);
    }
    bytes += token.text.size();
  }
  AddedTokens added;
  added.tokens_ = std::move(tokens);
  std::sort(added.tokens_.begin(), added.tokens_.end(), reversed_less);
  const std::vector<BuildNode> nodes = build_trie(added.tokens_, bytes);

  // Renumber breadth first.
  added.states_.reserve(nodes.size());
  std::vector<std::uint32_t> order = {0};
  order.reserve(nodes.size());
  for (std::size_t s = 0; s < order.size(); ++s) {
    const BuildNode& node = nodes[order[s]];
    State state;
    state.first_child = static_cast<std::uint32_t>(order.size());
    state.token = node.token;
    state.byte = node.byte;
    for (std::uint32_t c = node.first_child; c != 0; c = nodes[c].next_sibling) {
      order.push_back(c);
      ++state.children;
    }
    added.states_.push_back(state);
  }
  added.link_states();
  return added;
}

void AddedTokens::link_states() {
  for (std::uint32_t c = 0; c < states_[0].children; ++c) {
    root_child_[states_[1 + c].byte] = 1 + c;
  }
  // A state's fail state is shorter, so it comes earlier and is complete.
  for (std::uint32_t s = 0; s < states_.size(); ++s) {
    State& state = states_[s];
    const State& fail = states_[state.fail];
    if (s != 0) {
      state.next_output =
          fail.token != kNone ? static_cast<std::int32_t>(state.fail) : fail.next_output;
      state.user_output = fail.user_output;
    }
    if (state.token != kNone && !tokens_[static_cast<std::size_t>(state.token)].special) {
      state.user_output = static_cast<std::int32_t>(s);
      any_user_ = true;
    }
    for (std::uint32_t c = 0; c < state.children; ++c) {
      State& next = states_[state.first_child + c];
      next.fail = s == 0 ? 0 : step(state.fail, next.byte);
    }
  }
}

std::uint32_t AddedTokens::child(std::uint32_t state, unsigned char byte) const {
  if (state == 0) return root_child_[byte];
  const State& from = states_[state];
  const State* first = states_.data() + from.first_child;
  const State* last = first + from.children;
  const State* found = std::lower_bound(first, last, byte,
                                        [](const State& s, unsigned char b) { return s.byte < b; });
  if (found == last || found->byte != byte) return 0;
  return static_cast<std::uint32_t>(found - states_.data());
}

std::uint32_t AddedTokens::step(std::uint32_t state, unsigned char byte) const {
  for (;;) {
    const std::uint32_t next = child(state, byte);
    if (next != 0 || state == 0) return next;
    state = states_[state].fail;
  }
}

// The longest token spelled at `state`, special ones only up to `special_room` bytes.
const AddedToken* AddedTokens::longest_allowed(std::uint32_t state,
                                               std::size_t special_room) const {
  const State& from = states_[state];
  std::int32_t at = from.token != kNone ? static_cast<std::int32_t>(state) : from.next_output;
  if (special_room == 0) at = from.user_output;
  while (at != kNone) {
    const State& output = states_[static_cast<std::size_t>(at)];
    const AddedToken& token = tokens_[static_cast<std::size_t>(output.token)];
    if (!token.special || token.text.size() <= special_room) return &token;
    at = output.next_output;
  }
  return nullptr;
}

std::vector<AddedMatch> AddedTokens::find(std::string_view text,
                                          std::span<const TextRange> special_ranges) const {
  if (tokens_.empty() || (!any_user_ && special_ranges.empty())) return {};
  std::vector<AddedMatch> backwards;
  std::size_t ranges = special_ranges.size();
  std::uint32_t state = 0;
  for (std::size_t at = text.size(); at-- > 0;) {
    state = step(state, static_cast<unsigned char>(text[at]));
    if (state == 0) continue;
    while (ranges > 0 && special_ranges[ranges - 1].begin > at) --ranges;
    const std::size_t end = ranges > 0 ? special_ranges[ranges - 1].end : 0;
    const AddedToken* token = longest_allowed(state, end > at ? end - at : 0);
    if (token != nullptr) backwards.push_back({at, token->text.size(), token->id});
  }
  std::vector<AddedMatch> matches;
  std::size_t free = 0;  // first byte that no match has taken
  for (std::size_t i = backwards.size(); i-- > 0;) {
    if (backwards[i].begin < free) continue;
    matches.push_back(backwards[i]);
    free = backwards[i].begin + backwards[i].length;
  }
  return matches;
}

}  // namespace sluice
