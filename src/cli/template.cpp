// sluice template: the prompt that a chat template makes of a conversation.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "src/cli/command.h"
#include "src/cli/conversation.h"
#include "src/cli/flags.h"
#include "src/cli/input.h"
#include "src/cli/interrupt.h"
#include "src/cli/json.h"
#include "src/cli/model_flags.h"
#include "src/engine/chat/chat_format.h"
#include "src/gguf/describe.h"
#include "src/gguf/gguf.h"
#include "src/text/bounded_json.h"
#include "src/text/chat_template.h"
#include "src/text/escape.h"
#include "src/text/tokenizer.h"
#include "src/text/utf8.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kSample = R"({"messages": [
  {"role": "user", "content": "What is a sluice?"},
  {"role": "assistant", "content": "A gate that lets water through."},
  {"role": "user", "content": "And who opens it?"}], "add_generation_prompt": true})";

// A template and the texts that belong to it; "" where there is none.
struct Source {
  std::string text;
  std::string bos_token;
  std::string eos_token;
};

// A token of tokenizer_config.json: its text, or an object that holds it.
std::string config_token(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return "";
  const Json& token =
      found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  return token.is_string() ? token.get<std::string>() : "";
}

// The template in a tokenizer_config.json: one, or a list of several with names.
Result<Source> read_config(std::string_view json, std::string_view name, bool with_tools) {
  constexpr std::string_view kExpected = R"(an object with "chat_template")";
  SLUICE_ASSIGN_OR_RETURN(const Json config, parse_bounded_json(json, name, kExpected));
  const auto found = config.is_object() ? config.find("chat_template") : config.end();
  if (found == config.end()) {
    return bad_input(
        "{} has no chat_template; a template in Jinja itself goes in a file whose name "
        "does not end in .json",
        name);
  }
  Source source = {"", config_token(config, "bos_token"), config_token(config, "eos_token")};
  if (found->is_string()) {
    source.text = found->get<std::string>();
    return source;
  }
  const auto unusable = [&] {
    return bad_input(
        "chat_template in {} is neither a text nor a list with a template that is named "
        "\"default\"",
        name);
  };
  if (!found->is_array()) return unusable();
  const Json* chosen = nullptr;
  for (const Json& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template")) continue;
    if (!entry["template"].is_string()) continue;
    // As in transformers: the one for tools where there are any.
    if (entry["name"] == "tool_use" && with_tools) chosen = &entry;
    if (entry["name"] == "default" && chosen == nullptr) chosen = &entry;
  }
  if (chosen == nullptr) return unusable();
  source.text = (*chosen)["template"].get<std::string>();
  return source;
}

Result<Source> read_template(const std::string& path, bool with_tools, Console& console) {
  SLUICE_ASSIGN_OR_RETURN(std::string text, read_file(path, console.cancel()));
  if (text.starts_with("GGUF")) {
    return bad_input("'{}' is a model; give it with -m", path);
  }
  if (path.ends_with(".json")) return read_config(text, "'" + path + "'", with_tools);
  return Source{std::move(text), "", ""};
}

Result<Conversation> read_conversation(const std::optional<std::string>& path, Console& console) {
  if (path && *path != "-") {
    SLUICE_ASSIGN_OR_RETURN(const std::string text, read_file(*path, console.cancel()));
    return parse_conversation(text, "'" + *path + "'");
  }
  const bool terminal = isatty(STDIN_FILENO) == 1;
  if (terminal && !path) {
    console.info("no conversation given: this is a sample; -i FILE takes another");
    return parse_conversation(kSample, "the sample");
  }
  if (terminal) console.info("type the conversation as JSON; Ctrl-D on a line of its own ends it");
  SLUICE_ASSIGN_OR_RETURN(const std::string text, read_stdin(console.cancel()));
  if (text.empty()) {
    return make_error(ErrorCode::kUsage,
                      "no conversation: stdin is empty; give one with -i FILE, or pipe it in");
  }
  return parse_conversation(text, "stdin");
}

// The conversation's text dimmed, so that it can be told from the template's.
std::string terminal_text(const std::vector<TextPart>& parts) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  const bool dim = (no_color == nullptr || *no_color == '\0') && kind != nullptr && *kind != '\0' &&
                   std::string_view(kind) != "dumb";
  std::string text;
  bool line_open = false;
  for (const TextPart& part : parts) {
    if (part.text.empty()) continue;
    const std::string shown = escape_controls(part.text);
    text += dim && part.content ? "\x1b[2m" + shown + "\x1b[22m" : shown;
    line_open = shown.back() != '\n';
  }
  if (line_open) text += '\n';
  return text;
}

std::string tokens_text(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    const TokenType type = tokenizer.type(id);
    const char* mark = type == TokenType::kControl       ? "control"
                       : type == TokenType::kUserDefined ? "added"
                       : type == TokenType::kUnknown     ? "unknown"
                                                         : "";
    text +=
        fmt::format("{:>8}  {:<7}  \"{}\"\n", id, mark, printable(tokenizer.bytes_of(id, true)));
  }
  return text;
}

// The ids that `run` would give to the model.
Result<std::vector<std::int32_t>> encode(const Tokenizer& tokenizer,
                                         const std::vector<TextPart>& parts, Console& console) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, tokenizer.encode_parts(parts, false));
  if (add_bos_once(tokenizer, ids)) {
    console.info("the model wants BOS and the template writes none: it is put in front");
  }
  if (tokenizer.has_double_bos(ids)) {
    console.warning("the chat template begins the prompt with BOS twice");
  }
  return ids;
}

std::string prompt_json(const std::vector<TextPart>& parts,
                        const std::optional<std::vector<std::int32_t>>& ids) {
  Json list = Json::array();
  for (const TextPart& part : parts) {
    list.push_back({{"text", json_text(part.text)}, {"content", part.content}});
  }
  Json answer;
  answer["text"] = json_text(join_parts(parts));
  answer["parts"] = std::move(list);
  if (ids) answer["ids"] = *ids;
  return json_line(answer);
}

// A model file with its tokenizer, which keeps views into it.
struct OpenModel {
  GgufFile file;
  std::unique_ptr<Tokenizer> tokenizer;
};

Result<std::unique_ptr<OpenModel>> open_model(const std::string& path, Console& console) {
  SLUICE_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path));
  auto model = std::make_unique<OpenModel>(OpenModel{std::move(file), nullptr});
  SLUICE_ASSIGN_OR_RETURN(model->tokenizer, Tokenizer::load(model->file));
  for (const std::string& line : model->tokenizer->warnings()) console.warning(line);
  return model;
}

Result<Source> model_source(const OpenModel& model, const std::string& path) {
  if (model.file.find("tokenizer.chat_template") == nullptr) {
    return bad_input(
        "'{}' has no chat template (tokenizer.chat_template): run gives it plain text; "
        "--template FILE uses another",
        path);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string_view text,
                          model.file.get_string("tokenizer.chat_template"));
  return Source{std::string(text), "", ""};
}

// The template's text from the place that a message speaks of ("line 3, column 7") to the end of
// the line, shortened. Empty where it speaks of none. Columns count characters, from 1.
std::string text_at_error(std::string_view source, const std::string& message) {
  constexpr int kBefore = 24;
  constexpr std::size_t kLongest = 80;
  int line = 0;
  int column = 0;
  const std::size_t place = message.find("line ");
  if (place == std::string::npos ||
      std::sscanf(message.c_str() + place, "line %d, column %d", &line, &column) != 2) {
    return "";
  }
  for (int i = 1; i < line; ++i) {
    const std::size_t end = source.find('\n');
    if (end == std::string_view::npos) return "";
    source.remove_prefix(end + 1);
  }
  source = source.substr(0, source.find('\n'));
  for (int i = 1; i < column - kBefore && !source.empty(); ++i) {
    source.remove_prefix(decode_utf8(source).length);
  }
  std::size_t shown = 0;
  while (shown < source.size() && shown < kLongest) {
    shown += decode_utf8(source.substr(shown)).length;
  }
  return fmt::format("{}{}{}", column - kBefore > 1 ? "..." : "", source.substr(0, shown),
                     shown < source.size() ? "..." : "");
}

Error explain(const Error& error, std::string_view source) {
  if (is_refusal(error)) {
    return failed("the template refuses the conversation: {}", error.message);
  }
  const std::string there = text_at_error(source, error.message);
  if (there.empty()) return error;
  return {error.code, fmt::format("{}; there: {}", error.message, there)};
}

Result<std::vector<TextPart>> render(const Source& source, const ChatInput& input) {
  const Result<ChatTemplate> chat = ChatTemplate::parse(source.text);
  if (!chat.ok()) return explain(chat.error(), source.text);
  Result<std::vector<TextPart>> parts = chat->render(input);
  if (!parts.ok()) return explain(parts.error(), source.text);
  return parts;
}

struct TemplateFlags {
  ModelFlags model;
  std::optional<std::string> template_file, input;
  std::optional<std::tm> now;
  bool tokens = false;
  bool json = false;
};

}  // namespace

Status template_command(std::span<const std::string> args, Console& console) {
  TemplateFlags options;
  Flags flags("template",
              "template [-m MODEL | --template FILE] [-i FILE] [--tokens] [--now TIME] [--json]",
              "Prints the prompt that a chat template makes of a conversation, byte for byte. On a "
              "terminal the conversation's own text is dimmed: no control token can come of it.");
  options.model.declare_model(flags);
  flags.text("--template", "FILE",
             "Jinja source, or a tokenizer_config.json, in place of the model's template",
             &options.template_file);
  flags.text("-i,--input", "FILE", "the conversation; - or none: stdin", &options.input);
  flags.toggle("--tokens", "print the ids of the model's tokens, with their kind and text",
               &options.tokens);
  flags.value("--now", "TIME", "what strftime_now says, as 2026-01-02T03:04:05 (the time it is)",
              [&](std::string_view value) -> Status {
                SLUICE_ASSIGN_OR_RETURN(options.now, parse_clock(value));
                return {};
              });
  flags.toggle("--json",
               "print {\"text\": ..., \"parts\": [{\"text\": ..., \"content\": true}]}, and with "
               "--tokens \"ids\"",
               &options.json);
  flags.footer(
      "A conversation: {\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}; further keys "
      "are tools,");
  flags.footer(
      "add_generation_prompt (false), bos_token, eos_token (the model's) and variables of the "
      "template.");
  SLUICE_ASSIGN_OR_RETURN(const Flags::Outcome outcome, flags.parse(args));
  if (!outcome.help.empty()) return console.print(outcome.help);
  const bool use_model = options.model.given() || !options.template_file;
  if (options.tokens && !use_model) {
    return make_error(ErrorCode::kUsage, "--tokens needs a vocabulary: give a model with -m, too");
  }

  std::string path;
  if (use_model) {
    SLUICE_ASSIGN_OR_RETURN(path, options.model.path(console));
  }
  SLUICE_ASSIGN_OR_RETURN(Conversation conversation, read_conversation(options.input, console));
  for (const std::string& line : conversation.warnings) console.warning(line);
  const ExitOnInterrupt nothing_to_lose;
  std::unique_ptr<OpenModel> model;
  if (use_model) {
    SLUICE_ASSIGN_OR_RETURN(model, open_model(path, console));
  }
  Source source;
  ChatInput& input = conversation.input;
  if (options.template_file) {
    const bool with_tools = !input.tools.is_null() && !input.tools.empty();
    SLUICE_ASSIGN_OR_RETURN(source, read_template(*options.template_file, with_tools, console));
  } else {
    SLUICE_ASSIGN_OR_RETURN(source, model_source(*model, path));
  }
  if (model) {
    const Tokenizer& tokenizer = *model->tokenizer;
    source.bos_token = tokenizer.token_text(tokenizer.bos_id());
    source.eos_token = tokenizer.token_text(tokenizer.eos_id());
  }
  if (!conversation.has_bos_token) input.bos_token = source.bos_token;
  if (!conversation.has_eos_token) input.eos_token = source.eos_token;
  input.now = options.now;

  SLUICE_ASSIGN_OR_RETURN(const std::vector<TextPart> parts, render(source, input));
  std::optional<std::vector<std::int32_t>> ids;
  if (options.tokens) {
    SLUICE_ASSIGN_OR_RETURN(ids, encode(*model->tokenizer, parts, console));
  }
  if (options.json) return console.print(prompt_json(parts, ids));
  if (ids) return console.print(tokens_text(*model->tokenizer, *ids));
  return console.print(console.stdout_is_terminal() ? terminal_text(parts) : join_parts(parts));
}

}  // namespace sluice::cli
