// The commands: each is a function of its arguments; main.cpp keeps their table.
#pragma once

#include <span>
#include <string>

#include "src/base/status.h"
#include "src/cli/console.h"

namespace sluice::cli {

// Runs a command with what follows its name. An error's code becomes the exit code; its message is
// printed by main.
using CommandFunction = Status (*)(std::span<const std::string> args, Console& console);

Status batch_command(std::span<const std::string> args, Console& console);
Status bench_command(std::span<const std::string> args, Console& console);
Status chat_command(std::span<const std::string> args, Console& console);
Status inspect_command(std::span<const std::string> args, Console& console);
Status perplexity_command(std::span<const std::string> args, Console& console);
Status run_command(std::span<const std::string> args, Console& console);
Status template_command(std::span<const std::string> args, Console& console);
Status tokenize_command(std::span<const std::string> args, Console& console);

}  // namespace sluice::cli
