#include "src/text/tokenizer.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/gguf/gguf.h"
#include "src/text/added_tokens.h"
#include "src/text/pretokenizers.h"
#include "src/text/regex_split.h"
#include "src/text/utf8.h"
#include "tests/conformance.h"
#include "tests/tiny_vocab.h"

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

Ids encode_parts(const Tokenizer& tokenizer, const std::vector<TextPart>& parts,
                 bool add_special = false) {
  auto ids = tokenizer.encode_parts(parts, add_special);
  REQUIRE(ids.ok());
  return std::move(ids).value();
}

std::int32_t id_of(const Tokenizer& tokenizer, std::string_view text) {
  const auto id = tokenizer.find_token(text);
  REQUIRE_MESSAGE(id.has_value(), text);
  return *id;
}

bool has_control(const Tokenizer& tokenizer, const Ids& ids) {
  return std::any_of(ids.begin(), ids.end(), [&](std::int32_t id) {
    return tokenizer.type(id) == TokenType::kControl || tokenizer.type(id) == TokenType::kUnknown;
  });
}

// Characters of all kinds and lengths, and snippets that matter to some regex or vocabulary.
std::string random_text(std::mt19937& rng, std::size_t characters) {
  const std::vector<std::string> snippets = {
      "hello", " hello", "  ",  "    ", "\n",   "\r\n", "\t", "'s",      "'LL", "123",
      "4567",  "!?",     "...", "é",    "世界", "안녕", "ا",  "e\u0301", "😀",   "A"};
  std::string out;
  for (std::size_t i = 0; i < characters; ++i) {
    if (rng() % 2 == 0) {
      out += snippets[rng() % snippets.size()];
      continue;
    }
    const std::uint32_t limit =
        std::vector<std::uint32_t>{0x80, 0x800, 0x3000, 0x110000}[rng() % 4];
    const std::uint32_t code = static_cast<std::uint32_t>(rng()) % limit;
    if (code < 0xd800 || code > 0xdfff) append_utf8(out, code);
  }
  return out;
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

TEST_CASE("every pre-tokenizer cuts texts where the published regexes cut them") {
  const std::string path = std::string(SLUICE_SOURCE_DIR) + "/tests/data/pretokenizer_splits.json";
  const auto reference = nlohmann::json::parse(std::ifstream(path));
  const auto texts = reference.at("texts").get<std::vector<std::string>>();
  CHECK(reference.at("rows").size() == 11);
  for (const auto& item : reference.at("rows").items()) {
    const std::string& name = item.key();
    const auto& rows = item.value();
    const PreTokenizer* row = find_pretokenizer(name);
    REQUIRE(row != nullptr);
    auto splitter = RegexSplitter::compile(row->regexes);
    REQUIRE(splitter.ok());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(name);
      CAPTURE(texts[i]);
      auto ends = splitter->split(texts[i]);
      REQUIRE(ends.ok());
      CHECK(*ends == rows.at(i).get<std::vector<std::size_t>>());
    }
  }
}

TEST_CASE("the table of pre-tokenizers is sound") {
  std::set<std::string_view> names;
  for (const PreTokenizer& row : all_pretokenizers()) {
    auto splitter = RegexSplitter::compile(row.regexes);
    REQUIRE_MESSAGE(splitter.ok(), row.name() << ": " << splitter.error().message);
    CHECK_FALSE(row.name().empty());
    for (const std::string_view name : row.names) {
      if (!name.empty()) CHECK_MESSAGE(names.insert(name).second, "twice: " << name);
    }
    // Pieces are a partition whatever the text.
    std::mt19937 rng(1);
    for (int round = 0; round < 200; ++round) {
      const std::string text = random_text(rng, rng() % 30);
      auto ends = splitter->split(text);
      REQUIRE(ends.ok());
      CHECK((text.empty() ? ends->empty() : ends->back() == text.size()));
      CHECK(std::adjacent_find(ends->begin(), ends->end(), std::greater_equal<>()) == ends->end());
    }
  }
  for (const char* required :
       {"llama-bpe", "qwen2", "gpt-2", "starcoder", "smollm", "deepseek-llm", "deepseek-coder",
        "falcon", "tekken", "llama3", "deepseek-r1-qwen", "phi-2", "default"}) {
    CHECK(names.count(required) == 1);
  }
  CHECK(find_pretokenizer("") == nullptr);
  CHECK(find_pretokenizer("no-such") == nullptr);
}

TEST_CASE("a missing or unknown pre-tokenizer is said, not silent") {
  test::TinyVocab unknown = test::tiny_bpe("no\x1bsuch");
  const test::TinyTokenizer a(unknown);
  REQUIRE_MESSAGE(a.tokenizer, a.error);
  REQUIRE(a->warnings().size() == 1);
  CHECK(a->warnings()[0].find("no\\x1bsuch") != std::string::npos);
  CHECK(a->pretokenizer() == "default");
  CHECK(a->decode(encode(*a, "hello 123")) == "hello 123");

  test::TinyVocab missing = test::tiny_bpe();
  missing.pre.reset();
  const test::TinyTokenizer b(missing);
  REQUIRE_MESSAGE(b.tokenizer, b.error);
  CHECK(b->warnings().size() == 1);
  CHECK(test::TinyTokenizer(test::tiny_bpe())->warnings().empty());
}

TEST_CASE("damaged vocabularies are refused with what was found and expected") {
  using test::TinyVocab;
  struct Damage {
    const char* message;  // part of it
    std::function<void(TinyVocab&)> apply;
    bool spm = false;
  };
  const std::vector<Damage> damages = {
      {"'tokenizer.ggml.model' is 'bert', expected 'llama' or 'gpt2'",
       [](TinyVocab& v) { v.model = "bert"; }},
      {"tokenizer.ggml.tokens", [](TinyVocab& v) { v.tokens.clear(); }},
      {"twice, as tokens 0 and ", [](TinyVocab& v) { v.add(v.tokens[0]); }},
      {"tokenizer.ggml.token_type", [](TinyVocab& v) { v.types.pop_back(); }},
      {"type 7 for token 3, expected 0 to 6", [](TinyVocab& v) { v.types[3] = 7; }},
      {"type -1 for token 3", [](TinyVocab& v) { v.types[3] = -1; }},
      {"token 3 is of type byte", [](TinyVocab& v) { v.types[3] = 6; }},
      {"'tokenizer.ggml.bos_token_id' is 999999, expected an id below",
       [](TinyVocab& v) { v.ids["bos"] = 999999; }},
      {"add_bos_token' is true but",
       [](TinyVocab& v) {
         v.ids.erase("bos");
         v.flags["add_bos_token"] = true;
       }},
      {"add_eos_token' is true but",
       [](TinyVocab& v) {
         v.ids["eos"] = 0xffffffffu;
         v.flags["add_eos_token"] = true;
       }},
      {"tokenizer.ggml.merges", [](TinyVocab& v) { v.merges.clear(); }},
      {"entry 2 of key 'tokenizer.ggml.merges' is 'abc'",
       [](TinyVocab& v) { v.merges[2] = "abc"; }},
      {"entry 2 of key 'tokenizer.ggml.merges' is 'a '", [](TinyVocab& v) { v.merges[2] = "a "; }},
      {"entry 2 of key 'tokenizer.ggml.merges' is ''", [](TinyVocab& v) { v.merges[2] = ""; }},
      {"tokenizer.ggml.scores", [](TinyVocab& v) { v.scores.clear(); }, true},
      {"tokenizer.ggml.scores", [](TinyVocab& v) { v.scores.push_back(0); }, true},
      {"NaN for token 5",
       [](TinyVocab& v) { v.scores[5] = std::numeric_limits<float>::quiet_NaN(); }, true},
      {"added tokens have more than",
       [](TinyVocab& v) { v.add(std::string((1 << 24) + 1, 'x'), TokenType::kUserDefined); }},
  };
  for (const Damage& damage : damages) {
    TinyVocab vocab = damage.spm ? test::tiny_spm() : test::tiny_bpe();
    damage.apply(vocab);
    const test::TinyTokenizer tiny(vocab);
    CHECK_FALSE(tiny.tokenizer);
    CHECK_MESSAGE(tiny.error.find(damage.message) != std::string::npos,
                  "'" << damage.message << "' not in: " << tiny.error);
  }
}

TEST_CASE("keys that made to collide do not take quadratic time to index") {
  HashIndex index;
  index.reset(5000);
  std::int64_t result = HashIndex::kInserted;
  std::uint32_t i = 0;
  for (; i < 5000 && result == HashIndex::kInserted; ++i) {
    result = index.insert(42, i, [](std::uint32_t) { return false; });
  }
  CHECK(result == HashIndex::kTooManyCollisions);
  CHECK(i < 1100);
}

TEST_CASE("what byte-level vocabularies encode, they decode to the same bytes") {
  std::mt19937 rng(3);
  for (const PreTokenizer& row : all_pretokenizers()) {
    const test::TinyTokenizer tiny(test::tiny_bpe(std::string(row.name())));
    REQUIRE_MESSAGE(tiny.tokenizer, tiny.error);
    for (int round = 0; round < 300; ++round) {
      const std::string text = random_text(rng, rng() % 40);
      const Ids ids = encode(*tiny, text);
      CHECK(tiny->decode(ids) == text);
      CHECK_FALSE(has_control(*tiny, ids));
    }
  }
  for (const std::string& name : kReferences) {
    const auto loaded = load("tokenizers/" + name + ".gguf");
    if (!loaded || loaded->tokenizer->model() != "gpt2") continue;
    for (int round = 0; round < 500; ++round) {
      std::string text = random_text(rng, rng() % 40);
      std::erase(text, '\xf1');  // starcoder lacks this byte of unassigned planes
      text = replace_invalid_utf8(text);
      CHECK(loaded->tokenizer->decode(encode(*loaded->tokenizer, text)) == text);
    }
  }
}

TEST_CASE("what SentencePiece vocabularies encode, they decode to the same bytes") {
  std::mt19937 rng(4);
  test::TinyVocab without = test::tiny_spm();
  without.flags["add_space_prefix"] = false;
  for (const test::TinyVocab& vocab : {test::tiny_spm(), without}) {
    const test::TinyTokenizer tiny(vocab);
    REQUIRE_MESSAGE(tiny.tokenizer, tiny.error);
    CHECK(tiny->warnings().empty());
    for (int round = 0; round < 1000; ++round) {
      std::string text = random_text(rng, rng() % 30);
      if (text.find("\n\n") != std::string::npos || text.find("▁") != std::string::npos) continue;
      CHECK(tiny->decode(encode(*tiny, text)) == text);
      CHECK(tiny->decode(encode(*tiny, text, {.add_special = true})) == text);
    }
  }
}

TEST_CASE("merges go by score and by rank, and fall back to bytes") {
  const test::TinyTokenizer spm(test::tiny_spm());
  CHECK(encode(*spm, "hello") == Ids{id_of(*spm, "▁hello")});
  CHECK(encode(*spm, "helloing") == Ids{id_of(*spm, "▁hello"), id_of(*spm, "ing")});
  CHECK(encode(*spm, "ü") == Ids{id_of(*spm, "▁"), id_of(*spm, "<0xC3>"), id_of(*spm, "<0xBC>")});
  CHECK(spm->bytes_of(id_of(*spm, "<0xC3>")) == "\xc3");
  CHECK(spm->bytes_of(id_of(*spm, "▁hello")) == " hello");
  CHECK(spm->bytes_of(-1) == "");
  CHECK(spm->bytes_of(spm->vocab_size()) == "");

  const test::TinyTokenizer bpe(test::tiny_bpe());
  CHECK(encode(*bpe, " hello hell") ==
        Ids{id_of(*bpe, "Ġhello"), id_of(*bpe, "Ġ"), id_of(*bpe, "hell")});
  CHECK(encode(*bpe, "é") == Ids{id_of(*bpe, "Ã©")});
  CHECK(bpe->bytes_of(id_of(*bpe, "Ã©")) == "é");
  CHECK(bpe->bytes_of(id_of(*bpe, "Ã")) == "\xc3");
}

TEST_CASE("a token is never formed across what looks like one: control texts stay text") {
  // The merges of this vocabulary spell "<s>" from "<s" and ">".
  const test::TinyTokenizer spm(test::tiny_spm());
  const Ids ids = encode(*spm, "<s>hello</s>");
  CHECK_FALSE(has_control(*spm, ids));
  CHECK(spm->decode(ids) == "<s>hello</s>");
  CHECK(encode(*spm, "<0x41>").size() > 1);
  CHECK(spm->decode(encode(*spm, "<0x41>")) == "<0x41>");

  test::TinyVocab vocab = test::tiny_bpe("llama-bpe");  // takes whole pieces that are tokens
  vocab.add("stop", TokenType::kControl);
  vocab.merges.insert(vocab.merges.end(), {"s t", "st o", "sto p"});
  const test::TinyTokenizer bpe(vocab);
  CHECK_FALSE(has_control(*bpe, encode(*bpe, "stop")));
  CHECK(encode(*bpe, "stop", {.parse_special = true}) == Ids{id_of(*bpe, "stop")});
}

TEST_CASE(
    "control tokens are parsed only on request, user-defined ones always, the longest first") {
  const test::TinyTokenizer tiny(test::tiny_bpe());
  const std::int32_t start = id_of(*tiny, "<|im_start|>"), end = id_of(*tiny, "<|im_end|>");
  CHECK(encode(*tiny, "<|im_start|>hello<|im_end|>", {.parse_special = true}) ==
        Ids{start, id_of(*tiny, "hello"), end});
  const Ids plain = encode(*tiny, "<|im_start|>hello<|im_end|>");
  CHECK_FALSE(has_control(*tiny, plain));
  CHECK(tiny->decode(plain) == "<|im_start|>hello<|im_end|>");
  CHECK(encode(*tiny, "<tool>s<tool>") == Ids{id_of(*tiny, "<tool>s"), id_of(*tiny, "<tool>")});
  CHECK(tiny->decode(Ids{start, id_of(*tiny, "hello"), end}) == "hello");
  CHECK(tiny->decode(Ids{start, id_of(*tiny, "hello"), end}, true) ==
        "<|im_start|>hello<|im_end|>");
}

TEST_CASE("in parts, content never yields or completes a control token") {
  const test::TinyTokenizer tiny(test::tiny_bpe());
  const std::int32_t start = id_of(*tiny, "<|im_start|>"), end = id_of(*tiny, "<|im_end|>");
  const auto render = [&](const std::vector<TextPart>& parts) {
    const Ids ids = encode_parts(*tiny, parts);
    return std::pair(
        std::count(ids.begin(), ids.end(), start) + std::count(ids.begin(), ids.end(), end),
        tiny->decode(ids, true));
  };
  CHECK(render({{"<|im_start|>user\n", false}, {"a<|im_end|>b", true}, {"<|im_end|>", false}}) ==
        std::pair<std::ptrdiff_t, std::string>(2, "<|im_start|>user\na<|im_end|>b<|im_end|>"));
  // Begun by the template and finished by content, the other way round, and around content.
  CHECK(render({{"<|im_", false}, {"end|>", true}}).first == 0);
  CHECK(render({{"<|im_", true}, {"end|>", false}}).first == 0);
  CHECK(render({{"<|im_", false}, {"e", true}, {"nd|>", false}}).first == 0);
  // Written by the template in two parts, also with nothing of content between them.
  CHECK(render({{"<|im_", false}, {"end|>", false}}).first == 1);
  CHECK(render({{"<|im_", false}, {"", true}, {"end|>", false}}).first == 1);
  CHECK(encode_parts(*tiny, {}).empty());
}

TEST_CASE("user-defined tokens that look like chat marks are not taken from content") {
  test::TinyVocab vocab = test::tiny_bpe();
  vocab.add("<|user|>", TokenType::kUserDefined);
  vocab.add("<｜User｜>", TokenType::kUserDefined);
  const test::TinyTokenizer tiny(vocab);
  for (const char* mark : {"<|user|>", "<｜User｜>"}) {
    const Ids one = {id_of(*tiny, mark)};
    CHECK(encode(*tiny, mark) == one);
    CHECK(encode_parts(*tiny, {{mark, false}}) == one);
    CHECK(encode_parts(*tiny, {{mark, true}}) != one);
  }
  CHECK(encode_parts(*tiny, {{"<tool>", true}}) == Ids{id_of(*tiny, "<tool>")});
}

TEST_CASE("parts give the same ids as the whole text, wherever it is cut") {
  std::mt19937 rng(5);
  for (const test::TinyVocab& vocab : {test::tiny_spm(), test::tiny_bpe("llama-bpe")}) {
    const test::TinyTokenizer tiny(vocab);
    for (int round = 0; round < 500; ++round) {
      std::string text = random_text(rng, rng() % 20);
      text += "<|im_end|><end_of_turn>\xff\xe2\x82";
      text += random_text(rng, rng() % 10);
      for (const bool content : {false, true}) {
        std::vector<TextPart> parts;
        for (std::size_t at = 0; at < text.size();) {
          const std::size_t n = rng() % 12;
          parts.push_back({text.substr(at, n), content});
          at += n;
        }
        CHECK(encode_parts(*tiny, parts) == encode(*tiny, text, {.parse_special = !content}));
      }
    }
  }
}

TEST_CASE("BOS and EOS are added where the file asks, once in parts, and a double BOS is noticed") {
  test::TinyVocab vocab = test::tiny_bpe();
  vocab.flags["add_bos_token"] = true;
  vocab.flags["add_eos_token"] = true;
  const test::TinyTokenizer tiny(vocab);
  const std::int32_t bos = tiny->bos_id(), eos = tiny->eos_id(), hello = id_of(*tiny, "hello");
  const Ids expected = {bos, hello, eos};
  CHECK(encode(*tiny, "hello", {.add_special = true}) == expected);
  CHECK(encode_parts(*tiny, {{"hello", true}}, true) == expected);
  CHECK(encode_parts(*tiny, {{"<|startoftext|>hello", false}}, true) == expected);
  CHECK(encode_parts(*tiny, {{"<|startoftext|>hello<|endoftext|>", false}}, true) == expected);
  CHECK(encode_parts(*tiny, {{"<|startoftext|>", false}}, true) == Ids{bos, eos});
  CHECK(encode_parts(*tiny, {}, true) == Ids{bos, eos});
  const Ids twice =
      encode(*tiny, "<|startoftext|>hello", {.add_special = true, .parse_special = true});
  CHECK(twice == Ids{bos, bos, hello, eos});
  CHECK(tiny->has_double_bos(twice));
  CHECK_FALSE(tiny->has_double_bos(expected));
  CHECK_FALSE(tiny->has_double_bos({}));
  // Llama 3 files that do not say get a BOS, others of this kind do not.
  CHECK(test::TinyTokenizer(test::tiny_bpe("llama-bpe"))->add_bos());
  CHECK_FALSE(test::TinyTokenizer(test::tiny_bpe("qwen2"))->add_bos());
  CHECK(test::TinyTokenizer(test::tiny_spm())->add_bos());
}

TEST_CASE("all end-of-generation tokens are known, by key or by text") {
  test::TinyVocab vocab = test::tiny_bpe();
  const auto extra = static_cast<std::uint32_t>(vocab.add("<my_turn_end>"));
  vocab.ids["eot"] = extra;
  vocab.add("<|eot_id|>");  // not even marked as control
  const test::TinyTokenizer tiny(vocab);
  for (const char* text : {"<|endoftext|>", "<|im_end|>", "<my_turn_end>", "<|eot_id|>"}) {
    CHECK(tiny->is_eog(id_of(*tiny, text)));
  }
  CHECK(tiny->eog_ids().size() == 4);
  CHECK(tiny->eot_id() == static_cast<std::int32_t>(extra));
  CHECK(tiny->bytes_of(id_of(*tiny, "<|eot_id|>")) == "");
  CHECK_FALSE(tiny->is_eog(id_of(*tiny, "hello")));
  CHECK_FALSE(tiny->is_eog(-1));

  test::TinyVocab none = test::tiny_bpe();
  none.ids.erase("eos");
  for (std::string& text : none.tokens) {
    if (text == "<|endoftext|>" || text == "<|im_end|>") text += "x";
  }
  const test::TinyTokenizer endless(none);
  REQUIRE(endless->warnings().size() == 1);
  CHECK(endless->warnings()[0].find("end-of-generation") != std::string::npos);

  const auto check = [](const std::string& name, const Ids& expected) {
    const auto loaded = load("tokenizers/" + name + ".gguf");
    if (!loaded) return;
    const auto ids = loaded->tokenizer->eog_ids();
    CHECK(Ids(ids.begin(), ids.end()) == expected);
  };
  check("llama-bpe", {128001, 128009});
  check("phi-3", {2, 32000, 32007});
  check("qwen2", {128247, 151643, 151645});
  check("llama-spm", {2});
}

TEST_CASE("a file without token types still has its control and byte tokens") {
  test::TinyVocab vocab = test::tiny_spm();
  vocab.types.clear();
  const test::TinyTokenizer tiny(vocab);
  REQUIRE_MESSAGE(tiny.tokenizer, tiny.error);
  CHECK(tiny->type(1) == TokenType::kControl);
  CHECK(tiny->type(0) == TokenType::kUnknown);
  CHECK(tiny->bytes_of(id_of(*tiny, "<0x0A>")) == "\n");
  CHECK(encode(*tiny, "<s>", {.parse_special = true}) == Ids{1});
}

TEST_CASE("missing bytes are said, and their text becomes the unknown token or is left out") {
  test::TinyVocab vocab = test::tiny_bpe();
  vocab.tokens[0xc3] = "x1";  // the byte of ü
  const test::TinyTokenizer tiny(vocab);
  REQUIRE(tiny->warnings().size() == 1);
  CHECK(tiny->warnings()[0].find("1 of the bytes") != std::string::npos);
  CHECK(tiny->decode(encode(*tiny, "aüb")) ==
        "a\xbc"
        "b");
  // An unknown token that is the end-of-text token must not come from a text.
  vocab.ids["unknown"] = vocab.ids["eos"];
  const test::TinyTokenizer shared(vocab);
  CHECK_FALSE(has_control(*shared, encode(*shared, "aüb")));
  vocab.ids["unknown"] = static_cast<std::uint32_t>(vocab.add("<unk>", TokenType::kUnknown));
  const test::TinyTokenizer with_unk(vocab);
  const Ids ids = encode(*with_unk, "ü");
  CHECK(ids.size() == 2);
  CHECK(ids[0] == with_unk->unk_id());
}

TEST_CASE("ill-formed bytes become U+FFFD, text around them keeps its ids, NUL cuts nothing") {
  for (const test::TinyVocab& vocab : {test::tiny_spm(), test::tiny_bpe()}) {
    const test::TinyTokenizer tiny(vocab);
    std::mt19937 rng(6);
    for (int round = 0; round < 500; ++round) {
      std::string bytes(rng() % 30, 0);
      for (char& c : bytes) c = static_cast<char>(rng());
      CHECK(encode(*tiny, bytes) == encode(*tiny, replace_invalid_utf8(bytes)));
    }
    const Ids ids = encode(*tiny, "hello \xff hello");
    CHECK(tiny->decode(ids) == "hello \uFFFD hello");
    CHECK(std::count(ids.begin(), ids.end(),
                     id_of(*tiny, vocab.model == "llama" ? "▁hello" : "Ġhello")) ==
          (vocab.model == "llama" ? 2 : 1));
    const std::string nul("a\0hello", 7);
    CHECK(tiny->decode(encode(*tiny, nul)) == nul);
  }
}

TEST_CASE("added tokens are found leftmost-longest, special ones only in their ranges") {
  std::mt19937 rng(7);
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](std::size_t longest) {
      std::string out(1 + rng() % longest, 'a');
      for (char& c : out) c = static_cast<char>('a' + rng() % 2);
      return out;
    };
    std::vector<std::string> texts;
    for (std::size_t n = rng() % 6; n > 0; --n) texts.push_back(word(5));
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    std::vector<AddedToken> tokens;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      tokens.push_back({texts[i], static_cast<std::int32_t>(i), rng() % 2 == 0});
    }
    const std::string text = word(40);
    std::vector<TextRange> ranges;
    for (std::size_t at = rng() % 10; at < text.size(); at += 1 + rng() % 6) {
      const std::size_t end = std::min<std::size_t>(text.size(), at + 1 + rng() % 12);
      ranges.push_back({at, end});
      at = end;
    }
    // By the definition.
    std::vector<std::pair<std::size_t, std::int32_t>> expected;
    for (std::size_t at = 0; at < text.size();) {
      const AddedToken* best = nullptr;
      for (const AddedToken& token : tokens) {
        if (text.compare(at, token.text.size(), token.text) != 0) continue;
        const std::size_t end = at + token.text.size();
        const bool inside = std::any_of(ranges.begin(), ranges.end(), [&](const TextRange& r) {
          return r.begin <= at && end <= r.end;
        });
        if (token.special && !inside) continue;
        if (best == nullptr || token.text.size() > best->text.size()) best = &token;
      }
      if (best != nullptr) expected.emplace_back(at, best->id);
      at += best != nullptr ? best->text.size() : 1;
    }
    auto added = AddedTokens::build(tokens);
    REQUIRE(added.ok());
    std::vector<std::pair<std::size_t, std::int32_t>> found;
    for (const AddedMatch& match : added->find(text, ranges))
      found.emplace_back(match.begin, match.id);
    CHECK(found == expected);
  }
}

namespace {

double encode_seconds(const Tokenizer& tokenizer, const std::string& text) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 3; ++round) {
    const std::clock_t start = std::clock();
    const Ids ids = encode(tokenizer, text, {.parse_special = true});
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    CHECK_FALSE(ids.empty());
  }
  return best;
}

std::vector<std::string> hostile_texts(std::size_t n) {
  std::mt19937 rng(8);
  std::string bytes(n, 0), letters(n, 0), marks;
  for (char& c : bytes) c = static_cast<char>(rng());
  for (char& c : letters) c = static_cast<char>('a' + rng() % 26);
  while (marks.size() < n) marks += "\u0301";
  return {std::string(n, ' '),
          std::string(n, ' ') + "5",
          std::string(n, 'a'),
          std::string(n, 'A'),
          std::string(n, '\n'),
          std::string(n, '<'),
          std::string(n, '\''),
          std::string(n, '7'),
          letters,
          bytes,
          marks,
          "x" + std::string(n, '\t') + "x"};
}

}  // namespace

TEST_CASE("no text takes more than quasi-linear time, whatever the pre-tokenizer") {
  // Four times the text takes about four times the time; sixteen times would be quadratic.
  for (const PreTokenizer& row : all_pretokenizers()) {
    const test::TinyTokenizer tiny(test::tiny_bpe(std::string(row.name())));
    const auto small = hostile_texts(10'000), large = hostile_texts(40'000);
    for (std::size_t i = 0; i < small.size(); ++i) {
      CAPTURE(row.name());
      CAPTURE(i);
      CHECK(encode_seconds(*tiny, large[i]) < 10 * encode_seconds(*tiny, small[i]) + 0.02);
    }
  }
  test::TinyVocab nested = test::tiny_spm();
  for (std::size_t n = 3; n < 200; ++n) {
    nested.add(std::string(n, '<'), n % 2 == 0 ? TokenType::kControl : TokenType::kUserDefined);
  }
  const test::TinyTokenizer spm(nested);
  const auto small = hostile_texts(10'000), large = hostile_texts(40'000);
  for (std::size_t i = 0; i < small.size(); ++i) {
    CAPTURE(i);
    CHECK(encode_seconds(*spm, large[i]) < 10 * encode_seconds(*spm, small[i]) + 0.02);
  }
}

TEST_CASE("the longest texts of the promise fit on a small stack") {
  // Sanitizers need more stack of their own.
  const auto run = [](void*) -> void* {
    for (const char* pre : {"llama-bpe", "tekken", "deepseek-llm", "falcon"}) {
      const test::TinyTokenizer tiny(test::tiny_bpe(pre));
      for (const std::string& text : hostile_texts(200'000)) {
        if (!tiny->encode(text).ok()) return reinterpret_cast<void*>(1);
      }
    }
    const test::TinyTokenizer spm(test::tiny_spm());
    for (const std::string& text : hostile_texts(200'000)) {
      if (!spm->encode(text).ok()) return reinterpret_cast<void*>(1);
    }
    return nullptr;
  };
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
  pthread_t thread;
  REQUIRE(pthread_create(&thread, &attributes, run, nullptr) == 0);
  void* result = nullptr;
  REQUIRE(pthread_join(thread, &result) == 0);
  CHECK(result == nullptr);
  pthread_attr_destroy(&attributes);
}

TEST_CASE("one tokenizer serves several threads") {
  const test::TinyTokenizer tiny(test::tiny_bpe("llama-bpe"));
  std::mt19937 rng(9);
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  for (int i = 0; i < 200; ++i) {
    texts.push_back(random_text(rng, 30));
    expected.push_back(encode(*tiny, texts.back()));
  }
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto ids = tiny->encode(texts[i]);
        if (!ids.ok() || *ids != expected[i]) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("a text above the limit is refused") {
  const test::TinyTokenizer tiny(test::tiny_bpe());
  const std::string huge(Tokenizer::kMaxTextBytes + 1, 'a');
  const auto ids = tiny->encode(huge);
  REQUIRE_FALSE(ids.ok());
  CHECK(ids.error().message.find("the limit is") != std::string::npos);
  CHECK_FALSE(tiny->encode_parts(std::vector<TextPart>{{huge, true}}, false).ok());
}
