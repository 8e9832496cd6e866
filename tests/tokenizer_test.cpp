#include "src/text/tokenizer.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "src/gguf/gguf.h"
#include "tests/conformance.h"

using namespace sluice;

namespace {

struct Loaded {
  GgufFile file;
  std::unique_ptr<Tokenizer> tokenizer;
};

std::optional<Loaded> load(const std::string& relative) {
  const std::string path = test::conformance_file(relative);
  if (path.empty()) return std::nullopt;
  auto file = GgufFile::open(path);
  REQUIRE_MESSAGE(file.ok(), file.error().message);
  Loaded loaded{std::move(file).value(), nullptr};
  auto tokenizer = Tokenizer::load(loaded.file);
  REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.error().message);
  loaded.tokenizer = std::move(tokenizer).value();
  return loaded;
}

using Ids = std::vector<std::int32_t>;

Ids encode(const Tokenizer& tokenizer, std::string_view text, TokenizeOptions options = {}) {
  auto ids = tokenizer.encode(text, options);
  REQUIRE(ids.ok());
  return std::move(ids).value();
}

const std::vector<std::string> kReferences = {"gpt-2", "llama-bpe", "llama-spm",
                                              "phi-3", "qwen2",     "starcoder"};

}  // namespace

TEST_CASE("all reference cases give the same ids") {
  for (const std::string& name : kReferences) {
    const auto loaded = load("tokenizers/" + name + ".gguf");
    if (!loaded) continue;
    const Tokenizer& tokenizer = *loaded->tokenizer;
    CHECK(tokenizer.warnings().empty());
    int count = 0;
    for (const char* kind : {".cases.json", ".published.json"}) {
      const std::string path = test::conformance_file("tokenizers/" + name + kind);
      if (path.empty()) continue;
      for (const auto& c : nlohmann::json::parse(std::ifstream(path))) {
        const std::string text = c.at("text");
        CAPTURE(name);
        CAPTURE(text);
        CHECK(encode(tokenizer, text) == c.at("ids").get<Ids>());
        ++count;
        if (!c.contains("ids_parse_special")) continue;
        CHECK(encode(tokenizer, text, {.parse_special = true}) ==
              c.at("ids_parse_special").get<Ids>());
        CHECK(encode(tokenizer, text, {.add_special = true, .parse_special = true}) ==
              c.at("ids_add_special").get<Ids>());
        count += 2;
      }
    }
    MESSAGE(name << ": " << count << " encodings compared");
    CHECK(count == 77 * 3 + 46);
  }
}
