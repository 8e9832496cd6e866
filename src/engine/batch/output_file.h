// The answers of a batch on disk: appended line by line, never rewritten, so that a batch that was
// killed goes on where it stopped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "src/base/status.h"

namespace sluice {

class BatchOutput {
 public:
  // Opens or creates the file and locks it; then reads which items it answers, and cuts off a last
  // line without its end (the trace of a crash). `ours`: there is other evidence that the file is a
  // batch's; without it, a file that has no whole line is left alone unless it is empty. Errors:
  // kUsage where another process has the lock or the path is no regular file; kBadInput where a
  // line is no answer; kFailed, kInterrupted.
  static Result<std::unique_ptr<BatchOutput>> open(const std::string& path, bool ours,
                                                   const std::atomic<bool>* cancel);
  ~BatchOutput();
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;

  struct Answer {
    bool error = false;
  };
  // The answers that were there when it was opened; of several for one id the last.
  const std::unordered_map<std::string, Answer>& answers() const { return answers_; }
  bool empty() const { return bytes_ == 0; }
  std::uint64_t torn_bytes() const { return torn_bytes_; }  // cut off at the end
  // false: the file system has no locks, so that nothing keeps a second process away.
  bool locked() const { return locked_; }

  // Appends a whole line, its end included: all of it or, with an error, nothing. It is on the disk
  // a second later (in the worst case; a thread sees to that), or when close() returns. Errors:
  // kFailed for a full disk, also one that shows only when the lines before are synced.
  Status write_line(std::string_view line);
  Status close();

 private:
  BatchOutput() = default;
  Status read_answers(bool ours, const std::atomic<bool>* cancel);
  void sync_now_and_then();
  Error failure(int code) const;

  std::string path_;
  int fd_ = -1;
  bool locked_ = true;
  std::uint64_t bytes_ = 0;
  std::uint64_t torn_bytes_ = 0;
  std::unordered_map<std::string, Answer> answers_;

  std::thread syncer_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  bool dirty_ = false;  // written since the last sync
  int sync_error_ = 0;
};

}  // namespace sluice
