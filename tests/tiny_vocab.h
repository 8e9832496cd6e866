// Small vocabularies made in memory, for tests and fuzzing without any file.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/gguf/gguf.h"
#include "src/text/bpe.h"
#include "src/text/tokenizer.h"

namespace sluice::test {

// What a vocabulary file holds; to_gguf() writes it out. Empty lists are left out.
struct TinyVocab {
  std::string model;
  std::optional<std::string> pre;
  std::string name = "tiny";
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  std::vector<std::string> merges;
  std::map<std::string, std::uint32_t> ids;  // "bos" for tokenizer.ggml.bos_token_id
  std::map<std::string, bool> flags;         // "add_bos_token" for tokenizer.ggml.add_bos_token

  std::int32_t add(std::string text, TokenType type = TokenType::kNormal, float score = 0) {
    tokens.push_back(std::move(text));
    types.push_back(static_cast<std::int32_t>(type));
    if (model == "llama") scores.push_back(score);
    return static_cast<std::int32_t>(tokens.size()) - 1;
  }
  // A pair to merge, and the token it gives.
  void add_merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    add(left + right);
  }
};

class GgufBytes {
 public:
  void text(std::string_view key, std::string_view value) {
    start(key, GgufValueType::kString);
    put_text(value);
  }
  void number(std::string_view key, std::uint32_t value) {
    start(key, GgufValueType::kUint32);
    put(value);
  }
  void flag(std::string_view key, bool value) {
    start(key, GgufValueType::kBool);
    put(static_cast<std::uint8_t>(value));
  }
  void texts(std::string_view key, std::span<const std::string> values) {
    start_array(key, GgufValueType::kString, values.size());
    for (const std::string& value : values) put_text(value);
  }
  template <class T>
  void numbers(std::string_view key, GgufValueType type, const std::vector<T>& values) {
    start_array(key, type, values.size());
    for (const T value : values) put(value);
  }
  std::string finish() const {
    std::string head = "GGUF";
    const auto add = [&](auto value) {
      head.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    add(std::uint32_t{3});
    add(std::uint64_t{0});
    add(count_);
    return head + body_;
  }

 private:
  template <class T>
  void put(T value) {
    body_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(std::string_view value) {
    put(std::uint64_t{value.size()});
    body_ += value;
  }
  void start(std::string_view key, GgufValueType type) {
    put_text(key);
    put(static_cast<std::uint32_t>(type));
    ++count_;
  }
  void start_array(std::string_view key, GgufValueType type, std::uint64_t count) {
    start(key, GgufValueType::kArray);
    put(static_cast<std::uint32_t>(type));
    put(count);
  }

  std::string body_;
  std::uint64_t count_ = 0;
};

inline std::string to_gguf(const TinyVocab& vocab) {
  const std::string prefix = "tokenizer.ggml.";
  GgufBytes out;
  out.text("general.name", vocab.name);
  out.text(prefix + "model", vocab.model);
  if (vocab.pre) out.text(prefix + "pre", *vocab.pre);
  if (!vocab.tokens.empty()) out.texts(prefix + "tokens", vocab.tokens);
  if (!vocab.types.empty()) out.numbers(prefix + "token_type", GgufValueType::kInt32, vocab.types);
  if (!vocab.scores.empty()) out.numbers(prefix + "scores", GgufValueType::kFloat32, vocab.scores);
  if (!vocab.merges.empty()) out.texts(prefix + "merges", vocab.merges);
  for (const auto& [key, id] : vocab.ids) out.number(prefix + key + "_token_id", id);
  for (const auto& [key, on] : vocab.flags) out.flag(prefix + key, on);
  return out.finish();
}

// SentencePiece with all bytes: merges for "hello", runs of spaces, a few letters.
inline TinyVocab tiny_spm() {
  TinyVocab v;
  v.model = "llama";
  v.ids["unknown"] = static_cast<std::uint32_t>(v.add("<unk>", TokenType::kUnknown));
  v.ids["bos"] = static_cast<std::uint32_t>(v.add("<s>", TokenType::kControl));
  v.ids["eos"] = static_cast<std::uint32_t>(v.add("</s>", TokenType::kControl));
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char* hex = "0123456789ABCDEF";
    v.add(std::string("<0x") + hex[byte >> 4] + hex[byte & 15] + ">", TokenType::kByte);
  }
  float score = -1;
  for (const char* text : {"▁▁", "he", "ll", "hell", "hello", "▁hello", "in", "ing", "▁a", "▁▁▁▁",
                           "é", "世界", "<s"}) {
    v.add(text, TokenType::kNormal, score);
    score -= 1;
  }
  for (const char* text :
       {"▁", "h", "e", "l", "o", "i", "n", "g", "a", "世", "界", "<", ">", "s"}) {
    v.add(text, TokenType::kNormal, -1000);
  }
  v.add("<end_of_turn>", TokenType::kControl);
  v.add("<start_of_turn>", TokenType::kControl);
  v.add("<tool>", TokenType::kUserDefined);
  v.add("<tool>s", TokenType::kUserDefined);
  v.add("\n\n", TokenType::kUserDefined);
  return v;
}

// Byte-level BPE with all bytes and a few merges.
inline TinyVocab tiny_bpe(std::string pre = "qwen2") {
  TinyVocab v;
  v.model = "gpt2";
  v.pre = std::move(pre);
  for (unsigned byte = 0; byte < 256; ++byte) {
    v.add(std::string(bpe_char_of_byte(static_cast<unsigned char>(byte))));
  }
  v.add_merge("Ġ", "Ġ");
  v.add_merge("h", "e");
  v.add_merge("l", "l");
  v.add_merge("he", "ll");
  v.add_merge("hell", "o");
  v.add_merge("Ġ", "hello");
  v.add_merge("ĠĠ", "ĠĠ");
  v.add_merge("i", "n");
  v.add_merge("in", "g");
  v.add_merge("Ã", "©");
  v.add_merge("'", "s");
  v.ids["bos"] = static_cast<std::uint32_t>(v.add("<|startoftext|>", TokenType::kControl));
  v.ids["eos"] = static_cast<std::uint32_t>(v.add("<|endoftext|>", TokenType::kControl));
  v.add("<|im_start|>", TokenType::kControl);
  v.add("<|im_end|>", TokenType::kControl);
  v.add("<tool>", TokenType::kUserDefined);
  v.add("<tool>s", TokenType::kUserDefined);
  v.add("  \n", TokenType::kUserDefined);
  return v;
}

// A tokenizer with the file it was read from. Not movable: the file is a view of `bytes`.
struct TinyTokenizer {
  explicit TinyTokenizer(const TinyVocab& vocab) : bytes(to_gguf(vocab)) {
    auto parsed = GgufFile::parse(std::as_bytes(std::span(bytes)), "tiny");
    if (!parsed.ok()) {
      error = parsed.error().message;
      return;
    }
    file.emplace(std::move(parsed).value());
    auto loaded = Tokenizer::load(*file);
    if (loaded.ok()) {
      tokenizer = std::move(loaded).value();
    } else {
      error = loaded.error().message;
    }
  }
  TinyTokenizer(const TinyTokenizer&) = delete;
  TinyTokenizer& operator=(const TinyTokenizer&) = delete;

  const Tokenizer* operator->() const { return tokenizer.get(); }
  const Tokenizer& operator*() const { return *tokenizer; }

  std::string bytes;
  std::optional<GgufFile> file;
  std::unique_ptr<Tokenizer> tokenizer;
  std::string error;  // when there is no tokenizer
};

}  // namespace sluice::test
