// The terminal's parts that need no terminal: Markdown, completion, rules of messages, history.
#include <doctest/doctest.h>

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "src/cli/terminal/complete.h"
#include "src/cli/terminal/history_file.h"
#include "src/cli/terminal/markdown_stream.h"
#include "src/cli/terminal/message_lines.h"
#include "src/cli/terminal/safe_text.h"
#include "src/cli/terminal/wide_text.h"
#include "src/text/utf8.h"
#include "tests/temporary_folder.h"

namespace sluice {
namespace {

const MarkdownOptions kShown = {.hide_markers = false};
const MarkdownOptions kPlain = {.markdown = false};

std::string render(std::string_view text, MarkdownOptions options = {}) {
  MarkdownStream stream(options);
  std::string out = stream.push(text);
  return out + stream.finish();
}

std::string without_codes(const std::string& text) {
  static const std::regex codes("\x1b\\[[0-9;]*m");
  return std::regex_replace(text, codes, "");
}

// The codes, spelled so that expectations can be read: {b}, {i}, ... and {} for normal.
std::string readable(std::string text) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"\x1b[0m", "{}"},          {"\x1b[0;1m", "{b}"},   {"\x1b[0;3m", "{i}"},
      {"\x1b[0;1;3m", "{bi}"},    {"\x1b[0;2m", "{dim}"}, {"\x1b[0;36m", "{c}"},
      {"\x1b[0;1;4m", "{b_}"},    {"\x1b[0;4m", "{_}"},   {"\x1b[0;1;36m", "{bc}"},
      {"\x1b[0;1;4;36m", "{b_c}"}};
  for (const auto& [code, name] : names) {
    for (std::size_t at = 0; (at = text.find(code, at)) != std::string::npos;) {
      text.replace(at, code.size(), name);
    }
  }
  return text;
}

std::string shown(std::string_view text, MarkdownOptions options = {}) {
  return readable(render(text, options));
}

std::string in_pieces(std::string_view text, const MarkdownOptions& options, std::mt19937& rng) {
  MarkdownStream stream(options);
  std::string out;
  while (!text.empty()) {
    std::size_t length = 0;
    for (std::size_t n = rng() % 4; n > 0 && length < text.size(); --n) {
      length += decode_utf8(text.substr(length)).length;
    }
    out += stream.push(text.substr(0, length));
    text.remove_prefix(length);
  }
  return out + stream.finish();
}

std::string random_text(std::mt19937& rng, const std::vector<std::string>& atoms) {
  std::string out;
  for (std::size_t n = rng() % 40; n > 0; --n) out += atoms[rng() % atoms.size()];
  return out;
}

const std::vector<std::string> kAtoms = {
    "a",   "b",   "word ", " ",   "\n",  "\n\n",   "*",       "**", "***", "a ****", "`",
    "``",  "```", "#",     "## ", "- ",  "-",      "---",     "+ ", "> ",  ">",      "1",
    "2. ", "3) ", "[",     "]",   "](",  ")",      "(",       "\\", "~",   "~~~",    "_",
    "\t",  "é",   "漢",    "😀",   "   ", "```c\n", "\n```\n", "."};

std::vector<std::string> texts(const Completion& completion) {
  std::vector<std::string> out;
  for (const Completion::Candidate& candidate : completion.candidates)
    out.push_back(candidate.text);
  return out;
}

using Texts = std::vector<std::string>;

// Sets an environment variable for a test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    const char* before = std::getenv(name);
    if (before != nullptr) before_ = before;
    was_set_ = before != nullptr;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { was_set_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string before_;
  bool was_set_;
};

// What a message is after these lines; "..." when it is not complete.
std::string message_of(const std::vector<std::string>& lines) {
  MessageLines message;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool complete = message.add(lines[i]);
    if (complete != (i + 1 == lines.size())) return complete ? "complete too early" : "...";
  }
  return message.take();
}

}  // namespace

TEST_CASE("spans are shown, their markers are not") {
  CHECK(shown("a **b c** d\n") == "a {b}b c{} d\n");
  CHECK(shown("a *b* d") == "a {i}b{} d");
  CHECK(shown("***b*** **x *y* z**\n") == "{bi}b{} {b}x {bi}y{b} z{}\n");
  CHECK(shown("use `a*b*c` now") == "use {c}a*b*c{} now");
  CHECK(shown("``a ` b``") == "{c}a ` b{}");
  CHECK(shown("**bold `code` bold**") == "{b}bold {bc}code{b} bold{}");
  CHECK(shown("这是**重点**内容") == "这是{b}重点{}内容");
  CHECK(shown("see [the page](http://example.com/b_(c)).") ==
        "see [the page]({_}http://example.com/b_(c){}).");
  CHECK(shown("**[a](b)**") == "{b}[a]({b_}b{b}){}");
  CHECK(shown("\\*not\\* \\n \\(x\\)") == "*not* \\n \\(x\\)");
}

TEST_CASE("what only looks like markup stays as it is") {
  for (const char* text : {"2 * 3 * 4",
                           "2*3*4 = 24, 2**3**4",
                           "snake_case_names and __init__",
                           "**",
                           "*",
                           "a ** b",

                           "a ****",
                           "*.txt and *.md",
                           "a, *, b",
                           "#hashtag",
                           "#include <x>",
                           "#",
                           "####### seven",
                           "-5 degrees",
                           "--flag",
                           "-",
                           "a - b",
                           "1999 was\n2.5 m\n3.",
                           "a `",
                           "` a",
                           "[x] y [z]\n",
                           "x](y)",
                           "~/file ~~",
                           "C:\\dir\\",
                           "\\",
                           "tilde ~~~ inside",
                           "a # b",
                           "| a | b |\n|---|---|",
                           "+1"}) {
    CHECK(render(text) == text);
    CHECK(render(text, kShown) == text);
  }
}

TEST_CASE("blocks") {
  CHECK(shown("# T **x**\ntext") == "{b_}T x{}\ntext");
  CHECK(shown("### T `c`\n") == "{b}T {bc}c{}\n");
  CHECK(shown("- a\n* **b**\n  + c\n") == "{c}•{} a\n{c}•{} {b}b{}\n  {c}•{} c\n");
  CHECK(shown("1. a\n12) *b*\n") == "1. a\n12) {i}b{}\n");
  CHECK(shown("> a\n>> **b**\n") == "{dim}│{} a\n{dim}││{} {b}b{}\n");
  for (const char* rule : {"---", "***", "-----", "--- "}) {
    const std::string out = render(std::string(rule) + "\nx");
    CHECK(out.find("────\x1b[0m\nx") != std::string::npos);
    CHECK(shown(std::string(rule) + "\nx", kShown) == "{dim}" + std::string(rule) + "{}\nx");
  }
  CHECK(shown("--- x\n*** y\n") == "--- x\n*** y\n");
  CHECK(shown("# T\n- a\n> b `c`", kShown) ==
        "{dim}# {b_}T{}\n{c}-{} a\n{dim}>{} b {dim}`{c}c{dim}`{}");
}

TEST_CASE("fenced code is copyable") {
  const std::string code = "  def f(*a, **k):\n\treturn `x` # *not* markup\n\n- [a](b)\n``\n";
  CHECK(shown("```python\n" + code + "```\n**x**") ==
        "{dim}```python{}\n{c}  def f(*a, **k):{}\n{c}\treturn `x` # *not* markup{}\n\n{c}- "
        "[a](b){}\n"
        "{c}``{}\n{dim}```{}\n{b}x{}");
  // Longer fences hold shorter ones; blanks may follow the end; tildes end tildes.
  CHECK(shown("````\n```\n````  \n*x*") == "{dim}````{}\n{c}```{}\n{dim}````  {}\n{i}x{}");
  CHECK(shown("~~~\n```\n~~~\n*x*") == "{dim}~~~{}\n{c}```{}\n{dim}~~~{}\n{i}x{}");
  CHECK(shown("```\n``` x\n```") == "{dim}```{}\n{c}``` x{}\n{dim}```{}");
  // In a list, indented.
  CHECK(shown("1. ```sh\n   ls *a*\n   ```\n*x*") ==
        "1. {dim}```sh{}\n{c}   ls *a*{}\n{c}   {dim}```{}\n{i}x{}");
  CHECK(shown("```x``` *y*") == "{dim}```x```{} {i}y{}");
  CHECK(shown("```\ncut of") == "{dim}```{}\n{c}cut of{}");
}

TEST_CASE("an unclosed marker is not lost") {
  CHECK(shown("**abc") == "{b}abc{dim}**{}");
  CHECK(shown("a **b *c\nd*") == "a {b}b {bi}c{dim}***{}\nd*");
  CHECK(shown("a `b\n*c*") == "a {c}b{dim}`{}\n{i}c{}");
  CHECK(shown("**a", kShown) == "{dim}**{b}a{}");
  std::mt19937 rng(1);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = random_text(rng, kAtoms);
    CHECK_MESSAGE(without_codes(render(text, kShown)) == text, text);
  }
}

TEST_CASE("output does not depend on how the text is cut") {
  std::mt19937 rng(2);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = random_text(rng, kAtoms);
    for (const MarkdownOptions& options : {MarkdownOptions{}, kShown, kPlain}) {
      const std::string whole = render(text, options);
      CHECK_MESSAGE(in_pieces(text, options, rng) == whole, text);
      // Normal attributes at the end of each line.
      for (std::size_t at = 0; (at = whole.find('\n', at)) != std::string::npos; ++at) {
        const std::size_t code = whole.rfind('\x1b', at);
        if (code != std::string::npos) CHECK_MESSAGE(whole.substr(code, 4) == "\x1b[0m", text);
      }
    }
  }
}

TEST_CASE("text without markers is itself") {
  const std::vector<std::string> atoms = {"a",  "Word", " ", "\n", "é",  "漢", "1", "2.", "_", ".",
                                          ", ", "(",    ")", ":",  "\"", "'",  "=", "\t", "😀", "|"};
  std::mt19937 rng(3);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = random_text(rng, atoms);
    CHECK_MESSAGE(render(text) == text, text);
    CHECK_MESSAGE(render(text, kPlain) == text, text);
  }
}

TEST_CASE("no control byte of the text survives") {
  CHECK(render("a\x1b[31mb\r\x7f\xc2\x9b") == "a\\x1b[31mb\\x0d\\x7f\\x9b");
  CHECK(render("a\xe2\x80\xae"
               "b\xe2\x81\xa6") == "a\\u202eb\\u2066");
  CHECK(render(std::string("a\0b\xff", 4)) == "a\\x00b\\xff");
  CHECK(render("```\n\x1b]0;t\x07\n```", kPlain) == "```\n\\x1b]0;t\\x07\n```");
  std::vector<std::string> atoms = kAtoms;
  for (int c = 0; c < 0x20; ++c) atoms.emplace_back(1, static_cast<char>(c));
  for (int i = 0; i < 10; ++i) atoms.emplace_back("\x1b[");
  for (unsigned c = 0x7f; c < 0xa0; ++c) append_utf8(atoms.emplace_back(), c);
  for (unsigned c : {0x202au, 0x202eu, 0x2066u, 0x2069u}) append_utf8(atoms.emplace_back(), c);
  std::mt19937 rng(4);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = random_text(rng, atoms);
    for (const MarkdownOptions& options : {MarkdownOptions{}, kShown, kPlain}) {
      const std::string out = without_codes(render(text, options));
      CHECK_MESSAGE(safe_text(out) == out, text);
    }
    CHECK(render(text, kPlain) == safe_text(text));
    CHECK(without_codes(render(text, kShown)) == safe_text(text));
    CHECK(in_pieces(text, {}, rng) == render(text));
  }
}

TEST_CASE("plain words are not held back") {
  MarkdownStream stream;
  CHECK(stream.push("Hel") == "Hel");
  CHECK(stream.push("lo *") == "lo ");
  CHECK(stream.push("w") == "\x1b[0;3mw");
  CHECK(stream.push("o") == "o");
  CHECK(stream.push("*").empty());
  CHECK(stream.push(" `") == "\x1b[0m ");
  CHECK(stream.push("x") == "\x1b[0;36mx");
  CHECK(stream.push("`\n#").substr(0, 5) == "\x1b[0m\n");
  CHECK(stream.push("# ").empty());
  CHECK(stream.push("T") == "\x1b[0;1mT");
  CHECK(stream.push("\n12") == "\x1b[0m\n12");
  CHECK(stream.push(" [a") == " [a");
  CHECK(stream.finish().empty());
}

TEST_CASE("an interrupted answer leaves normal attributes and a fresh stream") {
  for (const char* cut :
       {"**a", "`a", "```\na", "# a", "[a](b", "***", "```", "- ", "a\\", "[a]"}) {
    MarkdownStream stream;
    std::string out = stream.push(cut);
    out += stream.finish();
    const std::size_t code = out.rfind('\x1b');
    if (code != std::string::npos) CHECK_MESSAGE(out.substr(code, 4) == "\x1b[0m", cut);
    CHECK(stream.push("plain\n") == "plain\n");
  }
}

TEST_CASE("reasoning is dimmed and literal") {
  MarkdownStream stream;
  std::string out = stream.push("*");
  out += stream.begin_dim();
  out += stream.push("so **2\n```\x1b");
  out += stream.end_dim();
  out += stream.push("**x**");
  out += stream.finish();
  CHECK(readable(out) == "*{dim}so **2{}\n{dim}```\\x1b{}{b}x{}");
  MarkdownStream plain(kPlain);
  CHECK(plain.begin_dim() + plain.push("a\n") + plain.end_dim() == "a\n");
}

TEST_CASE("lines become messages") {
  CHECK(message_of({"one"}) == "one");
  CHECK(message_of({""}).empty());
  CHECK(message_of({"a\\", "b\\", ""}) == "a\nb\n");
  CHECK(message_of({"a\\\\"}) == "a\\\\");
  CHECK(message_of({"a\\\\\\", "b"}) == "a\\\\\nb");
  CHECK(message_of({"\"\"\"", "a\\", "", "b", "\"\"\""}) == "a\\\n\nb");
  CHECK(message_of({"\"\"\"a", "b\"\"\" \t"}) == "a\nb");
  CHECK(message_of({"\"\"\"a\"\"\""}) == "a");
  CHECK(message_of({"\"\"\"", "", "\"\"\""}).empty());
  CHECK(message_of({"\"\"\"", "\"\"\""}).empty());
  CHECK(message_of({"\"\"\"\"\"\""}).empty());
  CHECK(message_of({"\"\"\"\"", "\"\"\""}) == "\"");
  CHECK(message_of({"a \"\"\""}) == "a \"\"\"");
  MessageLines open;
  CHECK(!open.add("\"\"\"a"));
  CHECK(!open.add("\"\"\" b"));
  CHECK(open.take() == "a\n\"\"\" b");
  CHECK(open.empty());
}

TEST_CASE("blocks in a text that is edited as a whole") {
  for (const char* open : {"\"\"\"", "\"\"\"a", "\"\"\"\na\n\"\"\" b", "\"\"\"\"\""}) {
    CHECK_MESSAGE(is_open_block(open), open);
  }
  for (const char* other :
       {"", "a", " \"\"\"", "\"\"\"a\"\"\"", "\"\"\"\na\n\"\"\" ", "\"\"\"\"\"\""}) {
    CHECK_MESSAGE(!is_open_block(other), other);
  }
  CHECK(without_block_marks("\"\"\"\na\\\nb\n\"\"\"") == "a\\\nb");
  CHECK(without_block_marks("a\n\"\"\"") == "a\n\"\"\"");
  CHECK(without_block_marks("\"\"\"a\"\"\"\nmore\n\"\"\"") == "a\nmore\n\"\"\"");
}

TEST_CASE("bad bytes are replaced and counted") {
  std::size_t replaced = 0;
  CHECK(clean_text("plain é", replaced) == "plain é");
  CHECK(replaced == 0);
  CHECK(clean_text(std::string("a\0\xff\xe2\x82z", 6), replaced) ==
        "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz");
  CHECK(replaced == 3);
  CHECK(utf8_text(wide_text("aé漢😀")) == "aé漢😀");
  CHECK(utf8_text(L"\xd800") == "\xEF\xBF\xBD");
}

TEST_CASE("commands are completed") {
  const std::vector<CommandWords> commands = {{.name = "/read", .takes_file = true},
                                              {.name = "/retry"},
                                              {.name = "/export", .words = {"md", "json"}}};
  CHECK(texts(complete_line("/re", commands)) == Texts{"/read ", "/retry"});
  CHECK(texts(complete_line("/", commands)) == Texts{"/export ", "/read ", "/retry"});
  CHECK(texts(complete_line("/ret", commands)) == Texts{"/retry"});
  CHECK(texts(complete_line("/export ", commands)) == Texts{"json", "md"});
  CHECK(texts(complete_line("/export  m", commands)) == Texts{"md"});
  CHECK(complete_line("/export  m", commands).begin == 9);
  for (const char* nothing : {"", "re", " /re", "/x", "/retry ", "/re a", "/export x"}) {
    CHECK_MESSAGE(complete_line(nothing, commands).candidates.empty(), nothing);
  }
  CHECK(common_prefix(complete_line("/re", commands).candidates) == "/re");
  CHECK(common_prefix({}).empty());
  CHECK(common_prefix({{"é1", ""}, {"è1", ""}}).empty());  // they share the first byte
  CHECK(common_prefix({{"aé", ""}, {"aéb", ""}}) == "aé");
}

TEST_CASE("file names are completed") {
  const test::TemporaryFolder folder;
  for (const char* name :
       {"my file", "my fit", "über", ".hidden", "bad\x1bname", "bad\nline", "bad\xff"}) {
    folder.file(name, "");
  }
  std::filesystem::create_directory(folder / "dir");
  folder.file("dir/inside", "");
  const std::vector<CommandWords> commands = {{.name = "/read", .takes_file = true}};
  const std::string root = folder / "";
  const auto offered = [&](const std::string& path) {
    const std::string line = "/read " + path;
    const Completion completion = complete_line(line, commands);
    CHECK(line.substr(completion.begin) == path.substr(path.rfind('/') + 1));
    return texts(completion);
  };
  CHECK(offered(root) == Texts{"dir/", "my file", "my fit", "über"});
  CHECK(offered(root + "my f") == Texts{"my file", "my fit"});
  CHECK(offered(root + ".") == Texts{".hidden"});
  CHECK(offered(root + "di") == Texts{"dir/"});
  CHECK(offered(root + "dir/") == Texts{"inside"});
  CHECK(offered(root + "none/x").empty());
  CHECK(offered(root + "my file/").empty());
  const Variable home("HOME", root.substr(0, root.size() - 1));
  CHECK(offered("~/di") == Texts{"dir/"});
  CHECK(texts(complete_line("/read ~", commands)) == Texts{"~/"});
  CHECK(expand_home("~/x") == root + "x");
  CHECK(expand_home("~") == root.substr(0, root.size() - 1));
  CHECK(expand_home("~user/x") == "~user/x");
  CHECK(expand_home("a~/x") == "a~/x");
}

TEST_CASE("the history's file keeps messages exactly") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "a/b/history";
  HistoryFile file(path);
  REQUIRE(file.load().ok());
  CHECK(file.load()->empty());
  const Texts messages = {"one", "two\nlines\n", "back\\slash \\n\\", "é漢😀\x1b[31m", "\n"};
  for (const std::string& message : messages) REQUIRE(file.append(message).ok());
  REQUIRE(file.append(std::string(HistoryFile::kMaxEntryBytes + 1, 'x')).ok());
  CHECK(*file.load() == messages);
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("a history that grew long is shortened") {
  const test::TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 2001; ++i) lines += "message " + std::to_string(i) + "\n";
  HistoryFile file(folder.file("many", lines));
  const auto entries = file.load();
  REQUIRE(entries.ok());
  CHECK(entries->size() == HistoryFile::kMaxEntries);
  CHECK(entries->front() == "message 1001");
  CHECK(entries->back() == "message 2000");
  CHECK(test::TemporaryFolder::read(folder / "many").starts_with("message 1001\n"));
  CHECK(*file.load() == *entries);
  // More bytes than are read: the newest ones, without the half message at their beginning.
  HistoryFile big(folder.file("big", std::string(9 << 20, 'x') + "y\nlast\n"));
  REQUIRE(big.load().ok());
  CHECK(*big.load() == Texts{"last"});
  CHECK(test::TemporaryFolder::read(folder / "big") == "last\n");
}

TEST_CASE("a history that can't be used is an error, no path is none") {
  const test::TemporaryFolder folder;
  CHECK(!HistoryFile(folder / "").load().ok());
  CHECK(!HistoryFile(folder / "").append("x").ok());
  CHECK(HistoryFile("").load().ok());
  CHECK(HistoryFile("").append("x").ok());
  const Variable state("XDG_STATE_HOME", "/s");
  CHECK(default_history_path() == "/s/sluice/history");
  const Variable relative("XDG_STATE_HOME", "s");
  const Variable home("HOME", "/h");
  CHECK(default_history_path() == "/h/.local/state/sluice/history");
}

}  // namespace sluice
