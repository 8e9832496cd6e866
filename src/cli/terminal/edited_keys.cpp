// What the keys do. libedit's own functions can't be called from ours, so ours "press" sequences of
// keys that no keyboard sends and that are bound to libedit's.
#include <signal.h>

#include <algorithm>

#include "src/cli/terminal/edited_input.h"
#include "src/cli/terminal/message_lines.h"
#include "src/cli/terminal/safe_text.h"
#include "src/cli/terminal/wide_text.h"

namespace sluice {
namespace {

constexpr const wchar_t* kSend = L"\x1b[[s1";
constexpr const wchar_t* kOlder = L"\x1b[[s2";
constexpr const wchar_t* kNewer = L"\x1b[[s3";

// How far the cursor is from the beginning of its line.
std::ptrdiff_t column(const LineInfoW& line) {
  const wchar_t* at = line.cursor;
  while (at > line.buffer && at[-1] != L'\n') --at;
  return line.cursor - at;
}

const wchar_t* end_of_line(const wchar_t* at, const wchar_t* end) {
  return std::find(at, end, L'\n');
}

}  // namespace

template <EditedInput::Action action>
unsigned char EditedInput::call(EditLine* edit, wint_t) {
  EditedInput* self = nullptr;
  el_wget(edit, EL_CLIENTDATA, &self);
  try {
    return (self->*action)();
  } catch (...) {  // must not pass through libedit, which is C
    self->failed_ = true;
    return CC_EOF;
  }
}

void EditedInput::bind_keys() {
  using Function = unsigned char (*)(EditLine*, wint_t);
  struct Key {
    const wchar_t* name;
    Function function;
    std::vector<const wchar_t*> keys;
  };
  const std::vector<Key> ours = {
      {L"sluice-enter", &call<&EditedInput::enter>, {L"^M", L"^J"}},
      {L"sluice-new-line", &call<&EditedInput::new_line>, {L"\\e^M", L"\\e^J"}},
      {L"sluice-interrupt", &call<&EditedInput::interrupt>, {L"^C"}},
      {L"sluice-suspend", &call<&EditedInput::suspend>, {L"^Z"}},
      {L"sluice-paste", &call<&EditedInput::paste>, {L"\\e[200~"}},
      {L"sluice-complete", &call<&EditedInput::complete>, {L"^I"}},
      {L"sluice-up", &call<&EditedInput::up>, {L"\\e[A", L"\\eOA"}},
      {L"sluice-down", &call<&EditedInput::down>, {L"\\e[B", L"\\eOB"}},
      {L"sluice-line-begin",
       &call<&EditedInput::line_begin>,
       {L"^A", L"\\e[H", L"\\eOH", L"\\e[1~", L"\\e[7~"}},
      {L"sluice-line-end",
       &call<&EditedInput::line_end>,
       {L"^E", L"\\e[F", L"\\eOF", L"\\e[4~", L"\\e[8~"}},
      {L"sluice-prefill", &call<&EditedInput::insert_prefill>, {L"\\e[[s4"}},
  };
  for (const Key& key : ours) {
    el_wset(edit_, EL_ADDFN, key.name, L"of sluice", key.function);
    for (const wchar_t* keys : key.keys) el_wset(edit_, EL_BIND, keys, key.name, nullptr);
  }
  const std::vector<std::pair<const wchar_t*, const wchar_t*>> theirs = {
      {L"\\e[[s1", L"ed-newline"},      {L"\\e[[s2", L"ed-prev-history"},
      {L"\\e[[s3", L"ed-next-history"}, {L"\\e[C", L"ed-next-char"},
      {L"\\eOC", L"ed-next-char"},      {L"\\e[D", L"ed-prev-char"},
      {L"\\eOD", L"ed-prev-char"},      {L"\\e[3~", L"ed-delete-next-char"},
      {L"\\e[1;5C", L"em-next-word"},   {L"\\e[1;5D", L"ed-prev-word"},
      {L"^R", L"em-inc-search-prev"},   {L"^W", L"ed-delete-prev-word"},
      {L"^\\\\", L"ed-ignore"},
  };
  for (const auto& [keys, function] : theirs) el_wset(edit_, EL_BIND, keys, function, nullptr);
}

std::string EditedInput::text() const {
  const LineInfoW* line = el_wline(edit_);
  return utf8_text({line->buffer, static_cast<std::size_t>(line->lastchar - line->buffer)});
}

unsigned char EditedInput::press(const wchar_t* keys) {
  el_wpush(edit_, keys);
  return CC_NORM;
}

unsigned char EditedInput::insert(std::string_view text) {
  if (text.empty()) return CC_NORM;
  return el_winsertstr(edit_, wide_text(text).c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

unsigned char EditedInput::enter() {
  const LineInfoW* line = el_wline(edit_);
  const std::string typed = text();
  const bool block = !is_literal(typed) && typed.starts_with("\"\"\"");
  if (block) return is_open_block(typed) ? insert("\n") : press(kSend);
  if (line->cursor != line->lastchar || !ends_in_continuation(typed)) return press(kSend);
  el_wdeletestr(edit_, 1);
  return insert("\n");
}

unsigned char EditedInput::new_line() { return insert("\n"); }

unsigned char EditedInput::interrupt() {
  interrupted_ = true;
  interrupted_text_ = expand(text());
  const LineInfoW* line = el_wline(edit_);
  el_cursor(edit_, static_cast<int>(line->lastchar - line->cursor));
  insert("^C");
  press(kSend);
  return CC_REFRESH;
}

unsigned char EditedInput::suspend() {
  std::fflush(screen_);
  el_wset(edit_, EL_PREP_TERM, 0);
  guard_->suspend();
  kill(0, SIGTSTP);  // the whole group, as the terminal does it; goes on here when continued
  guard_->resume();
  el_wset(edit_, EL_PREP_TERM, 1);
  el_wset(edit_, EL_REFRESH);
  return CC_NORM;
}

// Everything up to the mark of the end, which the terminal sends.
unsigned char EditedInput::paste() {
  constexpr std::string_view kEnd = "\x1b[201~";
  std::string bytes;
  bool too_long = false;
  while (!bytes.ends_with(kEnd)) {
    char byte = 0;
    event_ = source_.next(byte);
    if (event_ == ByteSource::Event::kCancelled) {
      interrupted_ = true;
      interrupted_text_ = expand(text());
    }
    if (event_ != ByteSource::Event::kBytes) return CC_EOF;
    // Terminals leave it out of what they paste: here somebody wants to stop.
    if (byte == '\x03') return interrupt();
    bytes += byte;
    if (bytes.size() > options_.max_bytes) {
      bytes.erase(0, bytes.size() - kEnd.size());
      too_long = true;
    }
  }
  if (too_long) {
    std::fputs("\nThe paste is too long; it was left out.\n", screen_);
    el_wset(edit_, EL_REFRESH);
    return CC_ERROR;
  }
  bytes.resize(bytes.size() - kEnd.size());
  std::string pasted;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '\r') {
      pasted += bytes[i];
    } else if (i + 1 == bytes.size() || bytes[i + 1] != '\n') {
      pasted += '\n';
    }
  }
  // Copied lines end in a newline that nobody means.
  if (pasted.ends_with('\n')) pasted.pop_back();
  pasted = clean_text(pasted, replaced_);
  const LineInfoW* line = el_wline(edit_);
  const bool at_begin = line->cursor == line->buffer;
  const bool marked = pasted.starts_with("\"\"\"") || pasted.find('\n') != std::string::npos;
  const std::string shown = collapse(std::move(pasted), kMaxShownLines, kMaxShownBytes);
  if (at_begin && marked) literal_start_ = shown.substr(0, shown.find('\n'));
  return insert(shown);
}

unsigned char EditedInput::insert_prefill() {
  const std::size_t lines = std::max<std::size_t>(kMaxShownLines, rows_ > 2 ? rows_ - 2 : 0);
  const std::string shown = collapse(std::move(prefill_), lines, 4 * kMaxShownBytes);
  if (shown.starts_with('/') || shown.starts_with("\"\"\"")) {
    literal_start_ = shown.substr(0, shown.find('\n'));
  }
  return insert(shown);
}

unsigned char EditedInput::up() {
  const LineInfoW* line = el_wline(edit_);
  const std::ptrdiff_t here = column(*line);
  const wchar_t* begin = line->cursor - here;
  if (begin == line->buffer) return press(kOlder);
  const wchar_t* above_end = begin - 1;
  const wchar_t* above = above_end;
  while (above > line->buffer && above[-1] != L'\n') --above;
  const wchar_t* target = above + std::min(here, above_end - above);
  el_cursor(edit_, static_cast<int>(target - line->cursor));
  return CC_CURSOR;
}

unsigned char EditedInput::down() {
  const LineInfoW* line = el_wline(edit_);
  const wchar_t* end = end_of_line(line->cursor, line->lastchar);
  if (end == line->lastchar) return press(kNewer);
  const wchar_t* below = end + 1;
  const wchar_t* target =
      below + std::min(column(*line), end_of_line(below, line->lastchar) - below);
  el_cursor(edit_, static_cast<int>(target - line->cursor));
  return CC_CURSOR;
}

unsigned char EditedInput::line_begin() {
  el_cursor(edit_, -static_cast<int>(column(*el_wline(edit_))));
  return CC_CURSOR;
}

unsigned char EditedInput::line_end() {
  const LineInfoW* line = el_wline(edit_);
  el_cursor(edit_, static_cast<int>(end_of_line(line->cursor, line->lastchar) - line->cursor));
  return CC_CURSOR;
}

unsigned char EditedInput::complete() {
  if (!options_.completer) return CC_ERROR;
  const LineInfoW* line = el_wline(edit_);
  const std::string before =
      utf8_text({line->buffer, static_cast<std::size_t>(line->cursor - line->buffer)});
  const Completion completion = options_.completer(before);
  if (completion.candidates.empty() || completion.begin > before.size()) return CC_ERROR;
  const std::string typed = before.substr(completion.begin);
  const std::string common = common_prefix(completion.candidates);
  if (common.size() > typed.size() && common.starts_with(typed)) {
    return insert(std::string_view(common).substr(typed.size()));
  }
  if (completion.candidates.size() > 1) list(completion);
  return CC_NORM;
}

void EditedInput::list(const Completion& completion) {
  constexpr std::size_t kMaxListed = 100;
  const std::size_t count = std::min(kMaxListed, completion.candidates.size());
  std::size_t width = 1;
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < count; ++i) {
    labels.push_back(safe_text(completion.candidates[i].label));
    width = std::max(width, wide_text(labels.back()).size() + 2);
  }
  const std::size_t per_row = std::max<std::size_t>(1, (columns_ > 0 ? columns_ : 80) / width);
  std::string out = "\n";
  for (std::size_t i = 0; i < count; ++i) {
    out += labels[i];
    const bool last = i + 1 == count || (i + 1) % per_row == 0;
    out += last ? "\n" : std::string(width - wide_text(labels[i]).size(), ' ');
  }
  if (completion.candidates.size() > count) {
    out += "and " + std::to_string(completion.candidates.size() - count) + " more\n";
  }
  std::fputs(out.c_str(), screen_);
  el_wset(edit_, EL_REFRESH);
}

}  // namespace sluice
