// Predictions of a reference run, saved to compare variants of a model with (another quantization,
// another cache type): `sluice perplexity --reference`. The format is in docs/FORMATS.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/mapped_file.h"
#include "src/base/status.h"
#include "src/gguf/output_file.h"

namespace sluice::cli {

// What must agree for two runs to be comparable.
struct ReferenceHeader {
  std::uint32_t vocabulary = 0;
  std::uint32_t window = 0;
  std::uint32_t skip = 0;
  std::vector<std::int32_t> tokens;  // whole windows

  std::uint64_t rows() const;  // scored: (window - 1 - skip) a window
};

// Of each row the likeliest tokens are kept until they have this share of the probability...
inline constexpr double kReferenceMass = 0.9999;
// ... or are this many.
inline constexpr std::uint32_t kReferenceEntries = 4096;

// The file appears under its name with commit().
class ReferenceWriter {
 public:
  static Result<ReferenceWriter> create(const std::string& path, const ReferenceHeader& header);
  // logprobs: [vocabulary]; next: the token that follows in the text.
  Status add(std::span<const float> logprobs, std::int32_t next);
  Status commit();

 private:
  explicit ReferenceWriter(OutputFile file) : file_(std::move(file)) {}
  OutputFile file_;
  std::vector<std::int32_t> order_;  // scratch
  std::vector<std::uint32_t> row_;   // scratch
};

// Mean of a sample and the standard error of it (Welford's method).
class MeanAndError {
 public:
  void add(double value);
  double mean() const { return mean_; }
  double error() const;

 private:
  std::uint64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

struct Comparison {
  // Kullback-Leibler divergence of this run from the reference, in nats, over the tokens kept in
  // the file and one outcome for all others: a lower bound, equal where the file keeps everything.
  MeanAndError kl;
  MeanAndError same_top;   // 1 where the likeliest token is the same
  MeanAndError delta_nll;  // of the next token, this run's minus the reference's
  MeanAndError reference_nll;
  double least_mass = 1;  // share of probability that the file keeps, least of all rows

  double reference_perplexity() const { return std::exp(reference_nll.mean()); }
  double perplexity_ratio() const { return std::exp(delta_nll.mean()); }
};

class ReferenceReader {
 public:
  // Refuses (kBadInput) what is no reference file, is damaged, or belongs to another vocabulary,
  // window or text, and says what differs.
  static Result<ReferenceReader> open(const std::string& path, const ReferenceHeader& expected);
  // Compares with the next row of the file.
  Status compare(std::span<const float> logprobs, std::int32_t next);
  const Comparison& comparison() const { return comparison_; }

 private:
  explicit ReferenceReader(MappedFile file) : file_(std::move(file)) {}
  Error damaged(std::string_view what) const;

  MappedFile file_;
  std::size_t offset_ = 0;  // of the next row
  std::uint64_t rows_left_ = 0;
  Comparison comparison_;
};

}  // namespace sluice::cli
