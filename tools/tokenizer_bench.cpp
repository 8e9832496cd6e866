// Time of loading and encoding, on ordinary and on hostile text. Encoding must take time linear in
// the length: run with the sizes it prints and compare bytes_per_second down each column.
//   tokenizer_bench [VOCABULARY.gguf ...] [--benchmark_... options]
// Without a file, the reference vocabularies are used where they are present.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/text/tokenizer.h"

namespace {

using namespace sluice;

struct Vocabulary {
  std::string name;
  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Tokenizer> tokenizer;
};

std::string prose(std::size_t bytes) {
  const std::string sentence =
      "The quick brown fox, who is 42 years old, doesn't jump over 1,234 lazy dogs' backs.\n"
      "    for (int i = 0; i < n; ++i) { sum += a[i]; }  // naïve café 世界 😀\n";
  std::string out;
  while (out.size() < bytes) out += sentence;
  return out;
}

std::string random_bytes(std::size_t bytes) {
  std::mt19937_64 rng(1);
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(rng() & 0xff);
  return out;
}

std::string random_letters(std::size_t bytes) {
  std::mt19937_64 rng(2);
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>('a' + rng() % 26);
  return out;
}

using MakeText = std::string (*)(std::size_t);
struct Text {
  const char* name;
  MakeText make;
};
const Text kTexts[] = {
    {"prose", prose},
    {"spaces", [](std::size_t n) { return std::string(n, ' '); }},
    {"spaces_then_digit", [](std::size_t n) { return std::string(n, ' ') + "5"; }},
    {"newlines", [](std::size_t n) { return std::string(n, '\n'); }},
    {"one_letter_word", [](std::size_t n) { return std::string(n, 'a'); }},
    {"random_word", random_letters},
    {"capitals", [](std::size_t n) { return std::string(n, 'A'); }},
    {"digits", [](std::size_t n) { return std::string(n, '7'); }},
    {"punctuation", [](std::size_t n) { return std::string(n, '='); }},
    {"apostrophes", [](std::size_t n) { return std::string(n, '\''); }},
    {"angle_brackets", [](std::size_t n) { return std::string(n, '<'); }},
    {"random_bytes", random_bytes},
};

void encode(benchmark::State& state, const Tokenizer& tokenizer, const Text& text) {
  const std::string input = text.make(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    auto ids = tokenizer.encode(input, {.parse_special = true});
    if (!ids.ok()) {
      state.SkipWithError(ids.error().message.c_str());
      break;
    }
    benchmark::DoNotOptimize(ids->data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(input.size()));
}

void load(benchmark::State& state, const GgufFile& file) {
  for (auto _ : state) {
    auto tokenizer = Tokenizer::load(file);
    benchmark::DoNotOptimize(tokenizer.ok());
  }
}

void open_and_load(benchmark::State& state, const std::string& path) {
  for (auto _ : state) {
    auto file = GgufFile::open(path);
    auto tokenizer = Tokenizer::load(*file);
    benchmark::DoNotOptimize(tokenizer.ok());
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::vector<std::string> paths(argv + 1, argv + argc);
  if (paths.empty()) {
    for (const char* name : {"llama-spm", "llama-bpe", "qwen2", "gpt-2"}) {
      const std::string path =
          std::string(SLUICE_CONFORMANCE_DIR) + "/tokenizers/" + name + ".gguf";
      if (std::filesystem::exists(path)) paths.push_back(path);
    }
  }
  if (paths.empty()) {
    std::fprintf(stderr, "no vocabulary: give a GGUF file as argument\n");
    return 2;
  }
  std::vector<Vocabulary> vocabularies;
  for (const std::string& path : paths) {
    auto file = GgufFile::open(path);
    if (!file.ok()) {
      std::fprintf(stderr, "%s\n", file.error().message.c_str());
      return 3;
    }
    Vocabulary vocabulary{std::filesystem::path(path).stem().string(),
                          std::make_unique<GgufFile>(std::move(file).value()), nullptr};
    auto tokenizer = Tokenizer::load(*vocabulary.file);
    if (!tokenizer.ok()) {
      std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
      return 3;
    }
    vocabulary.tokenizer = std::move(tokenizer).value();
    vocabularies.push_back(std::move(vocabulary));
  }
  for (std::size_t v = 0; v < vocabularies.size(); ++v) {
    const Vocabulary& vocabulary = vocabularies[v];
    benchmark::RegisterBenchmark(("load/" + vocabulary.name).c_str(), load,
                                 std::cref(*vocabulary.file))
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("open_and_load/" + vocabulary.name).c_str(), open_and_load,
                                 paths[v])
        ->Unit(benchmark::kMillisecond);
    for (const Text& text : kTexts) {
      benchmark::RegisterBenchmark(("encode/" + vocabulary.name + "/" + text.name).c_str(), encode,
                                   std::cref(*vocabulary.tokenizer), std::cref(text))
          ->Arg(10'000)
          ->Arg(100'000)
          ->Arg(1'000'000)
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
