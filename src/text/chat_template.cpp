#include "src/text/chat_template.h"

#include <algorithm>

#include "src/text/jinja/from_json.h"
#include "src/text/jinja/interpreter.h"
#include "src/text/jinja/lexer.h"
#include "src/text/jinja/parser.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

// The time in the user's time zone.
std::tm local_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

bool is_well_known_role(std::string_view role) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user",    "assistant",
                                         "tool",   "function",  "ipython", "model"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

// Replaces the role of a message by the same word as text of the template, if it is a known one.
jinja::Value trust_role(jinja::Runtime& rt, const jinja::Value& message) {
  using jinja::DictNode;
  if (!message.is(jinja::Kind::kDict)) return message;
  std::vector<DictNode::Item> items = message.as<DictNode>().items;
  for (auto& [key, value] : items) {
    if (key.str() == "role" && value.is_string() && is_well_known_role(value.str())) {
      value = rt.make_string(value.str());
    }
  }
  return jinja::Value(jinja::Kind::kDict, rt.make<DictNode>(std::move(items)));
}

Result<jinja::Value> messages_value(jinja::Runtime& rt, const Json& messages) {
  SLUICE_ASSIGN_OR_RETURN(const jinja::Value all, jinja::value_from_json(rt, messages, true));
  if (!all.is(jinja::Kind::kList)) return all;
  std::vector<jinja::Value> items;
  for (const jinja::Value& message : all.items()) items.push_back(trust_role(rt, message));
  return rt.make_list(std::move(items));
}

Status set_variables(jinja::Interpreter& interpreter, const ChatInput& input) {
  if (!input.extra.is_object() && !input.extra.is_null()) {
    return bad_input("the variables for a chat template must be a JSON object, not {}",
                     input.extra.type_name());
  }
  SLUICE_ASSIGN_OR_RETURN(jinja::Value messages, messages_value(interpreter, input.messages));
  jinja::Value tools = jinja::Value::absent();
  if (!input.tools.is_null()) {
    SLUICE_ASSIGN_OR_RETURN(tools, value_from_json(interpreter, input.tools, true));
  }
  interpreter.set_variable("messages", std::move(messages));
  interpreter.set_variable("tools", std::move(tools));
  interpreter.set_variable("documents", jinja::Value::absent());
  interpreter.set_variable("add_generation_prompt",
                           jinja::Value::boolean(input.add_generation_prompt));
  if (!input.bos_token.empty()) {
    interpreter.set_variable("bos_token", interpreter.make_string(input.bos_token));
  }
  if (!input.eos_token.empty()) {
    interpreter.set_variable("eos_token", interpreter.make_string(input.eos_token));
  }
  for (const auto& [name, json] : input.extra.items()) {
    for (const char* own :
         {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
      if (name == own) return bad_input("the variable '{}' cannot be given as an extra one", name);
    }
    SLUICE_ASSIGN_OR_RETURN(jinja::Value v, value_from_json(interpreter, json, true));
    interpreter.set_variable(name, std::move(v));
  }
  return {};
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Program> program)
    : program_(std::move(program)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  auto program = jinja::parse_template(source);
  if (!program.ok()) return bad_input("chat template: {}", program.error().message);
  return ChatTemplate(std::move(program).value());
}

Result<std::vector<TextPart>> ChatTemplate::render(const ChatInput& input) const {
  jinja::Interpreter interpreter(*program_);
  interpreter.set_clock(input.now ? *input.now : local_time_now());
  const Status ready = set_variables(interpreter, input);
  if (!ready.ok()) return bad_input("chat template input: {}", ready.error().message);
  const auto text = interpreter.run();
  if (text.ok()) return text->parts();
  if (interpreter.raised()) return text.error();
  const jinja::Position at = interpreter.error_position();
  if (at.line == 0) return bad_input("chat template: {}", text.error().message);
  return bad_input("chat template: {}", jinja::error_at(at, text.error().message).message);
}

std::string join_parts(const std::vector<TextPart>& parts) {
  std::string text;
  for (const TextPart& part : parts) text += part.text;
  return text;
}

}  // namespace sluice
