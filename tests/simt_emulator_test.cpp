// The emulator of GPU code itself: what the primitives compute, and that each of its checks fires.
#include <doctest/doctest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cuda/simt.h"

namespace sluice::simt {
namespace {

// The fault of a run contains all of these words.
void check_fault(const std::string& fault, std::initializer_list<const char*> words) {
  CAPTURE(fault);
  CHECK(!fault.empty());
  for (const char* word : words) CHECK_MESSAGE(fault.find(word) != std::string::npos, word);
}

Shared<std::uint32_t> shared_words() { return cast<std::uint32_t>(dynamic_shared()); }

// -- What is computed ----------------------------------------------------------------------------

TEST_CASE("threads and blocks have their indices") {
  Buffer out("out", 3 * 40 * 4);
  CHECK(run({.blocks = 3, .threads = 40}, [&] {
          const std::uint32_t i = 40 * block_index() + thread_index();
          store(out.pointer<std::uint32_t>() + i, 100 * block_index() + 32 * warp() + lane());
        }) == "");
  CHECK(!out.first_unwritten(0, out.size()));
  CHECK(out.read<std::uint32_t>(0) == 0);
  CHECK(out.read<std::uint32_t>(119) == 239);
}

TEST_CASE("shuffles and ballots") {
  Buffer out("out", 32 * 3 * 4);
  CHECK(run({}, [&] {
          const Global<std::uint32_t> at = out.pointer<std::uint32_t>() + 3 * lane();
          store(at, shuffle_xor(kAllLanes, 10 + lane(), 5));
          store(at + 1, shuffle(kAllLanes, 10 + lane(), lane() / 2));
          store(at + 2, ballot(kAllLanes, lane() % 3 == 0));
        }) == "");
  for (std::uint32_t i = 0; i < 32; ++i) {
    CHECK(out.read<std::uint32_t>(3 * i) == 10 + (i ^ 5));
    CHECK(out.read<std::uint32_t>(3 * i + 1) == 10 + i / 2);
    CHECK(out.read<std::uint32_t>(3 * i + 2) == 0x49249249u);
  }
}

TEST_CASE("shuffles of two halves of a warp do not meet") {
  Buffer out("out", 32 * 4);
  CHECK(run({}, [&] {
          const std::uint32_t mask = lane() < 16 ? 0x0000ffffu : 0xffff0000u;
          store(out.pointer<std::uint32_t>() + lane(), shuffle_xor(mask, lane(), 1));
        }) == "");
  CHECK(out.read<std::uint32_t>(17) == 16);
}

TEST_CASE("dp4a multiplies signed bytes") {
  CHECK(dp4a(0x80808080u, 0x80808080u, 7) == 4 * 128 * 128 + 7);
  CHECK(dp4a(0x7f80ff01u, 0x02030405u, 0) == 127 * 2 - 128 * 3 - 4 + 5);
}

TEST_CASE("square roots are rounded correctly") {
  CHECK(square_root(2.0f) == 1.41421354f);
  CHECK(square_root(0x1.fffffcp-127f) == 0x1.fffffep-64f);  // a denormal
  CHECK(float_bits(square_root(-0.0f)) == 0x80000000u);
}

TEST_CASE("byte_permute chooses among eight bytes, or their signs") {
  const std::uint32_t a = 0x83020100u;
  const std::uint32_t b = 0x07f60504u;
  CHECK(byte_permute(a, b, 0x3210) == a);
  CHECK(byte_permute(a, b, 0x7654) == b);
  CHECK(byte_permute(a, b, 0x0635) == 0x00f68305u);
  CHECK(byte_permute(a, b, 0xbedf) == 0xffff0000u);       // signs of bytes 3, 6, 5, 7
  CHECK(byte_permute(a, b, 0xabcd0246u) == 0x000204f6u);  // what lies above is not looked at
}

TEST_CASE("mma of 16 columns is that of 32 with half of them") {
  std::mt19937 random(6);
  std::uint32_t words[32][5];
  for (auto& lane_words : words)
    for (std::uint32_t& word : lane_words) word = static_cast<std::uint32_t>(random());
  CHECK(run({}, [&] {
          const auto& w = words[lane()];
          std::int32_t half[4] = {1, 2, 3, 4};
          std::int32_t whole[4] = {1, 2, 3, 4};
          mma_s8_k16(half, {w[0], w[1]}, w[2]);
          mma_s8(whole, {w[0], w[1], w[3], w[4]}, {w[2], 0});
          for (int i = 0; i < 4; ++i) CHECK(half[i] == whole[i]);
        }) == "");
}

TEST_CASE("mma and matrix loads multiply matrices as they lie in memory") {
  std::mt19937 random(5);
  std::int8_t a[16][32];
  std::int8_t b[8][32];  // column by column
  for (auto& row : a)
    for (std::int8_t& value : row) value = static_cast<std::int8_t>(random());
  for (auto& row : b)
    for (std::int8_t& value : row) value = static_cast<std::int8_t>(random());
  a[0][0] = b[0][0] = -128;
  Buffer in_a("a", sizeof a);
  Buffer in_b("b", sizeof b);
  in_a.write(0, a, sizeof a);
  in_b.write(0, b, sizeof b);
  Buffer out("out", 16 * 8 * 4);
  CHECK(run({.shared_bytes = sizeof a + sizeof b}, [&] {
          const auto l = static_cast<std::int32_t>(lane());
          const Shared<std::uint8_t> bytes = dynamic_shared();
          store_words(bytes + 16 * l, load_words(in_a.pointer<const std::int8_t>() + 16 * l));
          if (l < 16) {
            store_words(bytes + (512 + 16 * l),
                        load_words(in_b.pointer<const std::int8_t>() + 16 * l));
          }
          sync_warp();
          // Rows of a are two pieces of 16 bytes: matrices in the order of the fragment.
          const Words fa = load_matrices_x4(bytes + (32 * (l % 16) + 16 * (l / 16)));
          const Words fb = load_matrices_x2(bytes + (512 + 32 * (l % 8) + 16 * (l / 8 % 2)));
          std::int32_t c[4] = {1000, 0, 0, 0};
          mma_s8(c, fa.word, {fb.word[0], fb.word[1]});
          for (int i = 0; i < 4; ++i) {
            const std::int32_t row = l / 4 + 8 * (i / 2);
            const std::int32_t column = 2 * (l % 4) + i % 2;
            store(out.pointer<std::int32_t>() + (8 * row + column), c[i]);
          }
        }) == "");
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      std::int32_t sum = row < 8 && column % 2 == 0 ? 1000 : 0;
      for (std::size_t k = 0; k < 32; ++k) sum += a[row][k] * b[column][k];
      CHECK(out.read<std::int32_t>(8 * row + column) == sum);
    }
  }
}

// -- Memory --------------------------------------------------------------------------------------

TEST_CASE("accesses outside of a buffer") {
  Buffer data("data", 64);
  const std::vector<std::uint8_t> zeros(64);
  data.write(std::span<const std::uint8_t>(zeros));
  const auto p = data.pointer<std::uint32_t>();
  check_fault(run({}, [&] { (void)load(p + (lane() == 20 ? 16 : 0)); }),
              {"lane 20", "simt_emulator_test.cpp", "read of 4 bytes at offset 64", "'data'"});
  check_fault(run({}, [&] { (void)load(p + (-1)); }), {"offset -4"});
  check_fault(run({}, [&] { store(p + 16, 1u); }), {"write of 4 bytes at offset 64"});
  check_fault(run({}, [&] { (void)load_words(p + 1); }), {"misaligned read of 16 bytes"});
  check_fault(run({}, [&] { (void)load(p + (std::int64_t{1} << 40)); }), {"offset 4398046511104"});
  check_fault(run({}, [&] { (void)load(Global<std::uint32_t>()); }), {"null pointer"});
}

TEST_CASE("accesses outside of shared memory") {
  check_fault(run({.shared_bytes = 64}, [] { store(shared_words() + 16, 1u); }),
              {"write of 4 bytes at offset 64 of shared memory"});
  check_fault(run({.shared_bytes = 64}, [] { (void)load_words(shared_words() + 1); }),
              {"misaligned"});
}

TEST_CASE("reads of what nobody has written") {
  Buffer data("data", 64);
  check_fault(run({}, [&] { (void)load(data.pointer<std::uint32_t>() + 3); }),
              {"byte 12 of buffer 'data'", "nobody has written"});
  check_fault(run({.shared_bytes = 64}, [] { (void)load(shared_words() + 3); }),
              {"shared byte 12", "nobody has written"});
  // What one block wrote is nothing to the next.
  check_fault(run({.blocks = 2, .threads = 1, .shared_bytes = 4},
                  [] {
                    if (block_index() == 0) store(shared_words(), 1u);
                    (void)load(shared_words());
                  }),
              {"block 1", "nobody has written"});
}

TEST_CASE("results that are left unwritten") {
  Buffer out("out", 40);
  CHECK(run({}, [&] {
          if (lane() < 9) store(out.pointer<std::uint32_t>() + lane(), lane());
        }) == "");
  CHECK(out.first_unwritten(0, 36) == std::nullopt);
  CHECK(out.first_unwritten(0, 40) == 36);
  CHECK(out.written_bytes() == 36);
}

// -- Races ---------------------------------------------------------------------------------------

TEST_CASE("a read without a barrier after a write of another thread") {
  const auto kernel = [](bool barrier) {
    return [barrier] {
      store(shared_words() + thread_index(), 1u);
      if (barrier) sync_threads();
      (void)load(shared_words() + (thread_index() + 32) % 64);
    };
  };
  const Shape shape = {.threads = 64, .shared_bytes = 256};
  CHECK(run(shape, kernel(true)) == "");
  // The first threads read what nobody has written yet; in the other order of turns likewise.
  CHECK(run(shape, kernel(false)) != "");
  check_fault(run({.threads = 2, .shared_bytes = 8},
                  [] {
                    if (thread_index() == 0) store(shared_words(), 1u);
                    if (thread_index() == 1) (void)load(shared_words());
                  }),
              {"race on shared byte 0", "thread 0 wrote", "thread 1 reads"});
}

TEST_CASE("a write without a barrier after a read or a write of another thread") {
  const auto kernel = [](bool barrier, bool reads) {
    return [barrier, reads] {
      if (thread_index() == 0) store(shared_words(), 1u);
      sync_threads();
      if (reads) (void)load(shared_words());
      if (barrier) sync_threads();
      if (thread_index() == 0 || (!reads && thread_index() == 40)) store(shared_words(), 2u);
    };
  };
  const Shape shape = {.threads = 64, .shared_bytes = 4};
  CHECK(run(shape, kernel(true, true)) == "");
  check_fault(run(shape, kernel(false, true)), {"race", "read it", "thread 0 writes"});
  check_fault(run(shape, kernel(true, false)), {"race", "thread 0 wrote", "thread 40 writes"});
}

TEST_CASE("sync_warp orders the lanes that take part, and nobody else") {
  const auto kernel = [](std::uint32_t mask, std::uint32_t reader) {
    return [mask, reader] {
      if (thread_index() == 3) store(shared_words(), 1u);
      if (warp() == 0 && (mask >> lane() & 1) != 0) sync_warp(mask);
      if (thread_index() == reader) (void)load(shared_words());
    };
  };
  const Shape shape = {.threads = 64, .shared_bytes = 4};
  CHECK(run(shape, kernel(kAllLanes, 9)) == "");
  CHECK(run(shape, kernel(0x0000ffffu, 9)) == "");
  check_fault(run(shape, kernel(0x0000ffffu, 20)), {"race", "thread 20"});
  check_fault(run(shape, kernel(kAllLanes, 40)), {"race", "thread 40"});
}

TEST_CASE("order is passed on from lane to lane") {
  CHECK(run({.shared_bytes = 4}, [] {
          if (lane() == 0) store(shared_words(), 1u);
          if (lane() < 2) sync_warp(0x3u);
          if (lane() == 1 || lane() == 2) sync_warp(0x6u);
          if (lane() == 2) (void)load(shared_words());
        }) == "");
}

TEST_CASE("two readers of two warps are both remembered") {
  check_fault(run({.threads = 64, .shared_bytes = 4},
                  [] {
                    if (thread_index() == 0) store(shared_words(), 1u);
                    sync_threads();
                    (void)load(shared_words());
                    sync_warp();
                    if (thread_index() == 5) store(shared_words(), 2u);
                  }),
              {"race"});
}

// -- Meeting -------------------------------------------------------------------------------------

TEST_CASE("barriers that not all threads reach") {
  check_fault(run({.threads = 64},
                  [] {
                    if (thread_index() != 7) sync_threads();
                  }),
              {"thread 7", "leaves the kernel", "waits in sync_threads"});
  check_fault(run({.threads = 64, .reversed = true},
                  [] {
                    if (thread_index() != 63) sync_threads();
                  }),
              {"sync_threads, but another thread of the block has left"});
  check_fault(run({.threads = 64},
                  [] {
                    if (thread_index() < 32) {  // NOLINT(bugprone-branch-clone): two places
                      sync_threads();
                    } else {
                      sync_threads();
                    }
                  }),
              {"sync_threads, while thread 0 waits in sync_threads"});
  check_fault(run({.threads = 64},
                  [] {
                    if (lane() == 0) {
                      sync_threads();
                    } else {
                      sync_warp();
                    }
                  }),
              {"no thread can go on", "sync_threads", "sync_warp"});
}

TEST_CASE("masks that do not match who takes part") {
  check_fault(run({}, [] { (void)shuffle(0xfffffffeu, 1, 2); }), {"lane 0", "does not name"});
  check_fault(run({},
                  [] {
                    if (lane() != 4) (void)ballot(kAllLanes, true);
                  }),
              {"lane 4", "leaves the kernel", "ballot"});
  check_fault(run({.reversed = true},
                  [] {
                    if (lane() != 31) (void)ballot(kAllLanes, true);
                  }),
              {"names lane 31: it has left"});
  check_fault(run({.threads = 20}, [] { sync_warp(); }), {"names lane 20: it does not exist"});
  check_fault(run({},
                  [] {
                    const std::uint32_t mask = lane() < 16 ? 0x0000ffffu : 0xffff0000u;
                    (void)shuffle_xor(mask, 1, 16);
                  }),
              {"reads lane 16", "does not name"});
  check_fault(run({}, [] { (void)ballot(lane() < 16 ? kAllLanes : 0xffff0001u, true); }),
              {"ballot with mask", "while thread 0 waits in ballot"});
  check_fault(run({},
                  [] {
                    if (lane() % 2 == 0) {
                      sync_warp();
                    } else {
                      (void)ballot(kAllLanes, true);
                    }
                  }),
              {"ballot", "while thread 0 waits in sync_warp"});
}

// -- Asynchronous copies -------------------------------------------------------------------------

struct CopySource {
  Buffer data{"data", 512};
  CopySource() {
    std::vector<std::uint32_t> words(128);
    for (std::uint32_t i = 0; i < 128; ++i) words[i] = i;
    data.write(std::span<const std::uint32_t>(words));
  }
  Global<const std::uint32_t> operator+(std::int64_t i) {
    return data.pointer<const std::uint32_t>() + i;
  }
};

TEST_CASE("a copy is there after the wait and a barrier, and not before") {
  CopySource from;
  Buffer out("out", 32 * 4);
  const auto kernel = [&](bool waits, bool syncs) {
    return [&, waits, syncs] {
      copy_async_16(shared_words() + 4 * lane(), from + 4 * lane(), 16);
      commit_async();
      if (waits) wait_async<0>();
      if (syncs) sync_warp();
      store(out.pointer<std::uint32_t>() + lane(), load(shared_words() + (4 * lane() + 4) % 128));
      wait_async<0>();
    };
  };
  const Shape shape = {.shared_bytes = 512, .reversed = true};
  CHECK(run(shape, kernel(true, true)) == "");
  CHECK(out.read<std::uint32_t>(3) == 16);
  check_fault(run(shape, kernel(false, true)), {"still under way", "wait_async"});
  CHECK(run(shape, kernel(true, false)) != "");
  check_fault(run({.shared_bytes = 16},
                  [&] {
                    if (lane() == 0) copy_async_16(shared_words(), from + 0, 16);
                    commit_async();
                    wait_async<0>();
                    (void)load(shared_words());
                  }),
              {"race", "thread 0 wrote", "thread 1 reads"});
}

TEST_CASE("waiting for all but the latest groups") {
  CopySource from;
  const auto kernel = [&](std::int64_t word) {
    return [&, word] {
      for (std::int64_t i = 0; i < 3; ++i) {
        copy_async_4(shared_words() + i, from + i, 4);
        commit_async();
      }
      wait_async<1>();
      CHECK(load(shared_words() + word) == word);
      wait_async<0>();
    };
  };
  const Shape shape = {.threads = 1, .shared_bytes = 64};
  CHECK(run(shape, kernel(0)) == "");
  CHECK(run(shape, kernel(1)) == "");
  check_fault(run(shape, kernel(2)), {"shared byte 8", "still under way"});
}

TEST_CASE("copies fill with zeros, check their source and must be waited for") {
  CopySource from;
  const Shape shape = {.threads = 1, .shared_bytes = 64};
  CHECK(run(shape, [&] {
          copy_async_16(shared_words(), from + 100000, 0);
          commit_async();
          wait_async<0>();
          CHECK(load(shared_words() + 3) == 0u);
        }) == "");
  check_fault(run(shape, [&] { copy_async_16(shared_words(), from + 128, 16); }),
              {"read of 16 bytes at offset 512"});
  check_fault(run(shape, [&] { copy_async_16(shared_words(), from + 0, 16); }),
              {"leaves with 1 copies under way"});
  check_fault(run(shape,
                  [&] {
                    copy_async_16(shared_words(), from + 0, 16);
                    store(shared_words() + 1, 5u);
                  }),
              {"write of shared byte 4", "still under way"});
  // Filling a place anew that another thread may still be reading.
  check_fault(run({.threads = 2, .shared_bytes = 16},
                  [&] {
                    if (thread_index() == 1) store_words(shared_words(), Words{});
                    sync_threads();
                    if (thread_index() == 1) (void)load(shared_words());
                    if (thread_index() == 0) copy_async_16(shared_words(), from + 0, 16);
                  }),
              {"race", "thread 1 read", "thread 0 writes"});
}

// -- Blocks of a grid ----------------------------------------------------------------------------

// Four blocks write a word each; `reader` runs in each afterwards.
std::string after_writes(Buffer& words, Buffer& counter,
                         const std::function<void(Global<std::uint32_t>)>& reader) {
  const std::uint32_t zero = 0;
  counter.write(0, &zero, 4);
  return run({.blocks = 4, .threads = 64}, [&] {
    const Global<std::uint32_t> at = words.pointer<std::uint32_t>();
    if (thread_index() == 40) store(at + block_index(), 10 + block_index());
    reader(at);
  });
}

TEST_CASE("the last block to arrive sees what the others wrote") {
  Buffer words("words", 16);
  Buffer counter("counter", 4);
  Buffer sum("sum", 4);
  for (int round = 0; round < 2; ++round) {  // the counter is 0 again afterwards
    CHECK(after_writes(words, counter, [&](Global<std::uint32_t> at) {
            if (!arrive_last(counter.pointer<std::uint32_t>(), 4) || thread_index() != 3) return;
            std::uint32_t all = 0;
            for (int i = 0; i < 4; ++i) all += load(at + i);
            store(sum.pointer<std::uint32_t>(), all);
          }) == "");
    CHECK(sum.read<std::uint32_t>(0) == 46);
  }
}

TEST_CASE(
    "blocks that read or write what others of their grid wrote are at fault without arrival") {
  Buffer words("words", 16);
  Buffer counter("counter", 4);
  check_fault(after_writes(words, counter,
                           [&](Global<std::uint32_t> at) {
                             if (block_index() == 2 && thread_index() == 0) load(at + 1);
                           }),
              {"block 2", "read of byte 4 of buffer 'words'", "another block", "no order"});
  check_fault(after_writes(words, counter,
                           [&](Global<std::uint32_t> at) {
                             if (thread_index() == 0) store(at, 1u);
                           }),
              {"write of byte 0 of buffer 'words'", "another block"});
  // Not the last one, and what was written after an arrival.
  check_fault(after_writes(words, counter,
                           [&](Global<std::uint32_t> at) {
                             arrive_last(counter.pointer<std::uint32_t>(), 4);
                             if (block_index() == 1 && thread_index() == 0) load(at);
                           }),
              {"block 1", "read of byte 0", "no order"});
  check_fault(after_writes(words, counter,
                           [&](Global<std::uint32_t> at) {
                             const bool last = arrive_last(counter.pointer<std::uint32_t>(), 4);
                             if (thread_index() != 0) return;
                             store(at + block_index(), 1u);
                             if (last) load(at);
                           }),
              {"block 3", "read of byte 0", "no order"});
  // A counter that was not 0.
  const std::uint32_t one = 1;
  Buffer dirty("dirty", 4);
  dirty.write(0, &one, 4);
  check_fault(run({}, [&] { arrive_last(dirty.pointer<std::uint32_t>(), 1); }), {"dirty", "not 0"});
}

}  // namespace
}  // namespace sluice::simt
