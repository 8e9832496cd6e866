#include "src/text/text_stream.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "src/text/escape.h"
#include "src/text/stop_matcher.h"
#include "src/text/utf8.h"

using namespace sluice;

namespace {

// Bytes in which everything occurs: ASCII, all lengths of characters, bad and cut-off sequences.
std::string random_bytes(std::mt19937& rng, std::size_t length) {
  const std::vector<std::string> atoms = {"a",        "b",        "\n",       std::string(1, '\0'),
                                          "é",        "€",        "😀",        "\xff",
                                          "\xc3",     "\xe2\x82", "\xf0\x9f", "\x80",
                                          "\xc0",     "\xed",     "\xa0",     "\xf4\x90",
                                          "\xe0\x80", "end",      "stop",     "\xf0\x9f\x98"};
  std::string out;
  while (out.size() < length) out += atoms[rng() % atoms.size()];
  return out;
}

template <class Stream>
std::string run_in_chunks(Stream stream, std::string_view bytes, std::mt19937& rng) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t n = std::min<std::size_t>(rng() % 5, bytes.size());
    out += stream.push(bytes.substr(0, n));
    bytes.remove_prefix(n);
  }
  return out + stream.finish();
}

StopMatcher matcher(std::vector<std::string> stops) {
  auto result = StopMatcher::create(std::move(stops));
  REQUIRE(result.ok());
  return std::move(result).value();
}

}  // namespace

TEST_CASE("well-formed and ill-formed sequences are told apart as in table 3-7 of Unicode") {
  const auto status = [](std::string_view s) { return decode_utf8(s).status; };
  for (const char* good : {"\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    CHECK(status(good) == Utf8Status::kValid);
    CHECK(decode_utf8(good).length == std::string_view(good).size());
  }
  for (const char* bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    CHECK(status(bad) == Utf8Status::kInvalid);
  }
  for (const char* cut : {"\xc2", "\xe0\xa0", "\xe2\x82", "\xf0\x9f", "\xf0\x9f\x98"}) {
    CHECK(status(cut) == Utf8Status::kIncomplete);
    CHECK(decode_utf8(cut).length == std::string_view(cut).size());
  }
}

TEST_CASE("every code point survives encoding and decoding") {
  for (std::uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string bytes;
    append_utf8(bytes, code);
    const Utf8Char back = decode_utf8(bytes);
    if (back.status != Utf8Status::kValid || back.code != code || back.length != bytes.size() ||
        utf8_length(bytes[0]) != bytes.size()) {
      FAIL("code point " << code);
    }
  }
}

TEST_CASE("bad bytes are replaced by one U+FFFD for each maximal subpart") {
  CHECK(replace_invalid_utf8("abc\xffxyz") == "abc\uFFFDxyz");
  CHECK(replace_invalid_utf8("\xe2\x82") == "\uFFFD");
  CHECK(replace_invalid_utf8("\xe2\x82z") == "\uFFFDz");
  CHECK(replace_invalid_utf8("\xf0\x80\x80") == "\uFFFD\uFFFD\uFFFD");
  CHECK(replace_invalid_utf8("\xed\xa0\x80") == "\uFFFD\uFFFD\uFFFD");
  CHECK(replace_invalid_utf8("0123456789\xf0\x9f\x98 0123456789") == "0123456789\uFFFD 0123456789");
  CHECK(is_valid_utf8("0123456789 €uro 😀"));
  CHECK(is_valid_utf8(std::string_view("a\0b", 3)));
  CHECK_FALSE(is_valid_utf8("0123456789abcdef\xff"));
}

TEST_CASE("a stream passes on whole characters at once and holds back only an open one") {
  TextStream stream;
  CHECK(stream.push("ab\xf0") == "ab");
  CHECK(stream.push("\x9f") == "");
  CHECK(stream.push("\x98") == "");
  CHECK(stream.pending() == "\xf0\x9f\x98");
  CHECK(stream.push("\x80!") == "😀!");
  CHECK(stream.push("\xe2\x82") == "");
  CHECK(stream.push("x") == "\uFFFDx");
  CHECK(stream.finish() == "");
}

TEST_CASE("the tail of a stream is raw or one U+FFFD") {
  TextStream keep(BadBytes::kKeep);
  CHECK(keep.push("a\xff\xe2") == "a\xff");
  CHECK(keep.push("\x82") == "");
  CHECK(keep.finish() == "\xe2\x82");
  CHECK(keep.finish() == "");
  TextStream replace(BadBytes::kReplace);
  CHECK(replace.push("a\xff\xe2\x82") == "a\uFFFD");
  CHECK(replace.finish() == "\uFFFD");
  CHECK(replace.finish() == "");
}

TEST_CASE("a stream's output does not depend on how the input is cut, and no byte is lost") {
  std::mt19937 rng(1);
  for (int round = 0; round < 2000; ++round) {
    const std::string bytes = random_bytes(rng, rng() % 60);
    CHECK(run_in_chunks(TextStream(BadBytes::kKeep), bytes, rng) == bytes);
    const std::string replaced = run_in_chunks(TextStream(BadBytes::kReplace), bytes, rng);
    CHECK(replaced == replace_invalid_utf8(bytes));
    CHECK(is_valid_utf8(replaced));
  }
}

TEST_CASE("a stop string across pushes ends the text in front of it") {
  StopMatcher stop = matcher({"<end>", "STOP"});
  CHECK(stop.push("one <e") == "one ");
  CHECK(stop.pending_bytes() == 2);
  CHECK(stop.push("n") == "");
  CHECK(stop.push("X two ST") == "<enX two ");
  CHECK(stop.push("O") == "");
  CHECK_FALSE(stop.stopped());
  CHECK(stop.push("P three") == "");
  CHECK(stop.stopped());
  CHECK(stop.which() == 1);
  CHECK(stop.push("more") == "");
  CHECK(stop.finish() == "");
}

TEST_CASE("what is held back comes out at the end when it was no stop string") {
  StopMatcher stop = matcher({"abcd"});
  CHECK(stop.push("xabc") == "x");
  CHECK(stop.finish() == "abc");
  CHECK_FALSE(stop.stopped());
}

TEST_CASE("self-overlapping stop strings are found") {
  StopMatcher stop = matcher({"aab"});
  CHECK(stop.push("aaaa") == "aa");
  CHECK(stop.push("b") == "");
  CHECK(stop.stopped());
  StopMatcher other = matcher({"abab!"});
  CHECK(other.push("ababab") == "ab");
  CHECK(other.push("!") == "");
  CHECK(other.stopped());
}

TEST_CASE("the stop string that is complete first wins, the longest at one place") {
  StopMatcher first = matcher({"abcd", "bc"});
  CHECK(first.push("xabcd") == "xa");
  CHECK(first.which() == 1);
  StopMatcher longest = matcher({"cd", "bcd", "d"});
  CHECK(longest.push("abcd") == "a");
  CHECK(longest.which() == 1);
}

TEST_CASE("no stop strings hold nothing back, an empty one is refused") {
  StopMatcher none = matcher({});
  CHECK(none.push("abc") == "abc");
  CHECK_FALSE(none.stopped());
  CHECK_FALSE(StopMatcher::create({"a", ""}).ok());
}

TEST_CASE("stop strings work on whole characters when fed by a stream, however cut") {
  std::mt19937 rng(2);
  for (int round = 0; round < 2000; ++round) {
    const std::string bytes = random_bytes(rng, rng() % 80);
    const std::vector<std::string> stops = {"stop", "é€", "enda"};
    std::size_t cut = std::string::npos;  // by the definition: the first end, then the longest
    const std::string whole = replace_invalid_utf8(bytes);
    for (std::size_t end = 0; end <= whole.size() && cut == std::string::npos; ++end) {
      for (const std::string& s : stops) {
        if (end >= s.size() && whole.compare(end - s.size(), s.size(), s) == 0) {
          cut = std::min(cut, end - s.size());
        }
      }
    }
    TextStream stream;
    StopMatcher stop = matcher(stops);
    std::string out;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = 1 + rng() % 4;
      const std::string piece = stop.push(stream.push(std::string_view(bytes).substr(at, n)));
      CHECK(is_valid_utf8(piece));
      out += piece;
      at += n;
    }
    out += stop.push(stream.finish());
    out += stop.finish();
    CHECK(out == whole.substr(0, cut));
    CHECK(stop.stopped() == (cut != std::string::npos));
  }
}

TEST_CASE("no control sequence reaches a terminal") {
  CHECK(escape_controls("plain é 😀\n\ttext") == "plain é 😀\n\ttext");
  CHECK(escape_controls("\x1b[31mred") == "\\x1b[31mred");
  CHECK(escape_controls("a\rb\x7f") == "a\\x0db\\x7f");
  CHECK(escape_controls("\xc2\x9b"
                        "2J\x9b\xff") == "\\x9b2J\\x9b\\xff");
  CHECK(escape_controls(std::string_view("\0", 1)) == "\\x00");
}
