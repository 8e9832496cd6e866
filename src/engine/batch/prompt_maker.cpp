#include "src/engine/batch/prompt_maker.h"

#include <algorithm>

namespace sluice {
namespace {

bool has_role(const BatchJson& message, std::string_view role) { return message["role"] == role; }

// Puts `prefix` in front of the first message of the user; false: there is none with a text.
bool add_prefix(BatchJson& messages, const std::string& prefix) {
  for (BatchJson& message : messages) {
    if (!has_role(message, "user")) continue;
    const auto content = message.find("content");
    if (content == message.end() || !content->is_string()) return false;
    *content = prefix + content->get<std::string>();
    return true;
  }
  return false;
}

}  // namespace

Result<PromptMaker> PromptMaker::create(const Tokenizer& tokenizer, ChatFormat format,
                                        PromptOptions options) {
  if (options.system && options.raw) {
    return make_error(ErrorCode::kUsage, "--system needs the chat template that --raw turns off");
  }
  return PromptMaker(tokenizer, std::move(format), std::move(options));
}

Result<PromptMaker::Prompt> PromptMaker::make(const BatchItem& item) const {
  if (item.prompt_ids) {
    Prompt prompt;
    prompt.ids = *item.prompt_ids;
    prompt.no_prefix = !options_.prefix.empty();
    return prompt;
  }
  if (item.messages) {
    if (options_.raw) return bad_input("messages need the chat template that --raw turns off");
    return make_chat(item, *item.messages);
  }
  // A prompt with a system message is a conversation even for a model without a template.
  const std::optional<std::string>& system = item.system ? item.system : options_.system;
  if (item.as_is || options_.raw || (format_.plain() && !system)) {
    if (item.system) return bad_input("'system' needs the chat template that --raw turns off");
    return make_text(item);
  }
  BatchJson messages = BatchJson::array();
  if (item.system) messages.push_back({{"role", "system"}, {"content", *item.system}});
  messages.push_back({{"role", "user"}, {"content", *item.prompt}});
  return make_chat(item, std::move(messages));
}

Result<PromptMaker::Prompt> PromptMaker::make_text(const BatchItem& item) const {
  Prompt prompt;
  if (options_.context > 0) {
    const std::size_t bytes = options_.prefix.size() + item.prompt->size();
    SLUICE_RETURN_IF_ERROR(check_fits(*tokenizer_, bytes, options_.context));
  }
  SLUICE_ASSIGN_OR_RETURN(
      prompt.ids, tokenizer_->encode(options_.prefix + *item.prompt, {false, options_.raw}));
  if (tokenizer_->add_bos() && tokenizer_->bos_id() != kNoToken) {
    prompt.ids.insert(prompt.ids.begin(), tokenizer_->bos_id());
  }
  prompt.double_bos = tokenizer_->has_double_bos(prompt.ids);
  if (prompt.ids.empty()) {
    return bad_input("the prompt is empty, and this model has no BOS token to begin with");
  }
  return prompt;
}

Result<PromptMaker::Prompt> PromptMaker::make_chat(const BatchItem& item,
                                                   BatchJson messages) const {
  if (!options_.prefix.empty() && !add_prefix(messages, options_.prefix)) {
    return bad_input("no message of the user that --prefix-file could be put in front of");
  }
  const bool system = std::any_of(messages.begin(), messages.end(), [](const BatchJson& message) {
    return has_role(message, "system") || has_role(message, "developer");
  });
  if (options_.system && !system) {
    const BatchJson message = {{"role", "system"}, {"content", *options_.system}};
    messages.insert(messages.begin(), message);
  }
  Prompt prompt;
  RenderOptions render;
  render.now = options_.now;
  render.tools = item.tools;
  render.context = options_.context;
  SLUICE_ASSIGN_OR_RETURN(prompt.ids, format_.encode(messages, render));
  if (!item.tools.is_null()) {
    // A template that does not know tools passes over them without a word.
    render.tools = nullptr;
    const auto without = format_.encode(messages, render);
    if (without.ok() && *without == prompt.ids) {
      return bad_input("the chat template knows no tools; leave them out");
    }
  }
  prompt.stops.assign(format_.stops().begin(), format_.stops().end());
  prompt.double_bos = tokenizer_->has_double_bos(prompt.ids);
  prompt.plain = format_.plain();
  if (prompt.ids.empty()) return bad_input("the chat template makes an empty prompt of this item");
  return prompt;
}

}  // namespace sluice
