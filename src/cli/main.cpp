// sluice: chooses the command and turns its error into a message and an exit code.
#include <array>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/command.h"
#include "src/cli/console.h"
#include "src/cli/interrupt.h"
#include "src/cli/suggest.h"

namespace sluice::cli {
namespace {

struct Command {
  std::string_view name;
  std::string_view summary;
  CommandFunction function;
};

constexpr auto kCommands = std::to_array<Command>({
    {"chat", "talk with a model in the terminal", chat_command},
    {"run", "generate text for one prompt", run_command},
    {"batch", "answer a file of prompts; resumable", batch_command},
    {"inspect", "show what a model file holds, and what fits in memory", inspect_command},
    {"template", "show the prompt that a chat template makes of a conversation", template_command},
    {"tokenize", "show the tokens of a text", tokenize_command},
    {"perplexity", "measure how well a model predicts a text", perplexity_command},
    {"bench", "measure passes: tokens/s, bytes per token, share of the bandwidth", bench_command},
});

std::string overview() {
  std::string text =
      "sluice generates text from GGUF models, as fast as the memory allows.\n"
      "usage: sluice COMMAND [FLAGS]\n\ncommands:\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  }
  text +=
      "\nexamples:\n"
      "  sluice chat\n"
      "  sluice run -p \"Tell me a story about a fox and a lantern.\"\n"
      "  sluice run -m model.gguf -f question.txt -n 200 --temp 0.7\n"
      "  sluice inspect model.gguf --fit\n"
      "\nMore: sluice COMMAND --help, --help-all. Version: sluice --version.\n"
      "Exit codes: 0 done, 1 failed at run time, 2 wrong usage, 3 unusable model or input file,\n"
      "4 not enough memory, 130 interrupted (Ctrl-C, SIGTERM, SIGHUP: the terminal closed).\n";
  return text;
}

Status unknown_command(const std::string& name) {
  std::vector<std::string> names;
  std::string list;
  for (const Command& command : kCommands) {
    names.emplace_back(command.name);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", command.name);
  }
  if (name.starts_with('-')) {
    return make_error(ErrorCode::kUsage, "'{}' stands where a command is expected; commands are {}",
                      name, list);
  }
  const std::string close = nearest(name, names);
  return make_error(ErrorCode::kUsage, "'{}' is not a command; {}commands are {}", name,
                    close.empty() ? "" : fmt::format("did you mean {}? ", close), list);
}

Status dispatch(std::vector<std::string> args, Console& console) {
  if (args.empty() || args[0] == "--help" || args[0] == "--help-all" || args[0] == "-h") {
    return console.print(overview());
  }
  if (args[0] == "--version") return console.print("sluice " SLUICE_VERSION "\n");
  if (args[0] == "help") {  // "help run" for "run --help"
    if (args.size() == 1) return console.print(overview());
    args = {args[1], "--help"};
  }
  for (const Command& command : kCommands) {
    if (command.name == args[0]) return command.function(std::span(args).subspan(1), console);
  }
  return unknown_command(args[0]);
}

int main_function(int argc, char** argv) {
  Console console(install_interrupt_handler());
  Status status;
  try {
    status = dispatch(std::vector<std::string>(argv + 1, argv + argc), console);
  } catch (const std::bad_alloc&) {
    status = make_error(ErrorCode::kNoMemory, "the system refused a request for memory");
  } catch (const std::exception& error) {  // a fault of the program; better said than dumped
    status = failed("internal error: {}", error.what());
  }
  const Status closed = console.close_stdout();
  if (status.ok()) status = closed;
  if (status.ok()) return 0;
  if (status.error().code == ErrorCode::kInterrupted) {
    console.info("interrupted");
  } else {
    console.error(status.error().message);
  }
  return static_cast<int>(status.error().code);
}

}  // namespace
}  // namespace sluice::cli

int main(int argc, char** argv) { return argc < 1 ? 2 : sluice::cli::main_function(argc, argv); }
