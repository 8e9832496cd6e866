#include "src/cli/terminal/plain_input.h"

#include <unistd.h>

#include <utility>

#include "src/cli/terminal/message_lines.h"

namespace sluice {

PlainInput::PlainInput(LineEditorOptions options)
    : options_(std::move(options)),
      source_(options_.input, options_.cancel),
      prompts_(isatty(options_.input) == 1 && isatty(fileno(options_.output)) == 1) {}

void PlainInput::show(std::string_view prompt) {
  if (!prompts_) return;
  std::fwrite(prompt.data(), 1, prompt.size(), options_.output);
  std::fflush(options_.output);
}

ReadResult PlainInput::read(std::string_view) {
  using Kind = ReadResult::Kind;
  using Event = ByteSource::Event;
  if (!failure_.empty()) return {.kind = Kind::kError, .text = failure_};
  if (options_.cancel != nullptr && *options_.cancel) return {.kind = Kind::kInterrupted};
  MessageLines lines;
  ReadResult result;
  show(options_.prompt);
  while (true) {
    std::string line;
    bool complete = false;
    const std::size_t room = options_.max_bytes - std::min(options_.max_bytes, lines.size());
    const Event event = source_.read_line(line, room, complete);
    if (event == Event::kBytes && (!complete || line.size() > room)) {
      failure_ = "a message of more than " + std::to_string(options_.max_bytes) +
                 " bytes: give shorter ones";
      return {.kind = Kind::kError, .text = failure_};
    }
    if (event == Event::kFailed) {
      failure_ = source_.error();
      return {.kind = Kind::kError, .text = failure_};
    }
    if (line.ends_with('\r')) line.pop_back();
    line = clean_text(line, result.replaced);
    if (lines.empty()) result.literal = line.starts_with("\"\"\"");
    if (event == Event::kCancelled && prompts_) show("\n");  // behind the terminal's ^C
    if (event == Event::kEnd && line.empty() && lines.empty()) {
      if (prompts_) show("\n");
      return {.kind = Kind::kEnd};
    }
    if (event == Event::kEnd && line.empty()) {
      result.kind = Kind::kMessage;
      result.text = lines.take();
      return result;
    }
    const bool done = lines.add(line);
    if (!done && event == Event::kBytes) {
      show(options_.continuation);
      continue;
    }
    result.kind = event == Event::kCancelled ? Kind::kInterrupted : Kind::kMessage;
    result.text = lines.take();
    return result;
  }
}

}  // namespace sluice
