// Files of the chat command: where autosaves live, what is resumed, and exports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/base/status.h"
#include "src/engine/chat/chat_state.h"
#include "src/engine/chat/session_file.h"

namespace sluice::cli {

// $XDG_STATE_HOME/sluice/chats or ~/.local/state/sluice/chats; empty when neither is known.
std::string autosave_folder();
// A new name in it: the time and the process. Creates the folder (mode 0700) and removes all but
// the newest 50 autosaves there.
Result<std::string> new_autosave_path(const std::string& folder, const std::tm& now);
// The newest one; empty if there is none.
std::string newest_autosave(const std::string& folder);

// What --resume and /load read: a saved session, or a chat's autosave (then without keys and
// values).
struct SavedChat {
  std::string path;
  ChatState state;
  std::string model;                   // path of the model file
  std::optional<SessionFile> session;  // for its keys and values; its state is moved out
};
Result<SavedChat> read_saved_chat(const std::string& path);

// The conversation for other programs: Markdown with a heading a message, or JSON in the form of
// chat APIs. Turns that no longer go to the model are included.
std::string export_markdown(const ChatState& state, const std::string& model);
std::string export_json(const ChatState& state, const std::string& model);

// Writes a file that must not exist yet.
Status write_new_file(const std::string& path, std::string_view text);

}  // namespace sluice::cli
