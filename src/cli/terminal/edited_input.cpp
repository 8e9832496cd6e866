#include "src/cli/terminal/edited_input.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <cstdint>

#include "src/cli/terminal/message_lines.h"
#include "src/cli/terminal/safe_text.h"
#include "src/cli/terminal/wide_text.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

// libedit works in the locale of the thread.
class LocaleScope {
 public:
  explicit LocaleScope(locale_t locale) : before_(uselocale(locale)) {}
  ~LocaleScope() { uselocale(before_); }
  LocaleScope(const LocaleScope&) = delete;
  LocaleScope& operator=(const LocaleScope&) = delete;

 private:
  locale_t before_;
};

std::size_t line_count(std::string_view text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
}

std::size_t character_count(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

// The beginning of a text, for its name: one line of printable characters.
std::string beginning_of(std::string_view text) {
  constexpr std::size_t kCharacters = 24;
  std::string out;
  for (std::size_t n = 0; n < kCharacters && !text.empty(); ++n) {
    const std::size_t length = decode_utf8(text).length;
    const std::string_view character = text.substr(0, length);
    const bool printable =
        character[0] != '\n' && character[0] != '\t' && safe_text(character) == character;
    out += printable ? character : " ";
    text.remove_prefix(length);
  }
  return out;
}

bool has_capability(EditLine* edit, const char* name) {
  const char* value = nullptr;
  return el_get(edit, EL_GETTC, name, &value) == 0 && value != nullptr && value[0] != '\0';
}

}  // namespace

EditedInput::EditedInput(const LineEditorOptions& options)
    : options_(options),
      source_(options.input, options.cancel),
      history_file_(options.history_path),
      prompt_(wide_text(options.prompt)) {
  if (!options_.prompt_codes.empty()) {
    // Between two \x01 stands what has no width. libedit holds it until the next character, so the
    // end of the colours stands in front of the prompt's last one.
    const std::wstring last = prompt_.empty() ? L" " : prompt_.substr(prompt_.size() - 1);
    if (!prompt_.empty()) prompt_.pop_back();
    prompt_ = L"\x01\x1b[" + wide_text(options_.prompt_codes) + L"m\x01" + prompt_ +
              L"\x01\x1b[0m\x01" + last;
  }
  source_.set_idle([this] { follow_window_size(); });
}

EditedInput::~EditedInput() {
  if (edit_ != nullptr) {
    const LocaleScope scope(locale_);
    el_end(edit_);
  }
  if (history_ != nullptr) history_wend(history_);
  if (screen_ != nullptr) std::fclose(screen_);
  if (nowhere_ != nullptr) std::fclose(nowhere_);
  if (locale_ != nullptr) freelocale(locale_);
}

std::unique_ptr<LineEditor> EditedInput::create(const LineEditorOptions& options) {
  std::unique_ptr<EditedInput> input(new EditedInput(options));
  if (!input->start()) return nullptr;
  return input;
}

bool EditedInput::start() {
  locale_ = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  nowhere_ = std::fopen("/dev/null", "we");
  const int screen = fcntl(fileno(options_.output), F_DUPFD_CLOEXEC, 3);
  if (screen >= 0) screen_ = fdopen(screen, "w");
  if (locale_ == nullptr || nowhere_ == nullptr || screen_ == nullptr) return false;
  std::setvbuf(screen_, nullptr, _IOFBF, std::size_t{1} << 14);
  const LocaleScope scope(locale_);
  edit_ = el_init_fd("sluice", stdin, screen_, nowhere_, options_.input, fileno(screen_),
                     fileno(nowhere_));
  if (edit_ == nullptr || !has_capability(edit_, "ce") || !has_capability(edit_, "up"))
    return false;
  history_ = history_winit();
  if (history_ == nullptr) return false;
  el_wset(edit_, EL_CLIENTDATA, this);
  el_wset(edit_, EL_GETCFN, &EditedInput::read_character);
  el_wset(edit_, EL_PROMPT_ESC, &EditedInput::give_prompt, L'\x01');
  el_wset(edit_, EL_EDITOR, L"emacs");
  // Ctrl-C and Ctrl-Z are keys, and Enter can be told from Ctrl-J in a paste.
  el_wset(edit_, EL_SETTY, L"-d", L"-isig", L"-icrnl", L"-inlcr", nullptr);
  bind_keys();
  load_history();
  return true;
}

void EditedInput::load_history() {
  HistEventW event;
  history_w(history_, &event, H_SETSIZE, static_cast<int>(HistoryFile::kMaxEntries));
  history_w(history_, &event, H_SETUNIQUE, 1);
  el_wset(edit_, EL_HIST, history_w, history_);
  const auto entries = history_file_.load();
  if (!entries.ok()) {
    history_problem_ = entries.error().message;
    history_file_ = HistoryFile("");
    return;
  }
  for (const std::string& entry : *entries) {
    const std::string shown = collapse(entry, kMaxShownLines, kMaxShownBytes);
    history_w(history_, &event, H_ENTER, wide_text(shown).c_str());
  }
}

ReadResult EditedInput::read(std::string_view prefill) {
  using Kind = ReadResult::Kind;
  if (options_.cancel != nullptr && *options_.cancel) return {.kind = Kind::kInterrupted};
  const LocaleScope scope(locale_);
  event_ = ByteSource::Event::kBytes;
  interrupted_ = failed_ = false;
  interrupted_text_.clear();
  literal_start_.clear();
  replaced_ = 0;
  rows_ = columns_ = 0;
  prefill_ = clean_text(prefill, replaced_);
  std::fflush(options_.output);  // what the caller wrote comes first
  if (!prefill_.empty()) press(L"\x1b[[s4");
  std::string line;
  bool has_line = false;
  {
    TerminalGuard guard(options_.input, fileno(screen_));
    guard_ = &guard;
    // Keys from now on, before the prompt invites to type.
    el_wset(edit_, EL_PREP_TERM, 1);
    source_.take_typed_ahead();
    int count = 0;
    const wchar_t* typed = el_wgets(edit_, &count);
    has_line = typed != nullptr && count > 0;
    if (has_line) line = utf8_text({typed, static_cast<std::size_t>(count)});
    std::fflush(screen_);
    guard_ = nullptr;
  }
  if (failed_) return {.kind = Kind::kError, .text = "out of memory while a message was typed"};
  if (event_ == ByteSource::Event::kFailed) return {.kind = Kind::kError, .text = source_.error()};
  if (interrupted_) return {.kind = Kind::kInterrupted, .text = std::move(interrupted_text_)};
  if (!has_line) {
    std::fputc('\n', screen_);
    std::fflush(screen_);
    return {.kind = Kind::kEnd};
  }
  if (line.ends_with('\n')) line.pop_back();
  return result_of(std::move(line));
}

ReadResult EditedInput::result_of(std::string text) {
  ReadResult result = {.kind = ReadResult::Kind::kMessage, .replaced = replaced_};
  const bool block = !is_literal(text) && text.starts_with("\"\"\"");
  result.literal = block || is_literal(text);
  if (block) text = without_block_marks(text);
  result.text = expand(text);
  if (result.text.find_first_not_of(" \t\n") == std::string::npos) return result;
  HistEventW event;
  // The names of long texts stay names, and no long text holds names.
  const bool is_long = line_count(text) > kMaxShownLines || text.size() > kMaxShownBytes;
  const std::string shown =
      is_long ? collapse(result.text, kMaxShownLines, kMaxShownBytes) : std::move(text);
  history_w(history_, &event, H_ENTER, wide_text(shown).c_str());
  const Status kept = history_file_.append(result.text);
  if (!kept.ok()) {
    history_problem_ = kept.error().message;
    history_file_ = HistoryFile("");  // the next message would only fail again
  }
  return result;
}

bool EditedInput::is_literal(std::string_view text) const {
  return !literal_start_.empty() && text.starts_with(literal_start_);
}

// A short name in place of a long text.
std::string EditedInput::collapse(std::string text, std::size_t max_lines, std::size_t max_bytes) {
  const std::size_t lines = line_count(text);
  if (lines <= max_lines && text.size() <= max_bytes) return text;
  const auto known = std::find_if(long_texts_.begin(), long_texts_.end(),
                                  [&](const LongText& one) { return one.text == text; });
  if (known != long_texts_.end()) return known->name;
  const std::string size = lines > 1 ? std::to_string(lines) + " lines"
                                     : std::to_string(character_count(text)) + " characters";
  std::string name = "[" + size + " #" + std::to_string(long_texts_.size() + 1) + ": " +
                     beginning_of(text) + "...]";
  long_texts_.push_back({name, std::move(text)});
  return name;
}

std::string EditedInput::expand(std::string_view text) const {
  std::string out;
  while (true) {
    const std::size_t at = text.find('[');
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at);
    const auto named =
        std::find_if(long_texts_.begin(), long_texts_.end(),
                     [&](const LongText& one) { return text.starts_with(one.name); });
    if (named != long_texts_.end()) {
      out += named->text;
      text.remove_prefix(named->name.size());
    } else {
      out += '[';
      text.remove_prefix(1);
    }
  }
}

int EditedInput::read_character(EditLine* edit, wchar_t* out) {
  EditedInput* self = nullptr;
  el_wget(edit, EL_CLIENTDATA, &self);
  try {
    std::string bytes;
    while (true) {
      char byte = 0;
      self->event_ = self->source_.next(byte);
      if (self->event_ == ByteSource::Event::kCancelled) {
        self->interrupted_ = true;
        self->interrupted_text_ = self->expand(self->text());
        std::fputc('\n', self->screen_);
      }
      if (self->event_ != ByteSource::Event::kBytes) return 0;
      bytes += byte;
      const Utf8Char next = decode_utf8(bytes);
      if (next.status == Utf8Status::kIncomplete) continue;
      if (next.status == Utf8Status::kInvalid) {
        ++self->replaced_;
        // What showed that the character is broken is the beginning of another.
        if (bytes.size() > next.length) self->source_.put_back();
      }
      *out = static_cast<wchar_t>(next.code);  // a NUL is a key
      return 1;
    }
  } catch (...) {
    self->failed_ = true;
    return 0;
  }
}

wchar_t* EditedInput::give_prompt(EditLine* edit) {
  EditedInput* self = nullptr;
  el_wget(edit, EL_CLIENTDATA, &self);
  return self->prompt_.data();
}

// Rows from the prompt's to the cursor's, in a window of columns_; most terminals have broken the
// lines anew when the change is seen.
std::size_t EditedInput::rows_above_cursor() const {
  const std::wstring prompt = wide_text(options_.prompt);
  const LineInfoW* line = el_wline(edit_);
  std::size_t row = 0, column = 0;
  const auto pass = [&](wchar_t character) {
    const int known = wcwidth(character);
    const std::size_t width = known < 0 ? 2 : static_cast<std::size_t>(known);  // ^A
    if (character == L'\n' || column + width > columns_) {
      ++row;
      column = 0;
    }
    if (character != L'\n') column += width;
  };
  std::for_each(prompt.begin(), prompt.end(), pass);
  std::for_each(line->buffer, line->cursor, pass);
  return column >= columns_ ? row + 1 : row;
}

// libedit resizes at the beginning of a line; this follows changes in between.
void EditedInput::follow_window_size() {
  winsize size{};
  if (ioctl(options_.input, TIOCGWINSZ, &size) != 0) return;
  const bool changed = columns_ != 0 && (size.ws_col != columns_ || size.ws_row != rows_);
  columns_ = size.ws_col;
  rows_ = size.ws_row;
  if (!changed) return;
  // libedit forgets what it has drawn and begins anew where the cursor is, so the old lines go
  // first.
  std::string clear = "\r";
  for (std::size_t row = rows_above_cursor(); row > 0; --row) clear += "\x1b[A";
  std::fputs((clear + "\x1b[J").c_str(), screen_);
  el_resize(edit_);
  el_wset(edit_, EL_REFRESH);
}

}  // namespace sluice
