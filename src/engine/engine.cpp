#include "src/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "src/backend/cpu/cpu_backend.h"
#include "src/backend/cpu/kernels.h"
#include "src/backend/cpu/thread_pool.h"

namespace sluice {
namespace {

constexpr std::uint32_t kDefaultContext = 4096;
constexpr std::uint32_t kMaxChunk = 8192;

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// The message for a plan that does not fit: the numbers, and what would make it fit.
Error too_large(const Model& model, const cpu::CpuOptions& options, const MemoryPlan& plan) {
  std::string advice;
  // Part of the work buffers grows with the context, too.
  cpu::CpuOptions none = options;
  none.positions = 0;
  const std::uint64_t work = cpu::plan_memory(model, none).work;
  const std::uint64_t work_per_token = (plan.work - work) / options.positions;
  if (plan.weights + work < plan.available) {
    const std::uint64_t left = plan.available - plan.weights - work;
    const std::uint64_t tokens =
        left / (cpu::kv_bytes_per_token(model.spec, options.kv) + work_per_token);
    if (tokens >= 64) advice = fmt::format("-c {} would fit", tokens / 64 * 64);
    if (options.kv != KvCacheType::kInt8) {
      const std::uint64_t more =
          left / (cpu::kv_bytes_per_token(model.spec, KvCacheType::kInt8) + work_per_token);
      advice += fmt::format("{}--kv int8 would fit {} tokens", advice.empty() ? "" : ", ", more);
    }
  }
  if (advice.empty()) advice = "a smaller model or a smaller quantization is needed";
  return make_error(ErrorCode::kNoMemory,
                    "not enough memory: weights {:.0f} MiB + KV cache {:.0f} MiB + work buffers "
                    "{:.0f} MiB = {:.0f} MiB are needed, {:.0f} MiB are available; {}",
                    mib(plan.weights), mib(plan.kv_cache), mib(plan.work), mib(plan.total()),
                    mib(plan.available), advice);
}

std::uint32_t cache_blocks(const Model& model, cpu::CpuOptions cpu_options,
                           const EngineOptions& options) {
  const auto blocks_for = [](std::uint64_t tokens) {
    const std::uint64_t blocks = tokens / cpu::kKvBlock + (tokens % cpu::kKvBlock != 0 ? 1 : 0);
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(blocks, std::numeric_limits<std::uint32_t>::max()));
  };
  const std::uint32_t context = cpu_options.positions;
  if (options.kv_tokens > context) return blocks_for(options.kv_tokens);
  cpu_options.kv_blocks = blocks_for(context);
  const MemoryPlan one = cpu::plan_memory(model, cpu_options);
  std::uint64_t tokens = std::uint64_t{context} * std::max(options.sequences, 1u);
  if (one.available > one.total()) {
    const std::uint64_t more =
        (one.available - one.total()) / 2 / cpu::kv_bytes_per_token(model.spec, cpu_options.kv);
    tokens = std::min(tokens, context + more);
  } else if (one.available != 0) {
    tokens = context;
  }
  return blocks_for(tokens);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::load(const std::string& path,
                                             const EngineOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  if (options.prefill_chunk < 1 || options.prefill_chunk > kMaxChunk) {
    return make_error(ErrorCode::kUsage, "a prefill chunk of {} tokens; 1 to {} are possible",
                      options.prefill_chunk, kMaxChunk);
  }
  std::unique_ptr<Engine> engine(new Engine());
  SLUICE_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path));
  engine->file_ = std::make_unique<GgufFile>(std::move(file));
  SLUICE_ASSIGN_OR_RETURN(Model model, load_model(*engine->file_, options.context));
  engine->model_ = std::make_unique<Model>(std::move(model));
  const ModelSpec& spec = engine->model_->spec;
  engine->info_.warnings = spec.warnings;
  SLUICE_ASSIGN_OR_RETURN(engine->tokenizer_, Tokenizer::load(*engine->file_));
  for (const std::string& line : engine->tokenizer_->warnings()) {
    engine->info_.warnings.push_back(line);
  }
  if (static_cast<std::uint32_t>(engine->tokenizer_->vocab_size()) > spec.vocabulary) {
    return bad_input("{}: the tokenizer has {} tokens, the embedding only {} rows", path,
                     engine->tokenizer_->vocab_size(), spec.vocabulary);
  }

  engine->context_ =
      options.context != 0 ? options.context : std::min(spec.context, kDefaultContext);
  if (engine->context_ > spec.context) {
    engine->info_.warnings.push_back(
        fmt::format("a context of {} tokens is more than the {} the model was trained for; "
                    "answers beyond that may be poor",
                    engine->context_, spec.context));
  }
  engine->prefill_chunk_ = options.prefill_chunk;

  cpu::CpuOptions cpu_options;
  engine->threads_ = options.threads_of != nullptr
                         ? options.threads_of->threads_
                         : std::make_shared<cpu::ThreadPool>(
                               options.threads != 0 ? options.threads : cpu::default_threads());
  cpu_options.pool = engine->threads_;
  cpu_options.isa = options.cpu_isa;
  cpu_options.kv = options.kv;
  cpu_options.positions = engine->context_;
  cpu_options.max_rows = options.prefill_chunk;
  cpu_options.max_logits = std::min(options.max_logits, options.prefill_chunk);
  cpu_options.cancel = options.cancel;
  cpu_options.on_progress = options.on_progress;
  cpu_options.kv_blocks = cache_blocks(*engine->model_, cpu_options, options);
  engine->info_.memory = cpu::plan_memory(*engine->model_, cpu_options);
  const MemoryPlan& plan = engine->info_.memory;
  if (plan.available != 0 && plan.total() > plan.available) {
    return too_large(*engine->model_, cpu_options, plan);
  }
  SLUICE_ASSIGN_OR_RETURN(engine->backend_, cpu::create_cpu_backend(*engine->model_, cpu_options));
  engine->kv_ = std::make_unique<KvCache>(cpu_options.kv_blocks, engine->backend_->block_tokens());
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  engine->info_.load_ms = elapsed.count();
  return engine;
}

std::string Engine::advice_for_context(std::size_t tokens) const {
  if (tokens <= spec().context) return fmt::format("use -c {} or more, or a shorter text", tokens);
  return fmt::format("use a shorter text: the model was trained for {} tokens", spec().context);
}

Status Engine::reserve(SequenceId sequence, std::uint32_t tokens) {
  SLUICE_RETURN_IF_ERROR(kv_->reserve(sequence, tokens));
  for (const BlockCopy& copy : kv_->take_copies()) backend_->copy_kv_block(copy.from, copy.to);
  return {};
}

Status Engine::share(SequenceId from, SequenceId to, std::uint32_t length) {
  if (length > kv_->length(from)) {
    return failed("{} tokens of a sequence were to be shared, it has {}", length,
                  kv_->length(from));
  }
  const std::uint32_t size = kv_->block_tokens();
  kv_->adopt(to, kv_->blocks(from).first(length / size + (length % size != 0 ? 1 : 0)), length);
  return {};
}

Result<PassTraffic> Engine::run(std::span<const BatchRow> rows, std::span<float> logits,
                                const std::atomic<bool>* cancel, std::span<float> hidden) {
  const auto ends = [&](std::size_t i) {  // the last row of its sequence
    return i + 1 == rows.size() || rows[i + 1].sequence != rows[i].sequence;
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (ends(i)) SLUICE_RETURN_IF_ERROR(reserve(rows[i].sequence, rows[i].position + 1));
  }
  SLUICE_ASSIGN_OR_RETURN(
      const PassTraffic traffic,
      backend_->forward(rows, *kv_, {0, spec().layers}, {hidden, logits, cancel}));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (ends(i)) kv_->set_length(rows[i].sequence, rows[i].position + 1);
  }
  return traffic;
}

Result<PassTraffic> Engine::prefill(SequenceId sequence, std::span<const std::int32_t> tokens,
                                    std::span<float> logits, const std::atomic<bool>* cancel,
                                    const std::function<void(std::size_t)>& on_chunk) {
  PassTraffic total;
  std::vector<BatchRow> rows;
  for (std::size_t done = 0; done < tokens.size();) {
    const std::size_t count = std::min<std::size_t>(prefill_chunk_, tokens.size() - done);
    const std::uint32_t length = kv_->length(sequence);
    rows.clear();
    for (std::size_t i = 0; i < count; ++i) {
      const bool last = done + i + 1 == tokens.size();
      rows.push_back({tokens[done + i], length + static_cast<std::uint32_t>(i), sequence,
                      last && !logits.empty()});
    }
    SLUICE_ASSIGN_OR_RETURN(const PassTraffic traffic, run(rows, logits, cancel));
    total.weight_bytes += traffic.weight_bytes;
    total.kv_bytes += traffic.kv_bytes;
    done += count;
    if (on_chunk) on_chunk(done);
  }
  return total;
}

Result<PassTraffic> Engine::score(SequenceId sequence, std::span<const std::int32_t> tokens,
                                  std::span<float> logits, const std::atomic<bool>* cancel,
                                  std::span<float> hidden) {
  const std::uint32_t length = kv_->length(sequence);
  std::vector<BatchRow> rows;
  for (std::uint32_t i = 0; i < tokens.size(); ++i) {
    rows.push_back({tokens[i], length + i, sequence, true});
  }
  return run(rows, logits, cancel, hidden);
}

}  // namespace sluice
