#include "src/engine/speculation/prompt_lookup.h"

#include <algorithm>

#include "src/engine/token_hash.h"

namespace sluice {
namespace {

// Agreement beyond this tells nothing more.
constexpr std::size_t kMeasured = 16;

}  // namespace

void NgramIndex::append(std::int32_t token) {
  // Now the n-grams in front of it are followed by something.
  const std::size_t at = tokens_.size();
  for (std::size_t n = kShortest; n <= kLongest && n <= at; ++n) {
    last_[n - kShortest][token_hash(std::span(tokens_).subspan(at - n, n))] =
        static_cast<std::uint32_t>(at);
  }
  tokens_.push_back(token);
}

void NgramIndex::clear() {
  tokens_.clear();
  for (auto& map : last_) map.clear();
}

std::optional<std::size_t> NgramIndex::find(std::span<const std::int32_t> ngram) const {
  const auto& map = last_[ngram.size() - kShortest];
  const auto found = map.find(token_hash(ngram));
  if (found == map.end()) return std::nullopt;
  return found->second;
}

PromptLookup::PromptLookup(std::shared_ptr<const NgramIndex> corpus) : corpus_(std::move(corpus)) {}

std::shared_ptr<const NgramIndex> PromptLookup::index(std::span<const std::int32_t> corpus) {
  auto index = std::make_shared<NgramIndex>();
  for (const std::int32_t token : corpus) index->append(token);
  return index;
}

Status PromptLookup::accept(std::int32_t token) {
  text_.append(token);
  return {};
}

Status PromptLookup::begin(std::span<const std::int32_t> tokens, const SamplingParams&,
                           std::uint32_t) {
  const std::vector<std::int32_t>& known = text_.tokens();
  const bool grew =
      tokens.size() >= known.size() && std::equal(known.begin(), known.end(), tokens.begin());
  if (!grew) text_.clear();  // another text
  for (std::size_t i = known.size(); i < tokens.size(); ++i) text_.append(tokens[i]);
  return {};
}

PromptLookup::Match PromptLookup::match() const {
  const std::vector<std::int32_t>& text = text_.tokens();
  const std::size_t end = text.size();
  for (std::size_t n = std::min(NgramIndex::kLongest, end); n >= NgramIndex::kShortest; --n) {
    // The text itself is nearer than the corpus.
    for (const NgramIndex* index : {&text_, corpus_.get()}) {
      if (index == nullptr) continue;
      const auto next = index->find(std::span(text).subspan(end - n, n));
      if (!next) continue;
      const std::vector<std::int32_t>& source = index->tokens();
      std::size_t length = 0;
      while (length < kMeasured && length < *next && length < end &&
             source[*next - 1 - length] == text[end - 1 - length]) {
        ++length;
      }
      if (length >= n) return {&source, *next, length};  // and not only the same hash
    }
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
  const std::vector<std::int32_t>& source = *found.source;
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t place = found.next + i;
    if (place >= source.size() && &source != &text_.tokens()) break;  // the end of the corpus
    draft.tokens.push_back(place < source.size() ? source[place]
                                                 : draft.tokens[place - source.size()]);
  }
  return draft;
}

}  // namespace sluice
