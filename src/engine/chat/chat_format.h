// From a conversation to the token ids that the model was trained on.
#pragma once

#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/gguf/gguf.h"
#include "src/text/chat_template.h"
#include "src/text/tokenizer.h"

namespace sluice {

struct RenderOptions {
  bool add_generation_prompt = true;
  // The template's variables enable_thinking and thinking (both names are in use); nothing:
  // undefined, the template decides.
  std::optional<bool> thinking;
  std::optional<std::tm> now;    // for strftime_now; nothing: the clock
  nlohmann::ordered_json tools;  // JSON schemas of functions; null: none
  // encode() refuses texts that can't fit so many tokens, before it spends time on them; 0: none.
  std::size_t context = 0;
};

// Refuses a text of so many bytes if its tokens fill the context in any case.
Status check_fits(const Tokenizer& tokenizer, std::size_t bytes, std::size_t context);

class ChatFormat {
 public:
  // Of a model without a template, as a template: an optional system text and an empty line, then
  // "User: ..." and "Assistant: ..." lines. Replies end in front of the next such line.
  static const char* const kPlainTemplate;

  // The file's own template, or the plain format where it has none (see plain()). kBadInput: a
  // template that can't be parsed. `tokenizer` must outlive the format.
  static Result<ChatFormat> load(const GgufFile& file, const Tokenizer& tokenizer);
  // The same with a template's source.
  static Result<ChatFormat> from_source(std::string_view source, const Tokenizer& tokenizer);

  bool plain() const { return plain_; }
  // Whether RenderOptions::thinking changes anything: tried with a short conversation. (Searching
  // the template for the variables' names would find "thinking" in its texts.)
  bool has_thinking_switch() const;
  // Where a reply ends beside the model's own end-of-generation tokens.
  std::span<const std::string> stops() const { return stops_; }

  // `messages`: [{"role": ..., "content": ...}, ...]. Errors as ChatTemplate::render, worded for
  // people: a template's refusal is told in its own words.
  Result<std::vector<TextPart>> render(const nlohmann::ordered_json& messages,
                                       const RenderOptions& options) const;
  // The ids of what render() gives, with BOS where the model wants it, once. `end`, where given,
  // gets the last part of the text.
  Result<std::vector<std::int32_t>> encode(const nlohmann::ordered_json& messages,
                                           const RenderOptions& options,
                                           std::string* end = nullptr) const;

 private:
  ChatFormat(ChatTemplate chat_template, const Tokenizer& tokenizer);
  ChatTemplate template_;
  const Tokenizer* tokenizer_;
  bool plain_ = false;
  std::vector<std::string> stops_;
};

// Puts BOS in front of a prompt's ids where the model wants it and they, written by a chat
// template, do not begin with it; whether it did. (Not the tokenizer's add_special: an EOS behind a
// prompt would end the text before it begins.)
bool add_bos_once(const Tokenizer& tokenizer, std::vector<std::int32_t>& ids);

}  // namespace sluice
