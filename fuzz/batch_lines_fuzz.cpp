// Any bytes as the input of a batch and as an output that is gone on with. The first byte chooses
// plain lines or JSON, and the shard.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "src/engine/batch/item_reader.h"
#include "src/engine/batch/output_file.h"
#include "src/text/utf8.h"

static std::string path_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

static void check(bool holds) {
  if (!holds) std::abort();
}

// Each item has an id that no other has, and either a prompt or an error.
static void read_input(int fd, const sluice::ItemReaderOptions& options) {
  auto lines = sluice::LineReader::open(path_of(fd), 4096);
  check(lines.ok());
  sluice::ItemReader reader(std::move(*lines), options);
  std::set<std::string> ids;
  for (;;) {
    sluice::BatchItem item;
    const auto state = reader.next(item, true, nullptr);
    if (!state.ok() || *state == sluice::LineReader::State::kEnd) return;
    check(sluice::is_valid_utf8(item.id) && !item.id.empty() && ids.insert(item.id).second);
    const int prompts = (item.prompt ? 1 : 0) + (item.messages ? 1 : 0) + (item.prompt_ids ? 1 : 0);
    check(!item.error.empty() || prompts == 1);
  }
}

// What is kept of an output ends with a whole line, and is read the same again.
static void read_output(int fd) {
  std::size_t answers = 0;
  {
    const auto output = sluice::BatchOutput::open(path_of(fd), true, nullptr);
    if (!output.ok()) return;
    answers = (*output)->answers().size();
  }
  const auto again = sluice::BatchOutput::open(path_of(fd), true, nullptr);
  check(again.ok() && (*again)->torn_bytes() == 0 && (*again)->answers().size() == answers);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const int fd = memfd_create("batch", MFD_CLOEXEC);
  check(fd >= 0 && write(fd, data + 1, size - 1) == static_cast<ssize_t>(size - 1));
  sluice::ItemReaderOptions options;
  options.plain = data[0] % 2 == 1;
  options.shard.count = 1 + data[0] / 2 % 3;
  read_input(fd, options);
  read_output(fd);
  close(fd);
  return 0;
}
