#include "src/backend/split_backend.h"

#include <algorithm>

namespace sluice {
namespace {

class SplitBackend final : public Backend {
 public:
  explicit SplitBackend(std::vector<BackendPart> parts) : parts_(std::move(parts)) {
    hidden_.resize(std::size_t{max_rows()} * spec().embedding);
  }

  std::string description() const override {
    std::string text;
    for (const BackendPart& part : parts_) {
      text += fmt::format("{}{}: layers {} to {}", text.empty() ? "" : ", ",
                          part.backend->description(), part.layers.first, part.layers.last - 1);
    }
    return text;
  }
  std::string tuning() const override {
    std::string text;
    for (const BackendPart& part : parts_) {
      const std::string one = part.backend->tuning();
      if (one.empty()) continue;
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", part.backend->description(), one);
    }
    return text;
  }
  const ModelSpec& spec() const override { return parts_.front().backend->spec(); }
  std::uint32_t block_tokens() const override { return parts_.front().backend->block_tokens(); }
  std::uint32_t max_rows() const override {
    return least([](const Backend& b) { return b.max_rows(); });
  }
  std::uint32_t max_logits() const override {
    return least([](const Backend& b) { return b.max_logits(); });
  }
  std::uint32_t most_top_logits() const override {
    return parts_.back().backend->most_top_logits();
  }

  Result<PassTraffic> forward(std::span<const BatchRow> rows, const KvCache& kv, LayerRange layers,
                              const ForwardIo& io) override {
    const std::size_t values = rows.size() * spec().embedding;
    if (values > hidden_.size()) {
      return failed("a pass of {} rows was asked for; 1 to {} are possible", rows.size(),
                    max_rows());
    }
    const std::span<float> stream = std::span(hidden_).first(values);
    const bool given = io.hidden.size() >= values;
    if (layers.first > 0 && given) std::copy_n(io.hidden.data(), values, stream.data());
    PassTraffic traffic;
    for (BackendPart& part : parts_) {
      const LayerRange own{std::max(layers.first, part.layers.first),
                           std::min(layers.last, part.layers.last)};
      if (own.first >= own.last) continue;
      SLUICE_ASSIGN_OR_RETURN(
          const PassTraffic read,
          part.backend->forward(rows, kv, own, {stream, io.logits, io.cancel, io.profile}));
      traffic.add(read);
    }
    if (given) std::copy_n(stream.data(), values, io.hidden.data());
    return traffic;
  }

  std::uint32_t resumable_length(const KvCache& kv, SequenceId sequence,
                                 std::uint32_t length) const override {
    // What one part rounds down to is a multiple of the block, which all can go on from.
    return least([&](const Backend& b) { return b.resumable_length(kv, sequence, length); });
  }
  std::uint32_t max_open_blocks() const override {
    return least([](const Backend& b) { return b.max_open_blocks(); });
  }
  Status copy_kv_block(const KvCache& kv, BlockCopy copy) override {
    for (BackendPart& part : parts_) {
      SLUICE_RETURN_IF_ERROR(part.backend->copy_kv_block(kv, copy));
    }
    return {};
  }

  std::string kv_format() const override {
    std::string text;
    for (const BackendPart& part : parts_) {
      text += (text.empty() ? "" : " + ") + part.backend->kv_format();
    }
    return text;
  }
  std::size_t kv_block_bytes() const override {
    std::size_t bytes = 0;
    for (const BackendPart& part : parts_) bytes += part.backend->kv_block_bytes();
    return bytes;
  }
  Status export_kv_block(std::uint32_t block, std::span<std::byte> bytes) const override {
    for (const BackendPart& part : parts_) {
      const std::size_t own = part.backend->kv_block_bytes();
      SLUICE_RETURN_IF_ERROR(part.backend->export_kv_block(block, bytes.first(own)));
      bytes = bytes.subspan(own);
    }
    return {};
  }
  void import_kv_block(std::uint32_t block, std::span<const std::byte> bytes) override {
    for (BackendPart& part : parts_) {
      const std::size_t own = part.backend->kv_block_bytes();
      part.backend->import_kv_block(block, bytes.first(own));
      bytes = bytes.subspan(own);
    }
  }

 private:
  template <class Value>
  std::uint32_t least(Value value) const {
    std::uint32_t result = value(*parts_.front().backend);
    for (const BackendPart& part : parts_) result = std::min(result, value(*part.backend));
    return result;
  }

  std::vector<BackendPart> parts_;
  std::vector<float> hidden_;  // [max_rows, embedding]
};

}  // namespace

std::unique_ptr<Backend> make_split_backend(std::vector<BackendPart> parts) {
  return std::make_unique<SplitBackend>(std::move(parts));
}

}  // namespace sluice
