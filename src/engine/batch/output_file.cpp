#include "src/engine/batch/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "src/engine/batch/item.h"
#include "src/engine/batch/line_reader.h"
#include "src/text/bounded_json.h"

namespace sluice {
namespace {

// Written by this program, but a disk can do anything to them. Log-probabilities are long.
constexpr JsonBounds kAnswerBounds = {
    .bytes = std::size_t{1} << 30, .values = std::size_t{1} << 26, .depth = 100, .members = 4096};

struct Known {
  std::string id;
  bool error = false;
};

// Whose answer a line is; nothing: it is none.
std::optional<Known> read_answer(std::string_view line, const std::string& name) {
  const Result<BatchJson> parsed = parse_bounded_json(line, name, "an answer", kAnswerBounds);
  if (!parsed.ok() || !parsed->is_object()) return std::nullopt;
  const BatchJson& json = *parsed;
  const bool openai = json.contains("custom_id");
  const auto id = json.find(openai ? "custom_id" : "id");
  if (id == json.end() || !(id->is_string() || id->is_number_integer())) return std::nullopt;
  Known known;
  known.id = id->is_string() ? id->get<std::string>() : id->dump();
  const auto error = json.find("error");
  known.error = error != json.end() && !error->is_null();
  const auto response = json.find("response");
  if (openai && response != json.end() && response->is_object()) {
    const auto status = response->find("status_code");
    known.error |= status == response->end() || *status != 200;
  }
  return known;
}

int sync_file(int fd) {
  if (::fdatasync(fd) == 0 || errno == EINVAL || errno == EROFS) return 0;
  return errno;
}

}  // namespace

Error BatchOutput::failure(int code) const {
  const bool full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  return failed("can't write '{}': {}; {}the same command goes on from here", path_,
                std::strerror(code), full ? "make room, then " : "");
}

Result<std::unique_ptr<BatchOutput>> BatchOutput::open(const std::string& path, bool ours,
                                                       const std::atomic<bool>* cancel) {
  std::unique_ptr<BatchOutput> output(new BatchOutput());
  output->path_ = path;
  // O_NONBLOCK: a named pipe without a reader would wait for ever.
  output->fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (output->fd_ < 0) return failed("can't open '{}': {}", path, std::strerror(errno));
  struct stat info {};
  if (::fstat(output->fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    return make_error(ErrorCode::kUsage,
                      "'{}' is no regular file, so answers could not be kept there; -o - writes to "
                      "stdout",
                      path);
  }
  if (::flock(output->fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return make_error(ErrorCode::kUsage,
                        "'{}' is in use by another process; wait for it, or give another output",
                        path);
    }
    output->locked_ = false;
  }
  SLUICE_RETURN_IF_ERROR(output->read_answers(ours, cancel));
  output->syncer_ = std::thread([raw = output.get()] { raw->sync_now_and_then(); });
  return output;
}

BatchOutput::~BatchOutput() {
  if (fd_ >= 0) [[maybe_unused]]
    const Status status = close();
}

Status BatchOutput::read_answers(bool ours, const std::atomic<bool>* cancel) {
  SLUICE_ASSIGN_OR_RETURN(LineReader lines, LineReader::open(path_, kAnswerBounds.bytes));
  for (;;) {
    LineReader::Line line;
    SLUICE_ASSIGN_OR_RETURN(const LineReader::State state, lines.next(line, true, cancel));
    if (state == LineReader::State::kEnd) break;
    if (!line.ended) {
      if (!ours && answers_.empty()) {
        return bad_input(
            "'{}' has {} bytes that are no answers of a batch; they are left alone. Give another "
            "output",
            path_, line.bytes);
      }
      torn_bytes_ = line.bytes;
      if (::ftruncate(fd_, static_cast<off_t>(line.begin)) != 0) return failure(errno);
      break;
    }
    std::optional<Known> known = read_answer(line.text, lines.name());
    if (!known) {
      return bad_input(
          "line {} of {} is no answer of a batch; nothing is written behind it. Give another "
          "output, or take the line out",
          line.number, lines.name());
    }
    answers_[std::move(known->id)] = {known->error};
  }
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return failure(errno);
  bytes_ = static_cast<std::uint64_t>(info.st_size);
  return {};
}

Status BatchOutput::write_line(std::string_view line) {
  {
    const std::lock_guard lock(mutex_);
    if (sync_error_ != 0) return failure(sync_error_);
  }
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = ::write(fd_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int code = errno;
      // Nothing of a line rather than a part; if that fails too, the next run cuts it off.
      [[maybe_unused]] const int cut = ::ftruncate(fd_, static_cast<off_t>(bytes_));
      return failure(code);
    }
    written += static_cast<std::size_t>(count);
  }
  bytes_ += line.size();
  const std::lock_guard lock(mutex_);
  dirty_ = true;
  return {};
}

void BatchOutput::sync_now_and_then() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    // Half a second, so that with the time of the sync itself a second is kept.
    wake_.wait_for(lock, std::chrono::milliseconds(500), [this] { return stop_; });
    if (stop_ || !dirty_) continue;
    dirty_ = false;
    lock.unlock();
    const int error = sync_file(fd_);
    lock.lock();
    if (error != 0) sync_error_ = error;
  }
}

Status BatchOutput::close() {
  if (fd_ < 0) return {};
  if (syncer_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    syncer_.join();
  }
  int error = sync_error_ != 0 ? sync_error_ : sync_file(fd_);
  // Some file systems report a failed write only now.
  if (::close(fd_) != 0 && errno != EINTR && error == 0) error = errno;
  fd_ = -1;
  if (error != 0) return failure(error);
  return {};
}

}  // namespace sluice
