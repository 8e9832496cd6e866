#include "src/cli/chat/chat_files.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "src/engine/chat/journal.h"
#include "src/gguf/output_file.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKeptAutosaves = 50;

// Names sort by time.
std::vector<fs::path> autosaves(const std::string& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::string autosave_folder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && fs::path(state).is_absolute()) {
    return (fs::path(state) / "sluice" / "chats").string();
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || !fs::path(home).is_absolute()) return "";
  return (fs::path(home) / ".local" / "state" / "sluice" / "chats").string();
}

Result<std::string> new_autosave_path(const std::string& folder, const std::tm& now) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return failed("cannot create the folder '{}': {}", folder, error.message());
  fs::permissions(folder, fs::perms::owner_all, error);
  std::vector<fs::path> old = autosaves(folder);
  for (std::size_t i = 0; i + kKeptAutosaves <= old.size(); ++i) fs::remove(old[i], error);
  char time[32] = "";
  std::strftime(time, sizeof time, "%Y%m%d-%H%M%S", &now);
  return (fs::path(folder) / fmt::format("{}-{}.jsonl", time, ::getpid())).string();
}

std::string newest_autosave(const std::string& folder) {
  const std::vector<fs::path> paths = autosaves(folder);
  return paths.empty() ? "" : paths.back().string();
}

Result<SavedChat> read_saved_chat(const std::string& path) {
  SavedChat saved;
  saved.path = path;
  if (is_session_file(path)) {
    SLUICE_ASSIGN_OR_RETURN(saved.session, read_session(path));
    saved.state = std::move(saved.session->state);
    saved.model = saved.session->model;
    return saved;
  }
  SLUICE_ASSIGN_OR_RETURN(JournalContent journal, read_journal(path));
  saved.state = std::move(journal.state);
  saved.model = std::move(journal.model);
  return saved;
}

std::string export_markdown(const ChatState& state, const std::string& model) {
  std::string text = fmt::format("# Chat with {}\n", fs::path(model).filename().string());
  if (state.system) text += fmt::format("\n## System\n\n{}\n", *state.system);
  for (const ChatMessage& message : state.messages) {
    text += fmt::format("\n## {}{}\n\n{}\n", message.role == "user" ? "User" : "Assistant",
                        message.interrupted ? " (stopped)" : "", message.content);
  }
  return text;
}

std::string export_json(const ChatState& state, const std::string& model) {
  nlohmann::ordered_json json;
  json["model"] = fs::path(model).filename().string();
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (state.system) messages.push_back({{"role", "system"}, {"content", *state.system}});
  for (const ChatMessage& message : state.messages) messages.push_back(to_json(message));
  json["messages"] = std::move(messages);
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Status write_new_file(const std::string& path, std::string_view text) {
  std::error_code error;
  if (fs::exists(path, error)) {
    return failed("'{}' exists; give another name", path);
  }
  SLUICE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path, text.size()));
  SLUICE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace sluice::cli
