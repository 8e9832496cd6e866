#include "src/cli/model_flags.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "cuda/host/cuda_platform.h"
#include "src/backend/cpu/thread_pool.h"
#include "src/cli/bundled_model.h"
#include "src/cli/numbers.h"

namespace sluice::cli {
namespace {

constexpr std::int64_t kLongestContext = std::int64_t{1} << 31;
constexpr std::int64_t kMostThreads = 1024;
constexpr std::int64_t kMostDevices = 1024;
constexpr std::uint32_t kMostLayers = 1u << 20;

struct KvName {
  std::string_view name;
  KvCacheType type;
};
constexpr std::array<KvName, 4> kKvNames = {{{"int4", KvCacheType::kInt4},
                                             {"int8", KvCacheType::kInt8},
                                             {"f16", KvCacheType::kF16},
                                             {"f32", KvCacheType::kF32}}};

// $XDG_CACHE_HOME/sluice/packed or ~/.cache/sluice/packed; empty when neither is known.
std::string packed_directory() {
  namespace fs = std::filesystem;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && fs::path(cache).is_absolute()) {
    return (fs::path(cache) / "sluice" / "packed").string();
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || !fs::path(home).is_absolute()) return "";
  return (fs::path(home) / ".cache" / "sluice" / "packed").string();
}

Result<DeviceChoice> parse_device(std::string_view text) {
  using Kind = DeviceChoice::Kind;
  const std::string_view gpu = cuda::platform() != nullptr ? ", cuda or cuda:N" : "";
  DeviceChoice choice;
  if (text == "auto") return choice;
  if (text == "cpu") {
    choice.kind = Kind::kCpu;
    return choice;
  }
  if (text == "cuda" || text.starts_with("cuda:")) {
    if (cuda::platform() == nullptr) {
      return make_error(ErrorCode::kUsage, "'{}': this build has no CUDA backend; use cpu or auto",
                        text);
    }
    choice.kind = Kind::kGpu;
    if (text == "cuda") return choice;
    const std::optional<std::int64_t> index = parse_integer(text.substr(5));
    if (index && *index >= 0 && *index < kMostDevices) {
      choice.device = static_cast<std::uint32_t>(*index);
      return choice;
    }
  }
  return make_error(ErrorCode::kUsage, "'{}' is not a device; expected auto, cpu{}", text, gpu);
}

}  // namespace

std::string_view kv_type_name(KvCacheType type) {
  for (const KvName& row : kKvNames) {
    if (row.type == type) return row.name;
  }
  return "?";
}

Result<KvCacheType> parse_kv_type(std::string_view name) {
  for (const KvName& row : kKvNames) {
    if (row.name == name) return row.type;
  }
  const std::string_view meant = name == "q8_0" ? " (int8 is what q8_0 is elsewhere)"
                                 : name == "q4_0" || name == "q4_1" ? " (int4 is the one of 4 bits)"
                                                                    : "";
  return make_error(ErrorCode::kUsage,
                    "'{}' is not a cache type; expected int4, int8, f16 or f32{}", name, meant);
}

void declare_device(Flags& flags, std::function<void(const DeviceChoice&)> set) {
  flags.value("--device", "NAME", "auto, cpu, cuda or cuda:N (auto)",
              [set = std::move(set)](std::string_view text) -> Status {
                SLUICE_ASSIGN_OR_RETURN(const DeviceChoice choice, parse_device(text));
                set(choice);
                return {};
              });
}

void ModelFlags::declare_model(Flags& flags) {
  flags.text("-m,--model", "FILE", "GGUF model (the bundled storyteller)", &model_);
}

void ModelFlags::declare_context(Flags& flags, std::string help) {
  flags.integer("-c,--ctx-size,--context", "N", std::move(help), 1, kLongestContext, &context);
}

void ModelFlags::declare_machine(Flags& flags) {
  flags.integer("-t,--threads", "N",
                fmt::format("threads (physical cores; here: {})", cpu::default_threads()), 1,
                kMostThreads, &threads_);
  flags.value("--kv", "TYPE", "KV cache: int8, f16, f32, or int4: less from 2,000 tokens on (int8)",
              [this](std::string_view text) -> Status {
                SLUICE_ASSIGN_OR_RETURN(kv, parse_kv_type(text));
                return {};
              });
  declare_device(flags, [this](const DeviceChoice& choice) {
    device_.kind = choice.kind;
    device_.device = choice.device;
  });
}

void ModelFlags::declare_rare(Flags& flags) {
  flags.integer("--prefill-chunk", "N", "prompt tokens in one pass; never changes results (256)", 1,
                1 << 16, &prefill_chunk);
  flags.toggle("--packed-cache",
               "maps packed weights from the disk: starts at once, less memory, slower decoding",
               &packed_cache_);
  flags.value("--cpu-isa", "NAME", "forces generic, avx2, avxvnni or avx512 kernels (best)",
              [this](std::string_view text) -> Status {
                cpu_isa_ = text;
                return {};
              });
  flags.value("-ngl,--gpu-layers,--n-gpu-layers", "N",
              "layers on GPUs: a number, auto or all, which is -1 too (auto)",
              [this](std::string_view text) -> Status {
                const std::optional<std::int64_t> layers = parse_integer(text);
                if (text != "auto" && text != "all" && (!layers || *layers < -1)) {
                  return make_error(ErrorCode::kUsage,
                                    "'{}' is not a number of layers; expected 0, 1, ..., auto or "
                                    "all (-1)",
                                    text);
                }
                device_.gpu_layers.reset();
                if (layers && *layers >= 0) {
                  device_.gpu_layers =
                      static_cast<std::uint32_t>(std::min<std::int64_t>(*layers, kMostLayers));
                } else if (text != "auto") {
                  device_.gpu_layers = kMostLayers;  // all, which -1 means to llama.cpp's users
                }
                return {};
              });
}

std::uint32_t ModelFlags::threads() const {
  return threads_ ? static_cast<std::uint32_t>(*threads_) : cpu::default_threads();
}

Result<std::string> ModelFlags::path(Console& console) const {
  if (model_) return *model_;
  const std::string bundled = find_bundled_model();
  if (bundled.empty()) {
    return make_error(ErrorCode::kUsage,
                      "no model given, and the bundled one ({}) is missing; give one with -m FILE",
                      bundled_model_places());
  }
  console.info(fmt::format("no -m given: using the bundled model {}", bundled));
  return bundled;
}

EngineOptions ModelFlags::engine_options(Console& console, Progress& progress) const {
  if (cuda::platform() == nullptr && device_.gpu_layers.value_or(0) > 0) {
    console.warning("--gpu-layers: this build has no GPU backend; all layers run on the CPU");
  }
  EngineOptions options;
  options.gpu = cuda::platform();
  options.device = device_;
  if (context) {
    options.context = static_cast<std::uint32_t>(
        std::min<std::int64_t>(*context, std::numeric_limits<std::uint32_t>::max()));
  }
  options.kv = kv;
  options.threads = threads();
  options.cpu_isa = cpu_isa_;
  if (packed_cache_) {
    options.packed_directory = packed_directory();
    if (options.packed_directory.empty()) {
      console.warning(
          "--packed-cache: there is no folder to keep packed weights in; set HOME or "
          "XDG_CACHE_HOME to an absolute path");
    }
  }
  options.on_late_note = [&console](const std::string& line) { console.info(line); };
  if (prefill_chunk) options.prefill_chunk = static_cast<std::uint32_t>(*prefill_chunk);
  options.cancel = &console.cancel();
  options.on_progress = [&progress](double share) { progress.update(share, ""); };
  return options;
}

}  // namespace sluice::cli
