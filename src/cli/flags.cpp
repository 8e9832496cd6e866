#include "src/cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "src/cli/numbers.h"
#include "src/cli/suggest.h"

namespace sluice::cli {
namespace {

constexpr std::size_t kColumns = 99;        // of the help
constexpr std::size_t kWidestHeading = 36;  // longer ones push their meaning to the right

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    all.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

// "-ngl": llama.cpp has such flags, CLI11 has not.
bool is_dash_word(std::string_view name) {
  return name.size() > 2 && name[0] == '-' && name[1] != '-';
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

    // The first long name; the first one if all are short.
    const std::string& name() const {
      for (const std::string& each : names) {
        if (each.starts_with("--")) return each;
      }
      return names.front();
    }

    // "-n, --predict N"
    std::string heading() const {
      std::string shown;
      const auto is_long = [](const std::string& name) { return name.starts_with("--"); };
      const auto is_short = [](const std::string& name) { return name.size() == 2; };
      const auto short_name = std::find_if(names.begin(), names.end(), is_short);
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
    bool rare = false;
  };

  CLI::App app;
  std::string command, usage, about;
  std::vector<Section> sections = {{"", false}};
  std::vector<Flag> flags;
  std::vector<std::string> footers;

  std::string positional_value, positional_help;
  std::size_t positional_most = 0;
  std::vector<std::string>* positional_target = nullptr;

  std::vector<std::string> long_names() const {
    std::vector<std::string> all = {"--help", "--help-all"};
    for (const Flag& flag : flags) {
      for (const std::string& name : flag.names) {
        if (name.starts_with("--")) all.push_back(name);
      }
    }
    return all;
  }

  Error usage_error(std::string message) const {
    return Error{ErrorCode::kUsage, fmt::format("{} (see: sluice {} --help)", message, command)};
  }

  // The flag's long name for a name like "-ngl".
  std::string without_dash_word(const std::string& arg) const {
    if (!is_dash_word(arg)) return arg;
    for (const Flag& flag : flags) {
      if (std::count(flag.names.begin(), flag.names.end(), arg) > 0) return flag.name();
    }
    return arg;
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
        return usage_error(fmt::format("{} takes no value", flag.name()));
      }
    } else if (results.size() > 1 && !flag.repeatable) {
      return usage_error(fmt::format("{} is given more than once", flag.name()));
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
      return Error{status.error().code, fmt::format("{}: {}", flag.name(), status.error().message)};
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
  std::string plain_names;
  for (const std::string& name : flag.names) {
    if (!is_dash_word(name)) plain_names += (plain_names.empty() ? "" : ",") + name;
  }
  if (flag.value.empty()) {
    flag.option = impl_->app.add_flag(plain_names);
  } else {
    flag.option = impl_->app.add_option(plain_names);
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

void Flags::section(std::string title, bool rare) {
  impl_->sections.push_back({std::move(title), rare});
}

void Flags::footer(std::string line) { impl_->footers.push_back(std::move(line)); }

Result<Flags::Outcome> Flags::parse(std::span<const std::string> args) {
  std::vector<std::string> reversed;  // as CLI11 wants it
  std::vector<std::string> after_mark;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string arg = impl_->without_dash_word(args[i]);
    if (arg == "--help" || arg == "-h") return Outcome{help()};
    if (arg == "--help-all") return Outcome{help(true)};
    if (arg == "--") {
      after_mark.assign(args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end());
      break;
    }
    // A long flag with one dash: "-prompt" would be "-p" with the value "rompt".
    const std::vector<std::string> longs = impl_->long_names();
    if (std::count(longs.begin(), longs.end(), "-" + arg.substr(0, arg.find('='))) > 0 &&
        arg.starts_with('-') && !arg.starts_with("--")) {
      return impl_->unknown_flag(arg);
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

std::string Flags::help(bool rare_too) const {
  const auto shown = [&](const Impl::Flag& flag) {
    return !flag.help.empty() && (rare_too || !impl_->sections[flag.section].rare);
  };
  std::size_t column = impl_->positional_value.size();  // where meanings begin
  for (const Impl::Flag& flag : impl_->flags) {
    if (shown(flag)) column = std::max(column, std::min(flag.heading().size(), kWidestHeading));
  }
  column += 4;

  std::string out = fmt::format("usage: sluice {}\n", impl_->usage);
  append_wrapped(out, impl_->about, 0, 0);
  const auto append_entry = [&](const std::string& heading, const std::string& meaning) {
    std::string line = "  " + heading;
    line.resize(std::max(line.size() + 2, column), ' ');
    out += line;
    append_wrapped(out, meaning, line.size(), column);
  };
  if (!impl_->positional_help.empty()) {
    append_entry(impl_->positional_value, impl_->positional_help);
  }
  for (std::size_t section = 0; section < impl_->sections.size(); ++section) {
    if (impl_->sections[section].rare && !rare_too) continue;
    const std::string& title = impl_->sections[section].title;
    if (!title.empty()) out += fmt::format("{}:\n", title);
    for (const Impl::Flag& flag : impl_->flags) {
      if (flag.section == section && shown(flag)) append_entry(flag.heading(), flag.help);
    }
  }
  for (const std::string& line : impl_->footers) append_wrapped(out, line, 0, 0);
  const bool more = std::any_of(impl_->sections.begin(), impl_->sections.end(),
                                [](const Impl::Section& section) { return section.rare; });
  if (more && !rare_too) out += "More flags: --help-all\n";
  return out;
}

}  // namespace sluice::cli
