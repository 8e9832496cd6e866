// However a stream of bytes is cut: the same text comes out, whole characters only, nothing lost,
// and the same stop string ends it at the same place.
// Input: two stop strings (a length byte each), a byte that seeds the cuts; the rest is the stream.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/escape.h"
#include "src/text/stop_matcher.h"
#include "src/text/text_stream.h"
#include "src/text/utf8.h"

namespace {

using namespace sluice;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

struct Outcome {
  std::string text;
  bool stopped;
};

Outcome run(std::string_view bytes, BadBytes bad, const std::vector<std::string>& stops,
            std::uint32_t seed) {
  TextStream stream(bad);
  auto matcher = StopMatcher::create(stops);
  require(matcher.ok(), "stop strings are accepted");
  Outcome outcome{"", false};
  const auto emit = [&](const std::string& piece) {
    // Valid stop strings and valid text: pieces are whole characters.
    const bool whole = bad == BadBytes::kReplace &&
                       std::all_of(stops.begin(), stops.end(),
                                   [](const std::string& s) { return is_valid_utf8(s); });
    if (whole) require(is_valid_utf8(piece), "pieces are whole characters");
    outcome.text += piece;
  };
  while (!bytes.empty()) {
    seed = seed * 1664525u + 1013904223u;
    const std::size_t n =
        std::min<std::size_t>(seed == 0 ? bytes.size() : seed >> 30, bytes.size());
    emit(matcher->push(stream.push(bytes.substr(0, n))));
    bytes.remove_prefix(n);
  }
  emit(matcher->push(stream.finish()));
  emit(matcher->finish());
  outcome.stopped = matcher->stopped();
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> stops;
  for (int i = 0; i < 2 && !rest.empty(); ++i) {
    const std::size_t length =
        std::min<std::size_t>(static_cast<unsigned char>(rest[0]) % 8, rest.size() - 1);
    if (length > 0) stops.emplace_back(rest.substr(1, length));
    rest.remove_prefix(1 + length);
  }
  const std::uint32_t seed = rest.empty() ? 0 : static_cast<unsigned char>(rest[0]);
  if (!rest.empty()) rest.remove_prefix(1);

  for (const BadBytes bad : {BadBytes::kKeep, BadBytes::kReplace}) {
    const std::string whole =
        bad == BadBytes::kKeep ? std::string(rest) : replace_invalid_utf8(rest);
    const Outcome plain = run(rest, bad, {}, seed);
    require(plain.text == whole && !plain.stopped, "no byte is lost or added");
    std::size_t cut = std::string::npos;  // by the definition: the first end, then the longest
    for (std::size_t end = 1; end <= whole.size() && cut == std::string::npos; ++end) {
      for (const std::string& stop : stops) {
        if (end >= stop.size() && whole.compare(end - stop.size(), stop.size(), stop) == 0) {
          cut = std::min(cut, end - stop.size());
        }
      }
    }
    for (const std::uint32_t s : {seed, seed + 77}) {
      const Outcome outcome = run(rest, bad, stops, s);
      require(outcome.stopped == (cut != std::string::npos),
              "a stop string is found if there is one");
      require(outcome.text == whole.substr(0, cut), "the text ends in front of the stop string");
    }
  }
  for (const char c : escape_controls(rest)) {
    const auto byte = static_cast<unsigned char>(c);
    require(byte >= 0x20 || c == '\n' || c == '\t', "no control byte passes");
  }
  return 0;
}
