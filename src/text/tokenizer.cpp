#include "src/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <new>
#include <utility>

#include "src/text/added_tokens.h"
#include "src/text/bpe.h"
#include "src/text/spm.h"
#include "src/text/utf8.h"
#include "src/text/vocab.h"

namespace sluice {
namespace {

// A text to encode and the places where control tokens may be recognised in it.
struct MarkedText {
  std::string text;
  std::vector<TextRange> special_ranges;
};

// Replaces ill-formed bytes and moves the ranges along. A character stays with the range in which
// it starts.
void make_valid(MarkedText& marked) {
  if (is_valid_utf8(marked.text)) return;
  std::vector<std::size_t*> borders;  // ascending
  for (TextRange& range : marked.special_ranges) {
    borders.push_back(&range.begin);
    borders.push_back(&range.end);
  }
  std::string out;
  std::size_t next_border = 0;
  std::string_view rest = marked.text;
  const auto move_borders = [&] {
    const std::size_t at = marked.text.size() - rest.size();
    while (next_border < borders.size() && *borders[next_border] <= at) {
      *borders[next_border++] = out.size();
    }
  };
  while (!rest.empty()) {
    move_borders();
    const Utf8Char next = decode_utf8(rest);
    out += next.status == Utf8Status::kValid ? rest.substr(0, next.length) : kReplacementChar;
    rest.remove_prefix(next.length);
  }
  move_borders();
  marked.text = std::move(out);
}

// White space as C's isspace() has it: what "strip" means for added tokens.
bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_special(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

// <|name|> and the like: marks of a chat format, whatever type the file gives them.
bool looks_like_control(std::string_view text) {
  constexpr std::string_view kBar = "\xEF\xBD\x9C";  // U+FF5C, in DeepSeek's marks
  if (text.size() < 5 || !text.starts_with('<') || !text.ends_with('>')) return false;
  const std::string_view inside = text.substr(1, text.size() - 2);
  return (inside.starts_with('|') && inside.ends_with('|')) ||
         (inside.starts_with(kBar) && inside.ends_with(kBar)) || inside == "start_of_turn" ||
         inside == "end_of_turn";
}

// Phi-3 files do not say that most of their added tokens swallow the white space behind them; it is
// known by the name of the model.
bool is_phi3(const GgufFile& file) {
  const Result<std::string_view> name = file.get_string_or("general.name", "");
  if (!name.ok()) return false;
  std::string lower(*name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos;
}

// "▁" of SentencePiece texts back to a space.
std::string unescape_spaces(std::string_view text) {
  constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const bool space = text.starts_with(kSpaceMark);
    out += space ? ' ' : text[0];
    text.remove_prefix(space ? kSpaceMark.size() : 1);
  }
  return out;
}

}  // namespace

struct Tokenizer::State {
  Vocab vocab;
  AddedTokens added;
  // For texts in parts, where user-defined tokens that look like control tokens count as these;
  // absent when there are none.
  std::optional<AddedTokens> added_in_parts;
  std::optional<SpmEncoder> spm;
  std::optional<BpeEncoder> bpe;
  bool strip_right = false;                  // added tokens swallow the white space behind them
  std::array<std::int32_t, 3> keep_right{};  // but not these

  Result<std::vector<std::int32_t>> encode(MarkedText marked, bool put_bos, bool put_eos,
                                           bool in_parts) const;
  Status encode_marked(const MarkedText& marked, const AddedTokens& known,
                       std::vector<std::int32_t>& ids) const;
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const GgufFile& file) {
  auto state = std::make_unique<State>();
  SLUICE_ASSIGN_OR_RETURN(state->vocab, Vocab::load(file));
  Vocab& vocab = state->vocab;
  if (vocab.model() == VocabModel::kSpm) {
    state->spm.emplace(vocab);
  } else {
    SLUICE_ASSIGN_OR_RETURN(state->bpe, BpeEncoder::load(file, vocab));
  }
  std::vector<AddedToken> added, in_parts;
  bool differ = false;
  for (std::int32_t id = 0; id < vocab.size(); ++id) {
    const TokenType type = vocab.type(id);
    const bool special = is_special(type);
    if ((special || type == TokenType::kUserDefined) && !vocab.text(id).empty()) {
      const bool looks_special = special || looks_like_control(vocab.text(id));
      added.push_back({vocab.text(id), id, special});
      in_parts.push_back({vocab.text(id), id, looks_special});
      differ = differ || looks_special != special;
    }
  }
  SLUICE_ASSIGN_OR_RETURN(state->added, AddedTokens::build(std::move(added)));
  if (differ) {
    SLUICE_ASSIGN_OR_RETURN(state->added_in_parts, AddedTokens::build(std::move(in_parts)));
  }
  state->strip_right = is_phi3(file);
  state->keep_right = {vocab.find("<unk>"), vocab.find("<s>"), vocab.find("<|endoftext|>")};
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(state)));
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text,
                                                    TokenizeOptions options) const {
  if (text.size() > kMaxTextBytes) {
    return make_error(ErrorCode::kFailed, "a text of {} bytes cannot be encoded, the limit is {}",
                      text.size(), kMaxTextBytes);
  }
  MarkedText marked{std::string(text), {}};
  if (options.parse_special) marked.special_ranges.push_back({0, text.size()});
  return state_->encode(std::move(marked), options.add_special && add_bos(),
                        options.add_special && add_eos(), false);
}

Result<std::vector<std::int32_t>> Tokenizer::encode_parts(std::span<const TextPart> parts,
                                                          bool add_special) const {
  MarkedText marked;
  for (const TextPart& part : parts) {
    if (part.text.size() > kMaxTextBytes - marked.text.size()) {
      return make_error(ErrorCode::kFailed, "a text of more than {} bytes cannot be encoded",
                        kMaxTextBytes);
    }
    const std::size_t begin = marked.text.size();
    marked.text += part.text;
    if (part.content || part.text.empty()) continue;
    auto& ranges = marked.special_ranges;
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end = marked.text.size();
    } else {
      ranges.push_back({begin, marked.text.size()});
    }
  }
  return state_->encode(std::move(marked), add_special && add_bos(), add_special && add_eos(),
                        true);
}

Result<std::vector<std::int32_t>> Tokenizer::State::encode(MarkedText marked, bool put_bos,
                                                           bool put_eos, bool in_parts) const {
  const std::int32_t bos = vocab.special().bos;
  const std::int32_t eos = vocab.special().eos;
  try {
    std::vector<std::int32_t> ids;
    if (put_bos) ids.push_back(bos);
    make_valid(marked);
    const AddedTokens& known = in_parts && added_in_parts ? *added_in_parts : added;
    SLUICE_RETURN_IF_ERROR(encode_marked(marked, known, ids));
    const bool only_if_absent = in_parts;
    if (put_bos && only_if_absent && ids.size() >= 2 && ids[1] == bos) ids.erase(ids.begin());
    const bool ends_already =
        only_if_absent && ids.size() > (put_bos ? 1u : 0u) && ids.back() == eos;
    if (put_eos && !ends_already) ids.push_back(eos);
    return ids;
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kNoMemory, "not enough memory to encode a text of {} bytes",
                      marked.text.size());
  }
}

Status Tokenizer::State::encode_marked(const MarkedText& marked, const AddedTokens& known,
                                       std::vector<std::int32_t>& ids) const {
  const std::string_view text = marked.text;
  SpmEncoder::Scratch spm_scratch;
  BpeEncoder::Scratch bpe_scratch;
  const auto encode_plain = [&](std::size_t begin, std::size_t end) -> Status {
    if (begin >= end) return {};
    const std::string_view plain = text.substr(begin, end - begin);
    if (bpe) return bpe->encode(vocab, plain, bpe_scratch, ids);
    // A plain stretch always comes after an added token or the start of the text.
    spm->encode(vocab, plain, vocab.add_space_prefix(), spm_scratch, ids);
    return {};
  };
  std::size_t done = 0;
  for (const AddedMatch& match : known.find(text, marked.special_ranges)) {
    if (match.begin < done) continue;  // begins in white space that the one before it swallowed
    SLUICE_RETURN_IF_ERROR(encode_plain(done, match.begin));
    ids.push_back(match.id);
    done = match.begin + match.length;
    const bool strip = strip_right && std::find(keep_right.begin(), keep_right.end(), match.id) ==
                                          keep_right.end();
    while (strip && done < text.size() && is_ascii_space(text[done])) ++done;
  }
  return encode_plain(done, text.size());
}

std::size_t Tokenizer::fewest_tokens(std::size_t bytes) const {
  return bytes / std::max<std::size_t>(1, state_->vocab.longest_text());
}

bool Tokenizer::has_double_bos(std::span<const std::int32_t> ids) const {
  return bos_id() != kNoToken && ids.size() >= 2 && ids[0] == bos_id() && ids[1] == bos_id();
}

std::string Tokenizer::bytes_of(std::int32_t id, bool render_special) const {
  const Vocab& vocab = state_->vocab;
  if (!vocab.contains(id)) return {};
  const std::string_view text = vocab.text(id);
  const TokenType type = vocab.type(id);
  if (is_special(type)) return render_special ? std::string(text) : std::string();
  if (type == TokenType::kUserDefined) return std::string(text);
  if (type == TokenType::kByte) {
    const auto digit = [&](std::size_t i) {
      return static_cast<unsigned>(text[i] <= '9' ? text[i] - '0' : text[i] - 'A' + 10);
    };
    return std::string(1, static_cast<char>(digit(3) << 4 | digit(4)));  // <0xAB>
  }
  if (vocab.model() == VocabModel::kBpe) return bpe_text_to_bytes(text);
  return unescape_spaces(text);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool render_special) const {
  std::string out;
  bool at_start = adds_space_prefix();
  for (const std::int32_t id : ids) {
    const std::string bytes = bytes_of(id, render_special);
    std::string_view kept = bytes;
    if (at_start && !is_special(type(id))) {
      if (kept.starts_with(' ')) kept.remove_prefix(1);
      at_start = false;
    }
    out += kept;
  }
  return out;
}

std::int32_t Tokenizer::vocab_size() const { return state_->vocab.size(); }

std::string_view Tokenizer::token_text(std::int32_t id) const {
  return state_->vocab.contains(id) ? state_->vocab.text(id) : std::string_view();
}

TokenType Tokenizer::type(std::int32_t id) const {
  return state_->vocab.contains(id) ? state_->vocab.type(id) : TokenType::kUndefined;
}

std::optional<std::int32_t> Tokenizer::find_token(std::string_view text) const {
  const std::int32_t id = state_->vocab.find(text);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

std::int32_t Tokenizer::bos_id() const { return state_->vocab.special().bos; }
std::int32_t Tokenizer::eos_id() const { return state_->vocab.special().eos; }
std::int32_t Tokenizer::eot_id() const { return state_->vocab.special().eot; }
std::int32_t Tokenizer::unk_id() const { return state_->vocab.special().unk; }
std::int32_t Tokenizer::pad_id() const { return state_->vocab.special().pad; }
bool Tokenizer::add_bos() const { return state_->vocab.add_bos(); }
bool Tokenizer::add_eos() const { return state_->vocab.add_eos(); }
bool Tokenizer::adds_space_prefix() const { return state_->vocab.add_space_prefix(); }

std::span<const std::int32_t> Tokenizer::eog_ids() const { return state_->vocab.eog_ids(); }

bool Tokenizer::is_eog(std::int32_t id) const {
  const std::span<const std::int32_t> ids = eog_ids();
  return std::binary_search(ids.begin(), ids.end(), id);
}

std::string_view Tokenizer::model() const { return state_->bpe ? "gpt2" : "llama"; }

std::string_view Tokenizer::pretokenizer() const {
  return state_->bpe ? state_->bpe->pretokenizer().name() : std::string_view();
}

const std::vector<std::string>& Tokenizer::warnings() const { return state_->vocab.warnings(); }

}  // namespace sluice
