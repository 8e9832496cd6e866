#include "src/cli/inspect_gpu_fit.h"

#include <algorithm>

#include "src/cli/model_flags.h"
#include "src/cli/numbers.h"
#include "src/engine/engine.h"
#include "src/engine/memory_fit.h"
#include "src/gguf/describe.h"

namespace sluice::cli {
namespace {

// What a copy reaches of a data sheet's bandwidth, and with it a decode step at best.
constexpr double kReached = 0.9;

// What Engine::load would ask for with its default options.
PlacementRequest make_request(const Model& model, const GpuPlatform* platform,
                              const DeviceChoice& choice, KvCacheType type, std::uint32_t context) {
  const EngineOptions defaults;
  PlacementRequest request;
  request.model = &model;
  request.gpu = platform;
  request.choice = choice;
  request.cpu.kv = type;
  request.cpu.positions = context;
  request.cpu.kv_blocks = blocks_for_tokens(context);
  request.cpu.max_rows = defaults.prefill_chunk;
  request.cpu.max_logits = defaults.max_logits;
  return request;
}

double seconds_a_token(const Model& model, const Placement& placement, const GpuFit& gpus,
                       const Fit& fit, double cache_bytes) {
  const double active = active_share(model);
  double seconds = 0;
  for (const Part& part : placement.parts) {
    const auto used = std::find(gpus.numbers.begin(), gpus.numbers.end(), part.device);
    const double bandwidth =
        part.gpu ? kReached *
                       gpus.devices[static_cast<std::size_t>(used - gpus.numbers.begin())].bandwidth
                 : fit.bandwidth;
    if (bandwidth <= 0) return 0;
    const double share =
        static_cast<double>(part.layers.last - part.layers.first) / model.spec.layers;
    seconds +=
        (active * static_cast<double>(part.memory.weights) + share * cache_bytes) / bandwidth;
  }
  return seconds;
}

Result<GpuFitCell> plan_cell(PlacementRequest request, const GpuFit& gpus, const Fit& fit) {
  GpuFitCell cell;
  SLUICE_ASSIGN_OR_RETURN(const Placement some, place(request));
  for (const Part& part : some.parts) {
    if (part.gpu) cell.layers += part.layers.last - part.layers.first;
  }
  cell.why = some.notes;
  const auto cache = static_cast<double>(
      kv_bytes_at_depth(request.model->spec, request.cpu.kv, request.cpu.positions));
  const double seconds = seconds_a_token(*request.model, some, gpus, fit, cache);
  if (seconds > 0) cell.tokens_per_s = 1 / seconds;

  request.choice.gpu_layers = gpus.layers;
  SLUICE_ASSIGN_OR_RETURN(const Placement all, place(request));
  for (const Part& part : all.parts) {
    if (!part.gpu) continue;
    cell.needed.weights += part.memory.weights;
    cell.needed.kv_cache += part.memory.kv_cache;
    cell.needed.work += part.memory.work;
  }
  return cell;
}

std::string describe_cell(const GpuFitCell& cell, std::uint32_t layers) {
  if (cell.needed.total() == 0) return "on the CPU";
  const std::string speed =
      cell.tokens_per_s > 0 ? fmt::format("{:.1f}", cell.tokens_per_s) : std::string("?");
  return fmt::format("{} {}/{} {:>7} t/s", format_bytes(cell.needed.total()), cell.layers, layers,
                     speed);
}

}  // namespace

Result<std::optional<GpuFit>> compute_gpu_fit(const Model& model, const GpuPlatform* platform,
                                              const DeviceChoice& choice, const Fit& fit) {
  using Kind = DeviceChoice::Kind;
  if (platform == nullptr || choice.kind == Kind::kCpu) return std::optional<GpuFit>();
  GpuFit result;
  result.layers = model.spec.layers;
  const Result<std::vector<GpuInfo>> devices = platform->devices();
  if (!devices.ok()) {
    if (choice.kind == Kind::kGpu) {
      return make_error(ErrorCode::kUsage,
                        "a GPU was asked for: {}; --device cpu plans without one",
                        devices.error().message);
    }
    result.note = devices.error().message;
    return std::optional<GpuFit>(std::move(result));
  }
  for (std::uint32_t i = 0; i < devices->size(); ++i) {
    if (choice.device && *choice.device != i) continue;
    result.devices.push_back((*devices)[i]);
    result.numbers.push_back(i);
  }
  DeviceChoice any = choice;
  any.kind = Kind::kAuto;  // what does not fit is shown, and no error here
  for (const FitRow& row : fit.rows) {
    GpuFitRow planned;
    planned.context = row.context;
    for (std::size_t i = 0; i < kFitTypes.size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(
          planned.cells[i],
          plan_cell(make_request(model, platform, any, kFitTypes[i], row.context), result, fit));
    }
    result.rows.push_back(std::move(planned));
  }
  return std::optional<GpuFit>(std::move(result));
}

std::string describe_gpu_fit(const GpuFit& fit) {
  if (fit.devices.empty()) return fmt::format("\nno GPU: {}\n", fit.note);
  std::string text = fmt::format(
      "\nfit on GPUs: memory for all layers there, those of {} that fit (--gpu-layers auto), and "
      "speed by bytes alone\n",
      fit.layers);
  for (std::size_t i = 0; i < fit.devices.size(); ++i) {
    const GpuInfo& device = fit.devices[i];
    text += fmt::format(
        "{:<24}{}: {} of {} free, {}\n", i == 0 ? "device" : "", printable(device.name, 100),
        format_bytes(device.free_bytes), format_bytes(device.total_bytes),
        device.bandwidth > 0
            ? fmt::format("{:.0f} GB/s by data sheet, of which {:.0f}% are expected",
                          device.bandwidth / 1e9, 100 * kReached)
            : std::string("bandwidth unknown"));
  }
  if (!fit.rows.empty()) {
    text += fmt::format("{:<24}{}\n", "weights there",
                        format_bytes(fit.rows.front().cells[1].needed.weights));
  }
  text += fmt::format("{:<11}", "context");
  for (const KvCacheType type : kFitTypes) {
    text += fmt::format("{:>30}", fmt::format("{} cache", kv_type_name(type)));
  }
  text += '\n';
  std::vector<std::string> notes;
  for (const GpuFitRow& row : fit.rows) {
    text += fmt::format("{:<11}", row.context);
    for (const GpuFitCell& cell : row.cells) {
      text += fmt::format("{:>30}", describe_cell(cell, fit.layers));
      if (cell.needed.total() > 0) continue;
      for (const std::string& line : cell.why) {
        if (std::find(notes.begin(), notes.end(), line) == notes.end()) notes.push_back(line);
      }
    }
    text += '\n';
  }
  for (const std::string& note : notes) text += note + '\n';
  return text;
}

Json gpu_fit_to_json(const GpuFit& fit) {
  Json json;
  Json devices = Json::array();
  for (std::size_t i = 0; i < fit.devices.size(); ++i) {
    devices.push_back({{"device", fit.numbers[i]},
                       {"name", json_text(fit.devices[i].name)},
                       {"total_bytes", fit.devices[i].total_bytes},
                       {"free_bytes", fit.devices[i].free_bytes},
                       {"bandwidth", fit.devices[i].bandwidth}});
  }
  json["devices"] = std::move(devices);
  if (!fit.note.empty()) json["note"] = json_text(fit.note);
  json["layers"] = fit.layers;
  Json rows = Json::array();
  for (const GpuFitRow& row : fit.rows) {
    for (std::size_t i = 0; i < kFitTypes.size(); ++i) {
      const GpuFitCell& cell = row.cells[i];
      Json entry;
      entry["context"] = row.context;
      entry["kv"] = kv_type_name(kFitTypes[i]);
      entry["weights_bytes"] = cell.needed.weights;
      entry["kv_bytes"] = cell.needed.kv_cache;
      entry["work_bytes"] = cell.needed.work;
      entry["total_bytes"] = cell.needed.total();
      entry["gpu_layers"] = cell.layers;
      entry["tokens_per_s"] = cell.tokens_per_s;
      rows.push_back(std::move(entry));
    }
  }
  json["contexts"] = std::move(rows);
  return json;
}

}  // namespace sluice::cli
