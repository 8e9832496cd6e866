// A sequence that outlives a request: its keys and values stay in the engine's cache, so that the
// next request runs only the tokens that differ.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/engine/engine.h"
#include "src/engine/token_tree.h"

namespace sluice {

class CachedSequence {
 public:
  // An empty sequence; released with this object. `engine` must outlive it.
  explicit CachedSequence(Engine& engine);
  ~CachedSequence();
  CachedSequence(const CachedSequence&) = delete;
  CachedSequence& operator=(const CachedSequence&) = delete;

  Engine& engine() const { return engine_; }
  // The tokens whose keys and values the cache holds.
  const std::vector<std::int32_t>& tokens() const { return tokens_; }

  struct Prefill {
    std::size_t reused = 0;  // tokens found in the cache
    PassTraffic traffic;
  };
  // Makes the sequence hold exactly `tokens` (not empty): keeps the longest common prefix that the
  // backend can go on from, forgets the rest and runs what is missing, at least the last token,
  // whose logits [vocabulary] are wanted. `on_chunk` hears how many of the tokens are held. When
  // interrupted, the sequence holds the chunks that were done.
  Result<Prefill> assign(std::span<const std::int32_t> tokens, std::span<float> logits,
                         const std::atomic<bool>* cancel,
                         const std::function<void(std::size_t held)>& on_chunk = {});
  // Runs more tokens in one pass, as Engine::score().
  Result<PassTraffic> append(std::span<const std::int32_t> tokens, const LogitsOut& logits,
                             const std::atomic<bool>* cancel, std::span<float> hidden = {});
  // Whether the cache has blocks for all paths of a tree; a chain within the context always fits.
  bool has_room(const TokenTree& tree) const;
  // Runs a tree of tokens behind those held, in one pass: logits and, where given, hidden [tree,
  // embedding] of each of its tokens. The sequence holds the first path afterwards, until keep().
  // Each further path is a sequence of its own that shares the blocks before the tree, so its
  // tokens see exactly what they would in plain decoding.
  Result<PassTraffic> append(const TokenTree& tree, const LogitsOut& logits,
                             const std::atomic<bool>* cancel, std::span<float> hidden = {});
  // Of the tree appended last, keeps the tokens of `path` (from the root on), and no others.
  Status keep(const TokenTree& tree, std::span<const std::uint32_t> path);
  // Forgets tokens from `length` on. Requires length <= tokens().size(), and before append() a
  // length that Backend::resumable_length() gives back, as all within the last pass are.
  void truncate(std::size_t length);

  // Keys and values of all tokens as bytes: whole blocks in order. What lies beyond the last token
  // in its block has no meaning.
  std::size_t snapshot_bytes() const;
  // kFailed where the device no longer answers.
  Status export_snapshot(std::span<std::byte> bytes) const;
  // Replaces the content; the last few tokens are left out where the backend needs to run them
  // again (Backend::resumable_length()). Errors (kBadInput): a size that does not belong to that
  // many tokens, more tokens than the context, ids outside the vocabulary; the sequence is empty
  // then.
  Status import_snapshot(std::span<const std::int32_t> tokens, std::span<const std::byte> bytes);

 private:
  void drop_branches();
  // Forgets tokens from `length` on, and as many before it as must be run again to go on.
  void truncate_to_resume(std::size_t length);
  // Blocks that a pass over all paths keeps open, those of other sequences included.
  std::size_t open_blocks(std::span<const std::vector<std::uint32_t>> paths) const;

  Engine& engine_;
  SequenceId id_;
  std::vector<std::int32_t> tokens_;
  // Of the tree appended last: its paths, and for all but the first one a sequence each.
  std::vector<std::vector<std::uint32_t>> paths_;
  std::vector<SequenceId> branches_;
};

}  // namespace sluice
