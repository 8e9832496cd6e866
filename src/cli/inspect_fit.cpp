#include "src/cli/inspect_fit.h"

#include <algorithm>

#include "src/backend/cpu/cpu_backend.h"
#include "src/backend/cpu/packed_weights.h"
#include "src/cli/machine_ceilings.h"
#include "src/cli/model_flags.h"
#include "src/cli/numbers.h"
#include "src/engine/engine.h"

namespace sluice::cli {
namespace {

constexpr std::uint32_t kMostContext = (std::uint32_t{1} << 31) - 1;  // searched

// The plan that Engine::load would make with its default options.
MemoryPlan plan(const Model& model, KvCacheType type, std::uint32_t context) {
  const EngineOptions defaults;
  cpu::CpuOptions options;
  options.kv = type;
  options.positions = context;
  options.kv_blocks = (context - 1) / cpu::kKvBlock + 1;
  options.max_rows = defaults.prefill_chunk;
  options.max_logits = defaults.max_logits;
  return cpu::plan_memory(model, options);
}

// Largest context whose plan fits; 0: none.
std::uint32_t largest_context(const Model& model, KvCacheType type, std::uint64_t available) {
  std::uint32_t fits = 0;
  for (std::uint32_t step = std::uint32_t{1} << 30; step > 0; step /= 2) {
    if (plan(model, type, fits + step).total() <= available) fits += step;
  }
  return fits;
}

std::uint64_t sum_bytes(const std::vector<MatrixRef>& matrices) {
  std::uint64_t bytes = 0;
  for (const MatrixRef& matrix : matrices) bytes += matrix.bytes();
  return bytes;
}

}  // namespace

double active_share(const Model& model) {
  // In the file's bytes: those read each time, and those of all experts.
  std::uint64_t dense = model.weights.output.bytes();
  std::uint64_t experts = 0;
  for (const LayerWeights& layer : model.weights.layer) {
    for (const MatrixRef* matrix : {&layer.query, &layer.key, &layer.value, &layer.attention_output,
                                    &layer.gate, &layer.up, &layer.down, &layer.router}) {
      if (*matrix) dense += matrix->bytes();
    }
    experts +=
        sum_bytes(layer.expert_gate) + sum_bytes(layer.expert_up) + sum_bytes(layer.expert_down);
  }
  const double used = model.spec.experts == 0
                          ? 0
                          : static_cast<double>(model.spec.experts_used) / model.spec.experts;
  const auto d = static_cast<double>(dense), e = static_cast<double>(experts);
  return d + e == 0 ? 0 : (d + e * used) / (d + e);
}

std::uint64_t active_weight_bytes(const Model& model) {
  // The backend's layout may need more bytes than the file's.
  const auto packed =
      static_cast<double>(cpu::PackedWeights::bytes_needed(model.weights, {0, model.spec.layers}));
  return static_cast<std::uint64_t>(packed * active_share(model));
}

std::uint64_t kv_bytes_at_depth(const ModelSpec& spec, KvCacheType type, std::uint32_t depth) {
  std::uint64_t seen = 0;  // tokens, summed over layers
  for (const LayerSpec& layer : spec.layer) {
    seen += layer.window == 0 ? depth : std::min(depth, layer.window);
  }
  return seen * cpu::kv_bytes_per_token(spec, type, 1);
}

Fit compute_fit(const Model& model, std::span<const std::int64_t> contexts,
                const std::atomic<bool>& cancel) {
  Fit fit;
  fit.threads = cpu::default_threads();
  fit.bandwidth = measure_read_bandwidth(fit.threads, cancel);
  fit.weight_bytes = active_weight_bytes(model);
  fit.trained_context = model.spec.context;
  fit.available = plan(model, KvCacheType::kInt8, 1).available;

  std::vector<std::uint32_t> wanted;
  for (const std::int64_t context : contexts) wanted.push_back(static_cast<std::uint32_t>(context));
  if (wanted.empty()) {
    for (std::uint32_t c = 2048; c < model.spec.context && c <= 1u << 20; c *= 2)
      wanted.push_back(c);
    wanted.push_back(std::clamp(model.spec.context, 1u, kMostContext));
  }
  for (const std::uint32_t context : wanted) {
    FitRow row;
    row.context = context;
    for (std::size_t i = 0; i < kFitTypes.size(); ++i) {
      row.cells[i].memory = plan(model, kFitTypes[i], context);
      const std::uint64_t bytes =
          fit.weight_bytes + kv_bytes_at_depth(model.spec, kFitTypes[i], context);
      row.cells[i].tokens_per_s = bytes ? fit.bandwidth / static_cast<double>(bytes) : 0;
    }
    fit.rows.push_back(row);
  }
  for (std::size_t i = 0; i < kFitTypes.size() && fit.available > 0; ++i) {
    fit.largest[i] = largest_context(model, kFitTypes[i], fit.available);
  }
  return fit;
}

std::string describe_fit(const Fit& fit) {
  std::string text = "\nfit: memory and speed (a full context, at the measured bandwidth)\n";
  text +=
      fmt::format("{:<24}{:.1f} GB/s read by {} threads; {} of weights per token\n", "bandwidth",
                  fit.bandwidth / 1e9, fit.threads, format_bytes(fit.weight_bytes));
  text += fmt::format("{:<24}{}\n", "memory available",
                      fit.available ? format_bytes(fit.available) : std::string("unknown"));
  text += fmt::format("{:<11}", "context");
  for (const KvCacheType type : kFitTypes) {
    text += fmt::format("{:>28}", fmt::format("{} cache", kv_type_name(type)));
  }
  text += '\n';
  for (const FitRow& row : fit.rows) {
    text += fmt::format("{:<11}", row.context);
    for (const FitCell& cell : row.cells) {
      const bool fits = fit.available == 0 || cell.memory.total() <= fit.available;
      text +=
          fmt::format("{:>28}", fmt::format("{}{} {:>8.1f} t/s", fits ? "" : "over ",
                                            format_bytes(cell.memory.total()), cell.tokens_per_s));
    }
    text += '\n';
  }
  text += fmt::format("{:<11}", "largest");
  for (const std::uint32_t context : fit.largest) {
    text += fmt::format("{:>28}", fit.available ? fmt::format("{} tokens", context) : "unknown");
  }
  text += "\nover: takes more memory than is available";
  text += fmt::format("\ntrained for {} tokens; larger contexts run, with a warning\n",
                      fit.trained_context);
  return text;
}

Json fit_to_json(const Fit& fit) {
  Json json;
  json["bandwidth"] = fit.bandwidth;
  json["threads"] = fit.threads;
  json["available_bytes"] = fit.available;
  json["weight_bytes_per_token"] = fit.weight_bytes;
  Json rows = Json::array();
  for (const FitRow& row : fit.rows) {
    for (std::size_t i = 0; i < kFitTypes.size(); ++i) {
      const MemoryPlan& memory = row.cells[i].memory;
      Json entry;
      entry["context"] = row.context;
      entry["kv"] = kv_type_name(kFitTypes[i]);
      entry["weights_bytes"] = memory.weights;
      entry["kv_bytes"] = memory.kv_cache;
      entry["work_bytes"] = memory.work;
      entry["total_bytes"] = memory.total();
      entry["fits"] = fit.available == 0 || memory.total() <= fit.available;
      entry["tokens_per_s"] = row.cells[i].tokens_per_s;
      rows.push_back(std::move(entry));
    }
  }
  json["contexts"] = std::move(rows);
  Json largest = Json::object();
  for (std::size_t i = 0; i < kFitTypes.size(); ++i) {
    largest[std::string(kv_type_name(kFitTypes[i]))] = fit.largest[i];
  }
  json["largest_context"] = std::move(largest);
  return json;
}

}  // namespace sluice::cli
