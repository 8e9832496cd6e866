// Cutting a set of candidates down without sorting it. The order of candidates is: higher logit
// first, of equal logits the lower id. Candidates of logit -inf are banned: never selected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/engine/sampling/passes.h"

namespace sluice {

// A growing list that keeps its memory; ids ascend. Only the first `count` entries mean something.
struct CandidateList {
  std::vector<std::int32_t> ids;
  std::vector<float> logits;
  std::size_t count = 0;

  void clear() { count = 0; }
  // Makes room for `more` entries after the first `count`.
  void reserve(std::size_t more) {
    if (count + more <= ids.size()) return;
    const std::size_t size = 2 * (count + more);
    ids.resize(size);
    logits.resize(size);
  }
};

// Candidates to select from: the whole vocabulary, or a list. Views only. max is finite.
struct Pool {
  std::span<const float> logits;
  const std::int32_t* ids = nullptr;  // nullptr: entry i is token i
  std::span<const float> block_max;   // scan_blocks(logits.size())
  float max = 0;

  std::int32_t id(std::size_t i) const { return ids ? ids[i] : static_cast<std::int32_t>(i); }
};

// An entry of a selection in progress.
struct RankedCandidate {
  double rank = 0;  // lower is kept first: -logit, or the distance from typical
  double weight = 0;
  float logit = 0;
  std::int32_t id = 0;
};

// Scratch memory of selections, reused from token to token.
struct SelectScratch {
  std::vector<float> maxima;
  std::vector<double> weights;
  std::vector<RankedCandidate> ranked;
  std::vector<double> bands;
};

class Selector {
 public:
  explicit Selector(const VocabPasses& passes) : passes_(&passes) {}

  // Entries with lowest <= logit <= highest, -inf excluded.
  void collect(const Pool& pool, double lowest, double highest, CandidateList& out) const;

  // The k first in order (1 <= k), or all if there are no more.
  void top_k(const Pool& pool, std::size_t k, CandidateList& out);

  // The first in order whose probabilities reach top_p, and of those the ones of at least min_p
  // times the first one's. 0 <= top_p, min_p <= 1.
  void nucleus(const Pool& pool, double top_p, double min_p, CandidateList& out);

  // Those with information content nearest the entropy that reach the share p < 1; of equally near
  // ones the first in order.
  void typical(const Pool& pool, double p, CandidateList& out);

  // Mirostat 2: those whose surprise at this temperature is at most mu bits, or the first in order
  // if there are none.
  void surprise_at_most(const Pool& pool, double temperature, double mu, CandidateList& out);

  // XTC: of the candidates with probability >= threshold only the last in order stays. max: the
  // largest logit of the list.
  void exclude_top(CandidateList& list, double max, double threshold);

  // The first in order. Requires a pool with a finite max.
  static std::size_t best(const Pool& pool);

 private:
  // Weights of the list into scratch_.weights: exp(logit - max). Returns their sum.
  double weigh(const CandidateList& list, double max);
  // Keeps the least set, lowest rank first, whose weights (of the last weigh()) sum to at least
  // `target`; one entry at least. typical_logit: rank is the distance from it; nullptr: rank is
  // -logit.
  void keep_mass(CandidateList& list, double target, const double* typical_logit);

  const VocabPasses* passes_;
  SelectScratch scratch_;
};

}  // namespace sluice
