// Text to token ids and back, as the vocabulary of a model file defines it.
//
// Two kinds of vocabulary (key tokenizer.ggml.model) are known:
//   "llama"  SentencePiece BPE: characters are merged in order of score; what is left over becomes
//            byte tokens. https://github.com/google/sentencepiece
//   "gpt2"   byte-level BPE: the text is cut by the regexes of tokenizer.ggml.pre (see
//            pretokenizers.h), then the pairs of each piece are merged in order of rank.
// Ids agree with llama.cpp's for the same file, except where a comment below says otherwise.
//
// Bytes that are not UTF-8: each maximal ill-formed sequence is read as one U+FFFD, in every way in
// (utf8.h). Text around it keeps its ids; NUL is a character like any other.
//
// Time grows linearly with the length of the text (times a logarithm for one very long word), and
// recursion is used nowhere.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/gguf/gguf.h"
#include "src/text/text_part.h"

namespace sluice {

// Numbered as in files (tokenizer.ggml.token_type).
enum class TokenType : std::uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Stands for "the vocabulary has no such token" in the ids below.
inline constexpr std::int32_t kNoToken = -1;

struct TokenizeOptions {
  // Adds BOS in front and EOS behind where the file asks for them (add_bos(), add_eos()).
  bool add_special = false;
  // Control and unknown tokens written out in the text become these tokens. When false they are
  // plain text. User-defined added tokens are always recognised.
  bool parse_special = false;
};

class Tokenizer {
 public:
  // Longer texts are refused.
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 28;

  // `file` must outlive the tokenizer, which keeps views into it. Errors name the key, what was
  // found and what was expected; what can be used but deserves a word is in warnings().
  static Result<std::unique_ptr<Tokenizer>> load(const GgufFile& file);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // All functions below are const and may be called from several threads at once.

  // With add_special, BOS is put in front once, also when the text itself starts with one written
  // out (as llama.cpp does): see has_double_bos(). Fails only for a text above kMaxTextBytes and
  // for lack of memory.
  Result<std::vector<std::int32_t>> encode(std::string_view text,
                                           TokenizeOptions options = {}) const;

  // Encodes the concatenation of `parts`. Tokens form across the borders of parts as in the whole
  // text, but control and unknown tokens are recognised only where every byte of them comes from
  // parts that are not content; user-defined tokens that look like these (<|name|>) are treated
  // alike. With add_special, BOS and EOS are added as the file asks unless the parts already begin
  // or end with them, so there is never more than one.
  Result<std::vector<std::int32_t>> encode_parts(std::span<const TextPart> parts,
                                                 bool add_special) const;

  // Tokens that a text of so many bytes has at least, special ones not counted: what can't fit a
  // context is known without encoding it.
  std::size_t fewest_tokens(std::size_t bytes) const;

  // Whether `ids` starts with BOS twice: the text had one and encode() added another. Worth a
  // warning, since models are not trained on it.
  bool has_double_bos(std::span<const std::int32_t> ids) const;

  // The bytes a token stands for; a character may be spread over several tokens (text_stream.h).
  // Control and unknown tokens stand for nothing unless `render_special`. Empty for an id outside
  // the vocabulary.
  std::string bytes_of(std::int32_t id, bool render_special = false) const;

  // The bytes of all ids. Where encode() puts a space in front of a text (adds_space_prefix()), the
  // space of the first token that is not a control token is taken away again.
  // decode(encode(x)) == x for UTF-8 that contains no added token (and no U+2581 in a "llama"
  // vocabulary, for which it is a space), given a vocabulary with a token
  // for each byte. Where bytes of characters in use are missing there is a warning; text without a
  // token becomes the unknown token or, without one, is left out.
  std::string decode(std::span<const std::int32_t> ids, bool render_special = false) const;

  std::int32_t vocab_size() const;
  // As stored in the file: ▁ for a space in "llama" vocabularies, Ġ and the like in "gpt2" ones.
  // Empty for an id outside the vocabulary.
  std::string_view token_text(std::int32_t id) const;
  // kUndefined for an id outside the vocabulary. Tokens known as end of generation or as fill-in-
  // the-middle marks by their text count as control whatever the file says.
  TokenType type(std::int32_t id) const;
  // The token with exactly this stored text, of any type.
  std::optional<std::int32_t> find_token(std::string_view text) const;

  // kNoToken when absent.
  std::int32_t bos_id() const;
  std::int32_t eos_id() const;
  std::int32_t eot_id() const;  // end of a turn
  std::int32_t unk_id() const;
  std::int32_t pad_id() const;
  bool add_bos() const;
  bool add_eos() const;
  bool adds_space_prefix() const;

  // Every token that ends a generation: those of the EOS, EOT and EOM keys, those known by their
  // text (<|im_end|>, <|eot_id|>, <end_of_turn>, <|end|>, </s>, ...), and the padding, repository
  // and file marks of fill-in-the-middle models. Ascending.
  std::span<const std::int32_t> eog_ids() const;
  bool is_eog(std::int32_t id) const;

  // "llama" or "gpt2".
  std::string_view model() const;
  // Name of the table row that cuts the text (pretokenizers.h); "" for "llama" vocabularies.
  std::string_view pretokenizer() const;
  // One line each, for stderr: an unknown pre-tokenizer, bytes without a token, ...
  const std::vector<std::string>& warnings() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace sluice
