// sluice chat: a conversation in the terminal.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>

#include "src/cli/chat/chat_loop.h"
#include "src/cli/command.h"
#include "src/cli/flags.h"
#include "src/cli/input.h"
#include "src/cli/load_engine.h"
#include "src/cli/model_flags.h"
#include "src/cli/sampling_flags.h"
#include "src/cli/speculation_flags.h"
#include "src/engine/sampling/fields.h"

namespace sluice::cli {
namespace {

enum class Think { kDefault, kOn, kOff, kHide };

struct ChatCommandOptions {
  ModelFlags model;
  SamplingFlags sampling;
  SpeculationFlags speculation;
  std::optional<std::string> system, system_file, resume, autosave;
  std::optional<std::int64_t> predict;
  std::vector<std::string> stop;
  OverflowPolicy overflow = OverflowPolicy::kDropOldest;
  Think think = Think::kDefault;
  bool plain = false;
  bool no_autosave = false;
  bool stats = false;
  bool quiet = false;
};

void declare_flags(Flags& flags, ChatCommandOptions& options) {
  options.model.declare_model(flags);
  flags.text("--system", "TEXT", "system message", &options.system);
  flags.text("--system-file", "FILE", "a file that holds it", &options.system_file);
  flags.text("--resume", "FILE",
             "go on with a saved chat or an autosave; last: the newest autosave", &options.resume);
  flags.integer("-n,--predict,--n-predict", "N", "most tokens of a reply; -1: until it ends (-1)",
                -1, std::numeric_limits<std::int32_t>::max(), &options.predict);
  flags.value("--overflow", "POLICY",
              "when the context is full: drop-oldest turns, or stop (drop-oldest)",
              [&options](std::string_view text) -> Status {
                if (text == "drop-oldest") {
                  options.overflow = OverflowPolicy::kDropOldest;
                } else if (text == "stop") {
                  options.overflow = OverflowPolicy::kStop;
                } else {
                  return make_error(ErrorCode::kUsage, "'{}' is not drop-oldest or stop", text);
                }
                return {};
              });
  flags.value("--think", "MODE",
              "reasoning of thinking models: on (shown dimmed), hide (one line) or off",
              [&options](std::string_view text) -> Status {
                if (text == "on") {
                  options.think = Think::kOn;
                } else if (text == "off") {
                  options.think = Think::kOff;
                } else if (text == "hide") {
                  options.think = Think::kHide;
                } else {
                  return make_error(ErrorCode::kUsage, "'{}' is not on, hide or off", text);
                }
                return {};
              });
  options.speculation.declare(flags);
  flags.toggle("--plain", "no Markdown rendering and no colours", &options.plain);
  flags.toggle("--stats", "speed and context after each reply", &options.stats);
  flags.toggle("--quiet", "only warnings and errors on stderr", &options.quiet);
  flags.section("Sampling (defaults: those of the model file, else these)");
  options.sampling.declare(flags);
  flags.section("Machine");
  options.model.declare_context(flags, "tokens of context (the trained context, at most 4096)");
  options.model.declare_machine(flags);
  flags.section("Rarely used", true);
  flags.texts("-r,--stop,--reverse-prompt", "TEXT",
              "end a reply in front of this text; may be repeated", &options.stop);
  flags.text("--autosave", "FILE",
             "where the chat is kept while it goes on; must not exist "
             "(a new file in ~/.local/state/sluice/chats; none where stdin is no terminal)",
             &options.autosave);
  flags.toggle("--no-autosave", "keep nothing", &options.no_autosave);
  options.speculation.declare_rare(flags);
  options.model.declare_rare(flags);
  options.sampling.declare_rare(flags);
}

Status check(const ChatCommandOptions& options) {
  if (options.system && options.system_file) {
    return make_error(ErrorCode::kUsage, "give one of --system and --system-file");
  }
  if (options.autosave && options.no_autosave) {
    return make_error(ErrorCode::kUsage, "--autosave and --no-autosave contradict each other");
  }
  for (const std::string& stop : options.stop) {
    if (stop.empty()) return make_error(ErrorCode::kUsage, "--stop: the text is empty");
  }
  return options.speculation.check();
}

// What --resume asks for; empty: a new chat.
Result<std::optional<SavedChat>> read_resumed(const ChatCommandOptions& options, Console& console) {
  if (!options.resume) return std::optional<SavedChat>();
  std::string path = *options.resume;
  if (path == "last") {
    path = newest_autosave(autosave_folder());
    if (path.empty()) {
      return make_error(ErrorCode::kUsage, "--resume last: there is no autosave in '{}'",
                        autosave_folder());
    }
    console.info("resuming " + path);
  }
  SLUICE_ASSIGN_OR_RETURN(SavedChat saved, read_saved_chat(path));
  return std::optional<SavedChat>(std::move(saved));
}

// Flags win over what a resumed chat had.
void override_sampling(const SamplingOverrides& flags, SamplingParams& params) {
  if (flags.seed) params.seed = *flags.seed;
  for (const SamplingField& field : sampling_fields()) {
    if (const std::optional<double> value = field.get(flags)) field.set(params, *value);
  }
  if (flags.dry_sequence_breakers) params.dry_sequence_breakers = *flags.dry_sequence_breakers;
  params.logit_bias.insert(params.logit_bias.end(), flags.logit_bias.begin(),
                           flags.logit_bias.end());
}

MarkdownOptions markdown_options(const ChatCommandOptions& options) {
  const char* terminal = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  const std::string_view name = terminal == nullptr ? "" : terminal;
  MarkdownOptions markdown;
  markdown.markdown = !options.plain && !name.empty() && name != "dumb";
  markdown.colour = no_colour == nullptr || *no_colour == '\0';
  return markdown;
}

Result<std::string> autosave_path(const ChatCommandOptions& options, const std::tm& now,
                                  Console& console) {
  if (options.autosave) {
    std::error_code error;
    if (std::filesystem::exists(*options.autosave, error)) {
      return make_error(ErrorCode::kUsage,
                        "--autosave: '{}' exists; give a new name, or go on with it by --resume",
                        *options.autosave);
    }
    return *options.autosave;
  }
  if (options.no_autosave || isatty(STDIN_FILENO) == 0) return std::string();
  const std::string folder = autosave_folder();
  if (folder.empty()) {
    console.warning("no autosave: neither HOME nor XDG_STATE_HOME is set (--autosave FILE)");
    return std::string();
  }
  Result<std::string> path = new_autosave_path(folder, now);
  if (path.ok()) return path;
  console.warning("no autosave: " + path.error().message);
  return std::string();
}

}  // namespace

Status chat_command(std::span<const std::string> args, Console& console) {
  ChatCommandOptions options;
  Flags flags("chat", "chat [-m MODEL] [FLAGS]",
              "Talks with a model, on a terminal or through a pipe (a line is a message). /help "
              "lists the commands inside.");
  declare_flags(flags, options);
  SLUICE_ASSIGN_OR_RETURN(const Flags::Outcome outcome, flags.parse(args));
  if (!outcome.help.empty()) return console.print(outcome.help);
  SLUICE_RETURN_IF_ERROR(check(options));
  console.set_quiet(options.quiet);
  SLUICE_ASSIGN_OR_RETURN(std::optional<SavedChat> saved, read_resumed(options, console));
  if (options.system_file) {
    SLUICE_ASSIGN_OR_RETURN(options.system, read_file(*options.system_file, console.cancel()));
    drop_final_newline(*options.system);
  }
  std::string path;
  if (saved && !options.model.given()) {
    path = saved->model;
    console.info("the chat's model: " + path);
  } else {
    SLUICE_ASSIGN_OR_RETURN(path, options.model.path(console));
  }

  Progress progress(console);
  SLUICE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Engine> engine,
      load_engine(path, options.model.engine_options(console, progress), console, progress));
  SLUICE_ASSIGN_OR_RETURN(const ChatFormat format,
                          ChatFormat::load(engine->file(), engine->tokenizer()));
  if (format.plain()) {
    console.warning(
        "the model has no chat template: the conversation goes to it as plain 'User:' and "
        "'Assistant:' lines, and base models answer as they like");
  }
  SLUICE_ASSIGN_OR_RETURN(
      const ResolvedSampling sampling,
      resolve_sampling(options.sampling.overrides, read_file_sampling(engine->file())));
  for (const std::string& note : sampling.notes) console.warning(note);

  ChatState state;
  state.now = local_time_now();
  state.sampling = sampling.params;
  if (saved) {
    override_sampling(options.sampling.overrides, saved->state.sampling);
    SLUICE_RETURN_IF_ERROR(validate(saved->state.sampling));
  }
  ChatState& first = saved ? saved->state : state;
  if (options.system) first.system = options.system;
  if (options.think != Think::kDefault) first.thinking = options.think != Think::kOff;
  if (options.think == Think::kOff && !format.has_thinking_switch()) {
    console.warning(fmt::format("--think off: {}", kNoThinkingSwitch));
  }
  if (options.sampling.say_seed) console.info(fmt::format("seed {}", first.sampling.seed));

  ChatLoopOptions loop_options;
  loop_options.show_stats = options.stats;
  loop_options.threads = options.model.threads();
  if (options.think == Think::kHide) loop_options.reasoning = ShowReasoning::kCollapsed;
  SLUICE_ASSIGN_OR_RETURN(loop_options.autosave, autosave_path(options, local_time_now(), console));
  SLUICE_ASSIGN_OR_RETURN(const Speculation speculation,
                          options.speculation.load(*engine, options.model, console, progress));
  loop_options.speculator = speculation.speculator.get();
  ChatSession session(
      *engine, format, state,
      {options.predict.value_or(-1), options.overflow, options.stop, speculation.speculator.get()});
  ChatLoop loop(console, progress, *engine, session, markdown_options(options), loop_options);
  if (saved) {
    if (saved->session) loop.session_path() = saved->path;
    loop.adopt(std::move(*saved));
  }
  if (isatty(STDIN_FILENO) != 0) {
    console.info(fmt::format("{}, context {} tokens. /help helps, Ctrl-D leaves",
                             engine->backend().description(), engine->context()));
  }
  const Status status = loop.run();
  if (isatty(STDIN_FILENO) != 0 && loop.autosaved()) {
    console.info("kept: sluice chat --resume " + loop.options().autosave);
  }
  return status;
}

}  // namespace sluice::cli
