// A model run for tests: one sequence on the CPU backend or a GPU, every row's logits.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/backend/cpu/thread_pool.h"
#include "src/backend/placement.h"
#include "src/gguf/gguf.h"
#include "src/kv/kv_cache.h"
#include "src/model/model_spec.h"

namespace sluice::test {

// Fails the test on any error. `options` needs no sizes of the KV cache.
class ModelRun {
 public:
  ModelRun(const std::string& path, cpu::CpuOptions options, std::uint32_t positions = 512,
           const GpuPlatform* gpu = nullptr, DeviceChoice choice = {})
      : gpu_(gpu), choice_(choice), kv_(0, 1) {
    auto file = GgufFile::open(path);
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().message));
    file_ = std::make_unique<GgufFile>(std::move(file).value());
    start(options, positions);
  }
  ModelRun(std::span<const std::byte> bytes, cpu::CpuOptions options, std::uint32_t positions = 512)
      : kv_(0, 1) {
    auto file = GgufFile::parse(bytes, "model in memory");
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().message));
    file_ = std::make_unique<GgufFile>(std::move(file).value());
    start(options, positions);
  }

  const ModelSpec& spec() const { return model_->spec; }
  const Model& model() const { return *model_; }
  const GgufFile& file() const { return *file_; }
  Backend& backend() { return *backend_; }
  KvCache& kv() { return kv_; }
  SequenceId sequence() const { return sequence_; }

  // Appends tokens to the sequence in passes of at most `chunk` rows; logits of every row.
  std::vector<float> forward(const std::vector<std::int32_t>& tokens, std::uint32_t chunk = 0) {
    const std::uint32_t most = std::min(backend_->max_rows(), backend_->max_logits());
    if (chunk == 0) chunk = most;
    std::vector<float> all(tokens.size() * spec().vocabulary);
    for (std::size_t done = 0; done < tokens.size();) {
      const std::size_t count = std::min<std::size_t>(chunk, tokens.size() - done);
      const std::uint32_t length = kv_.length(sequence_);
      REQUIRE(kv_.reserve(sequence_, length + static_cast<std::uint32_t>(count)).ok());
      std::vector<BatchRow> rows;
      for (std::size_t i = 0; i < count; ++i) {
        rows.push_back({tokens[done + i], length + static_cast<std::uint32_t>(i), sequence_, true});
      }
      ForwardIo io;
      io.logits = std::span(all).subspan(done * spec().vocabulary, count * spec().vocabulary);
      const auto traffic = backend_->forward(rows, kv_, {0, spec().layers}, io);
      REQUIRE_MESSAGE(traffic.ok(), (traffic.ok() ? "" : traffic.error().message));
      kv_.set_length(sequence_, length + static_cast<std::uint32_t>(count));
      done += count;
    }
    return all;
  }

  void restart() { kv_.truncate(sequence_, 0); }

 private:
  void start(cpu::CpuOptions options, std::uint32_t positions) {
    auto model = load_model(*file_, positions);
    REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
    model_ = std::make_unique<Model>(std::move(model).value());
    options.positions = positions;
    // More blocks than one sequence needs: tests run neighbours too.
    options.kv_blocks = 4 * (positions / 32 + 1);
    if (gpu_ != nullptr) options.pool = std::make_shared<cpu::ThreadPool>(1);
    const PlacementRequest request{model_.get(), gpu_, choice_, options};
    auto placement = place(request);
    REQUIRE_MESSAGE(placement.ok(), (placement.ok() ? "" : placement.error().message));
    auto backend = create_backend(request, *placement);
    REQUIRE_MESSAGE(backend.ok(), (backend.ok() ? "" : backend.error().message));
    backend_ = std::move(backend).value();
    kv_ = KvCache(options.kv_blocks, backend_->block_tokens());
    sequence_ = kv_.create();
  }

  const GpuPlatform* gpu_ = nullptr;
  DeviceChoice choice_;
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Backend> backend_;
  KvCache kv_;
  SequenceId sequence_ = 0;
};

}  // namespace sluice::test
