#include "src/cli/terminal/complete.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "src/cli/terminal/safe_text.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

// A folder with more entries is not read to its end.
constexpr std::size_t kMaxEntries = 100000;

bool can_be_typed(const std::string& name) {
  return safe_text(name) == name && name.find_first_of("\n\t") == std::string::npos;
}

void sort_by_label(Completion& completion) {
  std::sort(completion.candidates.begin(), completion.candidates.end(),
            [](const auto& a, const auto& b) { return a.label < b.label; });
}

}  // namespace

std::string expand_home(std::string_view path) {
  const char* home = std::getenv("HOME");
  const bool tilde = path == "~" || path.starts_with("~/");
  if (!tilde || home == nullptr) return std::string(path);
  return std::string(home) + std::string(path.substr(1));
}

Completion complete_file(std::string_view path) {
  Completion completion;
  if (path == "~") {
    completion.candidates.push_back({"~/", "~/"});
    return completion;
  }
  const std::size_t slash = path.rfind('/');
  const std::string_view folder =
      slash == std::string_view::npos ? std::string_view() : path.substr(0, slash + 1);
  const std::string_view typed = path.substr(folder.size());
  completion.begin = folder.size();
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : expand_home(folder), error);
  for (std::size_t n = 0;
       !error && entry != std::filesystem::directory_iterator() && n < kMaxEntries;
       entry.increment(error), ++n) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with(typed) || !can_be_typed(name)) continue;
    if (name[0] == '.' && !typed.starts_with('.')) continue;
    std::error_code unknown;
    if (entry->is_directory(unknown)) name += '/';
    completion.candidates.push_back({name, name});
  }
  sort_by_label(completion);
  return completion;
}

Completion complete_line(std::string_view line, const std::vector<CommandWords>& commands) {
  Completion completion;
  if (!line.starts_with('/')) return completion;
  const std::size_t blank = line.find_first_of(" \t");
  if (blank == std::string_view::npos) {
    for (const CommandWords& command : commands) {
      if (!command.name.starts_with(line)) continue;
      const bool argument = command.takes_file || !command.words.empty();
      completion.candidates.push_back({command.name + (argument ? " " : ""), command.name});
    }
    sort_by_label(completion);
    return completion;
  }
  const auto command = std::find_if(commands.begin(), commands.end(), [&](const CommandWords& c) {
    return c.name == line.substr(0, blank);
  });
  if (command == commands.end()) return completion;
  const std::size_t start = std::min(line.find_first_not_of(" \t", blank), line.size());
  const std::string_view argument = line.substr(start);
  if (command->takes_file) {
    completion = complete_file(argument);
    completion.begin += start;
    return completion;
  }
  completion.begin = start;
  for (const std::string& word : command->words) {
    if (word.starts_with(argument)) completion.candidates.push_back({word, word});
  }
  sort_by_label(completion);
  return completion;
}

std::string common_prefix(const std::vector<Completion::Candidate>& candidates) {
  if (candidates.empty()) return {};
  std::string_view common = candidates[0].text;
  for (const Completion::Candidate& candidate : candidates) {
    const auto differ =
        std::mismatch(common.begin(), common.end(), candidate.text.begin(), candidate.text.end());
    common = common.substr(0, static_cast<std::size_t>(differ.first - common.begin()));
  }
  std::size_t whole = 0;
  while (whole < common.size() && decode_utf8(common.substr(whole)).status == Utf8Status::kValid) {
    whole += decode_utf8(common.substr(whole)).length;
  }
  return std::string(common.substr(0, whole));
}

}  // namespace sluice
