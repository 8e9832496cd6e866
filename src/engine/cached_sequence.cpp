#include "src/engine/cached_sequence.h"

#include <algorithm>

namespace sluice {

CachedSequence::CachedSequence(Engine& engine) : engine_(engine), id_(engine.kv().create()) {}

CachedSequence::~CachedSequence() {
  drop_branches();
  engine_.kv().release(id_);
}

void CachedSequence::drop_branches() {
  for (const SequenceId branch : branches_) engine_.kv().release(branch);
  branches_.clear();
  paths_.clear();
}

Result<CachedSequence::Prefill> CachedSequence::assign(
    std::span<const std::int32_t> tokens, std::span<float> logits, const std::atomic<bool>* cancel,
    const std::function<void(std::size_t)>& on_chunk) {
  const std::size_t most = std::min(tokens_.size(), tokens.size() - 1);
  std::size_t common = 0;
  while (common < most && tokens_[common] == tokens[common]) ++common;
  truncate_to_resume(common);
  common = tokens_.size();
  Result<PassTraffic> traffic =
      engine_.prefill(id_, tokens.subspan(common), logits, cancel, [&](std::size_t done) {
        const auto held = static_cast<std::ptrdiff_t>(common + done);
        tokens_.insert(tokens_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(tokens_.size()),
                       tokens.begin() + held);
        if (on_chunk) on_chunk(common + done);
      });
  if (!traffic.ok()) return traffic.error();
  return Prefill{common, *traffic};
}

Result<PassTraffic> CachedSequence::append(std::span<const std::int32_t> tokens,
                                           const LogitsOut& logits, const std::atomic<bool>* cancel,
                                           std::span<float> hidden) {
  SLUICE_ASSIGN_OR_RETURN(const PassTraffic traffic,
                          engine_.score(id_, tokens, logits, cancel, hidden));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return traffic;
}

bool CachedSequence::has_room(const TokenTree& tree) const {
  const std::size_t block = engine_.kv().block_tokens();
  const auto blocks_for = [block](std::size_t tokens) { return (tokens + block - 1) / block; };
  const std::size_t length = tokens_.size();
  std::size_t needed = 0;
  std::size_t rows = 0;
  const auto paths = tree.paths();
  for (const auto& path : paths) {
    needed += blocks_for(length + path.size()) - blocks_for(length);
    rows += path.size();
  }
  if (length % block != 0) needed += paths.size() - 1;  // copies of the last block
  if (paths.size() > 1 && open_blocks(paths) > engine_.backend().max_open_blocks()) return false;
  // Blocks that the sequence has already beyond its length count as free.
  const std::size_t reserved = engine_.kv().blocks(id_).size() - blocks_for(length);
  return needed <= engine_.kv().free_blocks() + reserved && rows <= engine_.backend().max_rows();
}

std::size_t CachedSequence::open_blocks(std::span<const std::vector<std::uint32_t>> paths) const {
  const KvCache& kv = engine_.kv();
  const std::size_t block = kv.block_tokens();
  std::size_t open = 0;
  for (SequenceId id = 0; id < kv.sequences(); ++id) {
    if (id != id_ && kv.length(id) % block != 0) ++open;
  }
  for (const auto& path : paths) {
    open += (tokens_.size() % block + path.size() + block - 1) / block;
  }
  return open;
}

Result<PassTraffic> CachedSequence::append(const TokenTree& tree, const LogitsOut& logits,
                                           const std::atomic<bool>* cancel,
                                           std::span<float> hidden) {
  drop_branches();
  std::vector<std::vector<std::uint32_t>> paths = tree.paths();
  // The plain case costs nothing: no branches, rows in the order of the tree.
  if (paths.size() == 1) {
    SLUICE_ASSIGN_OR_RETURN(const PassTraffic traffic, append(tree.tokens, logits, cancel, hidden));
    paths_ = std::move(paths);
    return traffic;
  }
  const auto length = static_cast<std::uint32_t>(tokens_.size());
  for (std::size_t i = 1; i < paths.size(); ++i) {
    branches_.push_back(engine_.kv().create());
    const Status shared = engine_.share(id_, branches_.back(), length);
    if (!shared.ok()) {
      drop_branches();
      return shared.error();
    }
  }
  // A row a token of each path; logits where a token appears first.
  std::vector<BatchRow> rows;
  std::vector<std::uint32_t> wanted;             // tokens of the rows with logits
  std::vector<std::size_t> row_of(tree.size());  // with logits
  std::vector<bool> seen(tree.size(), false);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const SequenceId sequence = i == 0 ? id_ : branches_[i - 1];
    for (std::uint32_t depth = 0; depth < paths[i].size(); ++depth) {
      const std::uint32_t at = paths[i][depth];
      rows.push_back({tree.tokens[at], length + depth, sequence, !seen[at]});
      if (seen[at]) continue;
      seen[at] = true;
      row_of[at] = rows.size() - 1;
      wanted.push_back(at);
    }
  }
  const std::size_t embedding = engine_.spec().embedding;
  const std::size_t width = logits.top == 0 ? engine_.spec().vocabulary : logits.top;
  std::vector<float> all_logits(wanted.size() * width);
  std::vector<std::int32_t> all_ids(logits.top == 0 ? 0 : wanted.size() * width);
  std::vector<float> all_hidden(hidden.empty() ? 0 : rows.size() * embedding);
  LogitsOut out = logits;
  out.whole = out.top_logits = all_logits;
  out.top_ids = all_ids;
  Result<PassTraffic> traffic = engine_.run(rows, out, cancel, all_hidden);
  if (!traffic.ok()) {
    drop_branches();
    return traffic.error();
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::span<float> to = logits.top == 0 ? logits.whole : logits.top_logits;
    std::copy_n(all_logits.data() + i * width, width, to.data() + wanted[i] * width);
    if (logits.top > 0) {
      std::copy_n(all_ids.data() + i * width, width, logits.top_ids.data() + wanted[i] * width);
    }
    if (hidden.empty()) continue;
    std::copy_n(all_hidden.data() + row_of[wanted[i]] * embedding, embedding,
                hidden.data() + wanted[i] * embedding);
  }
  paths_ = std::move(paths);
  for (const std::uint32_t at : paths_.front()) tokens_.push_back(tree.tokens[at]);
  return traffic;
}

Status CachedSequence::keep(const TokenTree& tree, std::span<const std::uint32_t> path) {
  if (paths_.empty() || path.empty()) return {};
  const std::size_t length = tokens_.size() - paths_.front().size();
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    if (paths_[i].size() < path.size() ||
        !std::equal(path.begin(), path.end(), paths_[i].begin())) {
      continue;
    }
    if (i > 0) {  // its branch takes the sequence's place
      std::swap(id_, branches_[i - 1]);
      tokens_.resize(length);
      for (const std::uint32_t at : path) tokens_.push_back(tree.tokens[at]);
    }
    drop_branches();
    truncate(length + path.size());
    return {};
  }
  return failed("a path of {} tokens is not one of the tree that was run", path.size());
}

void CachedSequence::truncate(std::size_t length) {
  tokens_.resize(length);
  engine_.kv().truncate(id_, static_cast<std::uint32_t>(length));
}

void CachedSequence::truncate_to_resume(std::size_t length) {
  truncate(
      engine_.backend().resumable_length(engine_.kv(), id_, static_cast<std::uint32_t>(length)));
}

std::size_t CachedSequence::snapshot_bytes() const {
  const std::size_t block = engine_.kv().block_tokens();
  return (tokens_.size() + block - 1) / block * engine_.backend().kv_block_bytes();
}

Status CachedSequence::export_snapshot(std::span<std::byte> bytes) const {
  const std::size_t size = engine_.backend().kv_block_bytes();
  const std::span<const std::uint32_t> blocks = engine_.kv().blocks(id_);
  for (std::size_t i = 0; (i + 1) * size <= bytes.size() && i < blocks.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        engine_.backend().export_kv_block(blocks[i], bytes.subspan(i * size, size)));
  }
  return {};
}

Status CachedSequence::import_snapshot(std::span<const std::int32_t> tokens,
                                       std::span<const std::byte> bytes) {
  truncate(0);
  if (tokens.size() > engine_.context()) {
    return bad_input("the snapshot has {} tokens, the context holds {}", tokens.size(),
                     engine_.context());
  }
  const std::int32_t vocabulary = engine_.tokenizer().vocab_size();
  for (const std::int32_t id : tokens) {
    if (id < 0 || id >= vocabulary) {
      return bad_input("the snapshot has token {}, the vocabulary {} tokens", id, vocabulary);
    }
  }
  const std::size_t block = engine_.kv().block_tokens();
  const std::size_t size = engine_.backend().kv_block_bytes();
  const std::size_t count = (tokens.size() + block - 1) / block;
  if (bytes.size() % size != 0 || bytes.size() / size != count) {
    return bad_input("the snapshot has {} bytes of keys and values, {} blocks of {} were expected",
                     bytes.size(), count, size);
  }
  const auto length = static_cast<std::uint32_t>(tokens.size());
  SLUICE_RETURN_IF_ERROR(engine_.reserve(id_, length));
  const std::span<const std::uint32_t> blocks = engine_.kv().blocks(id_);
  for (std::size_t i = 0; i < count; ++i) {
    engine_.backend().import_kv_block(blocks[i], bytes.subspan(i * size, size));
  }
  engine_.kv().set_length(id_, length);
  tokens_.assign(tokens.begin(), tokens.end());
  truncate_to_resume(tokens.size());
  return {};
}

}  // namespace sluice
