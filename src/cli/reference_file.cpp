#include "src/cli/reference_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sluice::cli {
namespace {

constexpr char kMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'P', 'R'};
constexpr std::uint32_t kVersion = 1;

// Little-endian, packed; all machines we run on are.
struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t vocabulary;
  std::uint32_t window;
  std::uint32_t skip;
  std::uint64_t tokens;
};
static_assert(sizeof(FileHeader) == 32);

struct RowHeader {
  float next_logprob;
  std::uint32_t entries;
};
struct Entry {
  std::uint32_t id;
  float logprob;
};
static_assert(sizeof(RowHeader) == 8 && sizeof(Entry) == 8);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// The likeliest token, the lowest id of several.
std::int32_t top_of(std::span<const float> logprobs) {
  return static_cast<std::int32_t>(std::max_element(logprobs.begin(), logprobs.end()) -
                                   logprobs.begin());
}

}  // namespace

std::uint64_t ReferenceHeader::rows() const {
  return window == 0 ? 0 : tokens.size() / window * (window - 1 - skip);
}

Result<ReferenceWriter> ReferenceWriter::create(const std::string& path,
                                                const ReferenceHeader& header) {
  FileHeader fixed{};
  std::memcpy(fixed.magic, kMagic, sizeof kMagic);
  fixed.version = kVersion;
  fixed.vocabulary = header.vocabulary;
  fixed.window = header.window;
  fixed.skip = header.skip;
  fixed.tokens = header.tokens.size();
  SLUICE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path, 0));
  SLUICE_RETURN_IF_ERROR(file.write(bytes_of(fixed)));
  SLUICE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(header.tokens))));
  return ReferenceWriter(std::move(file));
}

Status ReferenceWriter::add(std::span<const float> logprobs, std::int32_t next) {
  // Tokens this unlikely can't have more than the mass that may be left out, all together.
  const auto least =
      static_cast<float>(std::log((1 - kReferenceMass) / static_cast<double>(logprobs.size())));
  order_.clear();
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    if (logprobs[i] >= least) order_.push_back(static_cast<std::int32_t>(i));
  }
  const std::size_t most = std::min<std::size_t>(order_.size(), kReferenceEntries);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const float pa = logprobs[static_cast<std::size_t>(a)];
    const float pb = logprobs[static_cast<std::size_t>(b)];
    return pa != pb ? pa > pb : a < b;
  };
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(most),
                    order_.end(), before);
  std::size_t entries = 0;
  for (double mass = 0; entries < most && mass < kReferenceMass; ++entries) {
    mass += std::exp(static_cast<double>(logprobs[static_cast<std::size_t>(order_[entries])]));
  }
  // RowHeader and entries, as words.
  row_.clear();
  row_.push_back(std::bit_cast<std::uint32_t>(logprobs[static_cast<std::size_t>(next)]));
  row_.push_back(static_cast<std::uint32_t>(entries));
  for (std::size_t i = 0; i < entries; ++i) {
    const auto id = static_cast<std::uint32_t>(order_[i]);
    row_.push_back(id);
    row_.push_back(std::bit_cast<std::uint32_t>(logprobs[id]));
  }
  return file_.write(std::as_bytes(std::span(row_)));
}

Status ReferenceWriter::commit() { return file_.commit(); }

void MeanAndError::add(double value) {
  ++count_;
  const double delta = value - mean_;
  mean_ += delta / static_cast<double>(count_);
  squares_ += delta * (value - mean_);
}

double MeanAndError::error() const {
  if (count_ < 2) return 0;
  const auto n = static_cast<double>(count_);
  return std::sqrt(squares_ / (n - 1) / n);
}

Error ReferenceReader::damaged(std::string_view what) const {
  return bad_input("reference file '{}' is damaged: {}; delete it to save a new one", file_.path(),
                   what);
}

Result<ReferenceReader> ReferenceReader::open(const std::string& path,
                                              const ReferenceHeader& expected) {
  SLUICE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  ReferenceReader reader(std::move(file));
  const std::span<const std::byte> bytes = reader.file_.bytes();
  FileHeader fixed{};
  if (bytes.size() < sizeof fixed || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    return bad_input("'{}' exists and is no reference file; give a new name to save one", path);
  }
  std::memcpy(&fixed, bytes.data(), sizeof fixed);
  if (fixed.version != kVersion) {
    return bad_input("reference file '{}' has version {}; this program reads version {}", path,
                     fixed.version, kVersion);
  }
  const auto differs = [&path](std::string_view what, std::uint64_t found, std::uint64_t wanted) {
    return bad_input("reference file '{}' was made with {} {}, this run has {}", path, what, found,
                     wanted);
  };
  if (fixed.vocabulary != expected.vocabulary) {
    return differs("a vocabulary of", fixed.vocabulary, expected.vocabulary);
  }
  if (fixed.window != expected.window) {
    return differs("a window (-c) of", fixed.window, expected.window);
  }
  if (fixed.skip != expected.skip) {
    return differs("an unscored part of", fixed.skip, expected.skip);
  }
  if (fixed.tokens != expected.tokens.size()) {
    return differs("another text; its tokens are", fixed.tokens, expected.tokens.size());
  }
  if (fixed.tokens > (bytes.size() - sizeof fixed) / sizeof(std::int32_t)) {
    return reader.damaged("it ends inside the tokens");
  }
  for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
    std::int32_t id = 0;
    std::memcpy(&id, bytes.data() + sizeof fixed + i * sizeof id, sizeof id);
    if (id != expected.tokens[i]) {
      return bad_input("reference file '{}' was made with another text: token {} is {}, here {}",
                       path, i, id, expected.tokens[i]);
    }
  }
  reader.offset_ = sizeof fixed + expected.tokens.size() * sizeof(std::int32_t);
  reader.rows_left_ = expected.rows();
  return reader;
}

Status ReferenceReader::compare(std::span<const float> logprobs, std::int32_t next) {
  const std::span<const std::byte> bytes = file_.bytes();
  RowHeader row{};
  if (rows_left_ == 0 || bytes.size() - offset_ < sizeof row) return damaged("rows are missing");
  std::memcpy(&row, bytes.data() + offset_, sizeof row);
  offset_ += sizeof row;
  --rows_left_;
  if (row.entries == 0 || row.entries > (bytes.size() - offset_) / sizeof(Entry)) {
    return damaged("it ends inside a row");
  }
  if (!(row.next_logprob <= 1e-3f)) return damaged("a probability is above 1");

  // Over the tokens kept, and all others as one outcome.
  double kl = 0, kept = 0, kept_here = 0;
  std::uint32_t top = 0;
  for (std::uint32_t i = 0; i < row.entries; ++i) {
    Entry entry{};
    std::memcpy(&entry, bytes.data() + offset_, sizeof entry);
    offset_ += sizeof entry;
    if (entry.id >= logprobs.size()) return damaged("a token is outside the vocabulary");
    if (!(entry.logprob <= 1e-3f)) return damaged("a probability is above 1");
    if (i == 0) top = entry.id;
    const double p = std::exp(static_cast<double>(entry.logprob));
    kl += p * (static_cast<double>(entry.logprob) - static_cast<double>(logprobs[entry.id]));
    kept += p;
    kept_here += std::exp(static_cast<double>(logprobs[entry.id]));
  }
  // Log-probabilities are floats: what is left is known to about this.
  constexpr double kLeast = 1e-7;
  const double rest = 1 - kept, rest_here = std::max(1 - kept_here, kLeast);
  if (rest > kLeast) kl += rest * std::log(rest / rest_here);

  const double nll = -static_cast<double>(logprobs[static_cast<std::size_t>(next)]);
  comparison_.kl.add(kl);
  comparison_.same_top.add(static_cast<std::uint32_t>(top_of(logprobs)) == top ? 1 : 0);
  comparison_.reference_nll.add(-static_cast<double>(row.next_logprob));
  comparison_.delta_nll.add(nll + static_cast<double>(row.next_logprob));
  comparison_.least_mass = std::min(comparison_.least_mass, kept);
  return {};
}

}  // namespace sluice::cli
