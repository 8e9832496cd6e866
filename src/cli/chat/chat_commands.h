// The commands inside a chat: one table with names, arguments, help and what they do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/cli/terminal/complete.h"

namespace sluice::cli {

class ChatLoop;

// Runs a line that begins with a slash. Errors are for the user to read; the chat goes on.
Status run_chat_command(ChatLoop& chat, std::string_view line);

// For completion, and the lines of /help.
std::vector<CommandWords> chat_command_words();
std::string chat_help();

}  // namespace sluice::cli
