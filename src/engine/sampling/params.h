// What a user can set about sampling, with the names and defaults that users of llama.cpp know.
// The chain runs in this order: logit bias, repeat/presence/frequency penalties, DRY, top-k,
// typical, top-p, min-p, XTC, temperature, draw. With mirostat 2: bias, penalties, DRY,
// temperature, mirostat, draw.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/status.h"

namespace sluice {

// Added to one token's logit before anything else.
struct LogitBias {
  std::int32_t token = 0;  // 0 to vocabulary size - 1
  double bias = 0;         // finite, or -infinity: the token is never chosen. Repeats add up.
};

struct SamplingParams {
  // Key of the random numbers. The draw for a token depends on (seed, stream, position) alone, so
  // equal seeds give equal texts whatever else runs. resolve_sampling() picks one if none is given.
  std::uint64_t seed = 0;

  // Logits are divided by it before the draw: below 1 sharpens, above 1 flattens. 0 takes the most
  // probable token (the lowest id of several) and makes filters and seed irrelevant.
  // Range 0 to 1000.
  double temperature = 0.8;

  // Keeps the k most probable tokens; of equal ones the lower id. 0, a negative value or one not
  // below the vocabulary size keeps all.
  std::int32_t top_k = 40;

  // Keeps the smallest set of most probable tokens that together have at least this share of the
  // probability (see kMassTolerance). 0 keeps one token, 1 all. Range 0 to 1.
  double top_p = 0.95;

  // Keeps tokens at least this many times as probable as the most probable one. 0 keeps all, 1 only
  // the best and those that equal it. Range 0 to 1.
  double min_p = 0.05;

  // Locally typical sampling (Meister et al., 2022): keeps the tokens whose information content
  // is nearest the entropy until they have this share of the probability. It may drop the most
  // probable token. 1 is off. Range 0 to 1.
  double typical_p = 1.0;

  // Divides positive and multiplies negative logits of tokens seen in the last repeat_last_n
  // tokens. 1 is off, larger discourages repetition, smaller encourages it. Above 0, to 1000.
  double repeat_penalty = 1.0;

  // How many recent tokens (prompt included) the three penalties look at. 0 turns them off,
  // -1 means the whole sequence.
  std::int32_t repeat_last_n = 64;

  // Subtracted once from the logits of seen tokens. 0 is off. Range -1000 to 1000.
  double presence_penalty = 0.0;

  // Subtracted once for each time a token was seen. 0 is off. Range -1000 to 1000.
  double frequency_penalty = 0.0;

  // DRY: a token that would continue a repetition of L >= dry_allowed_length tokens loses
  // dry_multiplier * dry_base ^ (L - dry_allowed_length). Multiplier 0 is off. Range 0 to 1000;
  // base 1 to 1000; allowed length 1 and up.
  double dry_multiplier = 0.0;
  double dry_base = 1.75;
  std::int32_t dry_allowed_length = 2;

  // How many recent tokens DRY searches. 0 turns it off, -1 means the whole sequence.
  std::int32_t dry_penalty_last_n = -1;

  // A repetition does not reach back over a token in which one of these texts ends, and tokens that
  // contain one are not penalised. Each 1 to 128 bytes; an empty list has no breakers.
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};

  // Exclude top choices: with this probability (one draw a token) all tokens of at least
  // xtc_threshold are dropped but the least probable of them. 0 is off. Range 0 to 1.
  double xtc_probability = 0.0;

  // A share of probability; above 0.5 XTC cannot happen. Range 0 to 1.
  double xtc_threshold = 0.1;

  // 2 replaces top-k, typical, top-p, min-p and XTC by mirostat 2 (Basu et al., 2021), which
  // steers the surprise of each token towards mirostat_tau bits. 0 is off; 1 does not exist here.
  std::int32_t mirostat = 0;
  double mirostat_tau = 5.0;  // target in bits, above 0 to 100
  double mirostat_eta = 0.1;  // learning rate, 0 to 10

  std::vector<LogitBias> logit_bias;
};

// Logits are floats, so a sum of probabilities is known to about one part in a million: top-p and
// typical count a share that misses its target by less than that as reached. Without it, top-p 0.7
// of the probabilities 0.4, 0.3, 0.2, 0.1 would keep two or three tokens by luck of rounding.
inline constexpr double kMassTolerance = 1e-6;

// Refuses values out of range, with name, value found and range expected (ErrorCode::kUsage).
// Token ids of biases are checked by Sampler::create, which knows the vocabulary.
Status validate(const SamplingParams& params);

}  // namespace sluice
