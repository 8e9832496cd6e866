#include "src/engine/cached_sequence.h"

#include <algorithm>

namespace sluice {

CachedSequence::CachedSequence(Engine& engine) : engine_(engine), id_(engine.kv().create()) {}

CachedSequence::~CachedSequence() { engine_.kv().release(id_); }

Result<CachedSequence::Prefill> CachedSequence::assign(
    std::span<const std::int32_t> tokens, std::span<float> logits, const std::atomic<bool>* cancel,
    const std::function<void(std::size_t)>& on_chunk) {
  const std::size_t most = std::min(tokens_.size(), tokens.size() - 1);
  std::size_t common = 0;
  while (common < most && tokens_[common] == tokens[common]) ++common;
  truncate(common);
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
                                           std::span<float> logits, const std::atomic<bool>* cancel,
                                           std::span<float> hidden) {
  SLUICE_ASSIGN_OR_RETURN(const PassTraffic traffic,
                          engine_.score(id_, tokens, logits, cancel, hidden));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return traffic;
}

void CachedSequence::truncate(std::size_t length) {
  tokens_.resize(length);
  engine_.kv().truncate(id_, static_cast<std::uint32_t>(length));
}

std::size_t CachedSequence::snapshot_bytes() const {
  const std::size_t block = engine_.kv().block_tokens();
  return (tokens_.size() + block - 1) / block * engine_.backend().kv_block_bytes();
}

void CachedSequence::export_snapshot(std::span<std::byte> bytes) const {
  const std::size_t size = engine_.backend().kv_block_bytes();
  const std::span<const std::uint32_t> blocks = engine_.kv().blocks(id_);
  for (std::size_t i = 0; (i + 1) * size <= bytes.size() && i < blocks.size(); ++i) {
    engine_.backend().export_kv_block(blocks[i], bytes.subspan(i * size, size));
  }
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
  SLUICE_RETURN_IF_ERROR(engine_.kv().reserve(id_, length));
  const std::span<const std::uint32_t> blocks = engine_.kv().blocks(id_);
  for (std::size_t i = 0; i < count; ++i) {
    engine_.backend().import_kv_block(blocks[i], bytes.subspan(i * size, size));
  }
  engine_.kv().set_length(id_, length);
  tokens_.assign(tokens.begin(), tokens.end());
  return {};
}

}  // namespace sluice
