// Any bytes as a chat template, rendered on a fixed conversation. Besides crashes and hangs it
// looks for text of the conversation that comes out as text of the template: one character stands
// only in the conversation, so no part that is not content may hold it.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "src/text/jinja/from_json.h"
#include "src/text/jinja/interpreter.h"
#include "src/text/jinja/parser.h"

namespace {

using sluice::TextPart;
namespace jinja = sluice::jinja;

constexpr std::string_view kMark = "\xee\x80\x80";  // U+E000, a private character

nlohmann::ordered_json conversation() {
  return nlohmann::ordered_json::parse(R"({
    "messages": [
      {"role": "system", "content": "\ue000Be brief.\ue000"},
      {"role": "user", "content": "\ue000a, b\n\"c\" <|end|> \u00df\ue000", "n": 3},
      {"role": "assistant", "content": null,
       "tool_calls": [{"function": {"name": "\ue000f\ue000", "arguments": {"x": 1.5}}}]}],
    "tools": [{"type": "function", "function": {"name": "\ue000"}}],
    "s": "\ue000Hello World\ue000", "l": [3, 1, 2], "d": {"b": "\ue000", "a": true}
  })");
}

void check_parts(const std::vector<TextPart>& parts, bool mark_is_content) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].text.empty()) std::abort();
    if (i > 0 && parts[i].content == parts[i - 1].content) std::abort();
    const bool has_mark = parts[i].text.find(kMark) != std::string::npos;
    if (mark_is_content && has_mark && !parts[i].content) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const nlohmann::ordered_json context = conversation();
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto program = jinja::parse_template(source);
  if (!program.ok()) return 0;
  jinja::Limits limits;
  limits.steps = 100'000;
  limits.text_bytes = 1u << 20;
  limits.memory_bytes = 16u << 20;
  jinja::Interpreter interpreter(**program, limits);
  std::tm clock{};
  clock.tm_year = 126, clock.tm_mday = 2;
  interpreter.set_clock(clock);
  for (const auto& [name, json] : context.items()) {
    auto value = jinja::value_from_json(interpreter, json, true);
    if (!value.ok()) std::abort();
    interpreter.set_variable(name, std::move(value).value());
  }
  interpreter.set_variable("bos_token", interpreter.make_string("<s>"));
  const auto text = interpreter.run();
  if (!text.ok()) return 0;
  // The template can write the character itself, directly or with an escape.
  const bool writes_mark =
      source.find(kMark) != std::string_view::npos || source.find('\\') != std::string_view::npos;
  check_parts(text->parts(), !writes_mark);
  return 0;
}
