// The sampler chain of one sequence: from the logits of its last token to the next token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/status.h"
#include "src/engine/sampling/distribution.h"
#include "src/engine/sampling/dry.h"
#include "src/engine/sampling/history.h"
#include "src/engine/sampling/logit_row.h"
#include "src/engine/sampling/params.h"
#include "src/engine/sampling/select.h"
#include "src/engine/sampling/state.h"

namespace sluice {

// What a random number is for. The draws for one position are independent of each other.
enum class RandomUse : std::uint32_t {
  kToken = 0,  // sample()'s draw
  kXtc = 1,    // whether XTC happens
};

struct TokenChoice {
  std::int32_t id = 0;
  double probability = 0;      // under the distribution drawn from
  std::size_t candidates = 0;  // size of that distribution
};

// Owns the history of its sequence. Copies are independent sequences with the same past. One thread
// at a time.
//
// A step is sample(), then accept() of the token that really follows. The outcome is a pure
// function of parameters, seed, stream, history and logits: asking twice gives the same answer,
// and nothing else running beside it matters.
class Sampler {
 public:
  // stream tells sequences with one seed apart. piece_of gives a token's bytes; needed for DRY with
  // sequence breakers only. Errors (kUsage): validate(params), a bias for an id outside the
  // vocabulary, a missing piece_of.
  static Result<Sampler> create(SamplingParams params, std::size_t vocab_size,
                                std::uint32_t stream = 0, PieceOf piece_of = {});

  // Appends tokens to the history: the prompt's, then each chosen one. Errors (kFailed): an id
  // outside the vocabulary; nothing is appended then. Under mirostat, a token drawn from the last
  // distribution() or sample() also moves mu.
  Status accept(std::int32_t token);
  Status accept(std::span<const std::int32_t> tokens);

  // Forgets tokens from the end until `length` are left, as if they had never been accepted.
  // Error (kFailed): length > position().
  Status truncate(std::size_t length);

  // Index of the token to be drawn next = length of the history.
  std::size_t position() const { return history_.size(); }
  std::span<const std::int32_t> history() const { return history_.tokens(); }

  // The distribution of the next token after the whole chain; one token of probability 1 at
  // temperature 0. row: (vocab_size), or at least the top_needed() largest. Errors (kFailed), with
  // position and counts: another number of logits, NaN or +inf anywhere, nothing above -inf. Tokens
  // of logit -inf are never candidates.
  Status distribution(const LogitRow& row, Distribution& out);

  // distribution() and one draw from it. Does not accept the token.
  Result<TokenChoice> sample(const LogitRow& row);

  // How many of the largest logits (of equal ones those of the lower ids) give what all of them
  // would give, now and after up to `more` further tokens; 0: all are needed.
  std::size_t top_needed(std::size_t more) const;

  // The 64 random bits of this sequence for the next position.
  std::uint64_t random_bits(RandomUse use) const;

  // What resume needs beside the parameters.
  SamplerState state() const;
  // Replaces seed, stream and history. Errors (kBadInput): ids outside the vocabulary, mirostat
  // values where there is no mirostat or none where there is. The sampler is unchanged on error.
  Status restore(const SamplerState& state);

  const SamplingParams& params() const { return params_; }
  bool greedy() const { return params_.temperature == 0; }

 private:
  Sampler(SamplingParams params, std::size_t vocab_size, std::uint32_t stream, PieceOf piece_of);

  bool mirostat() const { return params_.mirostat == 2; }
  void push(std::int32_t token);
  // Bias and penalties. Returns the row's logits themselves, or the changed copy in adjusted_.
  std::span<const float> adjust(const LogitRow& row);
  // The filters of the chain; the list is what is left.
  void filter(const Pool& vocabulary, CandidateList& list);
  // Softmax of the list at the temperature.
  void normalise(const CandidateList& list, Distribution& out);

  SamplingParams params_;
  std::size_t vocab_size_;
  std::uint32_t stream_;
  std::vector<LogitBias> biases_;  // one entry a token
  TokenHistory history_;
  DryPenalty dry_;
  std::vector<double> mu_;  // (position() + 1) under mirostat, else empty

  // The distribution that the next accepted token may come from; kept under mirostat only.
  bool drawn_from_known_ = false;
  Distribution drawn_from_;

  // Scratch, so that a step allocates nothing.
  const VocabPasses* passes_;
  Selector selector_;
  std::vector<float> adjusted_;   // (vocab_size)
  std::vector<float> block_max_;  // (scan_blocks(vocab_size))
  std::vector<float> list_block_max_;
  CandidateList lists_[2];
  std::vector<double> weights_;
  Distribution sampled_;
};

}  // namespace sluice
