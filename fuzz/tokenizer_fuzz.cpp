// Any bytes over small vocabularies of both kinds: ids stay in range, decoding gives the text back,
// texts in parts equal the whole, and content never becomes a control token.
// Input: vocabulary, number of parts, for each part its length and whether it is content; the rest
// is the text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/pretokenizers.h"
#include "src/text/utf8.h"
#include "tests/tiny_vocab.h"

namespace {

using namespace sluice;
using Ids = std::vector<std::int32_t>;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

// One tokenizer for each pre-tokenizer, and SentencePiece with and without a space in front.
const std::deque<test::TinyTokenizer>& tokenizers() {
  static const auto* all = [] {
    auto* list = new std::deque<test::TinyTokenizer>;
    list->emplace_back(test::tiny_spm());
    test::TinyVocab without = test::tiny_spm();
    without.flags["add_space_prefix"] = false;
    list->emplace_back(without);
    for (const PreTokenizer& row : all_pretokenizers()) {
      list->emplace_back(test::tiny_bpe(std::string(row.name())));
    }
    for (const auto& tiny : *list) require(tiny.tokenizer != nullptr, tiny.error.c_str());
    return list;
  }();
  return *all;
}

Ids valid_ids(const Tokenizer& tokenizer, Result<Ids> ids) {
  require(ids.ok(), "encoding succeeds");
  for (const std::int32_t id : *ids) {
    require(id >= 0 && id < tokenizer.vocab_size(), "ids are in the vocabulary");
  }
  return std::move(ids).value();
}

bool is_special(const Tokenizer& tokenizer, std::int32_t id) {
  return tokenizer.type(id) == TokenType::kControl || tokenizer.type(id) == TokenType::kUnknown;
}

// What decoding gives for ill-formed bytes and for the sign that is a space in SentencePiece texts.
std::string expected_text(const Tokenizer& tokenizer, std::string_view text) {
  std::string valid = replace_invalid_utf8(text);
  if (tokenizer.model() != "llama") return valid;
  std::string out;
  for (std::string_view rest = valid; !rest.empty();) {
    const bool sign = rest.starts_with("▁");
    out += sign ? ' ' : rest[0];
    rest.remove_prefix(sign ? 3 : 1);
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const Tokenizer& tokenizer = *tokenizers()[data[0] % tokenizers().size()];
  const std::size_t part_count = std::min<std::size_t>(data[1] % 8, (size - 2) / 2);
  const std::uint8_t* part_data = data + 2;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2 + 2 * part_count,
                              size - 2 - 2 * part_count);
  const std::string expected = expected_text(tokenizer, text);
  // Added tokens get a space in front of what follows them, and decoding takes only the first away.
  const bool exact = !tokenizer.adds_space_prefix();

  const Ids plain = valid_ids(tokenizer, tokenizer.encode(text));
  for (const std::int32_t id : plain) require(!is_special(tokenizer, id), "plain text is plain");
  if (exact) require(tokenizer.decode(plain) == expected, "plain ids decode to the text");
  const Ids special = valid_ids(tokenizer, tokenizer.encode(text, {.parse_special = true}));
  if (exact) require(tokenizer.decode(special, true) == expected, "parsed ids decode to the text");

  std::vector<TextPart> parts;
  std::string_view rest = text;
  for (std::size_t p = 0; p < part_count; ++p) {
    const std::size_t length = std::min<std::size_t>(part_data[2 * p], rest.size());
    parts.push_back({std::string(rest.substr(0, length)), (part_data[2 * p + 1] & 1) != 0});
    rest.remove_prefix(length);
  }
  parts.push_back({std::string(rest), part_count % 2 == 0});
  const Ids mixed = valid_ids(tokenizer, tokenizer.encode_parts(parts, false));
  if (exact) require(tokenizer.decode(mixed, true) == expected, "ids of parts decode to the text");
  for (TextPart& part : parts) part.content = true;
  require(valid_ids(tokenizer, tokenizer.encode_parts(parts, false)) == plain,
          "parts of content equal the plain text");
  for (TextPart& part : parts) part.content = false;
  require(valid_ids(tokenizer, tokenizer.encode_parts(parts, false)) == special,
          "parts of a template equal the parsed text");
  // A control token takes all of its bytes from the template.
  const auto specials = [&](const Ids& ids) {
    return std::count_if(ids.begin(), ids.end(),
                         [&](std::int32_t id) { return is_special(tokenizer, id); });
  };
  require(specials(mixed) <= specials(special), "content adds no control token");
  return 0;
}
