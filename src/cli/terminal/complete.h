// What the Tab key offers: commands that begin with a slash, their arguments, and file names.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct CommandWords {
  std::string name;  // with its slash: "/read"
  bool takes_file = false;
  std::vector<std::string> words;  // what its argument may begin with: "md", "json"
};

struct Completion {
  struct Candidate {
    std::string text;   // takes the place of the line from `begin` to its end
    std::string label;  // shown where there are several
  };
  std::size_t begin = 0;              // a byte offset in the line
  std::vector<Candidate> candidates;  // sorted by label
};

// Given the text before the cursor.
using Completer = std::function<Completion(std::string_view line)>;

// Commands and arguments for a line that begins with a slash; nothing for others. The argument of a
// command that takes a file is the whole rest of the line, so blanks in names need no quotes. A
// command that takes an argument is completed with a blank, a folder with a slash. Names that
// begin with a dot are offered only when a dot is typed; names that hold control characters or are
// not UTF-8 are left out, for they could not be typed.
Completion complete_line(std::string_view line, const std::vector<CommandWords>& commands);

// File names for a path typed so far; a ~ or ~/ at its beginning means $HOME and stays as it is.
Completion complete_file(std::string_view path);

// What the candidates have in common at the beginning, in whole characters.
std::string common_prefix(const std::vector<Completion::Candidate>& candidates);

// "~" and "~/x" with $HOME put in; everything else unchanged.
std::string expand_home(std::string_view path);

}  // namespace sluice
