// The flags of one command: declared once, with names, value, meaning and where the value goes; the
// help is made from the same declarations. CLI11 recognises the arguments, this class reads values
// and words the errors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace sluice::cli {

class Flags {
 public:
  // `usage` is what follows "sluice " in the first line of the help; `about` says in a sentence or
  // two what the command does.
  Flags(std::string command, std::string usage, std::string about);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // Declarations. `names` as in "-n,--predict,--n-predict": the help shows the first short and the
  // first long one, messages the first long one. `value` is the placeholder in the help. Targets
  // must outlive parse(), are written only when the flag is given, and may be given once (texts():
  // any number of times). A name like "-ngl" stands for the flag's long one, as a whole argument
  // only, and is left out of the help. An empty `help` leaves out the flag itself: another name for
  // users of other programs.
  void toggle(const std::string& names, std::string help, bool* target);
  void text(const std::string& names, std::string value, std::string help,
            std::optional<std::string>* target);
  void texts(const std::string& names, std::string value, std::string help,
             std::vector<std::string>* target);
  // Integers out of [lowest, highest] are refused.
  void integer(const std::string& names, std::string value, std::string help, std::int64_t lowest,
               std::int64_t highest, std::optional<std::int64_t>* target);
  // Hears each value given; an error's message is put behind the flag's name.
  using Reader = std::function<Status(std::string_view value)>;
  void value(const std::string& names, std::string value, std::string help, Reader read,
             bool repeatable = false);
  // Arguments without a dash in front (and "-"), `most` at the most.
  void positional(std::string value, std::string help, std::size_t most,
                  std::vector<std::string>* target);

  // Flags declared from here on come under this title. Rare ones are left out of --help, which fits
  // a screen, and shown by --help-all.
  void section(std::string title, bool rare = false);
  // A line at the end of the help.
  void footer(std::string line);

  // Reads the arguments. kUsage with a suggestion where something is misspelt. Whether a help was
  // asked for (in `help`) is found first, whatever else is wrong.
  struct Outcome {
    std::string help;  // not empty: print it and be done
  };
  Result<Outcome> parse(std::span<const std::string> args);

  std::string help(bool rare_too = false) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::cli
