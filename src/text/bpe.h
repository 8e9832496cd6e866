// Encoding with a "gpt2" (byte-level BPE) vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/gguf/gguf.h"
#include "src/text/hash_index.h"
#include "src/text/merge.h"
#include "src/text/pretokenizers.h"
#include "src/text/regex_split.h"
#include "src/text/vocab.h"

namespace sluice {

// Byte-level vocabularies spell each byte as a printable character: those of Latin-1 stand for
// themselves, the others are moved to U+0100 and up (bytes_to_unicode() of GPT-2's encoder.py).
std::string_view bpe_char_of_byte(unsigned char byte);

// The bytes that a stored text spells; characters that spell no byte stay as they are.
std::string bpe_text_to_bytes(std::string_view text);

class BpeEncoder {
 public:
  // Reads the merges and the pre-tokenizer of a file. Adds warnings to `vocab`. Keeps views into
  // `file`.
  static Result<BpeEncoder> load(const GgufFile& file, Vocab& vocab);

  // Working memory of one call, reused from one piece of text to the next.
  struct Scratch {
    std::string text;
    std::vector<MergeSymbol> symbols;
    std::vector<MergeCandidate<std::uint32_t>> heap;
  };

  // Appends the ids of `text` (valid UTF-8).
  Status encode(const Vocab& vocab, std::string_view text, Scratch& scratch,
                std::vector<std::int32_t>& ids) const;

  const PreTokenizer& pretokenizer() const { return *pretokenizer_; }

 private:
  BpeEncoder(const PreTokenizer& pretokenizer, RegexSplitter splitter)
      : pretokenizer_(&pretokenizer), splitter_(std::move(splitter)) {}

  Status read_merges(const GgufFile& file);
  std::int64_t rank_of(std::string_view text, const MergeSymbol& left,
                       const MergeSymbol& right) const;
  void encode_piece(const Vocab& vocab, std::string_view piece, Scratch& scratch,
                    std::vector<std::int32_t>& ids) const;

  const PreTokenizer* pretokenizer_;
  RegexSplitter splitter_;
  std::span<const std::string_view> merges_;  // "left right", best first
  HashIndex merge_index_;
};

}  // namespace sluice
