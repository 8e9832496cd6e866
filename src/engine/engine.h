// A model made ready to generate: file, tokenizer, backend and KV cache under one owner. Several
// can live in one process (a target and its draft).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/backend/placement.h"
#include "src/base/status.h"
#include "src/gguf/gguf.h"
#include "src/kv/kv_cache.h"
#include "src/model/model_spec.h"
#include "src/text/tokenizer.h"

namespace sluice {

namespace cpu {
class ThreadPool;
}
class Engine;

struct EngineOptions {
  // Tokens of context; 0: the trained context or 4096, whichever is smaller. More than the trained
  // context is allowed and warned of.
  std::uint32_t context = 0;
  // Tokens that the cache holds for all sequences together; 0, or less than the context: enough for
  // `sequences` that fill the context, or fewer where that takes more than half of the memory left;
  // at least one.
  std::uint32_t kv_tokens = 0;
  std::uint32_t sequences = 1;  // at a time; an int4 cache can't have more
  KvCacheType kv = KvCacheType::kInt8;
  std::uint32_t threads = 0;           // 0: default_threads()
  const Engine* threads_of = nullptr;  // of that engine instead; never run both at once
  const GpuPlatform* gpu = nullptr;    // null: none in this build; must outlive the engine
  DeviceChoice device;                 // who runs which layers
  std::string cpu_isa;                 // "": the best this machine supports
  std::uint32_t prefill_chunk = 256;   // rows of a prompt pass; never changes results
  std::uint32_t max_logits = 17;       // rows with logits in one pass (scoring wants more)
  // Where packed weights are kept between starts, and from how many bytes on that is worth a file;
  // "": nowhere. Then `cancel` must outlive the engine, as what on_late_note refers to, which hears
  // when the engine goes and keeping them takes long or went wrong.
  std::string packed_directory;
  std::function<void(const std::string& line)> on_late_note;
  std::uint64_t packed_least_bytes = std::uint64_t{64} << 20;
  const std::atomic<bool>* cancel = nullptr;  // becomes true: loading stops with kInterrupted
  // Called while weights are prepared with the share done, 0 to 1; may be empty.
  std::function<void(double)> on_progress;
};

// What loading found out, for --stats and --json.
struct LoadInfo {
  double load_ms = 0;
  MemoryPlan memory;                  // on all devices
  bool on_gpu = false;                // some layers are
  std::string placement;              // which layers are where
  std::vector<std::string> warnings;  // lines for the user
  std::vector<std::string> notes;     // what was decided that the user may want to know
};

class Engine {
 public:
  // Errors carry exit codes: kBadInput for the file, kUsage for options that cannot work (an
  // instruction set this machine lacks), kNoMemory with the numbers and the flags that would fit.
  static Result<std::unique_ptr<Engine>> load(const std::string& path,
                                              const EngineOptions& options);

  const GgufFile& file() const { return *file_; }
  const ModelSpec& spec() const { return backend_->spec(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  Backend& backend() { return *backend_; }
  const Backend& backend() const { return *backend_; }
  KvCache& kv() { return *kv_; }
  std::uint32_t context() const { return context_; }
  std::uint32_t prefill_chunk() const { return prefill_chunk_; }
  const LoadInfo& info() const { return info_; }
  // What to do, for messages about a text that would need a context of `tokens`.
  std::string advice_for_context(std::size_t tokens) const;

  // Room for tokens [0, tokens) of a sequence. Where it is to write into a block that others own,
  // it gets a copy. kFailed without a change when the cache has too few blocks.
  Status reserve(SequenceId sequence, std::uint32_t tokens);
  // Makes an empty sequence hold the first `length` tokens of another one, without running them.
  Status share(SequenceId from, SequenceId to, std::uint32_t length);

  // One pass: makes room, runs the rows (positions of a sequence begin at its length) and advances
  // the cache. logits of the rows that want them; hidden [rows, embedding] or empty; what the
  // stages took is added to `profile`. On errors no length changes.
  Result<PassTraffic> run(std::span<const BatchRow> rows, const LogitsOut& logits,
                          const std::atomic<bool>* cancel, std::span<float> hidden = {},
                          PassProfile* profile = nullptr);
  // Runs tokens of one sequence at positions kv().length(sequence) and on, in chunks, and advances
  // the cache. `logits` gets the last token's row [vocabulary]; empty: none wanted. When
  // interrupted (kInterrupted) the cache holds the chunks that were done. `on_chunk` hears the
  // tokens done.
  Result<PassTraffic> prefill(SequenceId sequence, std::span<const std::int32_t> tokens,
                              std::span<float> logits, const std::atomic<bool>* cancel,
                              const std::function<void(std::size_t)>& on_chunk = {},
                              PassProfile* profile = nullptr);
  // Runs a few tokens in one pass, at most backend().max_logits(), and gives the logits of all of
  // them and, where `hidden` is given, their residual streams [tokens, embedding].
  Result<PassTraffic> score(SequenceId sequence, std::span<const std::int32_t> tokens,
                            const LogitsOut& logits, const std::atomic<bool>* cancel,
                            std::span<float> hidden = {});

 private:
  Engine() = default;
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Model> model_;  // refers to the file's bytes
  std::unique_ptr<Tokenizer> tokenizer_;
  std::shared_ptr<cpu::ThreadPool> threads_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvCache> kv_;
  std::uint32_t context_ = 0;
  std::uint32_t prefill_chunk_ = 0;
  LoadInfo info_;
};

}  // namespace sluice
