// Perplexity by the exact evaluation of a model's weights, everything in double, and its
// predictions in a file that `sluice perplexity --reference FILE` compares a run with:
//
//   exact_perplexity MODEL TEXT TOKENS FILE
//
// takes the text's first TOKENS tokens in windows of 512, as `perplexity --first-tokens` does.
// Slow: minutes for a thousand tokens of a small model.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "src/cli/reference_file.h"
#include "src/gguf/gguf.h"
#include "src/model/model_spec.h"
#include "src/text/tokenizer.h"
#include "tests/reference_model.h"

namespace {

using namespace sluice;

constexpr std::uint32_t kWindow = 512;

std::vector<float> log_softmax(const std::vector<double>& logits, std::size_t candidates) {
  double highest = -INFINITY;
  for (std::size_t i = 0; i < candidates; ++i) highest = std::max(highest, logits[i]);
  double sum = 0;
  for (std::size_t i = 0; i < candidates; ++i) sum += std::exp(logits[i] - highest);
  const double log_sum = highest + std::log(sum);
  std::vector<float> out(candidates);
  for (std::size_t i = 0; i < candidates; ++i) out[i] = static_cast<float>(logits[i] - log_sum);
  return out;
}

Status evaluate(const std::string& path, const std::string& text, std::size_t most,
                const std::string& to) {
  SLUICE_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  SLUICE_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::load(file));
  SLUICE_ASSIGN_OR_RETURN(const Model model, load_model(file, kWindow));
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::int32_t> tokens, tokenizer->encode(text, {true, false}));
  tokens.resize(std::min(tokens.size(), most) / kWindow * kWindow);
  if (tokens.empty()) return bad_input("the text has fewer than {} tokens", kWindow);

  constexpr std::uint32_t kSkip = kWindow / 2;
  const auto candidates = static_cast<std::size_t>(tokenizer->vocab_size());
  SLUICE_ASSIGN_OR_RETURN(cli::ReferenceWriter writer,
                          cli::ReferenceWriter::create(to, {static_cast<std::uint32_t>(candidates),
                                                            kWindow, kSkip, tokens}));
  test::ReferenceOptions options;
  options.threads = std::max(1u, std::thread::hardware_concurrency());
  double nll = 0;
  std::size_t scored = 0;
  Status status;
  for (std::size_t start = 0; start < tokens.size() && status.ok(); start += kWindow) {
    const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(start);
    std::vector<std::int32_t> window(from, from + kWindow);
    if (tokenizer->add_bos() && tokenizer->bos_id() != kNoToken) window[0] = tokenizer->bos_id();
    test::visit_reference_logits(
        model, window, kSkip,
        [&](std::size_t position, const std::vector<double>& logits) {
          if (position + 1 == kWindow || !status.ok()) return;
          const std::vector<float> logprobs = log_softmax(logits, candidates);
          const std::int32_t next = window[position + 1];
          nll -= static_cast<double>(logprobs[static_cast<std::size_t>(next)]);
          ++scored;
          status = writer.add(logprobs, next);
        },
        options);
    fmt::print("{} of {} tokens, perplexity {:.4f}\n", start + kWindow, tokens.size(),
               std::exp(nll / static_cast<double>(scored)));
    std::fflush(stdout);
  }
  return status.ok() ? writer.commit() : status;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t most = 0;
  if (argc != 5 ||
      std::from_chars(argv[3], argv[3] + std::string(argv[3]).size(), most).ec != std::errc()) {
    fmt::print(stderr, "usage: exact_perplexity MODEL TEXT TOKENS FILE\n");
    return 2;
  }
  std::ifstream in(argv[2], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) {
    fmt::print(stderr, "exact_perplexity: cannot read '{}'\n", argv[2]);
    return 3;
  }
  const Status status = evaluate(argv[1], text, most, argv[4]);
  if (status.ok()) return 0;
  fmt::print(stderr, "exact_perplexity: {}\n", status.error().message);
  return 1;
}
