// The parts of the command line that need no process: numbers, suggestions, flags, saved
// predictions.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "src/cli/batch/svg_plot.h"
#include "src/cli/batch/timeline.h"
#include "src/cli/conversation.h"
#include "src/cli/flags.h"
#include "src/cli/input.h"
#include "src/cli/numbers.h"
#include "src/cli/reference_file.h"
#include "src/cli/sampling_flags.h"
#include "src/cli/suggest.h"
#include "src/text/bounded_json.h"
#include "tests/temporary_folder.h"

namespace sluice::cli {
namespace {

TEST_CASE("numbers are read whole, decimal, and with a point") {
  CHECK(parse_integer("-12") == -12);
  CHECK(parse_integer("010") == 10);
  CHECK(parse_unsigned("18446744073709551615") == std::numeric_limits<std::uint64_t>::max());
  CHECK(parse_real("0.7") == 0.7);
  CHECK(parse_real("1e-3") == 1e-3);
  for (const char* bad : {"", " 1", "1 ", "0x10", "1_0", "+1", "9223372036854775808", "1.0", "a"}) {
    CHECK_MESSAGE(!parse_integer(bad), bad);
  }
  for (const char* bad : {"", "0,7", "nan", "inf", "-inf", "1e999", "0.7 ", "0x1p3", "."}) {
    CHECK_MESSAGE(!parse_real(bad), bad);
  }
  CHECK(!parse_unsigned("-1"));
}

TEST_CASE("lists of ids") {
  const auto ids = parse_id_list("1,20,3");
  REQUIRE(ids.ok());
  CHECK(*ids == std::vector<std::int32_t>{1, 20, 3});
  CHECK(parse_id_list("2147483647").ok());
  for (const char* bad : {"", ",", "1,", ",1", "1,,2", "1 2", "-1", "2147483648", "x"}) {
    const auto refused = parse_id_list(bad);
    CHECK_MESSAGE(!refused.ok(), bad);
    if (!refused.ok()) CHECK(refused.error().code == ErrorCode::kUsage);
  }
}

TEST_CASE("sizes and times for people") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(std::uint64_t{20} << 30) == "20.0 GiB");
  CHECK(format_bytes(std::numeric_limits<std::uint64_t>::max()) == "16777216 TiB");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1234567) == "1.23 M");
  CHECK(format_seconds(7.4) == "7s");
  CHECK(format_seconds(75) == "1m15s");
  CHECK(format_seconds(3725) == "1h02m");
}

TEST_CASE("edit distance and what was meant") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("top", "otp") == 1);  // a swap
  const std::vector<std::string> known = {"run", "inspect", "tokenize", "perplexity"};
  CHECK(nearest("inspct", known) == "inspect");
  CHECK(nearest("rnu", known) == "run");
  CHECK(nearest("perp", known) == "perplexity");  // an abbreviation
  CHECK(nearest("quantize", known) == "");
  CHECK(nearest("", known) == "");
  CHECK(nearest(std::string(100000, 'x'), known) == "");
}

struct Given {
  std::optional<std::string> text;
  std::vector<std::string> texts, words;
  std::optional<std::int64_t> number;
  bool toggle = false;

  Status parse(std::vector<std::string> args) {
    Flags flags("test", "test", "Tests.");
    flags.text("-p,--prompt", "TEXT", "help", &text);
    flags.texts("--stop", "TEXT", "help", &texts);
    flags.integer("-n,--predict,--n-predict", "N", "help", -2, 100, &number);
    flags.toggle("--json", "help", &toggle);
    flags.positional("WORD", "help", 1, &words);
    const auto outcome = flags.parse(args);
    return outcome.ok() ? Status{} : Status{outcome.error()};
  }
};

TEST_CASE("flags take values as they are") {
  Given given;
  REQUIRE(given.parse({"-p", "-x", "--stop", "[a,b]", "--stop={}", "--json", "-n-1", "-"}).ok());
  CHECK(given.text == "-x");
  CHECK(given.texts == std::vector<std::string>{"[a,b]", "{}"});
  CHECK(given.number == -1);
  CHECK(given.toggle);
  CHECK(given.words == std::vector<std::string>{"-"});

  Given values;
  REQUIRE(values.parse({"--prompt=", "--predict", "5", "--stop", "", "--stop", "--json"}).ok());
  CHECK(values.text == "");
  CHECK(values.number == 5);
  CHECK(values.texts == std::vector<std::string>{"", "--json"});
  CHECK_FALSE(values.toggle);

  Given escapes;
  REQUIRE(escapes.parse({"-p", "--", "--", "--json"}).ok());
  CHECK(escapes.text == "--");
  CHECK(escapes.words == std::vector<std::string>{"--json"});
  CHECK_FALSE(escapes.toggle);
}

TEST_CASE("wrong flags are explained") {
  const auto message = [](std::vector<std::string> args) {
    Given given;
    const Status status = given.parse(std::move(args));
    if (status.ok()) return std::string("accepted");
    CHECK(status.error().code == ErrorCode::kUsage);
    return status.error().message;
  };
  const auto contains = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  contains(message({"--promt", "a"}), "did you mean --prompt?");
  contains(message({"-prompt", "a"}), "unknown flag '-prompt'; did you mean --prompt?");
  contains(message({"-json"}), "did you mean --json?");
  contains(message({"-npredict", "1"}), "unknown flag '-npredict'; did you mean --predict?");
  contains(message({"--p", "a"}), "did you mean -p?");
  contains(message({"--frobnicate=1"}), "unknown flag '--frobnicate'");
  contains(message({"-p"}), "-p needs a value");
  contains(message({"-p", "a", "--prompt", "b"}), "--prompt is given more than once");
  contains(message({"-n", "101"}), "'101' is not a whole number from -2 to 100");
  contains(message({"-n", "1e2"}), "'1e2' is not a whole number");
  contains(message({"--json=yes"}), "takes no value");
  contains(message({"a", "b"}), "unexpected argument 'b'");
}

TEST_CASE("logit biases") {
  const auto bias = parse_logit_bias("15043-0.5");
  REQUIRE(bias.ok());
  CHECK(bias->token == 15043);
  CHECK(bias->bias == -0.5);
  CHECK(parse_logit_bias("2+1e2")->bias == 100);
  CHECK(parse_logit_bias("2-inf")->bias == -std::numeric_limits<double>::infinity());
  for (const char* bad : {"", "5", "+1", "x+1", "-5+1", "5+", "5+x", "5+inf", "5+nan", "5--1",
                          "99999999999+1", "5+0,5"}) {
    CHECK_MESSAGE(!parse_logit_bias(bad).ok(), bad);
  }
}

TEST_CASE("one final line end is dropped") {
  const auto dropped = [](std::string text) {
    drop_final_newline(text);
    return text;
  };
  CHECK(dropped("a\n\n") == "a\n");
  CHECK(dropped("a\r\n") == "a");
  CHECK(dropped("a\r") == "a\r");
  CHECK(dropped("\n") == "");
  CHECK(dropped("") == "");
}

std::vector<float> log_softmax(std::vector<double> logits) {
  double sum = 0;
  for (const double x : logits) sum += std::exp(x);
  std::vector<float> out;
  for (const double x : logits) out.push_back(static_cast<float>(x - std::log(sum)));
  return out;
}

TEST_CASE("saved predictions: what is written is compared with") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "reference";
  const ReferenceHeader header = {5, 4, 1, {4, 3, 2, 1, 0, 1, 2, 3}};  // 2 windows, 2 rows each
  CHECK(header.rows() == 4);
  const std::vector<float> p = log_softmax({0.0, 2.0, -1.0, 0.5, -3.0});
  const std::vector<float> q = log_softmax({0.1, 1.5, -1.0, 1.7, -2.0});
  {
    auto writer = ReferenceWriter::create(path, header);
    REQUIRE(writer.ok());
    for (int i = 0; i < 4; ++i) REQUIRE(writer->add(p, i).ok());
    CHECK_FALSE(std::filesystem::exists(path));
    REQUIRE(writer->commit().ok());
  }
  auto same = ReferenceReader::open(path, header);
  REQUIRE(same.ok());
  for (int i = 0; i < 4; ++i) REQUIRE(same->compare(p, i).ok());
  CHECK(same->compare(p, 0).error().code == ErrorCode::kBadInput);  // a row too many
  CHECK(std::abs(same->comparison().kl.mean()) < 1e-6);
  CHECK(same->comparison().same_top.mean() == 1);
  CHECK(same->comparison().delta_nll.mean() == 0);

  auto other = ReferenceReader::open(path, header);
  REQUIRE(other.ok());
  double kl = 0;
  for (std::size_t i = 0; i < p.size(); ++i) kl += std::exp(double{p[i]}) * (p[i] - q[i]);
  for (int i = 0; i < 4; ++i) REQUIRE(other->compare(q, i).ok());
  CHECK(other->comparison().kl.mean() == doctest::Approx(kl).epsilon(1e-4));
  CHECK(other->comparison().same_top.mean() == 0);
  CHECK(other->comparison().least_mass == doctest::Approx(1));

  const auto refusal = [&](ReferenceHeader changed) {
    const auto reader = ReferenceReader::open(path, changed);
    return reader.ok() ? std::string("accepted") : reader.error().message;
  };
  ReferenceHeader changed = header;
  changed.vocabulary = 6;
  CHECK(refusal(changed).find("vocabulary of 5, this run has 6") != std::string::npos);
  changed = header;
  changed.window = 8;
  CHECK(refusal(changed).find("window") != std::string::npos);
  changed = header;
  changed.tokens[6] = 0;
  CHECK(refusal(changed).find("token 6 is 2, here 0") != std::string::npos);
}

TEST_CASE("saved predictions of a large vocabulary keep the likely tokens") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "reference";
  const ReferenceHeader header = {20000, 2, 0, {1, 2}};
  std::vector<double> logits(20000, 0.0);
  for (std::size_t i = 0; i < 100; ++i) logits[i * 7] = 18 - 0.01 * static_cast<double>(i);
  const std::vector<float> p = log_softmax(logits);
  auto writer = ReferenceWriter::create(path, header);
  REQUIRE(writer.ok());
  REQUIRE(writer->add(p, 3).ok());
  REQUIRE(writer->commit().ok());
  CHECK(std::filesystem::file_size(path) < 32 + 8 + 8 + 101 * 8);
  auto reader = ReferenceReader::open(path, header);
  REQUIRE(reader.ok());
  logits[0] -= 0.5;
  REQUIRE(reader->compare(log_softmax(logits), 3).ok());
  CHECK(reader->comparison().kl.mean() > 1e-4);
  CHECK(reader->comparison().least_mass >= kReferenceMass);
}

TEST_CASE("damaged files of predictions are refused") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "reference";
  const ReferenceHeader header = {3, 2, 0, {1, 2}};
  const std::vector<float> p = log_softmax({0.0, 1.0, 2.0});
  auto writer = ReferenceWriter::create(path, header);
  REQUIRE(writer.ok());
  REQUIRE(writer->add(p, 0).ok());
  REQUIRE(writer->commit().ok());
  const std::string good = test::TemporaryFolder::read(path);
  for (std::size_t size = 1; size < good.size(); ++size) {  // every cut
    const std::string cut = folder.file("cut", good.substr(0, size));
    auto reader = ReferenceReader::open(cut, header);
    const bool refused = !reader.ok() || !reader->compare(p, 0).ok();
    CHECK_MESSAGE(refused, size);
  }
  for (std::size_t at = 0; at < good.size(); ++at) {  // every byte set to 0xff
    std::string bytes = good;
    bytes[at] = '\xff';
    auto reader = ReferenceReader::open(folder.file("changed", bytes), header);
    if (reader.ok() && reader->compare(p, 0).ok()) {
      CHECK_MESSAGE(at >= 32 + 8, at);  // only a probability may differ unnoticed
    }
  }
}

TEST_CASE("conversations") {
  const auto read = [](std::string_view json) { return parse_conversation(json, "it"); };
  const auto full = read(
      R"({"eos_token": null, "messages": [{"role": "user", "content": "\u00e9"}, {}], "a": [1],
          "tools": [{"name": "f"}], "add_generation_prompt": true, "bos_token": "<s>"})");
  REQUIRE(full.ok());
  CHECK(full->input.messages.size() == 2);
  CHECK(full->input.messages[0]["content"] == "\u00e9");
  CHECK(full->input.tools.size() == 1);
  CHECK(full->input.add_generation_prompt);
  CHECK(full->input.bos_token == "<s>");
  CHECK(full->has_bos_token);
  CHECK(full->has_eos_token);
  CHECK(full->input.eos_token.empty());
  CHECK(full->input.extra == Json{{"a", {1}}});
  REQUIRE(full->warnings.size() == 1);  // the second message has no role
  CHECK(full->warnings[0].find("message 2") != std::string::npos);
  const auto list = read(R"([{"role": "user"}])");
  REQUIRE(list.ok());
  CHECK(list->input.messages.size() == 1);
  CHECK(!list->has_bos_token);
  CHECK(list->input.tools.is_null());

  const std::string deep(JsonBounds{}.depth + 1, '[');
  for (const std::string& bad :
       {std::string(), std::string("5"), std::string("{}"), std::string("[1]"), std::string("{\"a"),
        std::string("\0", 1), std::string("\"\\"), std::string("-"), deep,
        std::string(R"({"messages": [], "a": -9223372036854775809})"),
        std::string(R"({"messages": [], "a": 18446744073709551616})"),
        std::string(R"({"messages": [], "a": 100000000000000000000})")}) {
    CAPTURE(bad);
    const auto refused = read(bad);
    CHECK(!refused.ok());
    if (!refused.ok()) CHECK(refused.error().code == ErrorCode::kBadInput);
  }
  std::string wide = R"({"messages": [)";
  for (std::size_t i = 0; i <= JsonBounds{}.members; ++i) {
    wide += fmt::format("{}{{}}", i == 0 ? "" : ",");
  }
  CHECK(read(wide + "]}").ok());  // a list may be long
  wide = R"({"messages": [])";
  for (std::size_t i = 1; i < JsonBounds{}.members; ++i) wide += fmt::format(R"(,"{}":0)", i);
  CHECK(read(wide + "}").ok());
  CHECK(!read(wide + R"(,"z":0})").ok());
  // As deep as allowed, and numbers at the edge of 64 bits.
  std::string nested = R"({"messages": [], "a": )";
  nested += std::string(JsonBounds{}.depth - 1, '[') + std::string(JsonBounds{}.depth - 1, ']');
  CHECK(read(nested + "}").ok());
  CHECK(!read(R"({"messages": [], "a": [)" + nested.substr(22) + "]}").ok());
  CHECK(
      read(
          R"({"messages": [], "a": [-9223372036854775808, 18446744073709551615, 1e30, 0.12345678901234567890123]})")
          .ok());
}

TEST_CASE("a clock") {
  const auto time = parse_clock("2024-02-29T23:59:58");
  REQUIRE(time.ok());
  CHECK(time->tm_year == 124);
  CHECK(time->tm_mon == 1);
  CHECK(time->tm_mday == 29);
  CHECK(time->tm_sec == 58);
  CHECK(time->tm_wday == 4);
  CHECK(time->tm_yday == 59);
  CHECK(parse_clock("1969-12-31 23:59:59").ok());
  for (const char* bad : {"", "2023-02-29T00:00:00", "2024-13-01T00:00:00", "2024-00-01T00:00:00",
                          "2024-01-00T00:00:00", "2024-01-01T24:00:00", "2024-01-01T00:60:00",
                          "2024-01-01T00:00:60", "0000-01-01T00:00:00", "2024-01-01T00:00:0",
                          "2024-01-01T00:00:00Z", "2024-1-01T000:00:00"}) {
    CHECK_MESSAGE(!parse_clock(bad).ok(), bad);
  }
}

TEST_CASE("the course of a batch stays small, and loses no token") {
  Timeline timeline;
  SchedulerStats stats;
  constexpr int kSteps = 20000;
  for (int i = 1; i <= kSteps; ++i) {
    stats.prefill_tokens += 7;
    stats.decode_tokens += 3;
    stats.rows += 10;
    stats.passes += 1;
    stats.running = 5;
    stats.blocks_used = 11;
    timeline.step(i * 0.1, stats);
    timeline.item(i * 0.1, {.ttft_ms = 1, .tpot_ms = 2, .end_ms = static_cast<double>(i)});
  }
  const std::vector<TimelinePoint> points = timeline.points();
  CHECK(points.size() <= Timeline::kMostPoints);
  CHECK(points.size() > Timeline::kMostPoints / 4);
  double prefill = 0;
  double before = 0;
  for (const TimelinePoint& point : points) {
    CHECK(point.seconds > before);
    prefill += point.prefill_per_s * (point.seconds - before);
    CHECK(point.decode_per_s == doctest::Approx(30));
    CHECK(point.rows == 10);
    CHECK(point.running == 5);
    CHECK(point.blocks == 11);
    before = point.seconds;
  }
  CHECK(prefill == doctest::Approx(7.0 * kSteps));
  CHECK(timeline.items().size() <= Timeline::kMostItems);
  CHECK(timeline.items().size() > Timeline::kMostItems / 4);
  CHECK(timeline.items().front().end_ms == 1);
  CHECK(timeline.items().back().seconds > 0.9 * kSteps * 0.1);
}

TEST_CASE("plots: steps of axes, and nothing but numbers") {
  CHECK(plot_step(1) == doctest::Approx(0.2));
  CHECK(plot_step(7) == doctest::Approx(1));
  CHECK(plot_step(9.9) == doctest::Approx(2));
  CHECK(plot_step(350) == doctest::Approx(50));
  CHECK(plot_step(0) == 1);
  for (double most = 0.001; most < 1e6; most *= 1.3) {
    CHECK(most / plot_step(most) > 2.4);
    CHECK(most / plot_step(most) <= 7);
  }
  for (const auto& points :
       {std::vector<std::pair<double, double>>{}, {{0, 0}}, {{1, 2}, {2, 0}, {3, 1e9}}}) {
    const std::string svg = svg_plot("x", "y", {{"s", "red", points, false}});
    CHECK(svg.find("nan") == std::string::npos);
    CHECK(svg.find("inf") == std::string::npos);
    CHECK(svg.ends_with("</svg>\n"));
  }
}

}  // namespace
}  // namespace sluice::cli
