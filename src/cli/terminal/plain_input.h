// Messages from a pipe, a file, or a terminal that cannot be drawn on.
#pragma once

#include "src/cli/terminal/byte_source.h"
#include "src/cli/terminal/line_editor.h"

namespace sluice {

class PlainInput : public LineEditor {
 public:
  explicit PlainInput(LineEditorOptions options);
  ReadResult read(std::string_view prefill) override;
  bool can_edit() const override { return false; }

 private:
  void show(std::string_view prompt);

  LineEditorOptions options_;
  ByteSource source_;
  bool prompts_;  // both sides are terminals
  std::string failure_;
};

}  // namespace sluice
