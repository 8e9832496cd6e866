// Generating text for one prompt: prefill, then one token after another until an end.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/engine/cached_sequence.h"
#include "src/engine/engine.h"
#include "src/engine/sampling/params.h"
#include "src/engine/speculation/speculator.h"

namespace sluice {

enum class FinishReason : std::uint8_t {
  kStop,         // an end-of-generation token or a stop string
  kLength,       // max_tokens
  kContext,      // the context is full
  kInterrupted,  // the user stopped it
};
std::string_view finish_reason_name(FinishReason reason);  // "stop", "length", ...

struct GenerateRequest {
  std::vector<std::int32_t> prompt;  // not empty
  std::int64_t max_tokens = -1;      // -1: until done; -2: until the context is full
  SamplingParams sampling;
  std::uint32_t stream = 0;       // another one gives other random draws for the same seed
  std::vector<std::string> stop;  // not printed; may begin and end inside tokens
  bool ignore_eos = false;        // all end-of-generation tokens are banned
  std::uint32_t logprobs = 0;     // alternatives to report for each token
  bool show_special = false;      // control tokens appear in the text
  // Drafts tokens that are verified several to a pass; null: one token a pass. The tokens are the
  // same.
  Speculator* speculator = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  // Gets text as soon as it is certain: whole UTF-8 characters, nothing that may become a stop
  // string. false: the reader is gone, stop with an error. May be empty.
  std::function<bool(std::string_view)> on_text;
  // Tokens of the prompt that the cache holds, at the end of each chunk; may be empty.
  std::function<void(std::size_t done, std::size_t total)> on_prefill;
};

struct TokenLogprobs {
  double logprob = 0;  // of the chosen token, under the model's raw logits
  std::vector<std::pair<std::int32_t, double>> top;  // best first
};

struct Timings {
  double ttft_ms = 0;  // from the call to the first token
  double prefill_ms = 0;
  double decode_ms = 0;         // after the first token
  double tpot_ms = 0;           // decode_ms per further token (the one that ends the text included)
  double longest_gap_ms = 0;    // between two tokens
  double tokens_per_s = 0;      // further tokens per second of decode_ms
  double bytes_per_token = 0;   // read by decode passes, on average
  double decode_bandwidth = 0;  // bytes per second of decode passes
};

struct GenerateResult {
  std::vector<std::int32_t> tokens;  // the ending end-of-generation token is not among them
  std::string text;                  // all that on_text got (incomplete last bytes as they are)
  FinishReason finish = FinishReason::kStop;
  std::string stop_string;              // the one that ended it, if any
  std::vector<TokenLogprobs> logprobs;  // one a token, when asked for
  std::uint32_t prompt_tokens = 0;
  std::uint32_t reused_tokens = 0;  // of the prompt, found in the cache
  Timings timings;
};

// Runs a request in a sequence, of which only what differs from the prompt is run anew; the tokens
// are the same as in an empty one. Afterwards the sequence holds the prompt and the generated
// tokens but the last. A prompt that does not fit the context is an error of kUsage with the
// numbers. Logits that are not usable (NaN) are an error.
Result<GenerateResult> generate(CachedSequence& sequence, const GenerateRequest& request);
// The same in a sequence of its own.
Result<GenerateResult> generate(Engine& engine, const GenerateRequest& request);

}  // namespace sluice
