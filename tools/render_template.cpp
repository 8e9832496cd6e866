// Renders templates for comparison with jinja2: a JSON object {"template", "context"} a line on
// stdin, {"output"} or {"error", "raised"} a line on stdout. Every value of the context is content;
// with --parts the output is a list of [text, content] pairs.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "src/text/jinja/from_json.h"
#include "src/text/jinja/interpreter.h"
#include "src/text/jinja/lexer.h"
#include "src/text/jinja/parser.h"

namespace {

using sluice::Result;
using sluice::TextPart;
namespace jinja = sluice::jinja;
using Json = nlohmann::ordered_json;

Json error_line(const std::string& message, bool raised) {
  return Json{{"error", message}, {"raised", raised}};
}

Json render(const Json& request, bool with_parts) {
  const auto program = jinja::parse_template(request.at("template").get<std::string>());
  if (!program.ok()) return error_line(program.error().message, false);
  jinja::Interpreter interpreter(**program);
  std::tm clock{};
  clock.tm_year = 126, clock.tm_mon = 0, clock.tm_mday = 2;  // Friday 2026-01-02 03:04:05
  clock.tm_hour = 3, clock.tm_min = 4, clock.tm_sec = 5;
  clock.tm_wday = 5, clock.tm_yday = 1;
  interpreter.set_clock(clock);
  for (const auto& [name, json] : request.at("context").items()) {
    auto value = jinja::value_from_json(interpreter, json, true);
    if (!value.ok()) return error_line(value.error().message, false);
    interpreter.set_variable(name, std::move(value).value());
  }
  const auto text = interpreter.run();
  if (!text.ok()) {
    if (interpreter.raised()) return error_line(text.error().message, true);
    return error_line(jinja::error_at(interpreter.error_position(), text.error().message).message,
                      false);
  }
  Json parts = Json::array();
  for (const TextPart& part : text->parts())
    parts.push_back(Json::array({part.text, part.content}));
  return with_parts ? Json{{"output", parts}} : Json{{"output", text->str()}};
}

}  // namespace

int main(int argc, char** argv) {
  const bool with_parts = argc > 1 && std::string(argv[1]) == "--parts";
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = Json::parse(line, nullptr, false);
    if (request.is_discarded() || !request.is_object()) {
      std::fprintf(stderr, "render_template: a line is not a JSON object\n");
      return 1;
    }
    std::cout << render(request, with_parts).dump(-1, ' ', false, Json::error_handler_t::replace)
              << std::endl;
  }
  return 0;
}
