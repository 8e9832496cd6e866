// The autosave of a chat: text only, appended while it happens, so that a killed program loses at
// most the sentence it was writing. One JSON object a line (docs/FORMATS.md); a torn last line is
// ignored.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/engine/chat/chat_state.h"

namespace sluice {

class ChatJournal {
 public:
  // Creates the file (mode 0600); it must not exist. The first line holds `state`.
  static Result<ChatJournal> create(const std::string& path, const std::string& model,
                                    const ChatState& state);
  ChatJournal(ChatJournal&& other) noexcept;
  ChatJournal& operator=(ChatJournal&& other) noexcept;
  ChatJournal(const ChatJournal&) = delete;
  ChatJournal& operator=(const ChatJournal&) = delete;
  ~ChatJournal();

  const std::string& path() const { return path_; }

  // The user's message is sent. `again`: the last turn gives way to it (another reply to the same
  // message, or an edited one).
  Status message(std::string_view text, bool again = false);
  // More of the reply; written out at the end of a sentence or line, and after 240 bytes.
  Status reasoning(std::string_view text) { return part(reasoning_, text, "reasoning"); }
  Status answer(std::string_view text) { return part(answer_, text, "answer"); }
  // The reply is complete: takes the place of its parts. On the disk when this returns.
  Status reply(const ChatState& state);
  // The conversation as it is now: after /undo, /set and the like; replaces what the lines before
  // said, and is on the disk when this returns.
  Status state(const ChatState& state);

 private:
  ChatJournal() = default;
  Status part(std::string& held, std::string_view text, const char* event);
  Status write_line(const nlohmann::ordered_json& line);
  // The same, with nothing held back before it and the file synced after it.
  Status write_whole(const nlohmann::ordered_json& line);

  std::string path_;
  int fd_ = -1;
  std::string reasoning_;
  std::string answer_;
};

struct JournalContent {
  ChatState state;
  std::string model;
};
// Errors: kBadInput for what is no journal.
Result<JournalContent> read_journal(const std::string& path);
// The same from memory; `name` is for messages.
Result<JournalContent> parse_journal(std::string_view text, const std::string& name);

}  // namespace sluice
