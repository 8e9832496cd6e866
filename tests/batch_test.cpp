// Batches: lines, both formats, the output file, shards, statistics, and the runner with the
// bundled model.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/engine/batch/batch_runner.h"
#include "src/engine/batch/item_reader.h"
#include "src/engine/batch/latency_stats.h"
#include "src/engine/batch/line_reader.h"
#include "src/engine/batch/native_format.h"
#include "src/engine/batch/openai_format.h"
#include "src/engine/batch/output_file.h"
#include "src/engine/batch/run_file.h"
#include "src/engine/batch/shard.h"
#include "src/text/utf8.h"
#include "tests/temporary_folder.h"

using namespace sluice;
using sluice::test::TemporaryFolder;

namespace {

const std::string kModel = std::string(SLUICE_SOURCE_DIR) + "/models/storyteller-q4_0.gguf";

struct ReadLine {
  std::uint64_t number = 0, begin = 0, bytes = 0;
  std::string text;
  bool too_long = false, ended = true;
};

// All lines of a file with these bytes.
std::vector<ReadLine> lines_of(const std::string& bytes, std::size_t most = 1 << 20) {
  const TemporaryFolder folder;
  auto reader = LineReader::open(folder.file("in", bytes), most);
  REQUIRE(reader.ok());
  std::vector<ReadLine> lines;
  for (;;) {
    LineReader::Line line;
    const auto state = reader->next(line, true, nullptr);
    REQUIRE_MESSAGE(state.ok(), (state.ok() ? "" : state.error().message));
    if (*state == LineReader::State::kEnd) return lines;
    REQUIRE(*state == LineReader::State::kLine);
    lines.push_back(
        {line.number, line.begin, line.bytes, std::string(line.text), line.too_long, line.ended});
  }
}

std::vector<BatchItem> items_of(const std::string& bytes, ItemReaderOptions options = {}) {
  const TemporaryFolder folder;
  auto lines = LineReader::open(folder.file("in", bytes), ItemReader::kMostLineBytes);
  REQUIRE(lines.ok());
  ItemReader reader(std::move(*lines), options);
  std::vector<BatchItem> items;
  for (;;) {
    BatchItem item;
    const auto state = reader.next(item, true, nullptr);
    REQUIRE_MESSAGE(state.ok(), (state.ok() ? "" : state.error().message));
    if (*state == LineReader::State::kEnd) return items;
    CHECK(is_valid_utf8(item.id));
    items.push_back(std::move(item));
  }
}

BatchItem item_of(const std::string& line) {
  auto items = items_of(line);
  REQUIRE(items.size() == 1);
  return items[0];
}

BatchItem chat_item(const std::string& body) {
  return item_of(R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":)" + body +
                 "}");
}

BatchItem completion_item(const std::string& body) {
  return item_of(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":)" + body +
                 "}");
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("lines: their ends, a byte order mark, and a file that stops without an end") {
  CHECK(lines_of("").empty());
  const auto lines = lines_of(
      "\xEF\xBB\xBF"
      "a\r\n\n \r\nb\rc\n\xEF\xBB\xBF"
      "d");
  REQUIRE(lines.size() == 5);
  CHECK(lines[0].text == "a");
  CHECK(lines[1].text.empty());
  CHECK(lines[2].text == " ");
  CHECK(lines[3].text == "b\rc");  // a lone CR ends no line
  CHECK(lines[4].text ==
        "\xEF\xBB\xBF"
        "d");
  for (std::size_t i = 0; i < 5; ++i) CHECK(lines[i].number == i + 1);
  CHECK(lines[1].begin == 6);
  CHECK(lines[4].begin == 14);
  CHECK(lines[3].ended);
  CHECK_FALSE(lines[4].ended);
  CHECK(lines_of("\n").size() == 1);
  CHECK(lines_of("a\n")[0].ended);
  CHECK(lines_of(std::string("\0\n\0", 3)).size() == 2);
}

TEST_CASE("lines: longer ones than allowed are passed over, and counted") {
  for (const std::size_t size :
       {std::size_t{9}, std::size_t{10}, std::size_t{11}, std::size_t{19}, std::size_t{1} << 20,
        (std::size_t{1} << 20) + 1, std::size_t{3} << 20}) {
    for (const char* end : {"\n", "\r\n"}) {
      CAPTURE(size);
      const auto lines = lines_of("x\n" + std::string(size, 'y') + end + "z\n", 10);
      REQUIRE(lines.size() == 3);
      CHECK(lines[1].too_long == (size > 10));
      CHECK(lines[1].text == (size > 10 ? "" : std::string(size, 'y')));
      if (size < (std::size_t{1} << 20)) CHECK(lines[1].bytes == size);
      CHECK(lines[2].text == "z");
      CHECK(lines[2].number == 3);
      CHECK(lines[2].begin == 2 + size + std::string_view(end).size());
    }
  }
  const auto last = lines_of(std::string(5000000, 'y'), 10);
  REQUIRE(last.size() == 1);
  CHECK(last[0].too_long);
  CHECK(last[0].bytes == 5000000);
  // Lines across the borders of what is read at a time.
  std::string text;
  for (int i = 0; i < 50000; ++i) text += std::string(61, 'a' + i % 26) + "\n";
  const auto many = lines_of(text);
  REQUIRE(many.size() == 50000);
  CHECK(many[49999].text == std::string(61, 'a' + 49999 % 26));
}

TEST_CASE("lines: what can't be read") {
  const TemporaryFolder folder;
  const auto code = [](const std::string& path) {
    auto reader = LineReader::open(path, 100);
    if (!reader.ok()) return reader.error().code;
    LineReader::Line line;
    const auto state = reader->next(line, true, nullptr);
    REQUIRE_FALSE(state.ok());
    return state.error().code;
  };
  CHECK(code(folder / "missing") == ErrorCode::kBadInput);
  CHECK(code(folder / ".") == ErrorCode::kBadInput);
  CHECK(code(folder.file("le", std::string("\xFF\xFE{\0", 4))) == ErrorCode::kBadInput);
  CHECK(code(folder.file("be", std::string("\xFE\xFF\0{", 4))) == ErrorCode::kBadInput);

  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  auto reader = LineReader::open(folder / "pipe", 100);
  REQUIRE(reader.ok());
  const int writer = ::open((folder / "pipe").c_str(), O_WRONLY);
  REQUIRE(writer >= 0);
  LineReader::Line line;
  CHECK(*reader->next(line, false, nullptr) == LineReader::State::kNotYet);
  REQUIRE(write(writer, "a\nb", 3) == 3);
  CHECK(*reader->next(line, false, nullptr) == LineReader::State::kLine);
  CHECK(line.text == "a");
  CHECK(*reader->next(line, false, nullptr) == LineReader::State::kNotYet);
  std::atomic<bool> cancel = true;
  const auto interrupted = reader->next(line, true, &cancel);
  REQUIRE_FALSE(interrupted.ok());
  CHECK(interrupted.error().code == ErrorCode::kInterrupted);
  close(writer);
  CHECK(*reader->next(line, true, nullptr) == LineReader::State::kLine);
  CHECK(line.text == "b");
  CHECK(*reader->next(line, true, nullptr) == LineReader::State::kEnd);
}

TEST_CASE("a pass over the input counts lines and notices a change") {
  const TemporaryFolder folder;
  const auto look = [&](const std::string& bytes, std::uint64_t hashed = ~std::uint64_t{0}) {
    const auto summary = summarize_input(folder.file("in", bytes), hashed, nullptr);
    REQUIRE(summary.ok());
    REQUIRE(summary->has_value());
    return **summary;
  };
  CHECK(look("").lines == 0);
  CHECK(look("a\n\n \t\r\nb").lines == 2);
  CHECK(look("a\nb\n").lines == 2);
  const std::string big = std::string(1500000, 'x') + "\n";
  const InputSummary whole = look(big);
  CHECK(whole.bytes == big.size());
  CHECK(whole.hashed == big.size());
  const InputSummary grown = look(big + "more\n", big.size());
  CHECK(grown.hashed == big.size());
  CHECK(grown.hash == whole.hash);
  CHECK(grown.lines == 2);
  std::string changed = big;
  changed[1400000] = 'y';
  CHECK(look(changed).hash != whole.hash);
  CHECK_FALSE(summarize_input("-", 1, nullptr)->has_value());
  CHECK_FALSE(summarize_input(folder / ".", 1, nullptr)->has_value());
}

TEST_CASE("native items: every key") {
  const BatchItem item = item_of(
      R"({"id":"x","prompt":"Hi","system":"s","max_tokens":7,"temperature":0.5,"top_p":0.9,)"
      R"("top_k":3,"min_p":0.1,"repeat_penalty":1.1,"seed":18446744073709551615,"stop":["a","b"],)"
      R"("logprobs":2,"tokens":true,"ignore_eos":true,"logit_bias":{"5":-1.5,"6":null},)"
      R"("frequency_penalty":0.2,"dry_multiplier":0.8,"mirostat_tau":4,"what":1,"min_p ":2})");
  REQUIRE_MESSAGE(item.error.empty(), item.error);
  CHECK(item.id == "x");
  CHECK(item.prompt == "Hi");
  CHECK(item.system == "s");
  CHECK(item.max_tokens == 7);
  CHECK(item.sampling.temperature == 0.5);
  CHECK(item.sampling.top_p == 0.9);
  CHECK(item.sampling.top_k == 3);
  CHECK(item.sampling.min_p == 0.1);
  CHECK(item.sampling.repeat_penalty == 1.1);
  CHECK(item.sampling.frequency_penalty == 0.2);
  CHECK(item.sampling.dry_multiplier == 0.8);
  CHECK(item.sampling.mirostat_tau == 4);
  CHECK(item.sampling.seed == 18446744073709551615U);
  CHECK(item.stop == std::vector<std::string>{"a", "b"});
  CHECK(item.logprobs == 2);
  CHECK(item.want_tokens == true);
  CHECK(item.ignore_eos == true);
  REQUIRE(item.sampling.logit_bias.size() == 2);
  CHECK(item.sampling.logit_bias[0].bias == -1.5);
  CHECK(std::isinf(item.sampling.logit_bias[1].bias));
  CHECK(item.unknown_keys == std::vector<std::string>{"what", "min_p "});

  const BatchItem nulls = item_of(
      R"({"id":5,"prompt_tokens":[1,2],"prompt":null,"temperature":null,"stop":null,"seed":null})");
  REQUIRE_MESSAGE(nulls.error.empty(), nulls.error);
  CHECK(nulls.id == "5");
  CHECK(nulls.id_is_number);
  CHECK(nulls.prompt_ids == std::vector<std::int32_t>{1, 2});
  CHECK_FALSE(nulls.stop);
  CHECK_FALSE(nulls.sampling.seed);
  const BatchItem parts = item_of(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})");
  REQUIRE_MESSAGE(parts.error.empty(), parts.error);
  CHECK(parts.id == "line-1");
  CHECK((*parts.messages)[0]["content"] == "ab");
}

TEST_CASE("native items: each fault is an error of its line that names the key") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"id":"a"})", "none of prompt"},
      {R"({"id":"a","prompt":"x","messages":[{"role":"user","content":"x"}]})", "more than one"},
      {R"({"id":"a","prompt":5})", "'prompt' is 5; expected a text"},
      {R"({"id":"a","prompt":"x","temperature":-1})", "'temperature' is -1; expected a number"},
      {R"({"id":"a","prompt":"x","temperature":"hot"})", "'temperature'"},
      {R"({"id":"a","prompt":"x","top_p":1.5})", "'top_p' is 1.5"},
      {R"({"id":"a","prompt":"x","top_k":1.5})", "'top_k' is 1.5; expected a whole number"},
      {R"({"id":"a","prompt":"x","mirostat":1})", "mirostat 1 does not exist"},
      {R"({"id":"a","prompt":"x","max_tokens":-3})", "'max_tokens' is -3"},
      {R"({"id":"a","prompt":"x","max_tokens":1e300})", "'max_tokens'"},
      {R"({"id":"a","prompt":"x","seed":1.5})", "'seed' is 1.5"},
      {R"({"id":"a","prompt":"x","stop":""})", "'stop'"},
      {R"({"id":"a","prompt":"x","stop":[1]})", "'stop'"},
      {R"({"id":"a","prompt":"x","logprobs":1001})", "'logprobs'"},
      {R"({"id":"a","prompt":"x","logprobs":true})", "'logprobs' is true"},
      {R"({"id":"a","prompt":"x","tokens":1})", "'tokens' is 1; expected true or false"},
      {R"({"id":"a","prompt":"x","logit_bias":{"x":1}})", "'logit_bias'"},
      {R"({"id":"a","prompt":"x","logit_bias":{"-1":1}})", "'logit_bias'"},
      {R"({"id":"a","prompt":"x","tools":[{}]})", "go with messages"},
      {R"({"id":"a","messages":[]})", "'messages'"},
      {R"({"id":"a","messages":"x"})", "'messages'"},
      {R"({"id":"a","messages":["x"]})", "message 1 is string"},
      {R"({"id":"a","messages":[{"content":"x"}]})", "message 1 has no role"},
      {R"({"id":"a","messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       "message 1 has a part that is no text"},
      {R"({"id":"a","messages":[{"role":"user","content":null}]})", "message 1 has no content"},
      {R"({"id":"a","messages":[{"role":"user","content":"x"},{"role":"assistant"}]})",
       "message 2 has no content"},
      {R"({"id":"a","messages":[{"role":"user","content":"x"}],"system":"s"})", "'system'"},
      {R"({"id":"a","messages":[{"role":"user","content":"x"}],"tools":{}})", "'tools'"},
      {R"({"id":"a","prompt_tokens":[]})", "'prompt_tokens'"},
      {R"({"id":"a","prompt_tokens":[-1]})", "'prompt_tokens' is -1"},
      {R"({"id":"a","prompt_tokens":[1.5]})", "'prompt_tokens' is 1.5"},
  };
  for (const auto& each : cases) {
    const char* line = each.first;
    const BatchItem item = item_of(line);
    CAPTURE(line);
    CHECK_MESSAGE(contains(item.error, each.second), item.error);
    CHECK_FALSE(item.unreadable);
    CHECK(item.id == "a");
  }
}

TEST_CASE("lines that are no items: each gives an error with an id of its own, the rest goes on") {
  const auto items = items_of(
      "{\"id\":\"a\",\"prompt\":\"x\"}\nnot json\n[1]\n\n{\"id\":\"a\",\"prompt\":\"y\"}\n"
      "{\"id\":\"line-2\",\"prompt\":\"x\"}\n{\"id\":\"line-7\",\"prompt\":\"x\"}\n"
      "{\"id\":\"\",\"prompt\":\"x\"}\n{\"id\":1.5,\"prompt\":\"x\"}\n{\"id\":\"" +
      std::string(513, 'i') +
      "\",\"prompt\":\"x\"}\n{\"prompt\":\"x\"}\n\"\xff\"\n{\"id\":\"\xff\",\"prompt\":\"x\"}\n"
      "{\"id\":99999999999999999999,\"prompt\":\"x\"}\n{\"id\":7,\"prompt\":\"x\"}\n"
      "{\"id\":\"7\",\"prompt\":\"x\"}\n{\"id\":\"z\",\"prompt\":\"x\"} trailing\n" +
      "{\"id\":\"d\",\"prompt\":" + std::string(200, '[') + "\n{\"id\":\"last\",\"prompt\":\"x\"}");
  std::vector<std::string> ids;
  std::set<std::string> unique;
  std::size_t good = 0;
  for (const BatchItem& item : items) {
    ids.push_back(item.id);
    unique.insert(item.id);
    good += item.error.empty() ? 1 : 0;
  }
  CHECK(ids == std::vector<std::string>{"a", "line-2", "line-3", "line-5", "line-6", "line-7",
                                        "line-8", "line-9", "line-10", "line-11", "line-12",
                                        "line-13", "line-14", "7", "line-16", "line-17", "line-18",
                                        "last"});
  CHECK(unique.size() == ids.size());
  CHECK(good == 5);  // a, line-7, line-11, 7 and last
  CHECK(contains(items[3].error, "'a' was on line 1 already"));
  CHECK(contains(items[14].error, "'7' was on line 15 already"));
  CHECK(items[1].unreadable);
  CHECK(items[2].unreadable);
  CHECK_FALSE(items[3].unreadable);

  const auto long_line =
      items_of("{\"id\":\"a\",\"prompt\":\"" + std::string(ItemReader::kMostLineBytes, 'x') +
               "\"}\n{\"id\":\"b\",\"prompt\":\"x\"}\n");
  REQUIRE(long_line.size() == 2);
  CHECK(contains(long_line[0].error, "the most that is read"));
  CHECK(long_line[1].id == "b");
}

TEST_CASE("lines: a key twice, and where a line stops being JSON") {
  const auto items =
      items_of(R"({"id":"a","prompt":"x","prompt":"y"})"
               "\n"
               R"({"id":"b","messages":[{"role":"user","content":"x","role":"tool"}]})"
               "\n"
               R"({"id":"c","logit_bias":{"1":1},"stop":["1"],"prompt":"1"})"
               "\n{\"id\": 1 2}\n");
  REQUIRE(items.size() == 4);
  CHECK(contains(items[0].error, "the key 'prompt' twice"));
  CHECK(contains(items[1].error, "the key 'role' twice"));
  CHECK_MESSAGE(items[2].error.empty(), items[2].error);
  CHECK_FALSE(contains(items[3].error, "line 1"));
  CHECK(contains(items[3].error, "the line is not JSON: at column 10"));
  CHECK(contains(items[3].error, "\"prompt\": \"Hi\""));
}

TEST_CASE("plain lines are prompts, and their numbers ids") {
  const auto items = items_of("\xEF\xBB\xBFone\r\n\n{\"id\":1}\n\xff\n", {.plain = true});
  REQUIRE(items.size() == 3);
  CHECK(items[0].prompt == "one");
  CHECK(items[0].id == "1");
  CHECK(items[1].prompt == "{\"id\":1}");
  CHECK(items[1].id == "3");
  CHECK(items[2].prompt == "\xEF\xBF\xBD");
}

TEST_CASE("OpenAI items: what is understood") {
  const BatchItem chat = chat_item(
      R"({"model":"gpt-x","messages":[{"role":"user","content":"Hi"}],"max_completion_tokens":5,)"
      R"("temperature":1,"n":1,"logprobs":true,"top_logprobs":3,"seed":-1,"stop":"x","user":"u",)"
      R"("stream":false,"response_format":{"type":"text"},"presence_penalty":0.5,"min_p":0.2,)"
      R"("logit_bias":{"3":-100},"tools":[],"tool_choice":null,"frobnicate":1})");
  REQUIRE_MESSAGE(chat.error.empty(), chat.error);
  CHECK(chat.form == ItemForm::kChat);
  CHECK(chat.id == "a");
  CHECK(chat.model == "gpt-x");
  CHECK(chat.max_tokens == 5);
  CHECK(chat.want_logprobs);
  CHECK(chat.logprobs == 3);
  CHECK(chat.sampling.seed == ~std::uint64_t{0});
  CHECK(chat.sampling.presence_penalty == 0.5);
  CHECK(chat.unknown_keys == std::vector<std::string>{"body.frobnicate"});

  const BatchItem text = completion_item(R"({"prompt":["Hi"],"logprobs":2,"max_tokens":3})");
  REQUIRE_MESSAGE(text.error.empty(), text.error);
  CHECK(text.form == ItemForm::kCompletions);
  CHECK(text.prompt == "Hi");
  CHECK(text.as_is);
  CHECK(text.want_logprobs);
  CHECK(completion_item(R"({"prompt":[5,6]})").prompt_ids == std::vector<std::int32_t>{5, 6});
  CHECK(completion_item(R"({"prompt":[[5,6]]})").prompt_ids == std::vector<std::int32_t>{5, 6});
}

TEST_CASE("OpenAI items: what would change the answer and can't be given is an error") {
  for (const char* key :
       {R"("n":2)", R"("response_format":{"type":"json_object"})", R"("audio":{})",
        R"("modalities":["text","audio"])", R"("functions":[{}])", R"("function_call":"auto")",
        R"("reasoning_effort":"low")", R"("tool_choice":"required")", R"("logprobs":3)",
        R"("top_logprobs":3)", R"("top_logprobs":21,"logprobs":true)", R"("max_tokens":-1)",
        R"("max_tokens":3,"max_completion_tokens":4)", R"("temperature":"x")", R"("tools":[1])",
        R"("verbosity":"low")", R"("n":"1")"}) {
    CAPTURE(key);
    const BatchItem item =
        chat_item(R"({"messages":[{"role":"user","content":"x"}],)" + std::string(key) + "}");
    CHECK_FALSE(item.error.empty());
    CHECK_FALSE(item.unreadable);
  }
  for (const char* body :
       {R"({"prompt":["a","b"]})", R"({"prompt":[[1],[2]]})", R"({"prompt":[]})", R"({"prompt":5})",
        R"({"prompt":"x","echo":true})", R"({"prompt":"x","suffix":"y"})",
        R"({"prompt":"x","best_of":2})", R"({"prompt":[[["x"]]]})", "{}"}) {
    CAPTURE(body);
    CHECK_FALSE(completion_item(body).error.empty());
  }
  const char* good = R"("body":{"messages":[{"role":"user","content":"x"}]})";
  const auto error = [&](const std::string& rest) { return item_of("{" + rest + "}").error; };
  CHECK(error(R"("custom_id":"a","method":"POST","url":"/v1/chat/completions",)" +
              std::string(good)) == "");
  CHECK(contains(
      error(R"("custom_id":"a","method":"GET","url":"/v1/chat/completions",)" + std::string(good)),
      "method"));
  CHECK(contains(
      error(R"("custom_id":"a","method":"POST","url":"/v1/embeddings",)" + std::string(good)),
      "'url'"));
  CHECK(contains(error(R"("custom_id":"a","method":"POST","url":"/v1/chat/completions")"), "body"));
  CHECK(contains(error(R"("method":"POST","url":"/v1/chat/completions",)" + std::string(good)),
                 "custom_id"));

  CHECK(contains(error(R"("custom_id":null,"url":"/v1/chat/completions",)" + std::string(good)),
                 "'custom_id' is null"));

  // The form of a file is that of its first object.
  const auto items = items_of(R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"x"}})"
                              "\nnonsense\n"
                              R"({"id":"b","prompt":"x"})");
  REQUIRE(items.size() == 3);
  CHECK(items[1].form == ItemForm::kChat);
  CHECK(items[1].unreadable);
  CHECK(contains(items[1].error, "custom_id"));
  CHECK(contains(items[2].error, "custom_id"));
}

TEST_CASE("shards: a hash that never changes, and each line in exactly one of them") {
  CHECK(stable_hash("") == 0xefd01f60ba992926);
  CHECK(stable_hash("1") == 0x7c3832dde020d3d6);
  CHECK(stable_hash("item-42") == 0x223c1e45fca2c418);
  CHECK(stable_hash("Gr\xc3\xbc\xc3\x9f"
                    "e") == 0x18ee3acd8b57a4fe);
  CHECK(random_stream("item-42") == (0x223c1e45fca2c418 >> 32));

  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("{{\"id\":\"i{}\",\"prompt\":\"x\"}}\n", i);
  text += "broken\n{\"id\":\"i3\",\"prompt\":\"again\"}\n{\"prompt\":\"no id\"}\n{\"id\":[]}\n";
  const auto all = items_of(text);
  CHECK(all.size() == 304);
  for (const std::uint32_t count : {2U, 3U, 7U}) {
    std::set<std::string> seen;
    std::size_t sum = 0;
    for (std::uint32_t index = 0; index < count; ++index) {
      const auto part = items_of(text, {.shard = {index, count}});
      CHECK(part.size() > 304 / count / 2);
      sum += part.size();
      for (const BatchItem& item : part) seen.insert(item.id);
    }
    CHECK(sum == all.size());
    CHECK(seen.size() == all.size());
  }
  const auto plain = items_of("a\nb\nc\nd\n", {.plain = true, .shard = {0, 2}});
  const auto rest = items_of("a\nb\nc\nd\n", {.plain = true, .shard = {1, 2}});
  CHECK(plain.size() + rest.size() == 4);

  CHECK(parse_shard("0/1").ok());
  CHECK(*parse_shard("2/3") == Shard{2, 3});
  for (const char* bad : {"", "1", "3/3", "-1/3", "1/0", "a/3", "1/3x", "1//3", "0/9999999999"}) {
    CHECK_FALSE(parse_shard(bad).ok());
  }
}

TEST_CASE("percentiles, goals and goodput") {
  CHECK(percentiles({}).count == 0);
  CHECK(percentiles({5}).p50 == 5);
  CHECK(percentiles({5}).p99 == 5);
  std::vector<float> values;
  for (int i = 100; i >= 1; --i) values.push_back(static_cast<float>(i));
  CHECK(percentiles(values).p50 == 50);
  CHECK(percentiles(values).p90 == 90);
  CHECK(percentiles(values).p99 == 99);
  values.push_back(101);
  CHECK(percentiles(values).p50 == 51);
  CHECK(percentiles({1, 2}).p50 == 1);
  CHECK(percentiles({1, 2}).p90 == 2);

  const auto goal = parse_latency_goal("ttft=500,tpot=50.5");
  REQUIRE(goal.ok());
  CHECK(goal->ttft_ms == 500);
  CHECK(goal->tpot_ms == 50.5);
  CHECK_FALSE(parse_latency_goal("tpot=1")->ttft_ms);
  for (const char* bad : {"", "ttft", "ttft=", "ttft=0", "ttft=-1", "ttft=x", "ttft=1,ttft=2",
                          "itl=3", "ttft=1,", "ttft=inf", "ttft=1e999"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_latency_goal(bad).ok());
  }
  LatencyStats stats(*goal);
  stats.add({.queue_ms = 1, .ttft_ms = 500, .tpot_ms = 50.5, .end_ms = 900, .tokens = 10});
  stats.add({.queue_ms = 1, .ttft_ms = 501, .tpot_ms = 1, .end_ms = 900, .tokens = 20});
  stats.add({.queue_ms = 1, .ttft_ms = 1, .tpot_ms = 51, .end_ms = 900, .tokens = 40});
  stats.add({.queue_ms = 1, .ttft_ms = 1, .tpot_ms = 0, .end_ms = 2, .tokens = 1});
  CHECK(stats.items() == 4);
  CHECK(stats.tokens() == 71);
  CHECK(stats.good_items() == 2);
  CHECK(stats.good_tokens() == 11);
  CHECK(stats.tpot().count == 3);  // one token has no time per further token
  CHECK(stats.ttft().count == 4);
}

TEST_CASE("the output file: index, torn line, lock, and what is no answer") {
  const TemporaryFolder folder;
  const std::string path = folder / "out";
  const auto open = [&] { return BatchOutput::open(path, true, nullptr); };
  {
    auto output = open();
    REQUIRE_MESSAGE(output.ok(), (output.ok() ? "" : output.error().message));
    CHECK((*output)->empty());
    CHECK((*output)->locked());
    const auto second = open();
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().code == ErrorCode::kUsage);
    CHECK(contains(second.error().message, "in use"));
    REQUIRE((*output)->write_line("{\"id\":\"a\",\"text\":\"x\"}\n").ok());
    REQUIRE((*output)->write_line("{\"id\":5,\"line\":2,\"error\":\"y\"}\n").ok());
    REQUIRE((*output)->close().ok());
  }
  const std::string whole = TemporaryFolder::read(path);
  CHECK(whole == "{\"id\":\"a\",\"text\":\"x\"}\n{\"id\":5,\"line\":2,\"error\":\"y\"}\n");
  // Cut anywhere, only whole lines stay, and what is written next stands behind them.
  const std::size_t first = whole.find('\n') + 1;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    folder.file("out", whole.substr(0, size));
    auto output = open();
    REQUIRE(output.ok());
    CHECK((*output)->answers().size() == (size >= first ? 1 : 0));
    CHECK((*output)->torn_bytes() == (size >= first ? size - first : size));
    REQUIRE((*output)->write_line("{\"id\":\"n\"}\n").ok());
    REQUIRE((*output)->close().ok());
    CHECK(TemporaryFolder::read(path) ==
          whole.substr(0, size >= first ? first : 0) + "{\"id\":\"n\"}\n");
  }
  folder.file(
      "out",
      whole + R"({"id":"batch_req_1","custom_id":"c","response":{"status_code":200},"error":null})"
              "\n"
              R"({"id":"batch_req_2","custom_id":"d","response":{"status_code":400},"error":null})"
              "\n"
              R"({"id":"batch_req_3","custom_id":"e","response":null,"error":{"code":"x"}})"
              "\n"
              R"({"id":5,"text":"after all"})"
              "\r\n");
  {
    auto output = open();
    REQUIRE(output.ok());
    const auto& answers = (*output)->answers();
    CHECK(answers.size() == 5);
    CHECK_FALSE(answers.at("a").error);
    CHECK_FALSE(answers.at("5").error);  // the last line of an id counts
    CHECK_FALSE(answers.at("c").error);
    CHECK(answers.at("d").error);
    CHECK(answers.at("e").error);
  }
  for (const char* bad : {"hello\n", "{}\n", "\n", "[1]\n", "{\"id\":null}\n"}) {
    CAPTURE(bad);
    folder.file("out", whole + bad);
    const auto output = open();
    REQUIRE_FALSE(output.ok());
    CHECK(output.error().code == ErrorCode::kBadInput);
    CHECK(contains(output.error().message, "line 3"));
    CHECK(TemporaryFolder::read(path) == whole + bad);  // untouched
  }
  // Somebody's file without a line end is no torn answer, unless a batch is known to have begun it.
  for (const char* other : {"precious", "{\"a\":1}", "{\"id\":\"a\",\"te"}) {
    folder.file("out", other);
    const auto refused = BatchOutput::open(path, false, nullptr);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == ErrorCode::kBadInput);
    CHECK(TemporaryFolder::read(path) == other);
  }
  folder.file("out", whole + "{\"id\":\"to");
  CHECK(BatchOutput::open(path, false, nullptr).ok());
  CHECK(TemporaryFolder::read(path) == whole);
  CHECK(BatchOutput::open("/dev/null", true, nullptr).error().code == ErrorCode::kUsage);
  CHECK(BatchOutput::open(folder / ".", true, nullptr).error().code == ErrorCode::kFailed);
}

TEST_CASE("the output file: a full disk leaves whole lines, and is told") {
  const TemporaryFolder folder;
  struct rlimit before {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  auto output = BatchOutput::open(folder / "out", true, nullptr);
  REQUIRE(output.ok());
  const struct rlimit small = {1000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string line = "{\"id\":\"a\",\"text\":\"" + std::string(380, 'x') + "\"}\n";
  CHECK((*output)->write_line(line).ok());
  CHECK((*output)->write_line(line).ok());
  const Status full = (*output)->write_line(line);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  REQUIRE_FALSE(full.ok());
  CHECK(full.error().code == ErrorCode::kFailed);
  CHECK(contains(full.error().message, "make room"));
  CHECK(TemporaryFolder::read(folder / "out") == line + line);
  CHECK((*output)->write_line(line).ok());  // there is room again
  CHECK((*output)->close().ok());
  CHECK(TemporaryFolder::read(folder / "out") == line + line + line);
}

TEST_CASE("what an output was made with is kept, and differences are told") {
  const TemporaryFolder folder;
  const std::string path = folder / "out.run";
  CHECK_FALSE(RunFile::read(path)->has_value());
  RunFile run;
  run.settings = {{"--temp", 0.7}, {"--system", nullptr}, {"--stop", {"a"}}};
  run.seed = ~std::uint64_t{0};
  run.began = 1700000000;
  run.input = InputSummary{5, 100, 7, 100};
  REQUIRE(run.write(path).ok());
  const auto read = RunFile::read(path);
  REQUIRE(read.ok());
  REQUIRE(read->has_value());
  CHECK((*read)->seed == run.seed);
  CHECK((*read)->began == run.began);
  CHECK((*read)->input->bytes == 100);
  CHECK((*read)->input->hash == 7);
  CHECK(differences((*read)->settings, run.settings).empty());
  BatchJson now = run.settings;
  now["--temp"] = 0.9;
  now["--raw"] = true;
  now.erase("--stop");
  CHECK(differences(run.settings, now) ==
        std::vector<std::string>{"--temp was 0.7 and is 0.9", "--stop was [\"a\"] and is not set",
                                 "--raw was not set and is true"});
  for (const char* bad :
       {"{}", "x", "[]", "{\"sluice_batch\":2,\"settings\":{},\"seed\":1,\"began\":1}",
        "{\"sluice_batch\":1,\"settings\":[],\"seed\":1,\"began\":1}",
        "{\"sluice_batch\":1,\"settings\":{},\"seed\":-1,\"began\":1}"}) {
    CAPTURE(bad);
    folder.file("out.run", bad);
    CHECK_FALSE(RunFile::read(path).ok());
  }
}

namespace {

// The bundled model and what a batch needs of it.
struct Loaded {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<PromptMaker> prompts;

  explicit Loaded(PromptOptions options = {}) {
    auto loaded = Engine::load(kModel, {.context = 256});
    REQUIRE(loaded.ok());
    engine = std::move(*loaded);
    auto format = ChatFormat::load(engine->file(), engine->tokenizer());
    REQUIRE(format.ok());
    auto made = PromptMaker::create(engine->tokenizer(), std::move(*format), std::move(options));
    REQUIRE(made.ok());
    prompts = std::make_unique<PromptMaker>(std::move(*made));
  }

  std::string text_of(const BatchItem& item) const {
    const auto prompt = prompts->make(item);
    REQUIRE_MESSAGE(prompt.ok(), (prompt.ok() ? "" : prompt.error().message));
    return engine->tokenizer().decode(prompt->ids, true);
  }
  int controls(const BatchItem& item) const {
    const auto prompt = prompts->make(item);
    REQUIRE(prompt.ok());
    int n = 0;
    for (const std::int32_t id : prompt->ids) {
      n += engine->tokenizer().type(id) == TokenType::kControl ? 1 : 0;
    }
    return n;
  }

  struct Run {
    std::vector<std::string> lines;
    std::vector<std::string> warnings;
    BatchCounts counts;
    Status status;
  };
  Run run(const std::string& input, BatchOptions options = {}, ItemReaderOptions reading = {}) {
    const TemporaryFolder folder;
    auto lines = LineReader::open(folder.file("in", input), ItemReader::kMostLineBytes);
    REQUIRE(lines.ok());
    ItemReader reader(std::move(*lines), reading);
    Scheduler scheduler(*engine, {});
    const ResultContext context = {engine->tokenizer(), "the model", 1234};
    if (!options.defaults.sampling.seed) options.defaults.sampling.seed = 0;
    if (options.defaults.max_tokens == -1) options.defaults.max_tokens = 6;
    Run run;
    BatchEvents events;
    events.on_line = [&](std::string_view line) -> Status {
      CHECK(line.ends_with('\n'));
      CHECK(std::count(line.begin(), line.end(), '\n') == 1);
      CHECK(is_valid_utf8(line));
      run.lines.emplace_back(line);
      return {};
    };
    events.on_warning = [&](const std::string& line) { run.warnings.push_back(line); };
    BatchRunner runner(scheduler, reader, *prompts, context, std::move(options), std::move(events));
    run.status = runner.run(nullptr);
    run.counts = runner.counts();
    return run;
  }
};

}  // namespace

TEST_CASE("a prompt that can't fit is refused before it is encoded") {
  PromptOptions options;
  options.context = 256;
  const Loaded loaded(std::move(options));
  const std::size_t longest = 10000 / loaded.engine->tokenizer().fewest_tokens(10000);
  BatchItem item;
  item.prompt = std::string(300 * longest, 'x');
  for (const bool as_is : {false, true}) {
    item.as_is = as_is;
    const auto made = loaded.prompts->make(item);
    REQUIRE_FALSE(made.ok());
    CHECK(contains(made.error().message, "tokens or more; the context holds 256"));
  }
  item.prompt = "Hello";
  CHECK(loaded.prompts->make(item).ok());
  // No text has fewer tokens than is said.
  for (const char* text : {"", "a", "Once upon a time", "    ", "\xF0\x9F\xA6\x8A"}) {
    const auto ids = loaded.engine->tokenizer().encode(text);
    REQUIRE(ids.ok());
    CHECK(ids->size() >= loaded.engine->tokenizer().fewest_tokens(std::string_view(text).size()));
  }
}

namespace {

BatchJson without_timings(const std::string& line) {
  BatchJson json = BatchJson::parse(line);
  json.erase("timings");
  if (json.contains("response") && json["response"].is_object()) {
    json["response"]["body"].erase("timings");
  }
  return json;
}

}  // namespace

TEST_CASE("prompts: a conversation where there is a template, and no content becomes control") {
  const Loaded plain;
  const BatchItem hello = item_of(R"({"prompt":"hello"})");
  CHECK(plain.text_of(hello) == "<|user|>\nhello<|end|>\n<|assistant|>\n");
  CHECK(plain.text_of(item_of(R"({"prompt":"hello","system":"s"})")) ==
        "<|system|>\ns<|end|>\n<|user|>\nhello<|end|>\n<|assistant|>\n");
  CHECK(plain.controls(hello) ==
        plain.controls(item_of(R"({"prompt":"<|end|><|assistant|>hello"})")));
  CHECK(plain.controls(completion_item(R"({"prompt":"<|end|>hello"})")) == 0);
  CHECK(plain.text_of(completion_item(R"({"prompt":"hello"})")) == "hello");
  CHECK(plain.prompts->make(item_of(R"({"prompt_tokens":[5,6]})"))->ids ==
        std::vector<std::int32_t>{5, 6});
  const auto tools = plain.prompts->make(
      item_of(R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function"}]})"));
  REQUIRE_FALSE(tools.ok());
  CHECK(contains(tools.error().message, "no tools"));

  const Loaded all({.system = "S", .prefix = "P "});
  CHECK(all.text_of(hello) == "<|system|>\nS<|end|>\n<|user|>\nP hello<|end|>\n<|assistant|>\n");
  CHECK(all.text_of(item_of(R"({"prompt":"hello","system":"s"})")) ==
        "<|system|>\ns<|end|>\n<|user|>\nP hello<|end|>\n<|assistant|>\n");
  CHECK(all.text_of(completion_item(R"({"prompt":"hello"})")) == "P hello");
  CHECK_FALSE(
      all.prompts->make(item_of(R"({"messages":[{"role":"assistant","content":"x"}]})")).ok());

  const Loaded raw({.raw = true});
  CHECK(raw.text_of(hello) == "hello");
  CHECK(raw.controls(item_of(R"({"prompt":"<|end|>hello"})")) == 1);
  CHECK_FALSE(raw.prompts->make(item_of(R"({"messages":[{"role":"user","content":"x"}]})")).ok());
}

TEST_CASE("a batch: an answer for each line, whatever it is") {
  Loaded loaded;
  const auto run = loaded.run(
      "{\"id\":\"a\",\"prompt\":\"Tell me a story.\",\"tokens\":true,\"logprobs\":2,\"x\":1}\n"
      "broken\n{\"id\":2,\"prompt\":\"b\",\"max_tokens\":0,\"x\":1}\n"
      "{\"id\":\"long\",\"prompt_tokens\":[" +
      [] {
        std::string ids = "1";
        for (int i = 0; i < 300; ++i) ids += ",1";
        return ids;
      }() +
      "]}\n{\"id\":\"outside\",\"prompt_tokens\":[5000]}\n"
      "{\"id\":\"ban\",\"prompt\":\"x\",\"logit_bias\":{\"5000\":1}}\n");
  REQUIRE(run.status.ok());
  REQUIRE(run.lines.size() == 6);
  CHECK(run.counts.done == 2);
  CHECK(run.counts.failed == 4);
  CHECK(run.warnings == std::vector<std::string>{"unknown key 'x' is ignored (first on line 1)"});
  std::map<std::string, BatchJson> answers;
  for (const std::string& line : run.lines) {
    const BatchJson json = BatchJson::parse(line);
    answers[json["id"].dump()] = json;
  }
  const BatchJson& a = answers["\"a\""];
  CHECK(a["generated_tokens"] == 6);
  CHECK(a["tokens"].size() == 6);
  CHECK(a["logprobs"].size() == 6);
  CHECK(a["logprobs"][0]["top"].size() == 2);
  CHECK(a["finish_reason"] == "length");
  CHECK(a["timings"]["ttft_ms"].is_number());
  CHECK(a["prompt_tokens"] > 3);
  CHECK(answers["2"]["text"] == "");
  CHECK(answers["\"line-2\""]["line"] == 2);
  CHECK(contains(answers["\"line-2\""]["error"], "not JSON"));
  CHECK(contains(answers["\"long\""]["error"], "301 tokens"));
  CHECK(contains(answers["\"outside\""]["error"], "outside the vocabulary"));
  CHECK(answers["\"ban\""].contains("error"));
}

TEST_CASE("a batch: OpenAI's form of answers") {
  Loaded loaded;
  const auto run = loaded.run(
      R"({"custom_id":"c","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt",)"
      R"("messages":[{"role":"user","content":"Hi"}],"logprobs":true}})"
      "\n"
      R"({"custom_id":"t","method":"POST","url":"/v1/completions","body":{"prompt":"Once",)"
      R"("logprobs":2}})"
      "\n"
      R"({"custom_id":"n","method":"POST","url":"/v1/completions","body":{"prompt":"Once","n":2}})"
      "\nbroken\n",
      {.ordered = true});
  REQUIRE(run.status.ok());
  REQUIRE(run.lines.size() == 4);
  REQUIRE(run.warnings.size() == 1);
  CHECK(contains(run.warnings[0], "'gpt'"));
  const BatchJson chat = BatchJson::parse(run.lines[0]);
  CHECK(chat["custom_id"] == "c");
  CHECK(chat["error"].is_null());
  CHECK(chat["response"]["status_code"] == 200);
  const BatchJson& body = chat["response"]["body"];
  CHECK(body["object"] == "chat.completion");
  CHECK(body["model"] == "the model");
  CHECK(body["created"] == 1234);
  CHECK(body["choices"][0]["message"]["role"] == "assistant");
  CHECK(body["choices"][0]["finish_reason"] == "length");
  CHECK(body["usage"]["completion_tokens"] == 6);
  CHECK(body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"].get<int>() + 6);
  const BatchJson& entry = body["choices"][0]["logprobs"]["content"][0];
  CHECK(entry["top_logprobs"].empty());
  CHECK(entry["logprob"].is_number());
  CHECK(entry["bytes"].size() == entry["token"].get<std::string>().size());
  const BatchJson text = BatchJson::parse(run.lines[1])["response"]["body"];
  CHECK(text["object"] == "text_completion");
  CHECK(text["choices"][0]["logprobs"]["tokens"].size() == 6);
  CHECK(text["choices"][0]["logprobs"]["top_logprobs"][0].size() == 2);
  CHECK(text["choices"][0]["logprobs"]["text_offset"][0] == 0);
  const BatchJson refused = BatchJson::parse(run.lines[2]);
  CHECK(refused["response"]["status_code"] == 400);
  CHECK(contains(refused["response"]["body"]["error"]["message"], "line 3: 'n'"));
  const BatchJson broken = BatchJson::parse(run.lines[3]);
  CHECK(broken["custom_id"] == "line-4");
  CHECK(broken["response"].is_null());
  CHECK(contains(broken["error"]["message"], "line 4"));
}

TEST_CASE("a sampled item gives the same tokens alone, in any order, and gone on with") {
  Loaded loaded;
  std::vector<std::string> items;
  for (int i = 0; i < 8; ++i) {
    items.push_back(fmt::format(
        R"({{"id":"i{}","prompt":"Tell me a story.","temperature":1.5,"min_p":0}})", i));
  }
  items[5].insert(1, "\"seed\":9,");
  const auto answers = [&](const std::vector<std::string>& lines, BatchOptions options = {}) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    std::map<std::string, BatchJson> all;
    const auto run = loaded.run(text, std::move(options));
    REQUIRE(run.status.ok());
    for (const std::string& line : run.lines) {
      BatchJson json = without_timings(line);
      all[json["id"]] = json;
    }
    return all;
  };
  const auto whole = answers(items);
  std::set<std::string> texts;
  for (const auto& [id, answer] : whole) texts.insert(answer["text"]);
  CHECK(texts.size() > 4);  // same prompt, different ids
  CHECK(answers({items.rbegin(), items.rend()}) == whole);
  CHECK(answers({items[3]}).at("i3") == whole.at("i3"));
  BatchOptions other_seed;
  other_seed.defaults.sampling.seed = 1;
  const auto seeded = answers(items, other_seed);
  CHECK(seeded.at("i5") == whole.at("i5"));  // has a seed of its own
  CHECK(seeded.at("i3") != whole.at("i3"));

  const std::unordered_map<std::string, BatchOutput::Answer> known = {{"i0", {false}},
                                                                      {"i1", {true}}};
  BatchOptions resumed;
  resumed.answers = &known;
  CHECK(answers(items, resumed).size() == 6);
  resumed.retry_errors = true;
  const auto retried = answers(items, resumed);
  CHECK(retried.size() == 7);
  CHECK(retried.at("i1") == whole.at("i1"));
}
