// Messages from a terminal, edited with libedit.
#pragma once

#include <histedit.h>
#include <locale.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/cli/terminal/byte_source.h"
#include "src/cli/terminal/history_file.h"
#include "src/cli/terminal/line_editor.h"
#include "src/cli/terminal/terminal_guard.h"

namespace sluice {

// Longer pastes and messages of the history are shown by a name.
inline constexpr std::size_t kMaxShownLines = 10;
inline constexpr std::size_t kMaxShownBytes = 2000;

class EditedInput : public LineEditor {
 public:
  // Null where the terminal has no description that libedit could draw with.
  static std::unique_ptr<LineEditor> create(const LineEditorOptions& options);
  ~EditedInput() override;

  ReadResult read(std::string_view prefill) override;
  bool can_edit() const override { return true; }
  std::string take_history_problem() override { return std::exchange(history_problem_, {}); }

 private:
  explicit EditedInput(const LineEditorOptions& options);
  bool start();
  void bind_keys();
  void load_history();
  void remember(const std::string& message);

  // The keys. Each returns one of libedit's CC_ codes.
  using Action = unsigned char (EditedInput::*)();
  unsigned char enter();
  unsigned char new_line();
  unsigned char interrupt();
  unsigned char suspend();
  unsigned char paste();
  unsigned char complete();
  unsigned char up();
  unsigned char down();
  unsigned char line_begin();
  unsigned char line_end();
  unsigned char insert_prefill();
  template <Action action>
  static unsigned char call(EditLine* edit, wint_t key);
  static int read_character(EditLine* edit, wchar_t* out);
  static wchar_t* give_prompt(EditLine* edit);

  void follow_window_size();
  std::size_t rows_above_cursor() const;
  void list(const Completion& completion);
  unsigned char insert(std::string_view text);
  unsigned char press(const wchar_t* keys);
  std::string text() const;
  bool is_literal(std::string_view text) const;
  std::string collapse(std::string text, std::size_t max_lines, std::size_t max_bytes);
  std::string expand(std::string_view text) const;
  ReadResult result_of(std::string text);

  LineEditorOptions options_;
  ByteSource source_;
  HistoryFile history_file_;
  std::string history_problem_;
  std::wstring prompt_;
  // Long texts that a line shows by a short name.
  struct LongText {
    std::string name, text;
  };
  std::vector<LongText> long_texts_;

  locale_t locale_ = nullptr;     // UTF-8, whatever the program's locale
  std::FILE* screen_ = nullptr;   // the output, buffered: redrawing is many small pieces
  std::FILE* nowhere_ = nullptr;  // takes libedit's complaints
  HistoryW* history_ = nullptr;
  EditLine* edit_ = nullptr;

  // Of the read that is going on.
  TerminalGuard* guard_ = nullptr;
  ByteSource::Event event_ = ByteSource::Event::kBytes;
  bool interrupted_ = false;
  std::string interrupted_text_;
  std::string literal_start_;  // while the line begins with this, its """ are text
  bool failed_ = false;        // an exception in a callback
  std::size_t replaced_ = 0;
  std::string prefill_;
  unsigned columns_ = 0, rows_ = 0;
};

}  // namespace sluice
