#include "src/engine/chat/chat_format.h"

#include <utility>

namespace sluice {

const char* const ChatFormat::kPlainTemplate =
    "{%- for message in messages %}"
    "{%- if message.role == 'system' %}"
    "{{- message.content | trim + '\\n\\n' }}"
    "{%- else %}"
    "{{- ('User: ' if message.role == 'user' else 'Assistant: ') + message.content | trim + '\\n' "
    "}}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- 'Assistant:' }}{% endif %}";

ChatFormat::ChatFormat(ChatTemplate chat_template, const Tokenizer& tokenizer)
    : template_(std::move(chat_template)), tokenizer_(&tokenizer) {}

Result<ChatFormat> ChatFormat::load(const GgufFile& file, const Tokenizer& tokenizer) {
  if (file.find("tokenizer.chat_template") == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(ChatFormat format, from_source(kPlainTemplate, tokenizer));
    format.plain_ = true;
    format.stops_ = {"\nUser:", "\nAssistant:"};
    return format;
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string_view source,
                          file.get_string("tokenizer.chat_template"));
  return from_source(source, tokenizer);
}

Result<ChatFormat> ChatFormat::from_source(std::string_view source, const Tokenizer& tokenizer) {
  Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (parsed.ok()) return ChatFormat(std::move(*parsed), tokenizer);
  return make_error(parsed.error().code, "the chat template can't be used: {}",
                    parsed.error().message);
}

bool ChatFormat::has_thinking_switch() const {
  const nlohmann::ordered_json user = {{"role", "user"}, {"content", "Hello."}};
  const nlohmann::ordered_json system = {{"role", "system"}, {"content", "Be brief."}};
  // A template may refuse a conversation without a system message, or with one.
  for (const nlohmann::ordered_json& messages :
       {nlohmann::ordered_json::array({user}), nlohmann::ordered_json::array({system, user})}) {
    const std::tm noon = {.tm_mday = 1, .tm_year = 100};
    const auto on = render(messages, {.thinking = true, .now = noon});
    const auto off = render(messages, {.thinking = false, .now = noon});
    if (on.ok() != off.ok()) return true;
    if (on.ok() && join_parts(*on) != join_parts(*off)) return true;
  }
  return false;
}

Result<std::vector<TextPart>> ChatFormat::render(const nlohmann::ordered_json& messages,
                                                 const RenderOptions& options) const {
  ChatInput input;
  input.messages = messages;
  input.add_generation_prompt = options.add_generation_prompt;
  input.bos_token = tokenizer_->token_text(tokenizer_->bos_id());
  input.eos_token = tokenizer_->token_text(tokenizer_->eos_id());
  input.now = options.now;
  input.tools = options.tools;
  if (options.thinking) {
    input.extra["enable_thinking"] = *options.thinking;
    input.extra["thinking"] = *options.thinking;
  }
  Result<std::vector<TextPart>> parts = template_.render(input);
  if (parts.ok()) return parts;
  if (is_refusal(parts.error())) {
    return failed("the chat template refuses this conversation: {}", parts.error().message);
  }
  return failed("the chat template can't be used: {}", parts.error().message);
}

Result<std::vector<std::int32_t>> ChatFormat::encode(const nlohmann::ordered_json& messages,
                                                     const RenderOptions& options,
                                                     std::string* end) const {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<TextPart> parts, render(messages, options));
  if (end != nullptr) *end = parts.empty() ? "" : parts.back().text;
  if (options.context > 0) {
    std::size_t bytes = 0;
    for (const TextPart& part : parts) bytes += part.text.size();
    SLUICE_RETURN_IF_ERROR(check_fits(*tokenizer_, bytes, options.context));
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, tokenizer_->encode_parts(parts, false));
  add_bos_once(*tokenizer_, ids);
  return ids;
}

Status check_fits(const Tokenizer& tokenizer, std::size_t bytes, std::size_t context) {
  const std::size_t fewest = tokenizer.fewest_tokens(bytes);
  if (fewest < context) return {};
  return bad_input("the prompt has {} bytes, {} tokens or more; the context holds {}", bytes,
                   fewest, context);
}

bool add_bos_once(const Tokenizer& tokenizer, std::vector<std::int32_t>& ids) {
  const std::int32_t bos = tokenizer.bos_id();
  if (!tokenizer.add_bos() || bos == kNoToken || (!ids.empty() && ids[0] == bos)) return false;
  ids.insert(ids.begin(), bos);
  return true;
}

}  // namespace sluice
