// Blocks of the KV cache: who owns them, what is copied; and the tree of known beginnings.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "src/kv/kv_cache.h"
#include "src/kv/prefix_tree.h"
#include "src/kv/recent_blocks.h"

using namespace sluice;

namespace {

using Tokens = std::vector<std::int32_t>;

// Makes a sequence hold `tokens` tokens.
void grow(KvCache& kv, SequenceId sequence, std::uint32_t tokens) {
  REQUIRE(kv.reserve(sequence, tokens).ok());
  kv.set_length(sequence, tokens);
}

std::vector<std::uint32_t> blocks_of(const KvCache& kv, SequenceId sequence) {
  const auto blocks = kv.blocks(sequence);
  return {blocks.begin(), blocks.end()};
}

Tokens numbers(std::int32_t first, std::size_t count) {
  Tokens tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<std::int32_t>(i);
  return tokens;
}

}  // namespace

TEST_CASE("a full cache refuses without a change, and blocks come back") {
  KvCache kv(3, 4);
  const SequenceId a = kv.create(), b = kv.create();
  grow(kv, a, 5);
  CHECK(kv.free_blocks() == 1);
  CHECK(kv.blocks_missing(b, 8) == 2);
  const Status refused = kv.reserve(b, 8);
  REQUIRE_FALSE(refused.ok());
  CHECK(kv.free_blocks() == 1);
  CHECK(kv.blocks(b).empty());
  kv.truncate(a, 4);
  CHECK(kv.reserve(b, 8).ok());
  kv.release(a);
  kv.release(b);
  CHECK(kv.free_blocks() == 3);
}

TEST_CASE("a shared block is copied before one of its owners writes into it") {
  KvCache kv(10, 4);
  const SequenceId a = kv.create(), b = kv.create(), c = kv.create();
  grow(kv, a, 6);  // blocks: a full one, a half one
  kv.adopt(b, kv.blocks(a), 6);
  kv.adopt(c, kv.blocks(a).first(1), 4);
  CHECK(kv.free_blocks() == 8);
  const std::uint32_t first = kv.blocks(a)[0], half = kv.blocks(a)[1];
  CHECK(kv.owners(first) == 3);
  CHECK(kv.owners(half) == 2);

  CHECK(kv.blocks_missing(c, 5) == 1);  // a new block; the full one is not written to
  grow(kv, c, 5);
  CHECK(kv.take_copies().empty());

  CHECK(kv.blocks_missing(a, 7) == 1);
  grow(kv, a, 7);
  const std::vector<BlockCopy> copies = kv.take_copies();
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].from == half);
  CHECK(copies[0].to == kv.blocks(a)[1]);
  CHECK(kv.blocks(a)[1] != half);
  CHECK(kv.blocks_missing(b, 7) == 0);  // it is the only owner now
  grow(kv, b, 7);
  CHECK(kv.take_copies().empty());
  CHECK(kv.blocks(b)[1] == half);

  // Shortened into a full block that others share: a copy, too. At its beginning: none of its bytes
  // are needed.
  kv.truncate(b, 2);
  grow(kv, b, 3);
  REQUIRE(kv.take_copies().size() == 1);
  kv.truncate(c, 0);
  grow(kv, c, 2);
  CHECK(kv.take_copies().empty());
  for (const SequenceId each : {a, b, c}) kv.release(each);
  CHECK(kv.free_blocks() == 10);
}

TEST_CASE("the tree finds the longest known beginning, in whole blocks") {
  KvCache kv(20, 4);
  PrefixTree tree(kv);
  const SequenceId a = kv.create();
  const Tokens text = numbers(0, 11);
  grow(kv, a, 11);
  tree.insert(text, a);
  CHECK(tree.blocks() == 2);
  const std::vector<std::uint32_t> held = blocks_of(kv, a);
  CHECK(tree.find(text) == std::vector<std::uint32_t>{held[0], held[1]});
  CHECK(tree.find(std::span(text).first(7)) == std::vector<std::uint32_t>{held[0]});
  CHECK(tree.find(std::span(text).first(3)).empty());
  Tokens other = text;
  other[5] = 99;
  CHECK(tree.find(other) == std::vector<std::uint32_t>{held[0]});

  // Another sequence with the same beginning takes over the blocks that are known.
  const SequenceId b = kv.create();
  grow(kv, b, 9);
  const std::uint32_t free = kv.free_blocks();
  tree.insert(std::span(other).first(9), b);
  CHECK(kv.blocks(b)[0] == held[0]);
  CHECK(kv.free_blocks() == free + 1);
  CHECK(tree.blocks() == 3);

  // What is in use stays; then the least recently used leaf goes first.
  CHECK(tree.reclaimable() == 0);
  CHECK(tree.evict(5) == 0);
  kv.release(a);
  kv.release(b);
  CHECK(tree.reclaimable() == 3);
  CHECK(tree.find(text).size() == 2);  // the text is newer now
  CHECK(tree.evict(1) == 1);
  CHECK(tree.find(other).size() == 1);
  CHECK(tree.find(text).size() == 2);
  CHECK(tree.evict(9) == 2);
  CHECK(tree.blocks() == 0);
  CHECK(kv.free_blocks() == 20);
}

TEST_CASE("random use: blocks are never lost, never free and owned, and finds are right") {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    KvCache kv(24, 4);
    {
      PrefixTree tree(kv);
      std::map<std::uint32_t, Tokens> written;  // block: what its tokens and those before are
      struct Live {
        SequenceId id;
        Tokens tokens;
      };
      std::vector<Live> live;
      const auto write = [&](const Live& each) {  // as a pass would: from scratch, all full blocks
        for (std::size_t i = 0; (i + 1) * 4 <= each.tokens.size(); ++i) {
          written[kv.blocks(each.id)[i]] =
              Tokens(each.tokens.begin(), each.tokens.begin() + static_cast<long>(i + 1) * 4);
        }
      };
      for (int step = 0; step < 300; ++step) {
        const auto action = random() % 4;
        if (action == 0 && live.size() < 5) {
          Tokens text(random() % 30);
          for (auto& token : text) token = static_cast<std::int32_t>(random() % 2);
          const auto found = tree.find(text);
          for (std::size_t i = 0; i < found.size(); ++i) {
            REQUIRE(written[found[i]] ==
                    Tokens(text.begin(), text.begin() + static_cast<long>(i + 1) * 4));
          }
          Live made{kv.create(), text};
          kv.adopt(made.id, found, static_cast<std::uint32_t>(found.size()) * 4);
          const auto size = static_cast<std::uint32_t>(text.size());
          if (kv.blocks_missing(made.id, size) > kv.free_blocks()) {
            tree.evict(kv.blocks_missing(made.id, size) - kv.free_blocks());
          }
          if (kv.reserve(made.id, size).ok()) {
            kv.set_length(made.id, size);
            write(made);
            live.push_back(std::move(made));
          } else {
            kv.release(made.id);
          }
        } else if (action == 1 && !live.empty()) {
          const Live& each = live[random() % live.size()];
          tree.insert(each.tokens, each.id);
        } else if (action == 2 && !live.empty()) {
          const std::size_t which = random() % live.size();
          kv.release(live[which].id);
          live.erase(live.begin() + static_cast<long>(which));
        } else if (action == 3) {
          const std::uint32_t could = tree.reclaimable();
          const std::uint32_t wanted = random() % 4;
          CHECK(tree.evict(wanted) == std::min(wanted, could));
        }
        std::uint32_t owned = 0;
        for (std::uint32_t block = 0; block < kv.total_blocks(); ++block) {
          owned += kv.owners(block) > 0 ? 1 : 0;
        }
        REQUIRE(owned + kv.free_blocks() == kv.total_blocks());
      }
      for (const Live& each : live) kv.release(each.id);
    }
    CHECK(kv.free_blocks() == kv.total_blocks());
  }
}

TEST_CASE("a block's slot holds what was written of it, and a write goes on from what is held") {
  KvCache kv(10, 4);
  RecentBlocks recent(10, 4, 3);
  const std::vector<BlockWrite> first = {{7, 0, 4}, {2, 0, 1}};
  REQUIRE(recent.open(first, kv).ok());
  CHECK(recent.slot(7) != recent.slot(2));
  CHECK(recent.tokens(2) == 0);  // until it is written: the pass may fail
  recent.written(first);
  CHECK(recent.tokens(7) == 4);
  CHECK(recent.tokens(2) == 1);
  CHECK(recent.slot(3) == RecentBlocks::kNone);
  CHECK(recent.tokens(3) == 0);

  // On from token 1, and over a rejected token.
  const std::vector<BlockWrite> second = {{2, 1, 3}};
  REQUIRE(recent.open(second, kv).ok());
  CHECK(recent.tokens(2) == 1);
  recent.written(second);
  const std::vector<BlockWrite> again = {{2, 2, 3}};
  REQUIRE(recent.open(again, kv).ok());
  recent.written(again);
  CHECK(recent.tokens(2) == 3);

  // Nobody has these tokens, so nothing changes.
  for (const BlockWrite& gap : {BlockWrite{2, 4, 4}, BlockWrite{3, 1, 2}}) {
    const std::vector<BlockWrite> writes = {{7, 0, 1}, gap};
    const Status refused = recent.open(writes, kv);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().message.find("internal error") != std::string::npos);
    CHECK(recent.tokens(7) == 4);
    CHECK(recent.tokens(2) == 3);
    CHECK(recent.slot(3) == RecentBlocks::kNone);
  }
  recent.forget(2);
  CHECK(recent.slot(2) == RecentBlocks::kNone);
  CHECK_FALSE(recent.open(std::vector<BlockWrite>{{2, 1, 2}}, kv).ok());
}

TEST_CASE("slots are taken from the block not used for longest, never from one that is needed") {
  KvCache kv(20, 4);
  RecentBlocks recent(20, 4, 3);
  const SequenceId a = kv.create();
  grow(kv, a, 6);  // ends in the middle of blocks 0, 1
  const auto write = [&](std::uint32_t block, std::uint32_t begin, std::uint32_t end) {
    const std::vector<BlockWrite> writes = {{block, begin, end}};
    const Status status = recent.open(writes, kv);
    if (status.ok()) recent.written(writes);
    return status.ok();
  };
  CHECK(write(1, 0, 2));
  CHECK(write(10, 0, 4));
  CHECK(write(11, 0, 4));
  CHECK(write(12, 0, 4));  // 1 is the oldest, but needed
  CHECK(recent.tokens(1) == 2);
  CHECK(recent.slot(10) == RecentBlocks::kNone);
  CHECK(write(11, 2, 3));  // used anew
  CHECK(write(13, 0, 1));
  CHECK(recent.slot(12) == RecentBlocks::kNone);
  CHECK(recent.tokens(11) == 3);
  // Three blocks of one pass beside the one that is needed are too many, and nothing is lost.
  const Status full = recent.open(std::vector<BlockWrite>{{14, 0, 4}, {15, 0, 4}, {16, 0, 1}}, kv);
  REQUIRE_FALSE(full.ok());
  CHECK(full.error().message.find("fewer sequences") != std::string::npos);
  CHECK(recent.tokens(1) == 2);
  CHECK(recent.tokens(11) == 3);
  CHECK(recent.tokens(13) == 1);
  // Whoever is gone needs nothing.
  kv.release(a);
  CHECK(recent.open(std::vector<BlockWrite>{{14, 0, 4}, {15, 0, 4}, {16, 0, 1}}, kv).ok());
  CHECK(recent.slot(1) == RecentBlocks::kNone);
}

TEST_CASE("a copied block is held as the original is, or not at all") {
  KvCache kv(20, 4);
  RecentBlocks recent(20, 4, 3);
  const std::vector<BlockWrite> writes = {{5, 0, 3}, {6, 0, 2}};
  REQUIRE(recent.open(writes, kv).ok());
  recent.written(writes);
  const auto copied = recent.copy({5, 9}, kv);
  REQUIRE(copied.ok());
  REQUIRE(copied->has_value());
  CHECK((*copied)->from == recent.slot(5));
  CHECK((*copied)->to == recent.slot(9));
  CHECK(recent.tokens(9) == 3);
  // Of a block that is not held nothing is known, so what the copy had before is stale.
  const auto nothing = recent.copy({12, 9}, kv);
  REQUIRE(nothing.ok());
  CHECK_FALSE(nothing->has_value());
  CHECK(recent.slot(9) == RecentBlocks::kNone);
}

TEST_CASE("slots never run out with the sequences and rows that they were made for") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t sequences = 1 + random() % 5, rows = 1 + random() % 40, size = 8;
    KvCache kv(1000, size);
    RecentBlocks recent(1000, size, RecentBlocks::slots_for(1000, size, sequences, rows));
    std::vector<SequenceId> ids;
    for (std::uint32_t i = 0; i < sequences; ++i) ids.push_back(kv.create());
    for (int pass = 0; pass < 30; ++pass) {
      std::vector<BlockWrite> writes;
      std::vector<std::pair<SequenceId, std::uint32_t>> grown;
      std::uint32_t left = rows;
      for (const SequenceId id : ids) {
        const std::uint32_t length = kv.length(id), count = random() % (left + 1);
        if (count == 0) continue;
        left -= count;
        REQUIRE(kv.reserve(id, length + count).ok());
        for (std::uint32_t at = length; at < length + count;) {
          const std::uint32_t end = std::min(at / size * size + size, length + count);
          writes.push_back({kv.blocks(id)[at / size], at % size, end - at / size * size});
          at = end;
        }
        grown.emplace_back(id, length + count);
      }
      const Status status = recent.open(writes, kv);
      REQUIRE_MESSAGE(status.ok(), (status.ok() ? "" : status.error().message));
      recent.written(writes);
      for (const auto& [id, length] : grown) kv.set_length(id, length);
    }
  }
}
