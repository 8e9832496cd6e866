#include "src/engine/sampling/resolve.h"

#include <exception>
#include <random>

#include "src/engine/sampling/fields.h"

namespace sluice {
namespace {

// The number in a metadata value; nothing for strings, arrays and bools.
std::optional<double> number_of(const GgufValue& value) {
  if (value.type == GgufValueType::kBool) return std::nullopt;
  if (const auto* u = std::get_if<std::uint64_t>(&value.data)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<std::int64_t>(&value.data)) return static_cast<double>(*i);
  if (const auto* d = std::get_if<double>(&value.data)) return *d;
  return std::nullopt;
}

}  // namespace

Result<std::uint64_t> pick_seed() {
  try {
    return std::uint64_t{std::random_device{}()};
  } catch (const std::exception& e) {
    return failed("the system has no source of random numbers ({}); give a seed with --seed",
                  e.what());
  }
}

FileSampling read_file_sampling(const std::function<const GgufValue*(std::string_view key)>& find) {
  FileSampling file;
  for (const SamplingField& field : sampling_fields()) {
    if (field.file_key.empty()) continue;
    const GgufValue* value = find(field.file_key);
    if (value == nullptr) continue;
    const std::optional<double> number = number_of(*value);
    if (!number) {
      file.notes.push_back(
          fmt::format("ignored {} of the model file: found a value that is no number, expected {}",
                      field.file_key, field.expected()));
    } else if (!field.accepts(*number)) {
      file.notes.push_back(fmt::format("ignored {} of the model file: found {}, expected {}",
                                       field.file_key, *number, field.expected()));
    } else {
      field.set(file.values, *number);
    }
  }
  if (find("general.sampling.sequence") != nullptr) {
    file.notes.push_back(
        "ignored general.sampling.sequence of the model file: the order of the sampler chain is "
        "fixed");
  }
  return file;
}

std::string_view setting_source_name(SettingSource source) {
  switch (source) {
    case SettingSource::kBuiltIn:
      return "built in";
    case SettingSource::kFile:
      return "file";
    case SettingSource::kFlag:
      return "flag";
    case SettingSource::kPicked:
      return "picked";
  }
  return "unknown";
}

std::string ResolvedSampling::describe() const {
  std::string line = fmt::format("seed {} ({})", params.seed, setting_source_name(seed_source));
  for (const SettingRecord& record : settings) {
    line += fmt::format(", {} {:.6g} ({})", record.name, record.value,
                        setting_source_name(record.source));
  }
  return line;
}

Result<ResolvedSampling> resolve_sampling(const SamplingOverrides& flags,
                                          const FileSampling& file) {
  ResolvedSampling resolved;
  resolved.notes = file.notes;
  for (const SamplingField& field : sampling_fields()) {
    SettingSource source = SettingSource::kBuiltIn;
    std::optional<double> value = field.get(flags);
    if (value) {
      source = SettingSource::kFlag;
    } else if ((value = field.get(file.values))) {
      source = SettingSource::kFile;
    }
    if (value && !field.accepts(*value)) {
      return make_error(ErrorCode::kUsage, "{} is {}; expected {}", field.name, *value,
                        field.expected());
    }
    if (value) field.set(resolved.params, *value);
    resolved.settings.push_back({field.name, field.get(resolved.params), source});
  }
  if (flags.dry_sequence_breakers) {
    resolved.params.dry_sequence_breakers = *flags.dry_sequence_breakers;
  }
  resolved.params.logit_bias = flags.logit_bias;
  SLUICE_RETURN_IF_ERROR(validate(resolved.params));

  if (flags.seed) {
    resolved.params.seed = *flags.seed;
    resolved.seed_source = SettingSource::kFlag;
  } else {
    SLUICE_ASSIGN_OR_RETURN(resolved.params.seed, pick_seed());
  }

  for (const SamplingField& field : sampling_fields()) {
    if (resolved.params.mirostat == 2 && field.ignored_by_mirostat && field.get(flags)) {
      resolved.notes.push_back(
          fmt::format("{} has no effect with mirostat 2; leave one of them out", field.name));
    }
  }
  return resolved;
}

}  // namespace sluice
