#include "src/engine/chat/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/mapped_file.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::size_t kMostHeld = 240;

// One past the last place where a sentence or line ends, or 0.
std::size_t sentence_end(std::string_view text) {
  for (std::size_t i = text.size(); i > 0; --i) {
    const char c = text[i - 1];
    if (c == '\n') return i;
    const bool mark = c == '.' || c == '!' || c == '?';
    if (mark && i < text.size() && (text[i] == ' ' || text[i] == '"')) return i;
    if (i >= 3 && text.substr(i - 3, 3) == "\xe3\x80\x82") return i;  // ideographic full stop
  }
  return 0;
}

}  // namespace

Result<ChatJournal> ChatJournal::create(const std::string& path, const std::string& model,
                                        const ChatState& state) {
  ChatJournal journal;
  journal.path_ = path;
  journal.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  if (journal.fd_ < 0) return failed("cannot create '{}': {}", path, std::strerror(errno));
  SLUICE_RETURN_IF_ERROR(journal.write_line(
      {{"sluice_chat", kVersion}, {"model", model}, {"conversation", to_json(state)}}));
  return journal;
}

ChatJournal::ChatJournal(ChatJournal&& other) noexcept { *this = std::move(other); }

ChatJournal& ChatJournal::operator=(ChatJournal&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(reasoning_, other.reasoning_);
  std::swap(answer_, other.answer_);
  return *this;
}

ChatJournal::~ChatJournal() {
  if (fd_ >= 0) ::close(fd_);
}

Status ChatJournal::write_line(const ordered_json& line) {
  std::string text = line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t count = ::write(fd_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("cannot write '{}': {}", path_, std::strerror(errno));
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

Status ChatJournal::message(std::string_view text) {
  reasoning_.clear();
  answer_.clear();
  return write_line({{"user", text}});
}

Status ChatJournal::part(std::string& held, std::string_view text, const char* event) {
  held += text;
  const std::size_t end = held.size() > kMostHeld ? held.size() : sentence_end(held);
  if (end == 0) return {};
  const Status status = write_line({{event, held.substr(0, end)}});
  held.erase(0, end);
  return status;
}

Status ChatJournal::state(const ChatState& state) {
  reasoning_.clear();
  answer_.clear();
  SLUICE_RETURN_IF_ERROR(write_line({{"conversation", to_json(state)}}));
  if (::fdatasync(fd_) != 0 && errno != EINVAL) {
    return failed("cannot write '{}': {}", path_, std::strerror(errno));
  }
  return {};
}

Result<JournalContent> read_journal(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::open(path));
  return parse_journal(
      {reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()}, path);
}

Result<JournalContent> parse_journal(std::string_view rest, const std::string& path) {
  JournalContent content;
  std::size_t number = 0;
  // Each line's end is what makes it whole.
  for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;
       rest.remove_prefix(end + 1)) {
    ++number;
    const std::string_view line = rest.substr(0, end);
    const ordered_json json = ordered_json::parse(line.begin(), line.end(), nullptr, false);
    const auto text_of = [&](const char* key) {
      return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
    };
    if (number == 1) {
      const bool ours = json.is_object() && json.contains("sluice_chat");
      if (!ours) break;
      if (json["sluice_chat"] != kVersion) {
        return bad_input("{}: a chat's autosave of another version; this program reads version {}",
                         path, kVersion);
      }
      content.model = text_of("model");
    }
    if (!json.is_object()) return bad_input("{}: line {} is not a JSON object", path, number);
    if (json.contains("conversation")) {
      SLUICE_ASSIGN_OR_RETURN(content.state, chat_state_from_json(json["conversation"]));
      continue;
    }
    std::vector<ChatMessage>& messages = content.state.messages;
    if (json.contains("user")) {
      if (!messages.empty() && messages.back().role == "user") messages.pop_back();
      messages.push_back({"user", text_of("user"), "", false});
    } else if (json.contains("answer") || json.contains("reasoning")) {
      if (messages.empty()) return bad_input("{}: line {} answers nothing", path, number);
      // A reply whose end was never written.
      if (messages.back().role == "user") messages.push_back({"assistant", "", "", true});
      messages.back().content += text_of("answer");
      messages.back().reasoning += text_of("reasoning");
    }
  }
  if (number == 0 || content.model.empty()) {
    return bad_input("{}: neither a saved conversation nor a chat's autosave", path);
  }
  return content;
}

}  // namespace sluice
