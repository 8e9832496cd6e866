#include "src/cli/chat/chat_commands.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "src/cli/chat/chat_loop.h"
#include "src/cli/input.h"
#include "src/cli/numbers.h"
#include "src/cli/suggest.h"
#include "src/engine/sampling/fields.h"
#include "src/gguf/describe.h"
#include "src/text/utf8.h"

namespace sluice::cli {
namespace {

struct ChatCommand {
  std::string_view name;
  std::string_view arguments;
  std::string_view help;
  Status (*run)(ChatLoop& chat, std::string_view argument);
  bool takes_file = false;
};

Error usage(std::string message) { return Error{ErrorCode::kUsage, std::move(message)}; }

Status help(ChatLoop& chat, std::string_view) {
  chat.console().note(chat_help());
  return {};
}

Status leave(ChatLoop& chat, std::string_view) {
  chat.leave();
  return {};
}

Status system(ChatLoop& chat, std::string_view argument) {
  const std::optional<std::string>& now = chat.session().state().system;
  if (argument.empty()) {
    chat.console().info(now ? "system message: " + *now
                            : "no system message; /system TEXT sets one, /system none removes it");
    return {};
  }
  std::optional<std::string> text;
  if (argument != "none") text = replace_invalid_utf8(argument);
  chat.session().set_system(std::move(text));
  chat.changed();
  chat.console().info("the system message counts from the next message on");
  return {};
}

Status retry(ChatLoop& chat, std::string_view) {
  if (chat.session().state().messages.empty() && !chat.session().unanswered()) {
    return usage("there is no reply yet that could be retried");
  }
  if (chat.session().state().sampling.temperature == 0) {
    chat.console().info("at temperature 0 the reply will be the same; /set temp 0.8 changes that");
  }
  chat.retry();
  return {};
}

Status undo(ChatLoop& chat, std::string_view) {
  const std::optional<std::string> message = chat.session().undo();
  if (!message) return usage("there is nothing to take back");
  chat.changed();
  chat.console().info("taken back: " + beginning(*message, 60));
  return {};
}

Status edit(ChatLoop& chat, std::string_view argument) {
  if (argument.empty() && !chat.can_edit()) {
    return usage("lines can't be edited here; /edit NEW TEXT replaces your last message");
  }
  const auto& messages = chat.session().state().messages;
  const auto& unanswered = chat.session().unanswered();
  if (messages.size() < 2 && !unanswered) {
    return usage("there is no message yet that could be edited");
  }
  // The turn goes when the new text is sent, not before.
  const std::string message = unanswered ? *unanswered : messages[messages.size() - 2].content;
  chat.replace_last();
  if (argument.empty()) {
    chat.edit_next(message);
  } else {
    chat.send(std::string(argument));
  }
  return {};
}

Status save(ChatLoop& chat, std::string_view argument) {
  const std::string path = argument.empty() ? chat.session_path() : expand_home(argument);
  if (path.empty()) return usage("/save needs the name of a file");
  std::error_code error;
  if (std::filesystem::exists(path, error) && path != chat.session_path()) {
    return usage(fmt::format("'{}' exists and is not this chat; give another name", path));
  }
  SLUICE_RETURN_IF_ERROR(
      write_session(path, chat.session().whole_state(), chat.session().sequence()));
  chat.session_path() = path;
  const auto bytes = std::filesystem::file_size(path, error);
  chat.console().info(fmt::format(
      "saved {} messages and {} cached tokens: {} ({})", chat.session().state().messages.size(),
      chat.session().sequence().tokens().size(), path, format_bytes(error ? 0 : bytes)));
  return {};
}

Status load(ChatLoop& chat, std::string_view argument) {
  if (argument.empty()) return usage("/load needs the name of a file");
  const std::string path = expand_home(argument);
  SLUICE_ASSIGN_OR_RETURN(SavedChat saved, read_saved_chat(path));
  const bool session = saved.session.has_value();
  chat.adopt(std::move(saved));
  if (session) chat.session_path() = path;
  chat.changed();
  return {};
}

Status read(ChatLoop& chat, std::string_view argument) {
  if (argument.empty()) return usage("/read needs the name of a text file");
  const std::string path = expand_home(argument);
  SLUICE_ASSIGN_OR_RETURN(const std::string text, read_file(path, chat.console().cancel()));
  if (text.find('\0') != std::string::npos) {
    return usage(fmt::format("'{}' is not a text file: it has NUL bytes", path));
  }
  const std::string clean = replace_invalid_utf8(text);
  if (clean != text) chat.console().warning("bytes that are not UTF-8 became U+FFFD");
  // Far more bytes than the longest tokens could cover: said now, and not after minutes of reading.
  if (chat.engine().tokenizer().fewest_tokens(clean.size()) > chat.engine().context()) {
    return usage(fmt::format("'{}' has {}, more than a context of {} tokens can hold", path,
                             format_bytes(clean.size()), chat.engine().context()));
  }
  chat.attached() += clean;
  if (!clean.ends_with('\n')) chat.attached() += '\n';
  chat.console().info(
      fmt::format("{} ({}) goes in front of your next message", path, format_bytes(clean.size())));
  return {};
}

std::string settings_table(const SamplingParams& params) {
  std::string text = fmt::format("  {:<20}{}\n", "seed", params.seed);
  for (const SamplingField& field : sampling_fields()) {
    text += fmt::format("  {:<20}{:<10.6g}{}\n", field.name, field.get(params), field.expected());
  }
  return text;
}

Status set(ChatLoop& chat, std::string_view argument) {
  SamplingParams params = chat.session().state().sampling;
  if (argument.empty()) {
    chat.console().note(settings_table(params));
    return {};
  }
  const std::size_t blank = argument.find_first_of(" \t=");
  std::string_view name = argument.substr(0, blank);
  std::string_view value = blank == std::string_view::npos ? "" : argument.substr(blank + 1);
  value.remove_prefix(std::min(value.find_first_not_of(" \t="), value.size()));
  while (name.starts_with('-')) name.remove_prefix(1);
  if (name == "temperature") name = "temp";
  std::vector<std::string> names = {"seed"};
  if (name == "seed") {
    if (value.empty()) {
      chat.console().info(fmt::format("seed is {}", params.seed));
      return {};
    }
    const auto seed = parse_unsigned(value);
    if (!seed) return usage(fmt::format("'{}' is not a whole number from 0", value));
    params.seed = *seed;
  } else {
    const SamplingField* found = nullptr;
    for (const SamplingField& field : sampling_fields()) {
      names.emplace_back(field.name);
      if (field.name == name) found = &field;
    }
    if (found == nullptr) {
      const std::string close = nearest(name, names);
      return usage(fmt::format("there is no setting '{}'{}; /set lists them", name,
                               close.empty() ? "" : ", did you mean " + close + "?"));
    }
    if (value.empty()) {
      chat.console().info(
          fmt::format("{} is {:g} ({})", name, found->get(params), found->expected()));
      return {};
    }
    const auto number = parse_real(value);
    if (!number || !found->accepts(*number)) {
      return usage(fmt::format("'{}' is not {}", value, found->expected()));
    }
    found->set(params, *number);
  }
  chat.session().set_sampling(params);
  chat.changed();
  chat.console().info(fmt::format("{} is {} from the next reply on", name, value));
  return {};
}

Status stats(ChatLoop& chat, std::string_view argument) {
  if (argument == "on" || argument == "off") {
    chat.options().show_stats = argument == "on";
  } else if (!argument.empty()) {
    return usage("/stats, /stats on or /stats off");
  }
  if (argument != "off") chat.console().note(chat.status_line());
  return {};
}

Status context(ChatLoop& chat, std::string_view) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<TurnCost> costs, chat.session().costs());
  SLUICE_ASSIGN_OR_RETURN(const std::size_t used, chat.session().prompt_tokens());
  const ChatState& state = chat.session().state();
  const std::size_t all = chat.engine().context();
  constexpr std::size_t kBarWidth = 40;
  const std::size_t filled = std::min(kBarWidth, used * kBarWidth / all);
  std::string text = fmt::format("  [{}{}] {} of {} tokens, {:.0f}%\n", std::string(filled, '#'),
                                 std::string(kBarWidth - filled, '.'), used, all,
                                 100.0 * static_cast<double>(used) / static_cast<double>(all));
  if (state.first_sent > 0) {
    const std::size_t turns = state.first_sent / 2;
    text += turns == 1 ? "  the oldest turn no longer goes to the model\n"
                       : fmt::format("  the {} oldest turns no longer go to the model\n", turns);
  }
  for (std::size_t i = 0; i < costs.size(); ++i) {
    text += fmt::format("  {:>3}  {:>6} tokens  {}\n", state.first_sent / 2 + i + 1,
                        costs[i].tokens, printable(state.messages[costs[i].message].content, 50));
  }
  chat.console().note(text);
  return {};
}

Status think(ChatLoop& chat, std::string_view argument) {
  const ChatState& state = chat.session().state();
  if (argument.empty()) {
    const bool any = !state.messages.empty() && !state.messages.back().reasoning.empty();
    if (!any) return usage("the last reply has no reasoning");
    chat.printer().begin();
    SLUICE_RETURN_IF_ERROR(chat.console().print_untrusted(state.messages.back().reasoning + "\n"));
    return {};
  }
  std::string note;
  if (argument == "on" || argument == "hide") {
    const bool shown = argument == "on";
    chat.session().set_thinking(true);
    chat.options().reasoning = shown ? ShowReasoning::kFull : ShowReasoning::kCollapsed;
    chat.printer().set_reasoning(chat.options().reasoning);
    note =
        shown ? "reasoning is shown, dimmed" : "reasoning is folded into a line; /think shows it";
  } else if (argument == "off") {
    chat.session().set_thinking(false);
    note = chat.session().format().has_thinking_switch() ? "no reasoning from the next reply on"
                                                         : kNoThinkingSwitch;
  } else {
    return usage("/think, /think on, /think hide or /think off");
  }
  chat.changed();
  chat.console().info(note);
  return {};
}

Status export_chat(ChatLoop& chat, std::string_view argument) {
  const std::size_t blank = std::min(argument.find(' '), argument.size());
  const std::string_view kind = argument.substr(0, blank);
  std::string_view rest = argument.substr(blank);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  if (kind != "md" && kind != "json") return usage("/export md [FILE] or /export json [FILE]");
  const std::string& model = chat.engine().file().name();
  const std::string text = kind == "md" ? export_markdown(chat.session().state(), model)
                                        : export_json(chat.session().state(), model);
  if (rest.empty()) return chat.console().print_untrusted(text);
  const std::string path = expand_home(rest);
  SLUICE_RETURN_IF_ERROR(write_new_file(path, text));
  chat.console().info("written: " + path);
  return {};
}

Status clear(ChatLoop& chat, std::string_view) {
  ChatState fresh = chat.session().state();
  fresh.messages.clear();
  fresh.first_sent = 0;
  chat.attached().clear();
  chat.session_path().clear();
  chat.session().set_state(std::move(fresh));
  chat.changed();
  chat.console().info("a new conversation; the system message stays");
  return {};
}

constexpr auto kCommands = std::to_array<ChatCommand>({
    {"/help", "", "this list", help},
    {"/system", "[TEXT|none]", "show, set or remove the system message", system},
    {"/retry", "", "another reply to your last message", retry},
    {"/undo", "", "take back your last message and its reply", undo},
    {"/edit", "[TEXT]", "change your last message and send it again", edit},
    {"/read", "FILE", "put a text file in front of your next message", read, true},
    {"/set", "[NAME VALUE]", "sampling settings: /set temp 0.7", set},
    {"/think", "[on|hide|off]", "the last reply's reasoning; show, collapse or avoid it", think},
    {"/stats", "[on|off]", "speed, bandwidth, context; on: after each reply", stats},
    {"/context", "", "how full the context is, and what each turn takes", context},
    {"/save", "[FILE]", "save the conversation with its cache", save, true},
    {"/load", "FILE", "go on with a saved conversation", load, true},
    {"/export", "md|json [FILE]", "the conversation as text, here or into a new file", export_chat},
    {"/clear", "", "begin a new conversation", clear},
    {"/exit", "", "leave; so do Ctrl-D and Ctrl-C twice", leave},
});

}  // namespace

Status run_chat_command(ChatLoop& chat, std::string_view line) {
  const std::size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  std::string_view name = line.substr(0, end);
  std::string_view argument = line.substr(end);
  argument.remove_prefix(std::min(argument.find_first_not_of(" \t\n"), argument.size()));
  const std::size_t last = argument.find_last_not_of(" \t\n");
  argument = argument.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (name == "/quit" || name == "/bye") name = "/exit";
  std::vector<std::string> names;
  for (const ChatCommand& command : kCommands) {
    if (command.name == name) {
      if (command.arguments.empty() && !argument.empty()) {
        return usage(fmt::format("{} takes nothing after it", name));
      }
      return command.run(chat, argument);
    }
    names.emplace_back(command.name);
  }
  const std::string close = nearest(name, names);
  return usage(
      fmt::format("{} is not a command{}; /help lists them, and // at the beginning sends "
                  "text that begins with a slash",
                  name, close.empty() ? "" : ", did you mean " + close + "?"));
}

std::vector<CommandWords> chat_command_words() {
  std::vector<CommandWords> words;
  for (const ChatCommand& command : kCommands) {
    CommandWords entry = {std::string(command.name), command.takes_file, {}};
    if (command.name == "/set") {
      entry.words.emplace_back("seed");
      for (const SamplingField& field : sampling_fields()) entry.words.emplace_back(field.name);
    } else if (!command.takes_file) {
      // "[on|off]" and "md|json [FILE]": the lower-case words.
      std::string word;
      for (const char c : std::string(command.arguments) + " ") {
        if (c >= 'a' && c <= 'z') {
          word += c;
        } else if (!word.empty()) {
          entry.words.push_back(std::exchange(word, ""));
        }
      }
    }
    words.push_back(std::move(entry));
  }
  return words;
}

std::string chat_help() {
  std::string text;
  for (const ChatCommand& command : kCommands) {
    text += fmt::format("  {:<24}{}\n", fmt::format("{} {}", command.name, command.arguments),
                        command.help);
  }
  text +=
      "  Enter sends. Several lines: Alt-Enter, a \\ at a line's end, \"\"\" around them;\n"
      "  a paste is one message. Ctrl-C stops a reply and keeps it. //text sends /text.\n";
  return text;
}

}  // namespace sluice::cli
