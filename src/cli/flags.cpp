#include "src/cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "src/cli/numbers.h"
#include "src/cli/suggest.h"

namespace sluice::cli {
namespace {

constexpr std::size_t kColumns = 96;     // of the help
constexpr std::size_t kHelpColumn = 28;  // where meanings begin

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    all.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

// Appends words of `text`, broken between words so that lines have at most kColumns columns;
// further lines are indented. `column` is where the current line stands.
void append_wrapped(std::string& out, std::string_view text, std::size_t column,
                    std::size_t indent) {
  bool first = true;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (!first && column + 1 + word.size() > kColumns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    first = false;
    begin = end + 1;
  }
  out += '\n';
}

}  // namespace

struct Flags::Impl {
  struct Flag {
    std::vector<std::string> names;
    std::string value;  // placeholder; empty: a flag without a value
    std::string help;
    Reader read;
    CLI::Option* option = nullptr;
    bool repeatable = false;
    std::size_t section = 0;

    // "-n, --predict N"
    std::string heading() const {
      std::string shown;
      const auto is_long = [](const std::string& name) { return name.starts_with("--"); };
      const auto short_name = std::find_if_not(names.begin(), names.end(), is_long);
      const auto long_name = std::find_if(names.begin(), names.end(), is_long);
      if (short_name != names.end()) shown += *short_name;
      if (short_name != names.end() && long_name != names.end()) shown += ", ";
      if (short_name == names.end()) shown += "    ";
      if (long_name != names.end()) shown += *long_name;
      return value.empty() ? shown : shown + " " + value;
    }
  };
  struct Section {
    std::string title;
    std::string topic;
  };

  CLI::App app;
  std::string command, usage, about;
  std::vector<Section> sections = {{"", ""}};
  std::vector<Flag> flags;
  std::vector<std::string> footers;

  std::string positional_value, positional_help;
  std::size_t positional_most = 0;
  std::vector<std::string>* positional_target = nullptr;

  std::vector<std::string> long_names() const {
    std::vector<std::string> all = {"--help"};
    for (const Flag& flag : flags) {
      for (const std::string& name : flag.names) {
        if (name.starts_with("--")) all.push_back(name);
      }
    }
    return all;
  }

  Error usage_error(std::string message) const {
    return Error{ErrorCode::kUsage, fmt::format("{}\n  see: sluice {} --help", message, command)};
  }

  // Whether `arg` is the name of a flag that takes the next argument as its value.
  bool takes_next(const std::string& arg) const {
    return std::any_of(flags.begin(), flags.end(), [&arg](const Flag& flag) {
      return !flag.value.empty() &&
             std::find(flag.names.begin(), flag.names.end(), arg) != flag.names.end();
    });
  }

  Error unknown_flag(std::string_view typed) const {
    const std::string name(typed.substr(0, typed.find('=')));
    const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    std::string close = nearest("--" + bare, long_names());
    for (const Flag& flag : flags) {  // --m for -m
      const std::string short_name = "-" + bare;
      if (bare.size() == 1 && std::count(flag.names.begin(), flag.names.end(), short_name) > 0) {
        close = short_name;
      }
    }
    if (close.empty()) return usage_error(fmt::format("unknown flag '{}'", name));
    return usage_error(fmt::format("unknown flag '{}'; did you mean {}?", name, close));
  }

  Status read_values(const Flag& flag, std::span<const std::string> args) {
    const CLI::results_t& results = flag.option->results();
    if (results.empty()) return {};
    if (flag.value.empty()) {
      if (std::any_of(results.begin(), results.end(), [](auto& r) { return r != "true"; })) {
        return usage_error(fmt::format("{} takes no value", flag.names.back()));
      }
    } else if (results.size() > 1 && !flag.repeatable) {
      return usage_error(fmt::format("{} is given more than once", flag.names.back()));
    }
    for (const std::string& result : results) {
      const Status status = flag.read(result);
      if (status.ok()) continue;
      // `-temp 0.7` was read as `-t emp`: the argument as typed is what must be explained.
      for (const std::string& name : flag.names) {
        const bool glued = !name.starts_with("--") && result.size() > 1 &&
                           std::find(args.begin(), args.end(), name + result) != args.end();
        if (glued) return unknown_flag(name + result);
      }
      return Error{status.error().code,
                   fmt::format("{}: {}", flag.names.back(), status.error().message)};
    }
    return {};
  }
};

Flags::Flags(std::string command, std::string usage, std::string about)
    : impl_(std::make_unique<Impl>()) {
  impl_->command = std::move(command);
  impl_->usage = std::move(usage);
  impl_->about = std::move(about);
  impl_->app.set_help_flag();
  impl_->app.allow_extras();
}

Flags::~Flags() = default;

void Flags::value(const std::string& names, std::string value, std::string help, Reader read,
                  bool repeatable) {
  Impl::Flag flag;
  flag.names = split_names(names);
  flag.value = std::move(value);
  flag.help = std::move(help);
  flag.read = std::move(read);
  flag.repeatable = repeatable;
  flag.section = impl_->sections.size() - 1;
  if (flag.value.empty()) {
    flag.option = impl_->app.add_flag(names);
  } else {
    flag.option = impl_->app.add_option(names);
  }
  // How often a flag may be given is judged here, with a better message. No callback is set, so
  // nothing but the raw texts is used of CLI11.
  flag.option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  flag.option->allow_extra_args(false);
  impl_->flags.push_back(std::move(flag));
}

void Flags::toggle(const std::string& names, std::string help, bool* target) {
  value(names, "", std::move(help), [target](std::string_view) -> Status {
    *target = true;
    return {};
  });
}

void Flags::text(const std::string& names, std::string value_name, std::string help,
                 std::optional<std::string>* target) {
  value(names, std::move(value_name), std::move(help), [target](std::string_view text) -> Status {
    *target = std::string(text);
    return {};
  });
}

void Flags::texts(const std::string& names, std::string value_name, std::string help,
                  std::vector<std::string>* target) {
  value(
      names, std::move(value_name), std::move(help),
      [target](std::string_view text) -> Status {
        target->emplace_back(text);
        return {};
      },
      true);
}

void Flags::integer(const std::string& names, std::string value_name, std::string help,
                    std::int64_t lowest, std::int64_t highest,
                    std::optional<std::int64_t>* target) {
  value(names, std::move(value_name), std::move(help),
        [target, lowest, highest](std::string_view text) -> Status {
          const std::optional<std::int64_t> number = parse_integer(text);
          if (!number || *number < lowest || *number > highest) {
            return make_error(ErrorCode::kUsage, "'{}' is not a whole number from {} to {}", text,
                              lowest, highest);
          }
          *target = *number;
          return {};
        });
}

void Flags::positional(std::string value_name, std::string help, std::size_t most,
                       std::vector<std::string>* target) {
  impl_->positional_value = std::move(value_name);
  impl_->positional_help = std::move(help);
  impl_->positional_most = most;
  impl_->positional_target = target;
}

void Flags::section(std::string title, std::string topic) {
  impl_->sections.push_back({std::move(title), std::move(topic)});
}

void Flags::footer(std::string line) { impl_->footers.push_back(std::move(line)); }

Result<Flags::Outcome> Flags::parse(std::span<const std::string> args) {
  std::vector<std::string> reversed;  // as CLI11 wants it
  std::vector<std::string> after_mark;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--help" || arg == "-h") return Outcome{help()};
    for (const std::string& topic : topics()) {
      if (arg == "--help-" + topic) return Outcome{help(topic)};
    }
    if (arg == "--") {
      after_mark.assign(args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end());
      break;
    }
    if (arg.starts_with("--") && arg.find('=') == arg.size() - 1) {
      // CLI11 takes "--prompt=" for "--prompt" and would eat the next argument.
      reversed.push_back(arg.substr(0, arg.size() - 1));
      reversed.emplace_back();
      continue;
    }
    reversed.push_back(arg);
    if (impl_->takes_next(arg) && i + 1 < args.size()) reversed.push_back(args[++i]);
  }
  std::reverse(reversed.begin(), reversed.end());
  const std::string last = reversed.empty() ? "" : reversed.front();
  try {
    impl_->app.parse(std::move(reversed));
  } catch (const CLI::ArgumentMismatch&) {  // the arguments ended where a value is due
    return impl_->usage_error(fmt::format("{} needs a value behind it", last));
  } catch (const CLI::Error& error) {
    return impl_->usage_error(error.what());
  }

  std::vector<std::string> rest = impl_->app.remaining();
  for (const std::string& arg : rest) {
    if (arg.size() > 1 && arg.front() == '-' && !parse_real(arg)) return impl_->unknown_flag(arg);
  }
  rest.insert(rest.end(), after_mark.begin(), after_mark.end());
  for (const Impl::Flag& flag : impl_->flags) {
    SLUICE_RETURN_IF_ERROR(impl_->read_values(flag, args));
  }
  if (rest.size() > impl_->positional_most) {
    return impl_->usage_error(
        fmt::format("unexpected argument '{}'", rest[impl_->positional_most]));
  }
  if (impl_->positional_target) *impl_->positional_target = std::move(rest);
  return Outcome{};
}

std::string Flags::help(std::string_view topic) const {
  std::string out;
  if (topic.empty()) {
    out = fmt::format("usage: sluice {}\n", impl_->usage);
    append_wrapped(out, impl_->about, 0, 0);
    if (!impl_->positional_value.empty() && !impl_->positional_help.empty()) {
      std::string line = "  " + impl_->positional_value;
      line.resize(std::max(line.size() + 2, kHelpColumn), ' ');
      out += line;
      append_wrapped(out, impl_->positional_help, line.size(), kHelpColumn);
    }
  }
  for (std::size_t section = 0; section < impl_->sections.size(); ++section) {
    if (impl_->sections[section].topic != topic) continue;
    const std::string& title = impl_->sections[section].title;
    if (!title.empty()) out += fmt::format("{}:\n", title);
    for (const Impl::Flag& flag : impl_->flags) {
      if (flag.section != section || flag.help.empty()) continue;
      std::string line = "  " + flag.heading();
      line.resize(std::max(line.size() + 2, kHelpColumn), ' ');
      out += line;
      append_wrapped(out, flag.help, line.size(), kHelpColumn);
    }
  }
  if (topic.empty()) {
    for (const std::string& line : impl_->footers) append_wrapped(out, line, 0, 0);
  }
  return out;
}

std::vector<std::string> Flags::topics() const {
  std::vector<std::string> all;
  for (const Impl::Section& section : impl_->sections) {
    if (!section.topic.empty() && std::find(all.begin(), all.end(), section.topic) == all.end()) {
      all.push_back(section.topic);
    }
  }
  return all;
}

}  // namespace sluice::cli
