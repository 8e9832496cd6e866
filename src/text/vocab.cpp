#include "src/text/vocab.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "src/gguf/describe.h"

namespace sluice {
namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";

// Texts by which a token is known to end a turn or a generation, whether or not a key says so.
// The first found in the file is the end of a turn when there is no key for it.
constexpr std::array<std::string_view, 11> kTurnEndTexts = {
    "<|eot_id|>",       // Llama 3
    "<|im_end|>",       // ChatML
    "<end_of_turn>",    // Gemma
    "<|end|>",          // Phi 3
    "<|endoftext|>",    // GPT-2 and many after it
    "<|end_of_text|>",  // Llama 3, Granite
    "<EOT>",
    "_<EOT>",
    "[EOT]",  // CodeLlama, Kimi
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",  // DeepSeek
    "<end_of_utterance>",                                  // SmolVLM
};
constexpr std::array<std::string_view, 8> kOtherEndTexts = {
    "</s>", "<eos>", "[EOS]", "<|eom_id|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>",
};

// Marks of fill-in-the-middle models. Those of padding, repository and file end a generation.
constexpr std::array<std::string_view, 5> kFimPadTexts = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>",
                                                          "<PAD>", "[PAD]"};
constexpr std::array<std::string_view, 5> kFimRepoTexts = {"<|fim_repo|>", "<|repo_name|>",
                                                           "<fim-repo>", "<REPO>", "<reponame>"};
constexpr std::array<std::string_view, 1> kFimFileTexts = {"<|file_sep|>"};
constexpr std::array<std::string_view, 18> kFimTexts = {
    "<|fim_prefix|>", "<fim-prefix>",      "<fim_prefix>",
    "<PRE>",          "\xE2\x96\x81<PRE>", "<|code_prefix|>",  //
    "<|fim_suffix|>", "<fim-suffix>",      "<fim_suffix>",
    "<SUF>",          "\xE2\x96\x81<SUF>", "<|code_suffix|>",  //
    "<|fim_middle|>", "<fim-middle>",      "<fim_middle>",
    "<MID>",          "\xE2\x96\x81<MID>", "<|code_middle|>",
};

// "<0x41>"
bool is_byte_text(std::string_view text) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && hex(text[3]) && hex(text[4]) &&
         text[5] == '>';
}

}  // namespace

Result<Vocab> Vocab::load(const GgufFile& file) {
  Vocab vocab;
  SLUICE_ASSIGN_OR_RETURN(const auto model, file.get_string(kModelKey));
  if (model != "llama" && model != "gpt2") {
    return bad_input(
        "'{}': key '{}' is '{}', expected 'llama' or 'gpt2'; other vocabularies are "
        "not supported",
        file.name(), kModelKey, printable(model));
  }
  vocab.model_ = model == "llama" ? VocabModel::kSpm : VocabModel::kBpe;
  SLUICE_RETURN_IF_ERROR(vocab.read_tokens(file));
  SLUICE_RETURN_IF_ERROR(vocab.read_types(file));
  SLUICE_RETURN_IF_ERROR(vocab.read_scores(file));
  SLUICE_RETURN_IF_ERROR(vocab.read_special_ids(file));
  SLUICE_RETURN_IF_ERROR(vocab.read_flags(file));
  return vocab;
}

float Vocab::score(std::int32_t id) const {
  if (scores_.empty()) return 0.0f;
  float score;
  std::memcpy(&score, scores_.data() + sizeof(float) * static_cast<std::size_t>(id), sizeof(float));
  return score;
}

std::int32_t Vocab::find(std::string_view text, std::uint64_t hash) const {
  return static_cast<std::int32_t>(
      index_.find(hash, [&](std::uint32_t i) { return texts_[i] == text; }));
}

std::int32_t Vocab::find_plain(std::string_view text, std::uint64_t hash) const {
  const std::int32_t id = find(text, hash);
  if (id == kNoToken) return kNoToken;
  const TokenType found = type(id);
  const bool special =
      found == TokenType::kControl || found == TokenType::kUnknown || found == TokenType::kByte;
  return special ? kNoToken : id;
}

std::int32_t Vocab::unknown_id() const {
  const std::int32_t unk = special_.unk;
  return unk != kNoToken && type(unk) == TokenType::kUnknown ? unk : kNoToken;
}

void Vocab::warn_missing_bytes(const std::array<bool, 256>& missing) {
  int count = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool never = byte == 0xc0 || byte == 0xc1 || byte > 0xf4;  // not in UTF-8
    const bool unassigned = byte == 0xf1 || byte == 0xf2;            // planes 4 to 11
    count += missing[byte] && !never && !unassigned;
  }
  if (count == 0) return;
  warn(fmt::format("the vocabulary has no token for {} of the bytes that text is made of: they {}",
                   count, unknown_id() == kNoToken ? "are left out" : "become the unknown token"));
}

Status Vocab::read_tokens(const GgufFile& file) {
  SLUICE_ASSIGN_OR_RETURN(const GgufArray* tokens, file.get_array(kTokensKey));
  if (tokens->element_type != GgufValueType::kString || tokens->strings.empty()) {
    return bad_input("'{}': key '{}' is an array of {} {}, expected strings, at least one",
                     file.name(), kTokensKey, tokens->count,
                     gguf_value_type_name(tokens->element_type));
  }
  texts_ = tokens->strings;
  index_.reset(texts_.size());
  for (std::uint32_t i = 0; i < texts_.size(); ++i) {
    const std::string_view text = texts_[i];
    longest_text_ = std::max(longest_text_, text.size());
    if (text.empty()) continue;  // a gap in the numbering; never matched
    const auto other =
        index_.insert(hash_bytes(text), i, [&](std::uint32_t j) { return texts_[j] == text; });
    if (other == HashIndex::kTooManyCollisions) {
      return bad_input(
          "'{}': the texts of key '{}' were made to collide in a hash table; they are "
          "no real vocabulary",
          file.name(), kTokensKey);
    }
    if (other != HashIndex::kInserted) {
      return bad_input(
          "'{}': key '{}' has the text '{}' twice, as tokens {} and {}; expected every "
          "text once",
          file.name(), kTokensKey, printable(text, 60), other, i);
    }
  }
  return {};
}

Status Vocab::read_types(const GgufFile& file) {
  types_.assign(texts_.size(), TokenType::kNormal);
  if (file.find(kTypesKey) == nullptr) return {};  // see guess_types()
  SLUICE_ASSIGN_OR_RETURN(const GgufArray* types, file.get_array(kTypesKey));
  const bool integers =
      types->element_type == GgufValueType::kInt32 || types->element_type == GgufValueType::kUint32;
  if (!integers || types->count != texts_.size()) {
    return bad_input("'{}': key '{}' is an array of {} {}, expected {} INT32, one a token of '{}'",
                     file.name(), kTypesKey, types->count,
                     gguf_value_type_name(types->element_type), texts_.size(), kTokensKey);
  }
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    std::uint32_t type;
    std::memcpy(&type, types->packed.data() + sizeof(type) * i, sizeof(type));
    if (type > static_cast<std::uint32_t>(TokenType::kByte)) {
      return bad_input("'{}': key '{}' has type {} for token {}, expected 0 to 6", file.name(),
                       kTypesKey, static_cast<std::int32_t>(type), i);
    }
    types_[i] = static_cast<TokenType>(type);
    if (types_[i] == TokenType::kByte && !is_byte_text(texts_[i])) {
      return bad_input(
          "'{}': token {} is of type byte but its text is '{}', expected <0x00> to "
          "<0xFF>",
          file.name(), i, printable(texts_[i], 60));
    }
  }
  return {};
}

Status Vocab::read_scores(const GgufFile& file) {
  if (model_ == VocabModel::kBpe) return {};  // merges have ranks instead
  SLUICE_ASSIGN_OR_RETURN(const GgufArray* scores, file.get_array(kScoresKey));
  if (scores->element_type != GgufValueType::kFloat32 || scores->count != texts_.size()) {
    return bad_input(
        "'{}': key '{}' is an array of {} {}, expected {} FLOAT32, one a token of '{}'",
        file.name(), kScoresKey, scores->count, gguf_value_type_name(scores->element_type),
        texts_.size(), kTokensKey);
  }
  scores_ = scores->packed;
  for (std::int32_t id = 0; id < size(); ++id) {
    if (std::isnan(score(id))) {
      return bad_input("'{}': key '{}' is NaN for token {}, expected a number", file.name(),
                       kScoresKey, id);
    }
  }
  return {};
}

Status Vocab::read_special_ids(const GgufFile& file) {
  // Writers say "none" by leaving the key out, some by the largest 32-bit number.
  const auto read = [&](std::string_view name, std::int32_t fallback) -> Result<std::int32_t> {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    if (file.find(key) == nullptr) return fallback < size() ? fallback : kNoToken;
    SLUICE_ASSIGN_OR_RETURN(const auto id, file.get_uint(key));
    if (id == 0xffffffffu) return kNoToken;
    if (id >= texts_.size()) {
      return bad_input("'{}': key '{}' is {}, expected an id below {} (the number of tokens)",
                       file.name(), key, id, texts_.size());
    }
    return static_cast<std::int32_t>(id);
  };
  const bool spm = model_ == VocabModel::kSpm;  // SentencePiece has customary ids
  SLUICE_ASSIGN_OR_RETURN(special_.bos, read("bos", spm ? 1 : kNoToken));
  SLUICE_ASSIGN_OR_RETURN(special_.eos, read("eos", spm ? 2 : kNoToken));
  SLUICE_ASSIGN_OR_RETURN(special_.unk, read("unknown", spm ? 0 : kNoToken));
  SLUICE_ASSIGN_OR_RETURN(special_.eot, read("eot", kNoToken));
  SLUICE_ASSIGN_OR_RETURN(special_.eom, read("eom", kNoToken));
  SLUICE_ASSIGN_OR_RETURN(special_.pad, read("padding", kNoToken));
  if (file.find(kTypesKey) == nullptr) guess_types();
  for (const std::string_view fim : {"fim_pad", "fim_rep", "fim_sep"}) {
    SLUICE_ASSIGN_OR_RETURN(const auto id, read(fim, kNoToken));
    if (id != kNoToken) eog_ids_.push_back(id);
  }
  find_end_tokens(file);
  return {};
}

// For a file that says nothing about types.
void Vocab::guess_types() {
  for (const std::int32_t id :
       {special_.bos, special_.eos, special_.eot, special_.eom, special_.pad}) {
    if (id != kNoToken) mark_control(id);
  }
  if (special_.unk != kNoToken) {
    types_[static_cast<std::size_t>(special_.unk)] = TokenType::kUnknown;
  }
  if (model_ != VocabModel::kSpm) return;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (is_byte_text(texts_[i])) types_[i] = TokenType::kByte;
  }
}

void Vocab::find_end_tokens(const GgufFile& file) {
  const auto known = [&](std::string_view text) {
    const std::int32_t id = find(text);
    if (id != kNoToken) mark_control(id);
    return id;
  };
  const auto first_known = [&](std::span<const std::string_view> texts) {
    std::int32_t first = kNoToken;
    for (const std::string_view text : texts) {
      if (first == kNoToken) first = known(text);
    }
    return first;
  };
  for (const std::string_view text : kFimTexts) known(text);
  for (const std::span<const std::string_view> texts :
       {std::span<const std::string_view>(kFimPadTexts),
        std::span<const std::string_view>(kFimRepoTexts),
        std::span<const std::string_view>(kFimFileTexts)}) {
    eog_ids_.push_back(first_known(texts));
  }
  for (const std::string_view text : kTurnEndTexts) {
    const std::int32_t id = known(text);
    eog_ids_.push_back(id);
    if (special_.eot == kNoToken) special_.eot = id;
  }
  for (const std::string_view text : kOtherEndTexts) eog_ids_.push_back(known(text));
  if (special_.eom == kNoToken) special_.eom = find("<|eom_id|>");
  // In the harmony format <|end|> ends a message, after which the model goes on.
  const bool harmony = find("<|return|>") != kNoToken && find("<|call|>") != kNoToken;
  if (harmony) std::erase(eog_ids_, find("<|end|>"));
  for (const std::int32_t id : {special_.eos, special_.eot, special_.eom}) {
    if (!(harmony && id == find("<|end|>"))) eog_ids_.push_back(id);
  }
  std::erase(eog_ids_, kNoToken);
  std::sort(eog_ids_.begin(), eog_ids_.end());
  eog_ids_.erase(std::unique(eog_ids_.begin(), eog_ids_.end()), eog_ids_.end());
  if (eog_ids_.empty()) {
    warn(
        fmt::format("'{}' names no end-of-generation token: generation ends only at -n, a stop "
                    "string or a full context",
                    file.name()));
  }
}

Status Vocab::read_flags(const GgufFile& file) {
  const bool spm = model_ == VocabModel::kSpm;
  add_bos_given_ = file.find("tokenizer.ggml.add_bos_token") != nullptr;
  SLUICE_ASSIGN_OR_RETURN(add_bos_, file.get_bool_or("tokenizer.ggml.add_bos_token", spm));
  SLUICE_ASSIGN_OR_RETURN(add_eos_, file.get_bool_or("tokenizer.ggml.add_eos_token", false));
  if (add_bos_ && special_.bos == kNoToken) {
    return bad_input(
        "'{}': key 'tokenizer.ggml.add_bos_token' is true but there is no "
        "'tokenizer.ggml.bos_token_id', expected an id",
        file.name());
  }
  if (add_eos_ && special_.eos == kNoToken) {
    return bad_input(
        "'{}': key 'tokenizer.ggml.add_eos_token' is true but there is no "
        "'tokenizer.ggml.eos_token_id', expected an id",
        file.name());
  }
  SLUICE_ASSIGN_OR_RETURN(const bool prefix,
                          file.get_bool_or("tokenizer.ggml.add_space_prefix", spm));
  add_space_prefix_ = prefix && spm;  // a space in front is a habit of SentencePiece alone
  SLUICE_ASSIGN_OR_RETURN(const bool squeeze,
                          file.get_bool_or("tokenizer.ggml.remove_extra_whitespaces", false));
  if (squeeze) {
    warn(
        fmt::format("'{}': key 'tokenizer.ggml.remove_extra_whitespaces' is ignored: runs of "
                    "spaces are kept",
                    file.name()));
  }
  return {};
}

}  // namespace sluice
