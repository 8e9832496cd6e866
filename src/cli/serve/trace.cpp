#include "src/cli/serve/trace.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/base/rng.h"
#include "src/cli/json.h"

namespace sluice::cli {
namespace {

constexpr double kMedianPrompt = 96, kSpreadPrompt = 0.7;
constexpr double kMedianTokens = 32, kSpreadTokens = 1.0;

// What a random number is for.
enum Use : std::uint32_t { kGap, kRadius, kAngle };

// exp(normal) with this median and spread, within [1, most].
std::uint32_t log_normal(const TraceShape& shape, std::uint32_t stream, std::uint64_t index,
                         double median, double spread, std::uint32_t most) {
  // Box and Muller's method.
  const double u = uniform(shape.seed, stream, index, kRadius);
  const double v = uniform(shape.seed, stream, index, kAngle);
  const double normal = std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * std::numbers::pi * v);
  return static_cast<std::uint32_t>(std::clamp(std::round(median * std::exp(spread * normal)), 1.0,
                                               std::max(1.0, static_cast<double>(most))));
}

}  // namespace

std::vector<Arrival> make_trace(const TraceShape& shape) {
  std::vector<Arrival> trace(shape.requests);
  double at = 0;
  for (std::uint32_t i = 0; i < shape.requests; ++i) {
    // Gaps of a Poisson process are exponential.
    if (shape.rate > 0) at -= std::log(1 - uniform(shape.seed, 0, i, kGap)) / shape.rate;
    trace[i] = {at, log_normal(shape, 1, i, kMedianPrompt, kSpreadPrompt, shape.most_prompt),
                log_normal(shape, 2, i, kMedianTokens, kSpreadTokens, shape.most_tokens)};
  }
  return trace;
}

Result<std::vector<Arrival>> parse_trace(std::string_view text, const std::string& name) {
  std::vector<Arrival> trace;
  std::size_t line_number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json json = Json::parse(line, nullptr, false);
    const auto count = [&](const char* key) -> std::int64_t {
      const bool there = json.is_object() && json.contains(key) && json[key].is_number_integer();
      return there ? json[key].get<std::int64_t>() : 0;
    };
    if (json.is_object()) {
      for (const auto& [key, value] : json.items()) {
        if (key == "at" || key == "prompt_tokens" || key == "tokens") continue;
        return bad_input("'{}' line {}: unknown key '{}'; known are at, prompt_tokens and tokens",
                         name, line_number, key);
      }
    }
    constexpr std::int64_t kMost = 1 << 24;
    const bool timed = json.is_object() && json.contains("at") && json["at"].is_number();
    const double at = timed ? json["at"].get<double>() : -1;
    const std::int64_t prompt = count("prompt_tokens"), tokens = count("tokens");
    if (!(at >= 0 && at < 1e9) || prompt < 1 || prompt > kMost || tokens < 1 || tokens > kMost) {
      return bad_input(
          "'{}' line {}: expected {{\"at\": seconds, \"prompt_tokens\": 1 or more, \"tokens\": 1 "
          "or "
          "more}}",
          name, line_number);
    }
    if (!trace.empty() && at < trace.back().at_s) {
      return bad_input("'{}' line {}: time {} is before the line above ({})", name, line_number, at,
                       trace.back().at_s);
    }
    trace.push_back({at, static_cast<std::uint32_t>(prompt), static_cast<std::uint32_t>(tokens)});
  }
  if (trace.empty()) return bad_input("'{}' has no arrivals", name);
  return trace;
}

}  // namespace sluice::cli
