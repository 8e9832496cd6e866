// Light Markdown for terminals, as the text streams in.
//
// Understood: **bold**, *italic*, ***both***, `code` (any number of backticks), # headings, lists
// (- * + 1. 2)), > quotes, --- and *** rules, [text](address), fenced code (``` and ~~~),
// backslash before * _ ` #. This is a subset of CommonMark 0.30 that can be decided without
// looking ahead: spans end at the end of their line, and underscores are never markup, because
// snake_case and __init__ are commoner in answers than emphasis by underscores.
//
// Colours come from here only: control bytes of the text are shown as \x1b and the like
// (safe_text.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct MarkdownOptions {
  // Off: the text passes unchanged, but for control bytes. No escape code is written, dim or not.
  bool markdown = true;
  // Colours beside bold, italic, underline and dim. Off for NO_COLOR.
  bool colour = true;
  // Markers of bold, italic, code and headings are left out, list and quote marks and rules drawn.
  // A marker that turns out to be unclosed is printed at the end of its line. Off: all markers stay
  // where they are, dimmed, and the output without its codes is the text itself.
  bool hide_markers = true;
};

// Use: push() pieces as they come, finish() at the end or when the answer is interrupted. The
// concatenated output depends on the text alone, not on how it was cut into pieces. Held back is
// only a marker whose meaning depends on what follows; plain words appear at once. At each end of a
// line and after finish() the terminal's attributes are the normal ones.
class MarkdownStream {
 public:
  explicit MarkdownStream(MarkdownOptions options = {}) : options_(options) {}

  // Text of whole UTF-8 characters (src/text/text_stream.h).
  std::string push(std::string_view text);

  // What was held back, and the attributes reset. The next text begins at the start of a line.
  std::string finish();

  // Between the two, text is shown dimmed and taken literally: reasoning of a model. Both end what
  // came before as finish() does; their result must be printed too.
  std::string begin_dim();
  std::string end_dim();

 private:
  enum class Place {
    kLineStart,   // where a block may begin: only blanks, quote and list marks so far
    kNumber,      // digits at the start of a line
    kNumberMark,  // and a . or ) after them: a list mark if a blank follows
    kInline,
    kCodeSpan,
    kLink,            // the address of a link
    kFenceInfo,       // after the opening fence, on its line
    kFenceLineStart,  // in fenced code, only blanks so far
    kFenceLine,
  };
  // What a character is for the rules of emphasis. Blank: also the ends of a line. Other: outside
  // ASCII, where words need no blanks between them.
  enum class Kind : unsigned char { kBlank, kWord, kPunctuation, kOther };
  struct Style {
    bool bold = false, italic = false, underline = false, dim = false, cyan = false;
    bool operator==(const Style&) const = default;
  };
  // A marker that waits for its next character: `length` times `character`, then `blanks`.
  struct Run {
    char character = 0;  // 0: none
    std::size_t length = 0;
    std::string blanks;
  };

  static Kind kind_of(std::string_view character);
  void take(std::string_view character);
  void take_literal(std::string_view character);
  bool take_blank_after_run(std::string_view character);
  bool resolve_run(std::string_view next);
  bool resolve_at_line_start(const Run& run, std::string_view next);
  bool resolve_inline(const Run& run, std::string_view next);
  void resolve_stars(std::size_t length, Kind before, std::string_view next);
  void resolve_fence_end(const Run& run, std::string_view next);
  void at_line_start(std::string_view character);
  void in_line(std::string_view character);
  void in_address(std::string_view character);
  void end_line();
  void open_marker(std::string_view marker, bool hide);
  void close_marker(std::string_view marker);

  void put(std::string_view text, const Style& style);
  void put_inline(std::string_view text) { put(text, inline_style()); }
  void set_style(const Style& style);
  Style inline_style() const;
  Style marker_style() const;
  Style list_style() const;
  Style code_style() const;

  MarkdownOptions options_;
  bool dim_ = false;
  std::string out_;
  Style shown_;  // what the terminal has now

  Place place_ = Place::kLineStart;
  Run run_;
  Kind before_ = Kind::kBlank;  // of the character before the current one
  bool bold_ = false, italic_ = false;
  std::size_t heading_ = 0;            // level, 0: none
  std::size_t span_ = 0;               // backticks that close the code span
  bool bracket_ = false;               // a [ that may begin a link
  std::size_t parentheses_ = 0;        // open ones in an address
  std::vector<std::string> unclosed_;  // hidden markers that are open
  std::size_t indent_ = 0;             // blanks at the start of this line

  char fence_ = 0;  // its character; 0: not in fenced code
  std::size_t fence_length_ = 0;
  std::size_t fence_indent_ = 0;
};

}  // namespace sluice
