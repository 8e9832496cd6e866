// Where a prompt comes from, and how it becomes token ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/cli/console.h"
#include "src/cli/flags.h"
#include "src/engine/engine.h"

namespace sluice::cli {

class PromptFlags {
 public:
  // -p, -f, --prompt-tokens, --system, --raw and the positional "-".
  void declare(Flags& flags);

  // Chooses the one source and reads it; before a model is loaded. kUsage when there is none, or
  // more than one. Standard input is touched only when it is the source.
  Status read(Console& console);

  // How the ids came about.
  enum class Form { kTemplate, kPlain, kRaw, kIds };
  struct Prompt {
    std::vector<std::int32_t> ids;  // not empty
    Form form = Form::kPlain;
  };
  // The prompt for this model: rendered by its chat template if it has one (unless --raw), else the
  // plain text, with BOS in front where the model wants it. A typed control token is plain text
  // except with --raw. Warns when two BOS result.
  Result<Prompt> encode(const Engine& engine, Console& console) const;

 private:
  // What the model's chat template makes of the system message and the text.
  Result<std::vector<std::int32_t>> encode_chat(const Engine& engine) const;

  std::optional<std::string> prompt_, file_, ids_text_, system_;
  bool raw_ = false;
  std::vector<std::string> positional_;
  std::string text_;               // read() found
  std::vector<std::int32_t> ids_;  // of --prompt-tokens
};

std::string_view prompt_form_name(PromptFlags::Form form);

}  // namespace sluice::cli
