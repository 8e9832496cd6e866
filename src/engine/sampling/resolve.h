// Where sampling settings come from: flags, then the model file's `general.sampling.*`, then the
// built-in defaults of params.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/engine/sampling/params.h"
#include "src/gguf/gguf.h"

namespace sluice {

// Settings given explicitly; an empty field was not given. Meanings and ranges as in
// SamplingParams.
struct SamplingOverrides {
  std::optional<std::uint64_t> seed;
  std::optional<double> temperature;
  std::optional<std::int32_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> typical_p;
  std::optional<double> repeat_penalty;
  std::optional<std::int32_t> repeat_last_n;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<double> dry_multiplier;
  std::optional<double> dry_base;
  std::optional<std::int32_t> dry_allowed_length;
  std::optional<std::int32_t> dry_penalty_last_n;
  std::optional<std::vector<std::string>> dry_sequence_breakers;
  std::optional<double> xtc_probability;
  std::optional<double> xtc_threshold;
  std::optional<std::int32_t> mirostat;
  std::optional<double> mirostat_tau;
  std::optional<double> mirostat_eta;
  std::vector<LogitBias> logit_bias;
};

// The model file's wishes. A value that is no number or out of range is left out and described in
// `notes`, one line each for stderr: a bad hint must not make a model unusable.
struct FileSampling {
  SamplingOverrides values;
  std::vector<std::string> notes;
};

// Reads the keys general.sampling.temp, top_k, top_p, min_p, xtc_probability, xtc_threshold,
// penalty_last_n, penalty_repeat, mirostat, mirostat_tau and mirostat_eta.
// general.sampling.sequence (another order of the chain) is not followed and gets a note. `find`
// returns nullptr for an absent key.
FileSampling read_file_sampling(const std::function<const GgufValue*(std::string_view key)>& find);

inline FileSampling read_file_sampling(const GgufFile& file) {
  return read_file_sampling([&file](std::string_view key) { return file.find(key); });
}

enum class SettingSource { kBuiltIn, kFile, kFlag, kPicked };
std::string_view setting_source_name(SettingSource source);  // "built in", "file", "flag", "picked"

struct SettingRecord {
  std::string_view name;  // as the flag is spelled, without dashes: "top-k"
  double value = 0;
  SettingSource source = SettingSource::kBuiltIn;
};

struct ResolvedSampling {
  SamplingParams params;
  SettingSource seed_source = SettingSource::kPicked;
  std::vector<SettingRecord>
      settings;                    // every numeric setting, in the chain's order, seed excluded
  std::vector<std::string> notes;  // the file's notes and settings that have no effect

  // One line for --stats: "seed 7 (flag), temp 0.8 (built in), top-k 64 (file), ...".
  std::string describe() const;
};

// From the system; an error if it has no random source.
Result<std::uint64_t> pick_seed();

// Merges and validates. A flag out of range is an error (kUsage). Without a seed one is picked from
// the system (below 2^32, to be easy to type again); an error if the system has no random source.
Result<ResolvedSampling> resolve_sampling(const SamplingOverrides& flags, const FileSampling& file);

}  // namespace sluice
