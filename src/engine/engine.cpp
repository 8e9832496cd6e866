#include "src/engine/engine.h"

#include <algorithm>
#include <chrono>

#include "src/backend/cpu/thread_pool.h"
#include "src/backend/placement.h"
#include "src/engine/memory_fit.h"
#include "src/engine/packed_cache.h"

namespace sluice {
namespace {

constexpr std::uint32_t kDefaultContext = 4096;
constexpr std::uint32_t kMaxChunk = 8192;

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

  PlacementRequest request;
  request.model = engine->model_.get();
  request.gpu = options.gpu;
  request.choice = options.device;
  cpu::CpuOptions& sizes = request.cpu;
  engine->threads_ = options.threads_of != nullptr
                         ? options.threads_of->threads_
                         : std::make_shared<cpu::ThreadPool>(
                               options.threads != 0 ? options.threads : cpu::default_threads());
  sizes.pool = engine->threads_;
  sizes.isa = options.cpu_isa;
  sizes.kv = options.kv;
  sizes.sequences = std::max(options.sequences, 1u);
  sizes.positions = engine->context_;
  sizes.max_rows = options.prefill_chunk;
  sizes.max_logits = std::min(options.max_logits, options.prefill_chunk);
  sizes.packed_file =
      packed_file_of(*engine->file_, options.packed_directory, options.packed_least_bytes);
  sizes.on_note = [&notes = engine->info_.notes](const std::string& line) {
    notes.push_back(line);
  };
  sizes.on_late_note = options.on_late_note;
  sizes.cancel = options.cancel;
  sizes.on_progress = options.on_progress;
  sizes.kv_blocks = blocks_for_tokens(std::max(engine->context_, options.kv_tokens));
  SLUICE_ASSIGN_OR_RETURN(Placement placement, place(request));
  sizes.kv_blocks = choose_kv_blocks(request, placement, options.kv_tokens, options.sequences);
  placement = replan(request, std::move(placement), sizes.kv_blocks);
  if (!placement.fits()) return too_large(request, placement);
  engine->info_.memory = placement.total();
  engine->info_.on_gpu = placement.parts.back().gpu;
  engine->info_.placement = placement.description();
  engine->info_.notes = placement.notes;
  SLUICE_ASSIGN_OR_RETURN(engine->backend_, create_backend(request, placement));
  engine->kv_ = std::make_unique<KvCache>(sizes.kv_blocks, engine->backend_->block_tokens());
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
  for (const BlockCopy& copy : kv_->take_copies()) {
    SLUICE_RETURN_IF_ERROR(backend_->copy_kv_block(*kv_, copy));
  }
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

Result<PassTraffic> Engine::run(std::span<const BatchRow> rows, const LogitsOut& logits,
                                const std::atomic<bool>* cancel, std::span<float> hidden,
                                PassProfile* profile) {
  const auto ends = [&](std::size_t i) {  // the last row of its sequence
    return i + 1 == rows.size() || rows[i + 1].sequence != rows[i].sequence;
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (ends(i)) SLUICE_RETURN_IF_ERROR(reserve(rows[i].sequence, rows[i].position + 1));
  }
  SLUICE_ASSIGN_OR_RETURN(
      const PassTraffic traffic,
      backend_->forward(rows, *kv_, {0, spec().layers}, {hidden, logits, cancel, profile}));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (ends(i)) kv_->set_length(rows[i].sequence, rows[i].position + 1);
  }
  return traffic;
}

Result<PassTraffic> Engine::prefill(SequenceId sequence, std::span<const std::int32_t> tokens,
                                    std::span<float> logits, const std::atomic<bool>* cancel,
                                    const std::function<void(std::size_t)>& on_chunk,
                                    PassProfile* profile) {
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
    SLUICE_ASSIGN_OR_RETURN(const PassTraffic traffic, run(rows, logits, cancel, {}, profile));
    total.add(traffic);
    done += count;
    if (on_chunk) on_chunk(done);
  }
  return total;
}

Result<PassTraffic> Engine::score(SequenceId sequence, std::span<const std::int32_t> tokens,
                                  const LogitsOut& logits, const std::atomic<bool>* cancel,
                                  std::span<float> hidden) {
  const std::uint32_t length = kv_->length(sequence);
  std::vector<BatchRow> rows;
  for (std::uint32_t i = 0; i < tokens.size(); ++i) {
    rows.push_back({tokens[i], length + i, sequence, true});
  }
  return run(rows, logits, cancel, hidden);
}

}  // namespace sluice
