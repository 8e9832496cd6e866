// Made to be run under ThreadSanitizer too: many short regions are what the pool is for.
#include "src/backend/cpu/thread_pool.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "src/backend/cpu/thread_pool_topology.h"
#include "tests/temporary_folder.h"

using namespace sluice::cpu;

namespace {

// A folder that stands for the root of a machine's file system.
class Machine {
 public:
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root() + path).parent_path());
    std::ofstream(root() + path) << text;
  }
  void siblings(unsigned cpu, const std::string& list) const {
    write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
          list + "\n");
  }
  std::string root() const { return folder_ / ""; }

 private:
  sluice::test::TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("every item is done once, whatever the count, the grain and the threads") {
  for (const unsigned threads : {1u, 2u, 3u, 5u}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() <= threads);
    CHECK(pool.threads() >= 1);
    for (const std::uint64_t count : {0u, 1u, 2u, 7u, 31u, 32u, 33u, 257u}) {
      for (const std::uint64_t grain : {0u, 1u, 3u, 32u, 1000u}) {
        std::vector<int> done(count, 0);  // plain ints: ranges must not overlap
        std::atomic<std::uint64_t> longest{0};
        pool.parallel_for(count, grain, [&](std::uint64_t begin, std::uint64_t end) {
          for (std::uint64_t i = begin; i < end; ++i) ++done[i];
          if (end - begin > longest.load()) longest.store(end - begin);
        });
        CHECK(done == std::vector<int>(count, 1));
        CHECK(longest.load() <= (grain == 0 ? 1 : grain));
      }
    }
  }
}

TEST_CASE("a region sees what the caller wrote before it, the caller what the region wrote") {
  ThreadPool pool(4);
  std::vector<std::uint64_t> values(64, 0);
  for (std::uint64_t round = 1; round <= 3000; ++round) {
    pool.parallel_for(values.size(), 5, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) values[i] += i;
    });
    values[round % values.size()] += 1;
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t value : values) sum += value;
  CHECK(sum == 3000 * (63 * 64 / 2) + 3000);
}

TEST_CASE("once cancelled, ranges not yet begun are skipped, and the pool goes on") {
  ThreadPool pool(3);
  std::atomic<bool> cancel{false};
  std::atomic<int> begun{0};
  pool.parallel_for(
      1000000, 1,
      [&](std::uint64_t, std::uint64_t) {
        if (begun.fetch_add(1) == 10) cancel.store(true);
      },
      &cancel);
  CHECK(begun.load() >= 11);
  CHECK(begun.load() < 1000000);

  begun = 0;
  pool.parallel_for(
      9, 1, [&](std::uint64_t, std::uint64_t) { begun.fetch_add(1); }, &cancel);
  CHECK(begun.load() == 0);
  pool.parallel_for(9, 1, [&](std::uint64_t, std::uint64_t) { begun.fetch_add(1); });
  CHECK(begun.load() == 9);
}

TEST_CASE("pools come and go, used or not, beside each other") {
  for (int i = 0; i < 50; ++i) {
    ThreadPool unused(3);
    ThreadPool first(2), second(3);
    std::atomic<int> count{0};
    const auto body = [&](std::uint64_t begin, std::uint64_t end) {
      count.fetch_add(static_cast<int>(end - begin));
    };
    first.parallel_for(10, 1, body);
    second.parallel_for(10, 1, body);
    CHECK(count.load() == 20);
  }
}

TEST_CASE("far more threads than cores: short regions still end") {
  ThreadPool pool(16);
  std::atomic<std::uint64_t> items{0};
  for (int i = 0; i < 500; ++i) {
    pool.parallel_for(
        20, 1, [&](std::uint64_t begin, std::uint64_t end) { items.fetch_add(end - begin); });
  }
  CHECK(items.load() == 10000);
}

TEST_CASE("sibling threads of a core count once, and only CPUs we may use count") {
  const Machine machine;
  for (unsigned cpu = 0; cpu < 4; ++cpu)
    machine.siblings(cpu, std::to_string(cpu) + "," + std::to_string(cpu + 4));
  for (unsigned cpu = 4; cpu < 8; ++cpu)
    machine.siblings(cpu, std::to_string(cpu - 4) + "," + std::to_string(cpu));
  CHECK(physical_cores(machine.root(), {0, 1, 2, 3, 4, 5, 6, 7}) == 4);
  CHECK(physical_cores(machine.root(), {0, 4}) == 1);
  CHECK(physical_cores(machine.root(), {4, 5}) == 2);  // their first siblings are not ours
  machine.siblings(8, "8-9");
  machine.siblings(9, "8-9");
  CHECK(physical_cores(machine.root(), {8, 9}) == 1);
  CHECK(physical_cores(machine.root(), {20, 21}) == 2);  // the system says nothing about these
  machine.siblings(22, "rubbish");
  CHECK(physical_cores(machine.root(), {22}) == 1);
  CHECK(physical_cores(machine.root(), {}) == 1);
}

TEST_CASE("the quota of control groups, version 2") {
  const Machine machine;
  CHECK(cpu_quota(machine.root()) == 0);  // no control groups at all
  machine.write("/proc/self/cgroup", "0::/outer/inner\n");
  CHECK(cpu_quota(machine.root()) == 0);
  machine.write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  CHECK(cpu_quota(machine.root()) == 0);
  machine.write("/sys/fs/cgroup/outer/cpu.max", "350000 100000\n");
  CHECK(cpu_quota(machine.root()) == 3);
  machine.write("/sys/fs/cgroup/outer/inner/cpu.max", "200000 100000\n");
  CHECK(cpu_quota(machine.root()) == 2);
  machine.write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(cpu_quota(machine.root()) == 1);  // half a CPU is still one thread
  machine.write("/sys/fs/cgroup/cpu.max", "50000 0\n");
  CHECK(cpu_quota(machine.root()) == 2);  // nonsense is no limit
}

TEST_CASE("the quota of control groups, version 1") {
  const Machine machine;
  machine.write("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/job\n");
  machine.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
  machine.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  CHECK(cpu_quota(machine.root()) == 4);
  machine.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  machine.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(cpu_quota(machine.root()) == 4);
  machine.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  CHECK(cpu_quota(machine.root()) == 2);
}

TEST_CASE("the default is at least one thread") { CHECK(default_threads() >= 1); }
