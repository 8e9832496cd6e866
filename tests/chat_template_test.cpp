// Chat templates as models have them: the reference renderings, who wrote which part of a prompt,
// refusals and limits.
#include "src/text/chat_template.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/conformance.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::tm fixed_clock() {  // Friday 2026-01-02 03:04:05
  std::tm clock{};
  clock.tm_year = 126, clock.tm_mday = 2, clock.tm_wday = 5, clock.tm_yday = 1;
  clock.tm_hour = 3, clock.tm_min = 4, clock.tm_sec = 5;
  return clock;
}

ChatInput user_says(const std::string& text) {
  ChatInput input;
  input.messages = Json::array({Json{{"role", "user"}, {"content", text}}});
  input.bos_token = "<BOS>";
  input.eos_token = "<EOS>";
  input.now = fixed_clock();
  return input;
}

Result<std::vector<TextPart>> render(const std::string& source, const ChatInput& input) {
  SLUICE_ASSIGN_OR_RETURN(const ChatTemplate chat_template, ChatTemplate::parse(source));
  return chat_template.render(input);
}

// The text, or the error in angle brackets.
std::string rendered(const std::string& source, const ChatInput& input = user_says("hi")) {
  const auto parts = render(source, input);
  return parts.ok() ? join_parts(*parts) : "<" + parts.error().message + ">";
}

// Parts written as t(...) for the template's and c(...) for content.
std::string marked(const std::string& source, const ChatInput& input) {
  const auto parts = render(source, input);
  if (!parts.ok()) return "<" + parts.error().message + ">";
  std::string out;
  for (const TextPart& part : *parts) out += (part.content ? "c(" : "t(") + part.text + ")";
  return out;
}

TEST_CASE("reference templates render to the byte") {
  const std::string path = test::conformance_file("templates/expected.json");
  if (path.empty()) return;
  const Json expected = Json::parse(read_file(path));
  int rendered_cases = 0;
  int refused_cases = 0;
  for (const auto& item : expected.items()) {
    const std::string& name = item.key();
    const auto& cases = item.value();
    const std::string file = test::conformance_file("templates/" + name);
    REQUIRE_FALSE(file.empty());
    const auto chat_template = ChatTemplate::parse(read_file(file));
    INFO(name);
    REQUIRE_MESSAGE(chat_template.ok(), chat_template.error().message);
    for (const Json& one : cases) {
      CAPTURE(one.at("name").get<std::string>());
      ChatInput input = user_says("");
      input.messages = one.at("messages");
      if (one.contains("tools")) input.tools = one.at("tools");
      input.add_generation_prompt = one.at("add_generation_prompt").get<bool>();
      const auto parts = chat_template->render(input);
      if (one.contains("error")) {
        ++refused_cases;
        REQUIRE_FALSE(parts.ok());
        CHECK(is_refusal(parts.error()));
        CHECK("TemplateError: " + parts.error().message == one.at("error").get<std::string>());
        continue;
      }
      ++rendered_cases;
      REQUIRE_MESSAGE(parts.ok(), parts.error().message);
      CHECK(join_parts(*parts) == one.at("expected").get<std::string>());
    }
  }
  MESSAGE(rendered_cases << " renderings and " << refused_cases << " refusals match");
  CHECK(rendered_cases > 100);
  CHECK(refused_cases > 0);
}

TEST_CASE("typed control tokens stay content in every reference template") {
  const std::string path = test::conformance_file("templates/expected.json");
  if (path.empty()) return;
  // Marks that these templates use; none may come out as text of the template when a user types it.
  const std::string typed =
      "a<|im_end|>b<|eot_id|>c<end_of_turn>d<|end|>e<|return|>f[/INST]g<|user|>h<EOS>i";
  const Json expected = Json::parse(read_file(path));  // outlives the loop over its items
  for (const auto& item : expected.items()) {
    const std::string& name = item.key();
    const std::string file = test::conformance_file("templates/" + name);
    CAPTURE(name);
    const auto parts = render(read_file(file), user_says(typed));
    REQUIRE_MESSAGE(parts.ok(), parts.error().message);
    const auto holds = [&](const TextPart& part) {
      return part.content && part.text.find(typed) != std::string::npos;
    };
    CHECK(std::count_if(parts->begin(), parts->end(), holds) == 1);
    // And the same prompt with harmless text of the user has the very same template parts.
    const auto harmless = render(read_file(file), user_says("hello"));
    REQUIRE(harmless.ok());
    REQUIRE(parts->size() == harmless->size());
    for (std::size_t i = 0; i < parts->size(); ++i) {
      CHECK((*parts)[i].content == (*harmless)[i].content);
      if (!(*parts)[i].content) CHECK((*parts)[i].text == (*harmless)[i].text);
    }
  }
}

TEST_CASE("parts keep their origin through operations") {
  ChatInput input = user_says(" Hi <EOS> ");
  input.extra = Json{{"name", "n"}, {"count", 7}, {"flag", true}};
  const auto check = [&](const std::string& source, const std::string& expected) {
    CAPTURE(source);
    CHECK(marked(source, input) == expected);
  };
  const std::string m = "messages[0].content";
  check("{{ bos_token }}A{{ " + m + " }}{{ eos_token }}", "t(<BOS>A)c( Hi <EOS> )t(<EOS>)");
  check("{{ '<' + " + m + "|trim + '>' }}", "t(<)c(Hi <EOS>)t(>)");
  check("{{ ('x' ~ " + m + " ~ 'y')[1:-1] }}", "c( Hi <EOS> )");
  check("{{ ('x' ~ " + m + ").upper() }}", "t(X)c( HI <EOS> )");
  check("{{ 'x'.join(" + m + ".split()) }}", "c(Hi)t(x)c(<EOS>)");
  check("{{ " + m + "|replace('Hi', '<BOS>') }}", "c( )t(<BOS>)c( <EOS> )");
  check("{{ '%s|%d' % (" + m + ", 3) }}", "c( Hi <EOS> )t(|3)");
  check("{{ '{}|{}'.format(" + m + "[1:3], 3) }}", "c(Hi)t(|3)");
  check("{{ ('a' ~ name)[::-1] }}", "c(n)t(a)");
  check("{% set x %}<{{ name }}>{% endset %}{{ x }}", "t(<)c(n)t(>)");
  check("{% macro f(v) %}[{{ v }}]{% endmacro %}{{ f(name) }}", "t([)c(n)t(])");
  check("{% filter upper %}a{{ name }}{% endfilter %}", "t(A)c(N)");
  // Where the pieces cannot be told apart the whole is content.
  check("{{ {'a': name}|tojson }}", "c({\"a\": \"n\"})");
  check("{{ {'a': 1}|tojson }}", "t({\"a\": 1})");
  check("{{ [name, 'x'] }}", "c(['n', 'x'])");
  // Numbers of the input are content too, those of the template are not.
  check("{{ count }}{{ 7 }}{{ count + 1 }}{{ flag }}{{ name|length }}", "c(7)t(7)c(8True)t(1)");
  check("{{ '12'|int }}{{ ('1' ~ count)|int }}", "t(12)c(17)");
  // Keys of objects are input.
  check("{% for k in messages[0] %}{{ k }}{% endfor %}", "c(rolecontent)");
  // Comparing does not care.
  check("{% if name == 'n' and name in ['n'] %}yes{% endif %}", "t(yes)");
}

TEST_CASE("well-known roles are trusted, others are content") {
  ChatInput input = user_says("x");
  const std::string source = "{% for m in messages %}<|{{ m.role }}|>{{ m['role'] }}{% endfor %}";
  CHECK(marked(source, input) == "t(<|user|>user)");
  input.messages[0]["role"] = "im_end";
  CHECK(marked(source, input) == "t(<|)c(im_end)t(|>)c(im_end)");
}

TEST_CASE("tools, missing values and the clock") {
  ChatInput input = user_says("x");
  CHECK(rendered("{{ tools is none }} {{ documents is none }} {{ nope is defined }}", input) ==
        "True True False");
  CHECK(rendered("{{ add_generation_prompt }}", input) == "False");
  CHECK(rendered("{{ strftime_now('%d %b %Y %H:%M:%S %A') }}", input) ==
        "02 Jan 2026 03:04:05 Friday");
  input.bos_token.clear();
  CHECK(rendered("{{ bos_token is defined }}{{ bos_token }}", input) == "False");
  input.tools = Json::parse(R"([{"type":"function","function":{"name":"f"}}])");
  CHECK(rendered("{{ tools[0].function.name }}", input) == "f");
  input.now.reset();
  CHECK(rendered("{{ strftime_now('%Y')|int >= 2024 }}", input) == "True");
  input.extra = Json{{"bos_token", "x"}};
  CHECK(rendered("{{ bos_token }}", input).find("bos_token") != std::string::npos);
  input.extra = Json::array();
  const auto wrong = render("x", input);
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.error().code == ErrorCode::kBadInput);
}

TEST_CASE("tojson writes JSON as the models were trained on it") {
  ChatInput input = user_says("x");
  input.extra["v"] =
      Json::parse("{\"b\": \"<a href='x'>\u00e9 & \U0001F600</a>\", \"a\": [1, 2.0, true, null]}");
  CHECK(rendered("{{ v|tojson }}", input) ==
        "{\"b\": \"<a href='x'>\u00e9 & \U0001F600</a>\", \"a\": [1, 2.0, true, null]}");
  CHECK(rendered("{{ v|tojson(indent=2) }}", input) ==
        "{\n  \"b\": \"<a href='x'>\u00e9 & \U0001F600</a>\",\n  \"a\": [\n    1,\n    2.0,\n    "
        "true,\n"
        "    null\n  ]\n}");
  CHECK(rendered("{{ {'b': [1, 2], 'a': 1}|tojson(separators=(',', ':'), sort_keys=true) }}") ==
        "{\"a\":1,\"b\":[1,2]}");
  CHECK(rendered("{{ {'b': [1, 2], 'a': 1}|tojson }}") == "{\"b\": [1, 2], \"a\": 1}");
  CHECK(rendered("{{ '\u00e9\U0001F600'|tojson(ensure_ascii=true) }}") ==
        "\"\\u00e9\\ud83d\\ude00\"");
  CHECK(rendered("{{ '\\x01\\n\\t\"\\\\\\x7f'|tojson }}") == "\"\\u0001\\n\\t\\\"\\\\\x7f\"");
  CHECK(rendered("{{ [1e20, 0.1, -0.0, 1e-7, 100.0]|tojson }}") ==
        "[1e+20, 0.1, -0.0, 1e-07, 100.0]");
  CHECK(rendered("{{ nope|tojson }}").find("not JSON serializable") != std::string::npos);
}

TEST_CASE("a refusal carries the template's own words") {
  const auto refused =
      render("{{ raise_exception('No, \u00e9: ' ~ messages[0].role) }}", user_says(""));
  REQUIRE_FALSE(refused.ok());
  CHECK(is_refusal(refused.error()));
  CHECK(refused.error().message == "No, \u00e9: user");
  const auto broken = render("a\n  {{ messages.nope.x }}", user_says(""));
  REQUIRE_FALSE(broken.ok());
  CHECK_FALSE(is_refusal(broken.error()));
  CHECK(broken.error().code == ErrorCode::kBadInput);
  CHECK(broken.error().message ==
        "chat template: line 2, column 19: 'list object' has no attribute 'nope'");
  // raise_exception without a message is an error of the engine, not a refusal.
  CHECK_FALSE(is_refusal(render("{{ raise_exception() }}", user_says("")).error()));
}

TEST_CASE("what is not supported says so, with line and column") {
  for (const std::string tag :
       {"include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'", "autoescape true"}) {
    const std::string error = rendered("ab\n {% " + tag + " %}");
    CAPTURE(error);
    CHECK(error.find("line 2, column 5") != std::string::npos);
    CHECK(error.find("not supported") != std::string::npos);
  }
  CHECK(rendered("{{ self }}").find("column 4: 'self' is not supported") != std::string::npos);
  CHECK(rendered("\n\n{{ [1, 2]|random }}").find("line 3, column 11") != std::string::npos);
  CHECK(rendered("{% bogus %}").find("unknown tag 'bogus'") != std::string::npos);
  CHECK(rendered("{{ 'x'.encode() }}").find("not supported") != std::string::npos);
  CHECK(rendered("{{ messages|map('upper') }}").find("generator") != std::string::npos);
}

TEST_CASE("hostile templates end soon, in an error that names the limit") {
  std::string deep_parentheses = "{{ ";
  for (int i = 0; i < 100000; ++i) deep_parentheses += "(";
  std::string deep_ifs;
  for (int i = 0; i < 50000; ++i) deep_ifs += "{% if true %}";
  std::string long_chain = "{{ 1";
  for (int i = 0; i < 50000; ++i) long_chain += "|int";
  std::string many_nots = "{{ ";
  for (int i = 0; i < 100000; ++i) many_nots += "not ";
  const std::string hostile[] = {
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
      "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{% if true %}{% for i in [1] %}{{ [[f(n + 1)]] }}{% endfor %}{% endif %}"
      "{% endmacro %}{{ f(0) }}",
      "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}"
      "{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}"
      "{{ ns.x }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = ns.x|map('list') %}"
      "{% endfor %}{{ ns.x|list }}",
      "{% set ns = namespace(x={}) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% "
      "endfor %}"
      "{{ ns.x|tojson }}{{ ns.x == ns.x }}",
      "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.g = [ns]|unique(attribute='g') %}{{ ns.g|list }}{{ "
      "ns.a.b }}",
      "{% set ns = namespace(x='a' * 30000000) %}{% for i in range(9999) %}{{ ns.x }}{% endfor %}",
      "{{ 'a' * 1000000000000 }}",
      "{{ [0] * 1000000000000 }}",
      "{{ 'a'.ljust(1000000000000) }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '{:1000000000}'.format(1) }}",
      "{{ range(1000000000)|list }}",
      "{{ 9 ** 9 ** 9 ** 9 }}",
      "{{ ('a' * 9999999).split('a')|length }}",
      "{% set s = 'a' * 9000000 %}{% for i in range(9999) %}{% if (s ~ 'b') in s %}{% endif %}{% "
      "endfor %}",
      "{{ ('a' * 30000000).replace('a', 'bbbbbbbbbb') }}",
      "{{ ('a' * 30000000).find('a' * 15000000 ~ 'b') }}"
      "{% for i in range(99999) %}{{ ('a' * 3000000).find('a' * 1500000 ~ 'b') }}{% endfor %}",
      "{{ 'x'|indent(1000000000) }}",
      "{{ [1, 2]|batch(1000000000, 0)|list }}",
      "{{ [1, 2]|slice(1000000000)|list }}",
      "{% set ns = namespace(g=[1]) %}{% set ns.g = [ns]|map(attribute='g') %}{{ ns.g|list }}"
      "{% macro g() %}{{ caller() }}{% endmacro %}{% macro h() %}{% call g() %}{{ h() }}{% endcall "
      "%}"
      "{% endmacro %}{{ h() }}",
      deep_parentheses,
      deep_ifs,
      long_chain,
      many_nots,
      std::string(5u << 20, 'x'),
      "{{ '" + std::string(900000, 'x') + "' }}{{",
  };
  for (const std::string& source : hostile) {
    CAPTURE(source.substr(0, 120));
    const std::clock_t begin = std::clock();
    const auto parts = render(source, user_says("x"));
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    CHECK_FALSE(parts.ok());
    if (!parts.ok()) CHECK(parts.error().code == ErrorCode::kBadInput);
    CHECK(seconds < 20.0);  // of this process; one or two, more with sanitizers
  }
}

TEST_CASE("deep input is an error, large input is not") {
  ChatInput input = user_says("x");
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({deep});
  input.extra["deep"] = deep;
  CHECK(rendered("{{ deep|tojson }}", input).find("levels") != std::string::npos);
  input.extra = Json::object();
  std::string long_text;
  while (long_text.size() < 2000000) long_text += "some words and \u00e9\n";
  for (int i = 0; i < 2000; ++i) {
    input.messages.push_back(Json{{"role", i % 2 ? "user" : "assistant"}, {"content", "turn"}});
  }
  input.messages.push_back(Json{{"role", "user"}, {"content", long_text}});
  const std::string source =
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content|trim }}<|end|>\n{% endfor %}";
  const std::string out = rendered(source, input);
  CHECK(out.size() > 2000000);
  CHECK(out.ends_with("<|end|>\n"));
}

TEST_CASE("bytes that are no UTF-8 pass through; a template must be UTF-8") {
  CHECK(marked("<{{ messages[0].content|upper }}>", user_says("a\xff\xc3z")) ==
        "t(<)c(A\xff\xc3Z)t(>)");
  CHECK(rendered("{{ messages[0].content|length }}", user_says("a\xff\xc3z")) == "4");
  CHECK(rendered("abc\n \xff").find("line 2, column 2") != std::string::npos);
  CHECK(rendered(std::string("a\0b", 3)) == std::string("a\0b", 3));
}

TEST_CASE("one template renders many times, and in many threads") {
  const auto chat_template = ChatTemplate::parse(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = "
      "ns.n + 1 %}{{ ns.n }}{{ 'x' ~ m.content }}{% endfor %}");
  REQUIRE(chat_template.ok());
  for (int i = 0; i < 3; ++i) {
    const auto parts = chat_template->render(user_says("a"));
    REQUIRE(parts.ok());
    CHECK(join_parts(*parts) == "1xa");
  }
}

}  // namespace
}  // namespace sluice
