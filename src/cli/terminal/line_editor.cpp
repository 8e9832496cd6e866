#include "src/cli/terminal/line_editor.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "src/cli/terminal/edited_input.h"
#include "src/cli/terminal/plain_input.h"

namespace sluice {

std::unique_ptr<LineEditor> LineEditor::create(LineEditorOptions options) {
  const char* name = std::getenv("TERM");
  const bool can_draw = name != nullptr && name[0] != '\0' && std::string_view(name) != "dumb";
  if (can_draw && isatty(options.input) == 1 && isatty(fileno(options.output)) == 1) {
    std::unique_ptr<LineEditor> edited = EditedInput::create(options);
    if (edited != nullptr) return edited;
  }
  return std::make_unique<PlainInput>(std::move(options));
}

}  // namespace sluice
