#include "src/engine/speculation/prompt_lookup.h"

#include <algorithm>

namespace sluice {
namespace {

// A separator that no token equals, so that nothing matches across the end of the corpus.
constexpr std::int32_t kBorder = -1;
// Agreement beyond this tells nothing more.
constexpr std::size_t kMeasured = 16;

std::uint64_t hash(std::span<const std::int32_t> tokens) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const std::int32_t token : tokens) {
    h = (h ^ static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
  }
  return h;
}

}  // namespace

PromptLookup::PromptLookup(std::vector<std::int32_t> corpus) : all_(std::move(corpus)) {
  if (!all_.empty()) all_.push_back(kBorder);
  corpus_ = all_.size();
  for (; indexed_ < all_.size(); ++indexed_) add(indexed_);
}

void PromptLookup::add(std::size_t at) {
  for (std::size_t n = kShortest; n <= kLongest && n <= at; ++n) {
    last_[n - kShortest][hash(std::span(all_).subspan(at - n, n))] = static_cast<std::uint32_t>(at);
  }
}

Status PromptLookup::accept(std::int32_t token) {
  all_.push_back(token);
  for (; indexed_ < all_.size(); ++indexed_) add(indexed_);
  return {};
}

Status PromptLookup::begin(std::span<const std::int32_t> tokens, const SamplingParams&,
                           std::uint32_t) {
  const std::size_t known = all_.size() - corpus_;
  const bool grew =
      tokens.size() >= known &&
      std::equal(all_.begin() + static_cast<std::ptrdiff_t>(corpus_), all_.end(), tokens.begin());
  if (grew) {
    all_.insert(all_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(known), tokens.end());
  } else {  // another text: places of the old one would point into the wrong tokens
    all_.resize(corpus_);
    all_.insert(all_.end(), tokens.begin(), tokens.end());
    for (auto& map : last_) map.clear();
    indexed_ = 0;
  }
  for (; indexed_ < all_.size(); ++indexed_) add(indexed_);
  return {};
}

PromptLookup::Match PromptLookup::match() const {
  const std::size_t end = all_.size();
  for (std::size_t n = std::min(kLongest, end - corpus_); n >= kShortest; --n) {
    const auto& map = last_[n - kShortest];
    const auto found = map.find(hash(std::span(all_).subspan(end - n, n)));
    if (found == map.end()) continue;
    const std::size_t next = found->second;
    std::size_t length = 0;
    while (length < kMeasured && length < next && length < end - corpus_ &&
           all_[next - 1 - length] == all_[end - 1 - length]) {
      ++length;
    }
    if (length >= n) return {next, length};  // and not only the same hash
  }
  return {};
}

std::size_t PromptLookup::confidence_of(std::size_t length) {
  if (length >= 12) return 3;
  if (length >= 6) return 2;
  return length >= 4 ? 1 : 0;
}

std::size_t PromptLookup::peek() const {
  const Match found = match();
  return found.length == 0 ? kDraftClasses : confidence_of(found.length);
}

Result<Draft> PromptLookup::propose(const DraftContext&, std::size_t most) {
  Draft draft;
  const Match found = match();
  if (found.length == 0) return draft;
  draft.confidence = confidence_of(found.length);
  // A match that runs into the end of the text goes on with what it proposed itself: a repetition.
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t place = found.next + i;
    const std::int32_t token =
        place < all_.size() ? all_[place] : draft.tokens[place - all_.size()];
    if (token == kBorder) break;
    draft.tokens.push_back(token);
  }
  return draft;
}

}  // namespace sluice
