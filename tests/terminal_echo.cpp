// Reads messages and prints each in a frame, for terminal_pty_test.py:
//   terminal_echo [HISTORY [PREFILL]]
// <message>text</message>, <interrupted>text</interrupted>, <error>text</error>, <end/>. Leaves at
// the end of input, on errors, and on the second interruption in a row.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "src/cli/terminal/line_editor.h"
#include "src/cli/terminal/terminal_guard.h"

namespace {

std::atomic<bool> cancel = false;

void on_signal(int) { cancel = true; }

void on_term(int number) {
  sluice::restore_terminal();
  _exit(128 + number);
}

void print(const char* name, const sluice::ReadResult& result) {
  std::printf("<%s%s%s>%s</%s>\n", name, result.literal ? " literal" : "",
              result.replaced > 0 ? (" replaced=" + std::to_string(result.replaced)).c_str() : "",
              result.text.c_str(), name);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  action.sa_handler = on_term;
  sigaction(SIGTERM, &action, nullptr);
  const std::vector<sluice::CommandWords> commands = {
      {.name = "/read", .takes_file = true}, {.name = "/retry"}, {.name = "/help"}};
  const auto editor = sluice::LineEditor::create(
      {.history_path = argc > 1 ? argv[1] : "",
       .completer = [&](std::string_view line) { return sluice::complete_line(line, commands); },
       .output = stdout,
       .cancel = &cancel});
  std::string prefill = argc > 2 ? argv[2] : "";
  for (int interruptions = 0; interruptions < 2;) {
    const std::string problem = editor->take_history_problem();
    if (!problem.empty()) std::printf("<problem>%s</problem>\n", problem.c_str());
    const sluice::ReadResult result = editor->read(prefill);
    prefill.clear();
    cancel = false;
    switch (result.kind) {
      case sluice::ReadResult::Kind::kMessage:
        interruptions = 0;
        print("message", result);
        break;
      case sluice::ReadResult::Kind::kInterrupted:
        ++interruptions;
        print("interrupted", result);
        break;
      case sluice::ReadResult::Kind::kError:
        print("error", result);
        return 1;
      case sluice::ReadResult::Kind::kEnd:
        std::printf("<end/>\n");
        return 0;
    }
  }
  return 0;
}
