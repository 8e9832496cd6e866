// The flags of every command that runs a model, and the bundled model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "src/cli/console.h"
#include "src/cli/flags.h"
#include "src/engine/engine.h"

namespace sluice::cli {

class ModelFlags {
 public:
  void declare_model(Flags& flags);                      // -m
  void declare_context(Flags& flags, std::string help);  // -c
  void declare_machine(Flags& flags);                    // -t, --kv, --device
  void declare_rare(Flags& flags);                       // --prefill-chunk, ...

  // Whether there is a -m.
  bool given() const { return model_.has_value(); }
  // What -m names; nothing without it.
  const std::optional<std::string>& file() const { return model_; }

  // The model's path. Without -m the bundled model, which is said on stderr; kUsage if it is
  // absent.
  Result<std::string> path(Console& console) const;

  // Options for Engine::load; its warnings are not printed yet. Loading can be interrupted and
  // shows its progress.
  EngineOptions engine_options(Console& console, Progress& progress) const;

  std::optional<std::int64_t> context;
  std::optional<std::int64_t> prefill_chunk;
  std::uint32_t threads() const;                         // what the backend will use
  std::string_view cpu_isa() const { return cpu_isa_; }  // "": the best of this machine
  KvCacheType kv = KvCacheType::kInt8;

 private:
  std::optional<std::string> model_;
  std::optional<std::int64_t> threads_;
  std::string cpu_isa_;
  bool packed_cache_ = false;
  DeviceChoice device_;
};

// --device, whose meaning is given to `set`.
void declare_device(Flags& flags, std::function<void(const DeviceChoice&)> set);

std::string_view kv_type_name(KvCacheType type);  // "int8"
Result<KvCacheType> parse_kv_type(std::string_view name);

}  // namespace sluice::cli
