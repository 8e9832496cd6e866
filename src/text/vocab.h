// The vocabulary of a model file: texts, types and scores of tokens, and the ids that have a role.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, section "Tokenizer".
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/gguf/gguf.h"
#include "src/text/hash_index.h"
#include "src/text/tokenizer.h"

namespace sluice {

enum class VocabModel { kSpm, kBpe };

// Where roles are given by keys; kNoToken when absent.
struct SpecialIds {
  std::int32_t bos = kNoToken;
  std::int32_t eos = kNoToken;
  std::int32_t eot = kNoToken;
  std::int32_t eom = kNoToken;
  std::int32_t unk = kNoToken;
  std::int32_t pad = kNoToken;
};

class Vocab {
 public:
  // Checks the vocabulary and indexes it. Keeps views into `file`, which must outlive it.
  static Result<Vocab> load(const GgufFile& file);

  VocabModel model() const { return model_; }
  std::int32_t size() const { return static_cast<std::int32_t>(texts_.size()); }
  bool contains(std::int32_t id) const { return id >= 0 && id < size(); }
  // The three below require contains(id).
  std::string_view text(std::int32_t id) const { return texts_[static_cast<std::size_t>(id)]; }
  TokenType type(std::int32_t id) const { return types_[static_cast<std::size_t>(id)]; }
  float score(std::int32_t id) const;  // 0 for "gpt2"
  std::size_t longest_text() const { return longest_text_; }

  // Id of a stored text, or kNoToken.
  std::int32_t find(std::string_view text) const { return find(text, hash_bytes(text)); }
  std::int32_t find(std::string_view text, std::uint64_t hash) const;
  // The same, for text met while merging: control, unknown and byte tokens are not found, so a text
  // can never turn into one of them by the way it is merged.
  std::int32_t find_plain(std::string_view text, std::uint64_t hash) const;

  const SpecialIds& special() const { return special_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }
  bool add_space_prefix() const { return add_space_prefix_; }
  std::span<const std::int32_t> eog_ids() const { return eog_ids_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  // What stands for text without a token: the unknown token if it is nothing else besides (some
  // files name their end-of-text token), else kNoToken, and the text is left out.
  std::int32_t unknown_id() const;
  // Warns of bytes that have no token, if characters in use need them.
  void warn_missing_bytes(const std::array<bool, 256>& missing);
  void warn(std::string line) { warnings_.push_back(std::move(line)); }
  // What a BPE file adds depends on its pre-tokenizer when it does not say.
  void set_default_add_bos(bool add) {
    if (!add_bos_given_) add_bos_ = add && special_.bos != kNoToken;
  }

 private:
  Status read_tokens(const GgufFile& file);
  Status read_types(const GgufFile& file);
  Status read_scores(const GgufFile& file);
  Status read_special_ids(const GgufFile& file);
  Status read_flags(const GgufFile& file);
  void guess_types();
  void mark_control(std::int32_t id) { types_[static_cast<std::size_t>(id)] = TokenType::kControl; }
  void find_end_tokens(const GgufFile& file);

  VocabModel model_ = VocabModel::kBpe;
  std::span<const std::string_view> texts_;
  std::vector<TokenType> types_;
  std::span<const std::byte> scores_;  // packed floats, unaligned
  HashIndex index_;
  std::size_t longest_text_ = 0;
  SpecialIds special_;
  bool add_bos_ = false;
  bool add_bos_given_ = false;
  bool add_eos_ = false;
  bool add_space_prefix_ = false;
  std::vector<std::int32_t> eog_ids_;
  std::vector<std::string> warnings_;
};

}  // namespace sluice
