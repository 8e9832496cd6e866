#include "src/cli/sampling_flags.h"

#include <limits>

#include "src/cli/numbers.h"
#include "src/engine/sampling/fields.h"

namespace sluice::cli {
namespace {

struct NumericFlag {
  const char* names;  // the first one without dashes names the field
  const char* value;
  const char* help;
};

constexpr NumericFlag kCommon[] = {
    {"--temp,--temperature", "T", "0: always the likeliest token; above 1: wilder"},
    {"--top-k", "K", "only the K likeliest tokens; 0: all"},
    {"--top-p", "P", "only the likeliest tokens that together have this probability; 1: all"},
    {"--min-p", "P", "only tokens at least P times as likely as the likeliest; 0: all"},
    {"--repeat-penalty", "X", "makes repeated tokens less likely; 1: off"},
};

constexpr NumericFlag kRare[] = {
    {"--repeat-last-n", "N", "tokens that the penalties look back on; 0: off, -1: all"},
    {"--presence-penalty", "X", "subtracted from tokens seen before; 0: off"},
    {"--frequency-penalty", "X", "subtracted for each time a token was seen; 0: off"},
    {"--typical,--typical-p", "P", "locally typical sampling: share of probability kept; 1: off"},
    {"--dry-multiplier", "X", "DRY: strength of the penalty for repeated passages; 0: off"},
    {"--dry-base", "X", "DRY: growth of the penalty with each repeated token"},
    {"--dry-allowed-length", "N", "DRY: longest repetition that costs nothing is one less"},
    {"--dry-penalty-last-n", "N", "DRY: tokens to look back on; 0: off, -1: all"},
    {"--xtc-probability", "P", "XTC: how often the likeliest tokens are left out; 0: off"},
    {"--xtc-threshold", "P", "XTC: tokens at least this likely are, except the last of them"},
    {"--mirostat", "0|2", "2: mirostat 2 instead of top-k, typical, top-p, min-p and XTC"},
    {"--mirostat-ent", "X", "mirostat: target surprise in bits"},
    {"--mirostat-lr", "X", "mirostat: learning rate"},
};

void declare_number(Flags& flags, const NumericFlag& flag, SamplingOverrides* target) {
  const std::string_view names = flag.names;
  const std::string_view name = names.substr(2, names.find(',') - 2);
  for (const SamplingField& field : sampling_fields()) {
    if (field.name != name) continue;
    const std::string help = fmt::format("{} ({})", flag.help, field.get(SamplingParams{}));
    flags.value(flag.names, flag.value, help, [&field, target](std::string_view text) -> Status {
      const std::optional<double> number = parse_real(text);
      if (!number || !field.accepts(*number)) {
        return make_error(ErrorCode::kUsage, "'{}' is not {}", text, field.expected());
      }
      field.set(*target, *number);
      return {};
    });
  }
}

}  // namespace

Result<LogitBias> parse_logit_bias(std::string_view text) {
  const std::size_t sign = text.find_first_of("+-");
  const auto refuse = [text] {
    return make_error(ErrorCode::kUsage,
                      "'{}' is not ID+VALUE or ID-VALUE, as in 15043+1 or 15043-inf", text);
  };
  if (sign == std::string_view::npos) return refuse();
  const std::optional<std::int64_t> id = parse_integer(text.substr(0, sign));
  if (!id || *id < 0 || *id > std::numeric_limits<std::int32_t>::max()) return refuse();
  LogitBias bias{static_cast<std::int32_t>(*id), 0};
  const std::string_view amount = text.substr(sign + 1);
  if (text[sign] == '-' && amount == "inf") {
    bias.bias = -std::numeric_limits<double>::infinity();
    return bias;
  }
  const std::optional<double> value = parse_real(amount);
  if (!value || *value < 0) return refuse();
  bias.bias = text[sign] == '-' ? -*value : *value;
  return bias;
}

void SamplingFlags::declare(Flags& flags, std::string_view seed) {
  SamplingOverrides* target = &overrides;
  flags.value("-s,--seed", "N",
              fmt::format("seed of the random numbers; -1 picks one and says which ({})", seed),
              [this](std::string_view text) -> Status {
                say_seed = text == "-1";
                if (say_seed) return {};
                overrides.seed = parse_unsigned(text);
                if (overrides.seed) return {};
                return make_error(ErrorCode::kUsage,
                                  "'{}' is not a whole number from -1 to 18446744073709551615",
                                  text);
              });
  for (const NumericFlag& flag : kCommon) declare_number(flags, flag, target);
}

void SamplingFlags::declare_rare(Flags& flags) {
  SamplingOverrides* target = &overrides;
  for (const NumericFlag& flag : kRare) declare_number(flags, flag, target);
  flags.value(
      "--dry-sequence-breaker", "TEXT",
      "DRY: repetitions do not reach across it; may be repeated, none: no breakers (\\n : \" *)",
      [target](std::string_view text) -> Status {
        if (!target->dry_sequence_breakers) target->dry_sequence_breakers.emplace();
        if (text == "none") {
          target->dry_sequence_breakers->clear();
        } else {
          target->dry_sequence_breakers->emplace_back(text);
        }
        return {};
      },
      true);
  flags.value(
      "--logit-bias", "ID+X",
      "adds X to a token's logit; ID-X subtracts, ID-inf bans the token; may be repeated",
      [target](std::string_view text) -> Status {
        SLUICE_ASSIGN_OR_RETURN(const LogitBias bias, parse_logit_bias(text));
        target->logit_bias.push_back(bias);
        return {};
      },
      true);
}

}  // namespace sluice::cli
