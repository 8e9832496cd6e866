// Generation with the bundled model: ends, limits, streaming, reproducibility, interruption,
// memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "src/engine/generate.h"
#include "src/engine/score.h"
#include "tests/temporary_folder.h"

using namespace sluice;

namespace {

const std::string kModel = std::string(SLUICE_SOURCE_DIR) + "/models/storyteller-q4_0.gguf";
const std::string kDraft = std::string(SLUICE_SOURCE_DIR) + "/models/storyteller-draft-q4_0.gguf";

std::unique_ptr<Engine> load(const EngineOptions& options = {.context = 256}) {
  auto engine = Engine::load(kModel, options);
  REQUIRE_MESSAGE(engine.ok(), (engine.ok() ? "" : engine.error().message));
  return std::move(engine).value();
}

GenerateRequest story(Engine& engine) {
  GenerateRequest request;
  auto ids = engine.tokenizer().encode("Once upon a time", {.add_special = true});
  REQUIRE(ids.ok());
  request.prompt = *ids;
  request.max_tokens = 40;
  request.sampling.seed = 7;
  return request;
}

GenerateResult run(Engine& engine, const GenerateRequest& request) {
  auto result = generate(engine, request);
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
  return std::move(result).value();
}

}  // namespace

TEST_CASE("the number of tokens is what was asked for, zero included") {
  const auto engine = load();
  GenerateRequest request = story(*engine);
  request.ignore_eos = true;
  for (const std::int64_t count : {0, 1, 2, 17}) {
    request.max_tokens = count;
    const GenerateResult result = run(*engine, request);
    CHECK(result.tokens.size() == static_cast<std::size_t>(count));
    CHECK(result.finish == FinishReason::kLength);
  }
}

TEST_CASE("-2 fills the context and stops there; what is left of a small one is used") {
  const auto engine = load({.context = 40});
  GenerateRequest request = story(*engine);
  request.max_tokens = -2;
  GenerateResult result = run(*engine, request);
  CHECK(result.finish == FinishReason::kContext);
  CHECK(request.prompt.size() + result.tokens.size() == 40);
  for (const std::int32_t id : result.tokens) CHECK_FALSE(engine->tokenizer().is_eog(id));

  request.prompt.resize(39, request.prompt.back());
  result = run(*engine, request);
  CHECK(result.tokens.size() == 1);
  CHECK(result.finish == FinishReason::kContext);

  request.prompt.push_back(request.prompt.back());
  const auto full = generate(*engine, request);
  REQUIRE_FALSE(full.ok());
  CHECK(full.error().code == ErrorCode::kUsage);
  CHECK(full.error().message.find("40") != std::string::npos);
}

TEST_CASE("a generation that may end does, at an end token that is not in the text") {
  const auto engine = load({.context = 1024});
  GenerateRequest request = story(*engine);
  request.max_tokens = -1;
  request.sampling.temperature = 0;
  const GenerateResult result = run(*engine, request);
  CHECK((result.finish == FinishReason::kStop || result.finish == FinishReason::kContext));
  for (const std::int32_t id : result.tokens) CHECK_FALSE(engine->tokenizer().is_eog(id));
}

TEST_CASE("streamed text is the text; stop strings cut it wherever they fall") {
  const auto engine = load();
  GenerateRequest request = story(*engine);
  request.sampling.temperature = 0;
  const GenerateResult plain = run(*engine, request);
  REQUIRE(plain.text.size() > 30);

  for (std::size_t begin = 0; begin + 12 < plain.text.size(); begin += 3) {
    const std::string stop = plain.text.substr(begin, 5);
    GenerateRequest cut = request;
    cut.stop = {"never to be found", stop};
    std::string streamed;
    cut.on_text = [&](std::string_view text) {
      streamed += text;
      return true;
    };
    const GenerateResult result = run(*engine, cut);
    CHECK(result.finish == FinishReason::kStop);
    CHECK(result.stop_string == stop);
    CHECK(result.text == plain.text.substr(0, plain.text.find(stop)));
    CHECK(streamed == result.text);
  }
}

TEST_CASE("equal seeds give equal tokens for any chunk, thread count and instruction set") {
  const auto engine = load();
  const GenerateResult want = run(*engine, story(*engine));
  GenerateRequest other = story(*engine);
  other.sampling.seed = 8;
  CHECK(run(*engine, other).tokens != want.tokens);
  for (const EngineOptions& options :
       {EngineOptions{.context = 256, .prefill_chunk = 1},
        EngineOptions{.context = 256, .threads = 3, .prefill_chunk = 2},
        EngineOptions{.context = 256, .threads = 1, .cpu_isa = "generic"}}) {
    const auto changed = load(options);
    CHECK(run(*changed, story(*changed)).tokens == want.tokens);
    CHECK(run(*changed, story(*changed)).tokens == want.tokens);  // and again, in reused blocks
  }
}

TEST_CASE("log-probabilities belong to the tokens") {
  const auto engine = load();
  GenerateRequest request = story(*engine);
  request.sampling.temperature = 0;
  request.logprobs = 3;
  const GenerateResult result = run(*engine, request);
  REQUIRE(result.logprobs.size() == result.tokens.size());
  for (std::size_t i = 0; i < result.tokens.size(); ++i) {
    const TokenLogprobs& entry = result.logprobs[i];
    REQUIRE(entry.top.size() == 3);
    CHECK(entry.top[0].first == result.tokens[i]);  // greedy takes the best
    CHECK(entry.top[0].second == doctest::Approx(entry.logprob));
    CHECK(entry.top[0].second >= entry.top[1].second);
    CHECK(entry.logprob <= 0);
  }
}

TEST_CASE("a reader that is gone ends the generation with an error") {
  const auto engine = load();
  GenerateRequest request = story(*engine);
  std::size_t heard = 0;
  request.on_text = [&](std::string_view) { return ++heard < 3; };
  CHECK_FALSE(generate(*engine, request).ok());
  CHECK(heard == 3);
  CHECK(engine->kv().free_blocks() == engine->kv().total_blocks());
}

TEST_CASE("an interruption keeps what there is") {
  const auto engine = load();
  std::atomic<bool> cancel{false};
  GenerateRequest request = story(*engine);
  request.max_tokens = -2;
  request.cancel = &cancel;
  std::size_t heard = 0;
  request.on_text = [&](std::string_view) {
    if (++heard == 5) cancel = true;
    return true;
  };
  const GenerateResult result = run(*engine, request);
  CHECK(result.finish == FinishReason::kInterrupted);
  CHECK_FALSE(result.text.empty());
  CHECK(engine->kv().free_blocks() == engine->kv().total_blocks());

  cancel = true;  // before the prompt is read
  const GenerateResult none = run(*engine, request);
  CHECK(none.finish == FinishReason::kInterrupted);
  CHECK(none.tokens.empty());
}

TEST_CASE("what cannot work is refused with its exit code") {
  const auto huge = Engine::load(kModel, {.context = 2'000'000'000});
  REQUIRE_FALSE(huge.ok());
  CHECK(huge.error().code == ErrorCode::kNoMemory);
  CHECK(huge.error().message.find("-c ") != std::string::npos);
  CHECK(huge.error().message.find("MiB") != std::string::npos);

  const auto isa = Engine::load(kModel, {.cpu_isa = "mmx"});
  REQUIRE_FALSE(isa.ok());
  CHECK(isa.error().code == ErrorCode::kUsage);
  CHECK(isa.error().message.find("generic") != std::string::npos);

  const auto missing = Engine::load(kModel + ".missing", {});
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == ErrorCode::kBadInput);

  const auto engine = load();
  GenerateRequest request = story(*engine);
  request.prompt = {1'000'000};
  CHECK(generate(*engine, request).error().code == ErrorCode::kUsage);
  request.prompt = {};
  CHECK(generate(*engine, request).error().code == ErrorCode::kUsage);
}

TEST_CASE("loading can be interrupted") {
  std::atomic<bool> cancel{true};
  const auto engine = Engine::load(kModel, {.cancel = &cancel});
  REQUIRE_FALSE(engine.ok());
  CHECK(engine.error().code == ErrorCode::kInterrupted);
}

TEST_CASE("a profile's stages read what the pass reads, and no logit depends on it") {
  const auto engine = load();
  const SequenceId plain = engine->kv().create(), profiled = engine->kv().create();
  std::vector<BatchRow> rows;
  for (std::uint32_t i = 0; i < 5; ++i)
    rows.push_back({static_cast<std::int32_t>(i + 7), i, plain, i > 2});
  std::vector<float> want(2 * engine->spec().vocabulary), got(want.size());
  REQUIRE(engine->run(rows, want, nullptr).ok());
  for (BatchRow& row : rows) row.sequence = profiled;
  PassProfile profile;
  const auto traffic = engine->run(rows, got, nullptr, {}, &profile);
  REQUIRE(traffic.ok());
  CHECK(got == want);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < kStages; ++i) {
    CAPTURE(stage_name(static_cast<Stage>(i)));
    CHECK((profile.stage[i].ms > 0) == (static_cast<Stage>(i) != Stage::kExperts));
    bytes += profile.stage[i].bytes;
  }
  CHECK(bytes == traffic->weight_bytes + traffic->kv_bytes);
  // Each weight is multiplied once a row, those of the output only for rows with logits.
  const ModelSpec& spec = engine->spec();
  const std::uint64_t wide = std::uint64_t{spec.embedding} * spec.head_dim;
  const std::uint64_t layer = wide * (2 * spec.heads + 2 * spec.kv_heads) +
                              3 * std::uint64_t{spec.embedding} * spec.feed_forward;
  CHECK(traffic->multiply_adds ==
        5 * spec.layers * layer + 2 * std::uint64_t{spec.vocabulary} * spec.embedding);
}

TEST_CASE("scores do not depend on the size of passes") {
  const std::string text =
      "Once upon a time a fox found a lantern in the snow. The fox was cold, but the light was "
      "warm. So the fox carried the lantern home and shared it with all of the animals.";
  double want = 0;
  for (const EngineOptions& options :
       {EngineOptions{.context = 32, .prefill_chunk = 256, .max_logits = 64},
        EngineOptions{.context = 32, .prefill_chunk = 5, .max_logits = 3}}) {
    const auto engine = load(options);
    auto ids = engine->tokenizer().encode(text, {.add_special = true});
    REQUIRE(ids.ok());
    std::size_t rows = 0;
    ScoreOptions score_options{.window = 32, .skip = 7};
    score_options.on_row = [&](std::span<const float> logprobs, std::int32_t next) -> Status {
      double sum = 0;
      for (const float p : logprobs) sum += std::exp(static_cast<double>(p));
      CHECK(sum == doctest::Approx(1.0).epsilon(1e-5));
      CHECK(next >= 0);
      ++rows;
      return {};
    };
    auto result = score(*engine, *ids, score_options);
    REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
    CHECK(result->tokens == ids->size() / 32 * (32 - 1 - 7));
    CHECK(rows == result->tokens);
    if (want == 0) want = result->mean_nll;
    CHECK(result->mean_nll == want);
    CHECK_FALSE(score(*engine, std::span(*ids).first(31), score_options).ok());
    score_options.skip = 31;
    CHECK_FALSE(score(*engine, *ids, score_options).ok());
  }
}

// -- Packed weights kept between starts ----------------------------------------------------------

namespace {

namespace fs = std::filesystem;

EngineOptions keeping(const std::string& folder) {
  EngineOptions options;
  options.context = 256;
  options.packed_directory = folder;
  options.packed_least_bytes = 1;
  return options;
}

std::vector<fs::path> files_in(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    files.push_back(entry.path());
  }
  return files;
}

// Loads, generates, and says whether the weights were packed and are kept now.
bool packs(const std::string& model, const EngineOptions& options, std::vector<std::int32_t>& ids) {
  auto engine = Engine::load(model, options);
  REQUIRE_MESSAGE(engine.ok(), (engine.ok() ? "" : engine.error().message));
  ids = run(**engine, story(**engine)).tokens;
  for (const std::string& line : (*engine)->info().notes) {
    if (line.find("are written for later starts") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("packed weights are kept, found again, and give the same tokens") {
  const test::TemporaryFolder folder;
  const std::string model = folder / "model.gguf";
  fs::copy_file(kModel, model);
  const std::string kept = folder / "cache";
  std::vector<std::int32_t> want;
  std::vector<std::int32_t> got;
  CHECK_FALSE(packs(model, {.context = 256}, want));
  CHECK(files_in(kept).empty());

  CHECK(packs(model, keeping(kept), got));
  CHECK(got == want);
  REQUIRE(files_in(kept).size() == 1);  // the whole one, nothing partial
  const fs::path file = files_in(kept).front();
  CHECK((fs::status(file).permissions() & fs::perms::all) ==
        (fs::perms::owner_read | fs::perms::owner_write));
  CHECK_FALSE(packs(model, keeping(kept), got));
  CHECK(got == want);
  // Too little to be worth it.
  EngineOptions small = keeping(kept);
  small.packed_least_bytes = std::uint64_t{1} << 40;
  CHECK_FALSE(packs(model, small, got));
  CHECK(got == want);
}

TEST_CASE("packed weights of another model, damaged or foreign files are not used but replaced") {
  const test::TemporaryFolder folder;
  const std::string model = folder / "model.gguf";
  fs::copy_file(kModel, model);
  const std::string kept = folder / "cache";
  std::vector<std::int32_t> want;
  std::vector<std::int32_t> got;
  CHECK(packs(model, keeping(kept), want));
  const fs::path file = files_in(kept).front();
  const auto renewed = [&] {
    const bool packed = packs(model, keeping(kept), got);
    CHECK(got == want);
    CHECK(files_in(kept).size() == 1);
    return packed;
  };
  CHECK_FALSE(renewed());
  // What a process that died had begun goes with the next one that is written.
  std::ofstream(file.string() + ".99999999.partial") << "half";
  // Shorter, longer, another label.
  fs::resize_file(file, fs::file_size(file) - 1);
  CHECK(renewed());
  fs::resize_file(file, fs::file_size(file) + 1);
  CHECK(renewed());
  for (const std::streamoff at : {0, 30, 4095}) {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(at);
    bytes.put('#');
    bytes.close();
    CHECK(renewed());
  }
  // Zeros where the disk never got what was written.
  const std::vector<char> zeros(static_cast<std::size_t>(fs::file_size(file)) / 2);
  std::fstream half(file, std::ios::in | std::ios::out | std::ios::binary);
  half.seekp(4096 + 100);
  half.write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
  half.close();
  CHECK(renewed());
  {  // One bit in the middle.
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(fs::file_size(file) / 2 + 1);
    bytes.seekg(middle);
    const int old = bytes.get();
    bytes.seekp(middle);
    bytes.put(static_cast<char>(old ^ 1));
  }
  CHECK(renewed());
  // Others could have written it; it is no file.
  fs::permissions(file, fs::perms::group_write, fs::perm_options::add);
  CHECK(renewed());
  fs::remove(file);
  fs::create_symlink(model, file);
  CHECK(renewed());
  CHECK(fs::file_size(model) == fs::file_size(kModel));
  // The model is another one, or was touched, or written with its time set back.
  const auto time = fs::last_write_time(model);
  fs::last_write_time(model, time + std::chrono::seconds(1));
  CHECK(renewed());
  fs::last_write_time(model, time);
  CHECK(renewed());
  fs::copy_file(kDraft, model, fs::copy_options::overwrite_existing);
  std::vector<std::int32_t> other;
  CHECK(packs(model, keeping(kept), other));
  CHECK(other != want);
  CHECK_FALSE(packs(model, keeping(kept), got));
  CHECK(got == other);
}

TEST_CASE("where packed weights can't be kept, that is said and nothing else changes") {
  const test::TemporaryFolder folder;
  const std::string blocked = folder.file("blocked", "a file");
  auto engine = Engine::load(kModel, keeping(blocked + "/cache"));
  REQUIRE(engine.ok());
  const std::vector<std::string>& notes = (*engine)->info().notes;
  CHECK(std::any_of(notes.begin(), notes.end(), [](const std::string& line) {
    return line.find("packed weights are not kept for later starts: ") == 0;
  }));
  const std::string open = folder / "open";
  fs::create_directory(open);
  fs::permissions(open, fs::perms::all);
  auto other = Engine::load(kModel, keeping(open));
  REQUIRE(other.ok());
  CHECK(files_in(open).empty());
}
