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

constexpr int kJournalVersion = 1;
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
      {{"sluice_chat", kJournalVersion}, {"model", model}, {"conversation", to_json(state)}}));
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

Status ChatJournal::message(std::string_view text, bool again) {
  reasoning_.clear();
  answer_.clear();
  ordered_json line = {{"user", text}};
  if (again) line["again"] = true;
  return write_line(line);
}

Status ChatJournal::part(std::string& held, std::string_view text, const char* event) {
  held += text;
  const std::size_t end = held.size() > kMostHeld ? held.size() : sentence_end(held);
  if (end == 0) return {};
  const Status status = write_line({{event, held.substr(0, end)}});
  held.erase(0, end);
  return status;
}

Status ChatJournal::reply(const ChatState& state) {
  return write_whole({{"reply", to_json(state.messages.back())},
                      {"first_sent", state.first_sent},
                      {"stream", state.stream}});
}

Status ChatJournal::state(const ChatState& state) {
  return write_whole({{"conversation", to_json(state)}});
}

Status ChatJournal::write_whole(const ordered_json& line) {
  reasoning_.clear();
  answer_.clear();
  SLUICE_RETURN_IF_ERROR(write_line(line));
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

namespace {

// The conversation as the lines read so far tell it.
class Replay {
 public:
  // Errors: kBadInput without the place.
  Status take(const ordered_json& line) {
    if (line.contains("conversation")) {
      SLUICE_ASSIGN_OR_RETURN(state_, chat_state_from_json(line["conversation"]));
      replaced_.clear();
      return {};
    }
    std::vector<ChatMessage>& messages = state_.messages;
    if (line.contains("user")) {
      put_back();
      if (!messages.empty() && messages.back().role == "user") messages.pop_back();
      if (line.contains("again") && messages.size() >= 2) {
        replaced_.assign(messages.end() - 2, messages.end());
        messages.resize(messages.size() - 2);
      }
      messages.push_back({"user", text_of(line, "user"), "", false});
      return {};
    }
    const bool part = line.contains("answer") || line.contains("reasoning");
    if (!part && !line.contains("reply")) return {};  // an event of a later version
    if (messages.empty()) return bad_input("it answers nothing");
    replaced_.clear();
    if (messages.back().role == "user") messages.push_back({"assistant", "", "", true});
    if (!part) return take_reply(line);
    // A reply whose end was never written, so far.
    messages.back().content += text_of(line, "answer");
    messages.back().reasoning += text_of(line, "reasoning");
    return {};
  }

  // What the last whole line left. A retry that was killed before its first sentence changes
  // nothing.
  ChatState finish() {
    put_back();
    return std::move(state_);
  }

 private:
  static std::string text_of(const ordered_json& line, const char* key) {
    return line.contains(key) && line[key].is_string() ? line[key].get<std::string>() : "";
  }

  Status take_reply(const ordered_json& line) {
    state_.messages.pop_back();
    // Checked as part of the whole, so that the rules stand in one place.
    ordered_json whole = to_json(state_);
    whole["messages"].push_back(line["reply"]);
    for (const char* key : {"first_sent", "stream"}) {
      if (line.contains(key)) whole[key] = line[key];
    }
    SLUICE_ASSIGN_OR_RETURN(state_, chat_state_from_json(whole));
    return {};
  }

  void put_back() {
    const bool unanswered = !state_.messages.empty() && state_.messages.back().role == "user";
    if (unanswered && !replaced_.empty() &&
        state_.messages.back().content == replaced_.front().content) {
      state_.messages.pop_back();
      state_.messages.insert(state_.messages.end(), replaced_.begin(), replaced_.end());
    }
    replaced_.clear();
  }

  ChatState state_;
  std::vector<ChatMessage> replaced_;  // the turn that a retry or an edit sets out to replace
};

}  // namespace

Result<JournalContent> parse_journal(std::string_view rest, const std::string& path) {
  JournalContent content;
  Replay replay;
  std::size_t number = 0;
  // Each line's end is what makes it whole.
  for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;
       rest.remove_prefix(end + 1)) {
    ++number;
    const std::string_view line = rest.substr(0, end);
    const ordered_json json = ordered_json::parse(line.begin(), line.end(), nullptr, false);
    if (number == 1) {
      const bool ours = json.is_object() && json.contains("sluice_chat") &&
                        json.contains("model") && json["model"].is_string() &&
                        json.contains("conversation");
      if (!ours) break;
      if (json["sluice_chat"] != kJournalVersion) {
        return bad_input("{}: a chat's autosave of another version; this program reads version {}",
                         path, kJournalVersion);
      }
      content.model = json["model"].get<std::string>();
    }
    if (!json.is_object()) return bad_input("{}: line {} is not a JSON object", path, number);
    const Status taken = replay.take(json);
    if (!taken.ok()) return bad_input("{}: line {}: {}", path, number, taken.error().message);
  }
  if (content.model.empty()) {
    return bad_input("{}: neither a saved conversation nor a chat's autosave", path);
  }
  content.state = replay.finish();
  return content;
}

}  // namespace sluice
