#include "tests/simt/block.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <utility>

namespace sluice::simt {
namespace {

Block* running_block = nullptr;  // kernels are plain functions: this is how they find their block

// Of writes to global memory. 0: never written; 1: by the host.
std::uint32_t last_write_number = 1;

struct FaultFound {};  // unwinds the stack of the thread at fault

}  // namespace

std::string describe(const Site& site) {
  const std::string_view path = site.file;
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), site.line);
}

void fault(const Site& site, const std::string& what) { Block::running().fault(site, what); }

std::string run(const Shape& shape, const std::function<void()>& kernel) {
  static std::deque<Fiber> fibers;  // kept: their stacks are the dearest part of a small grid
  while (fibers.size() < shape.threads) fibers.emplace_back();
  Block block(shape, kernel, fibers);
  running_block = &block;
  std::string result = block.run_grid();
  running_block = nullptr;
  return result;
}

Block& Block::running() {
  if (running_block == nullptr) throw std::logic_error("device code runs only inside simt::run");
  return *running_block;
}

Block::Block(const Shape& shape, const std::function<void()>& kernel, std::deque<Fiber>& fibers)
    : shape_(shape),
      kernel_(kernel),
      shared_(shape.shared_bytes),
      threads_(shape.threads),
      gatherings_((shape.threads + 31) / 32) {
  for (std::size_t i = 0; i < threads_.size(); ++i) threads_[i].fiber = &fibers[i];
}

std::string Block::run_grid() {
  const std::uint32_t last = std::min(shape_.blocks, shape_.last_block);
  first_of_grid_ = last_write_number + 1;
  const std::uint32_t step = shape_.scattered ? 2 : 1;
  for (std::uint32_t start = 0; start < step; ++start) {
    for (block_index_ = shape_.first_block + start; block_index_ < last; block_index_ += step) {
      if (std::string found = run_block(); !found.empty()) return found;
    }
  }
  return {};
}

std::string Block::run_block() {
  shared_.begin_block();
  ++epoch_;
  first_of_block_ = write_number_ = ++last_write_number;
  seen_.clear();
  arrived_threads_ = 0;
  at_barrier_ = 0;
  done_ = 0;
  for (Gathering& gathering : gatherings_) gathering.waiting = 0;
  const auto count = static_cast<std::uint32_t>(threads_.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    Thread& thread = threads_[i];
    thread.status = Status::kReady;
    thread.waited = false;
    thread.who = {.thread = i, .epoch = epoch_};
    thread.fiber->prepare(thread_entry, this);
  }
  while (done_ < count) {
    bool progress = false;
    for (std::uint32_t i = 0; i < count; ++i) {
      Thread& thread = threads_[shape_.reversed ? count - 1 - i : i];
      if (thread.status != Status::kReady) continue;
      progress = true;
      current_ = &thread;
      thread.fiber->enter();
      current_ = nullptr;
      if (!fault_.empty()) return fault_;
    }
    if (!progress) return deadlock();
  }
  return {};
}

void Block::thread_entry(void* block) {
  auto* self = static_cast<Block*>(block);
  try {
    self->kernel_();
    self->finish_thread();
  } catch (const FaultFound&) {
    // The scheduler sees the message.
  }
}

void Block::finish_thread() {
  Thread& thread = *current_;
  std::size_t copies = thread.open_group.size();
  for (const std::vector<Copy>& group : thread.groups) copies += group.size();
  if (copies > 0) fault(Site(), fmt::format("leaves with {} copies under way", copies));
  thread.groups.clear();
  thread.status = Status::kDone;
  ++done_;
  if (at_barrier_ > 0) {
    fault(Site(), fmt::format("leaves the kernel while {}", waiting_at(*first_at_barrier_)));
  }
  const std::uint32_t warp = thread.who.thread / 32;
  if (gatherings_[warp].waiting == 0) return;
  for (std::uint32_t i = 0; i < 32; ++i) {
    if ((gatherings_[warp].waiting >> i & 1) == 0) continue;
    if ((lane(warp, i).meeting.mask >> (thread.who.thread % 32) & 1) != 0) {
      fault(Site(), fmt::format("leaves the kernel while {}", waiting_at(lane(warp, i))));
    }
  }
}

void Block::fault(const Site& site, const std::string& what) {
  const std::string place = site.line == 0 ? "" : fmt::format(", {}", describe(site));
  fault_ = fmt::format("block {}, thread {} (warp {}, lane {}){}: {}", block_index_,
                       current_->who.thread, current_->who.thread / 32, current_->who.thread % 32,
                       place, what);
  throw FaultFound();
}

std::string Block::waiting_at(const Thread& thread) const {
  if (thread.status == Status::kAtBarrier) {
    return fmt::format("thread {} waits in sync_threads at {}", thread.who.thread,
                       describe(thread.barrier));
  }
  return fmt::format("thread {} waits in {} with mask {:#010x} at {}", thread.who.thread,
                     name_of(thread.meeting.operation), thread.meeting.mask,
                     describe(thread.meeting.site));
}

// Nobody can go on. Says where the first thread waits, and another one that waits elsewhere.
std::string Block::deadlock() const {
  const Thread* first = nullptr;
  std::string second;
  for (const Thread& thread : threads_) {
    if (thread.status == Status::kDone) continue;
    if (first == nullptr) {
      first = &thread;
    } else if (thread.status != first->status) {
      second = ", " + waiting_at(thread);
      break;
    }
  }
  return fmt::format("block {}: no thread can go on: {}{}", block_index_, waiting_at(*first),
                     second);
}

void Block::wait(Status status) {
  Thread& thread = *current_;
  thread.status = status;
  thread.fiber->leave();
}

void Block::sync_threads(const Site& site) {
  if (done_ > 0) fault(site, "sync_threads, but another thread of the block has left the kernel");
  current_->barrier = site;
  if (at_barrier_ == 0) {
    first_at_barrier_ = current_;
  } else if (first_at_barrier_->barrier.line != site.line) {
    fault(site, fmt::format("sync_threads, while {}", waiting_at(*first_at_barrier_)));
  }
  if (++at_barrier_ < threads_.size()) {
    wait(Status::kAtBarrier);
  } else {
    release_barrier();
  }
}

bool Block::arrive_last(Buffer& counter, std::int64_t offset, std::uint32_t count,
                        const Site& site) {
  check_waited(counter, "arrives at", site);
  sync_threads(site);
  if (arrived_threads_++ == 0) {  // the first thread that comes out of the barrier
    std::vector<std::uint32_t>& before = arrivals_[{&counter, offset}];
    const std::uint32_t value = counter.add(offset, site);
    if (value != before.size()) {
      fault(site, fmt::format("arrives at byte {} of buffer '{}', which is {} and not 0 at first",
                              offset, counter.name(), value - before.size()));
    }
    before.push_back(write_number_);
    last_ = before.size() == count;
    if (last_) {
      seen_.insert(before.begin(), before.end());
      before.clear();
      counter.reset(offset);
    }
    write_number_ = ++last_write_number;
  }
  sync_threads(site);
  arrived_threads_ = 0;
  return last_;
}

void Block::release_barrier() {
  at_barrier_ = 0;
  ++epoch_;
  for (Thread& thread : threads_) {
    thread.status = Status::kReady;
    thread.who.epoch = epoch_;
  }
}

void Block::copy_async(std::int64_t to, const Buffer& from, std::int64_t offset, std::size_t size,
                       std::uint32_t bytes, const Site& site) {
  Copy copy{.to = to, .bytes = size, .site = site};
  if (bytes != 0 && bytes != size) fault(site, fmt::format("copy of {} bytes of {}", bytes, size));
  if (bytes != 0) {
    if (from.kernels_write()) check_waited(from, "copies from", site);
    from.device_read(offset, copy.data.data(), size, site);
  }
  shared_.start_copy(current_->who, to, size, site);
  current_->open_group.push_back(copy);
}

void Block::check_waited(const Buffer& buffer, const char* what, const Site& site) {
  if (!shape_.overlaps || current_->waited) return;
  fault(site, fmt::format("{} buffer '{}' before wait_for_previous: the kernel before may still "
                          "write or read there",
                          what, buffer.name()));
}

void Block::commit_async() {
  current_->groups.push_back(std::move(current_->open_group));
  current_->open_group.clear();
}

void Block::wait_async(std::size_t latest, const Site& site) {
  std::deque<std::vector<Copy>>& groups = current_->groups;
  for (; groups.size() > latest; groups.pop_front()) {
    for (const Copy& copy : groups.front()) {
      shared_.land_copy(current_->who, copy.to, copy.data.data(), copy.bytes, site);
    }
  }
}

}  // namespace sluice::simt
