#include "src/cli/prompt.h"

#include <unistd.h>

#include "src/cli/input.h"
#include "src/cli/interrupt.h"
#include "src/cli/numbers.h"
#include "src/engine/chat/chat_format.h"

namespace sluice::cli {

void PromptFlags::declare(Flags& flags) {
  flags.positional("-", "", 1, &positional_);
  flags.text("-p,--prompt", "TEXT", "the prompt", &prompt_);
  flags.text("-f,--file", "FILE",
             "a file that holds it, or - for stdin; one line end at its end is dropped", &file_);
  flags.text("--prompt-tokens", "IDS", "token ids as in 1,2,3; nothing is added", &ids_text_);
  flags.text("--system", "TEXT", "system message, for models with a chat template", &system_);
  flags.toggle("--raw", "no chat template: continue the text; control tokens in it count", &raw_);
}

Status PromptFlags::read(Console& console) {
  const auto usage = [](std::string message) {
    return Error{ErrorCode::kUsage, std::move(message)};
  };
  if (!positional_.empty() && positional_[0] != "-") {
    return usage(fmt::format("unexpected argument '{}'; a prompt is given with -p \"TEXT\"",
                             positional_[0]));
  }
  const int sources =
      (prompt_ ? 1 : 0) + (file_ ? 1 : 0) + (ids_text_ ? 1 : 0) + (positional_.empty() ? 0 : 1);
  if (sources > 1) {
    return usage("several prompts: give one of -p, -f, --prompt-tokens and -");
  }
  if (ids_text_ && (system_ || raw_)) {
    return usage("--prompt-tokens are used as they are; --system and --raw can't apply");
  }
  if (system_ && raw_) {
    return usage("--system needs the chat template that --raw turns off");
  }
  if (prompt_) {
    text_ = *prompt_;
  } else if (file_ && *file_ != "-") {
    SLUICE_ASSIGN_OR_RETURN(text_, read_file(*file_, console.cancel()));
    drop_final_newline(text_);
  } else if (ids_text_) {
    Result<std::vector<std::int32_t>> ids = parse_id_list(*ids_text_);
    if (!ids.ok()) return usage("--prompt-tokens: " + ids.error().message);
    ids_ = std::move(*ids);
  } else if (isatty(STDIN_FILENO) && positional_.empty() && !file_) {
    return usage("no prompt; give one with -p \"TEXT\" or -f FILE, or pipe it in");
  } else {
    if (isatty(STDIN_FILENO)) console.info("type the prompt; Ctrl-D on an empty line ends it");
    SLUICE_ASSIGN_OR_RETURN(text_, read_stdin(console.cancel()));
    if (text_.empty()) {
      return usage("no prompt: stdin is empty (-p \"\" asks for an empty one)");
    }
    drop_final_newline(text_);
  }
  return {};
}

Result<PromptFlags::Prompt> PromptFlags::encode(const Engine& engine, Console& console) const {
  if (!ids_.empty()) return Prompt{ids_, Form::kIds};
  const ExitOnInterrupt nothing_to_lose;
  warn_of_invalid_utf8(text_, "the prompt", console);
  const Tokenizer& tokenizer = engine.tokenizer();
  Prompt prompt;
  const GgufValue* chat = raw_ ? nullptr : engine.file().find("tokenizer.chat_template");
  if (chat) {
    prompt.form = Form::kTemplate;
    SLUICE_ASSIGN_OR_RETURN(prompt.ids, encode_chat(engine));
  } else if (system_) {
    return make_error(ErrorCode::kUsage,
                      "--system needs a chat template, and this model has none; put everything "
                      "into the prompt");
  } else {
    prompt.form = raw_ ? Form::kRaw : Form::kPlain;
    SLUICE_ASSIGN_OR_RETURN(prompt.ids, tokenizer.encode(text_, {false, raw_}));
  }
  if (!chat && tokenizer.add_bos() && tokenizer.bos_id() != kNoToken) {
    prompt.ids.insert(prompt.ids.begin(), tokenizer.bos_id());
  }
  if (tokenizer.has_double_bos(prompt.ids)) {
    console.warning(raw_ ? "the prompt begins with BOS twice: one is added, so leave out the one "
                           "in the text"
                         : "the model's chat template begins the prompt with BOS twice");
  }
  if (prompt.ids.empty()) {
    return make_error(ErrorCode::kUsage,
                      "the prompt is empty, and this model has no BOS token to begin with");
  }
  return prompt;
}

Result<std::vector<std::int32_t>> PromptFlags::encode_chat(const Engine& engine) const {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (system_) messages.push_back({{"role", "system"}, {"content", *system_}});
  messages.push_back({{"role", "user"}, {"content", text_}});
  const Result<ChatFormat> format = ChatFormat::load(engine.file(), engine.tokenizer());
  Result<std::vector<std::int32_t>> ids = format.ok()
                                              ? format->encode(messages, {})
                                              : Result<std::vector<std::int32_t>>(format.error());
  if (ids.ok()) return ids;
  return make_error(ErrorCode::kFailed, "{} (--raw goes without it)", ids.error().message);
}

std::string_view prompt_form_name(PromptFlags::Form form) {
  switch (form) {
    case PromptFlags::Form::kTemplate:
      return "chat template";
    case PromptFlags::Form::kPlain:
      return "plain, the model has no chat template";
    case PromptFlags::Form::kRaw:
      return "raw";
    case PromptFlags::Form::kIds:
      return "ids";
  }
  return "?";
}

}  // namespace sluice::cli
