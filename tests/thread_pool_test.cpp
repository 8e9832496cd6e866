// Made to be run under ThreadSanitizer too: many short regions are what the pool is for.
#include "src/backend/cpu/thread_pool.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <vector>

using namespace sluice::cpu;

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

TEST_CASE("the default is at least one thread") { CHECK(default_threads() >= 1); }
