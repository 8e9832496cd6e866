// The template language itself. Expected values are what jinja2 3.1 gives.
#include <doctest/doctest.h>

#include <string>

#include "src/text/jinja/from_json.h"
#include "src/text/jinja/interpreter.h"
#include "src/text/jinja/lexer.h"
#include "src/text/jinja/parser.h"
#include "src/text/jinja/strftime.h"
#include "src/text/jinja/text_ops.h"
#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

constexpr const char* kContext = R"({
  "l": [3, 1, 2], "s": "Hello", "d": {"b": 2, "a": 1}, "n": 5, "f": 2.5, "z": null, "t": true,
  "people": [{"name": "Zoe", "age": 3}, {"name": "adam", "age": 30}, {"name": "Bob"}]
})";

// The output, or "error: " and the message.
std::string render(const std::string& source) {
  const auto program = parse_template(source);
  if (!program.ok()) return "error: " + program.error().message;
  Interpreter interpreter(**program);
  const auto context = nlohmann::ordered_json::parse(kContext);
  for (const auto& [name, json] : context.items()) {
    auto value = value_from_json(interpreter, json, false);
    REQUIRE(value.ok());
    interpreter.set_variable(name, std::move(value).value());
  }
  const auto text = interpreter.run();
  if (text.ok()) return text->str();
  return "error: " + error_at(interpreter.error_position(), text.error().message).message;
}

// The value of an expression as repr() prints it.
std::string value(const std::string& expression) {
  const std::string out = render("{{ [" + expression + "] }}");
  if (out.starts_with("error")) return out;
  return out.substr(1, out.size() - 2);
}

bool fails(const std::string& source) { return render(source).starts_with("error: line "); }

TEST_CASE("constructs that shipped templates use") {
  CHECK(render("{% for x in l[::-1] %}{{ loop.index0 }}{{ 'ab'[loop.index0] if not loop.last }}"
               "{{ ',' if not loop.last }}{% endfor %}") == "0a,1b,2");
  CHECK(render("{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}"
               "{{ ns.n }}") == "6");
  CHECK(render("{% set n = 0 %}{% for x in l %}{% set n = n + x %}{% endfor %}{{ n }}") == "0");
  CHECK(render("{{ l|length }} {{ l[-1:] }} {{ 'abc'[::-1] }}") == "3 [2] cba");
  CHECK(
      render(
          "{% macro f(a, b='y') %}{{ a }}{{ b }}{% endmacro %}{{ f('x', b='z') }}{{ f(a='w') }}") ==
      "xzwy");
  CHECK(render("{{ nope }}") == "");
  CHECK(render("{{ 'a' ~ 1 ~ none }} {{ 7 // 2 }} {{ 1 / 2 }} {{ 4 / 2 }}") == "a1None 3 0.5 2.0");
}

TEST_CASE("white space control") {
  CHECK(render("  {% if true %}\n  a\n  {% endif %}\nb\n") == "  a\nb");
  CHECK(render("  {{ 1 }}\n") == "  1");
  CHECK(render("a {%- if true %} b {%- endif %} c") == "a b c");
  CHECK(render("a  {%+ if true %}b{% endif %}") == "a  b");
  CHECK(render("a\n  {%+ if true %}b{% endif +%}\nc") == "a\n  b\nc");
  CHECK(render("a {{- 1 -}}  \n b") == "a1b");
  CHECK(render("a\n {# c #}\nb {#- d -#} e") == "a\nbe");
  CHECK(render("{% raw %}{{ x }}{% endraw %}") == "{{ x }}");
  CHECK(render(" {%- raw -%} {% x {%- endraw -%} y") == "{% xy");
  CHECK(render("a\r\nb\rc\n\n") == "a\nb\nc\n");
  CHECK(render("x{% if true %}\n\ny{% endif %}") == "x\ny");
  CHECK(render("\u00a0\n{%- if true %}y{% endif %}") == "y");  // a no-break space is white space
}

TEST_CASE("literals") {
  CHECK(value("1_000, 0x1F, 0b11, 0o17, 1e3, 2.5, 1_0.5e1") ==
        "1000, 31, 3, 15, 1000.0, 2.5, 105.0");
  CHECK(value(R"('\n\x41\u00e9\'', "a\qb", 'x' 'y')") == "\"\\nA\u00e9'\", 'a\\\\qb', 'xy'");
  CHECK(value("true, False, none, None") == "True, False, None, None");
  CHECK(value("(), (1,), [1, [2]], {'a': 1, 2: none}") == "(), (1,), [1, [2]], {'a': 1, 2: None}");
  CHECK(value("{'a': 1, 'b': 2, 'a': 3, 1: 'x', true: 'y'}") == "{'a': 3, 'b': 2, 1: 'y'}");
  CHECK(fails("{{ 9223372036854775808 }}"));
  CHECK(fails("{{ 'a"));
  CHECK(fails("{{ '\\ud800' }}"));
  CHECK(fails("{{ 007 }}"));
}

TEST_CASE("precedence") {
  CHECK(value("2 + 3 * 4, (2 + 3) * 4, 2 ** 3 ** 2, -2 ** 2, 2 ** -1") == "14, 20, 64, 4, 0.5");
  // jinja2 computes what it can in advance, and Python's ** binds tighter than a minus sign.
  CHECK(value("(1 - 3) ** n, (-(2.0 * 1.5)) ** (n - n), -2 ** 3 ** (n - 3), n ** -1 ** n") ==
        "-32, -1.0, -64, 0.0003200000000000001");
  CHECK(value("(-2) ** n, -2 ** n, -n ** 2, (-2.5) ** (n - n), (-0) ** (n - n), -2 ** n ** 2") ==
        "-32, -32, 25, -1.0, 1, 1024");
  CHECK(value("-n|abs, not n == 5, not nope is defined") == "5, False, True");
  CHECK(value("'a' ~ 1 + 2") ==
        "error: line 1, column 5: unsupported operand type(s) for +: 'str' and 'int'");
  CHECK(value("1 ~ 2 * 3, 1 < 2 < 3, 3 > 2 > 2, 1 if 0 else 2 if 0 else 3") ==
        "'16', True, False, 3");
  CHECK(value("1 in l and 9 not in l, 1 or 2 and 0, 0 or '' or 'x'") == "True, 1, 'x'");
  CHECK(value("s.upper()[1:3]|lower, l|first + 1, 1 is odd and 2 is even") == "'el', 4, True");
}

TEST_CASE("arithmetic is Python's") {
  CHECK(value("7 // 2, -7 // 2, 7 % -3, -7 % 3, 7.5 // 2, -7.5 % 2") == "3, -4, -2, 2, 3.0, 0.5");
  CHECK(value("1 / 3, 3 * 1.5, true + true, 2 ** 62, 10 ** -2") ==
        "0.3333333333333333, 4.5, 2, 4611686018427387904, 0.01");
  CHECK(value("1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, -0.0, 1e22") ==
        "1e+16, 1000000000000000.0, 1.2345678901234568e+17, 0.0001, 1e-05, -0.0, 1e+22");
  CHECK(value("1 == 1.0, true == 1, 'a' < 'b', [1, 2] < [1, 3], 9007199254740993 == "
              "9007199254740992.0") == "True, True, True, True, False");
  CHECK(value("'ab' * 2, 2 * [1], 'a' + 'b', [1] + [2], (1,) + (2,)") ==
        "'abab', [1, 1], 'ab', [1, 2], (1, 2)");
  CHECK(fails("{{ 9223372036854775807 + 1 }}"));
  CHECK(fails("{{ -9223372036854775807 - 2 }}"));
  CHECK(fails("{{ 4294967296 * 4294967296 }}"));
  CHECK(fails("{{ 1 // 0 }}"));
  CHECK(fails("{{ 1 / 0 }}"));
  CHECK(fails("{{ 1.0 % 0 }}"));
  CHECK(fails("{{ 'a' + 1 }}"));
  CHECK(fails("{{ 1 < 'a' }}"));
}

TEST_CASE("undefined") {
  CHECK(render("[{{ nope }}{{ d.nope }}{{ l[9] }}{{ none.x }}]") == "[]");
  CHECK(value("nope|default('x'), nope|length, nope|list, nope is defined, nope == nope2") ==
        "'x', 0, [], False, True");
  CHECK(render("{% for x in nope %}a{% else %}empty{% endfor %}") == "empty");
  CHECK(render("{{ 'x' if nope else 'y' }}{{ 'z' if false }}") == "y");
  CHECK(render("{{ nope.x }}") == "error: line 1, column 8: 'nope' is undefined");
  CHECK(render("{{ d.nope.x }}") ==
        "error: line 1, column 10: 'dict object' has no attribute 'nope'");
  CHECK(fails("{{ nope + 1 }}"));
  CHECK(fails("{{ nope() }}"));
  CHECK(fails("{{ nope < 1 }}"));
  CHECK(fails("{{ -nope }}"));
}

TEST_CASE("attributes and items") {
  CHECK(value("d.a, d['a'], d.get('q'), d.get('q', 1), 'a' in d, d|length") ==
        "1, 1, None, 1, True, 2");
  CHECK(value("d.items()|list, d.keys()|list, d.values()|list") ==
        "[('b', 2), ('a', 1)], ['b', 'a'], [2, 1]");
  CHECK(value("d.items(), d.keys()") == "dict_items([('b', 2), ('a', 1)]), dict_keys(['b', 'a'])");
  // Keys and items compare as sets.
  CHECK(value("d.keys() <= d.keys(), d.keys() < d.keys(), {'a': 0}.keys() < d.keys()") ==
        "True, False, True");
  CHECK(value("d.items() >= {'a': 1}.items(), d.items() > {'a': 2}.items()") == "True, False");
  CHECK(value("d.items() < d.keys(), {}.keys() == {}.items(), d.keys() == d.items()") ==
        "False, True, False");
  CHECK(value("{('a', 1): 0}.keys() == {'a': 1}.items()") == "True");
  CHECK(value("{'a': [1]}.items() <= d.keys()").find("unhashable") != std::string::npos);
  CHECK(value("d.values() < d.values()").find("not supported") != std::string::npos);
  CHECK(value("l[0], l[-1], l.0, s[1], s[-1], (1, 2)[1], range(5)[1:], range(9)[::3]") ==
        "3, 2, 3, 'e', 'o', 2, range(1, 5), range(0, 9, 3)");
  CHECK(value("{'items': 7}.items is callable, {'items': 7}['items']") == "True, 7");
  CHECK(value("l[1:], l[:-1], l[::-1], l[5:], l[-9:2], s[::2], s[3:0:-1], l[::-2]") ==
        "[1, 2], [3, 1], [2, 1, 3], [], [3, 1], 'Hlo', 'lle', [2, 3]");
  CHECK(value("'h\u00e9llo'[1:3], 'h\u00e9llo'[::-1], 'h\u00e9llo'|length") ==
        "'\u00e9l', 'oll\u00e9h', 5");
  CHECK(fails("{{ l[::0] }}"));
  CHECK(fails("{{ d[1:2] }}"));
  CHECK(render("{{ l.append }}") == "");
  CHECK(render("{{ l.append(4) }}").find("unsafe") != std::string::npos);
  CHECK(render("{{ d.update({}) }}").find("unsafe") != std::string::npos);
  CHECK(render("{{ s.__class__ }}") == "");
  CHECK(fails("{{ s.__class__.x }}"));
}

TEST_CASE("string methods") {
  CHECK(
      value(
          "'a,b,,c'.split(','), ' a  b '.split(), 'a b c'.split(' ', 1), 'a b c'.rsplit(' ', 1)") ==
      "['a', 'b', '', 'c'], ['a', 'b'], ['a', 'b c'], ['a b', 'c']");
  CHECK(value("'xxaxx'.strip('x'), ' a '.lstrip(), ' a '.rstrip(), 'abc'.strip('ca')") ==
        "'a', 'a ', ' a', 'b'");
  CHECK(
      value("s.startswith('He'), s.endswith(('x', 'lo')), s.find('l'), s.rfind('l'), s.find('q'), "
            "s.count('l')") == "True, True, 2, 3, -1, 2");
  CHECK(value("'stra\u00dfe'.upper(), '\u0391\u03a3'.lower(), 'hello wOrld'.title(), "
              "'hELLO'.capitalize(), "
              "'aB'.swapcase()") == "'STRASSE', '\u03b1\u03c2', 'Hello World', 'Hello', 'Ab'");
  CHECK(value("'a-b'.replace('-', '+'), 'aaa'.replace('a', 'b', 2), 'ab'.replace('', '.')") ==
        "'a+b', 'bba', '.a.b.'");
  CHECK(value("', '.join(['a', 'b']), 'a\\nb\\r\\nc'.splitlines(), 'a\\n'.splitlines(true)") ==
        "'a, b', ['a', 'b', 'c'], ['a\\n']");
  CHECK(value("'abc'.removeprefix('a'), 'abc'.removesuffix('bc'), 'a=b=c'.partition('='), "
              "'a=b=c'.rpartition('=')") == "'bc', 'a', ('a', '=', 'b=c'), ('a=b', '=', 'c')");
  CHECK(value("'7'.zfill(3), '-7'.zfill(3), 'a'.center(4, '*'), 'a'.ljust(3), 'a'.rjust(3)") ==
        "'007', '-07', '*a**', 'a  ', '  a'");
  CHECK(value("'12'.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' '.isspace(), 'A'.isupper(), "
              "''.islower()") == "True, True, True, True, True, False");
  CHECK(value("'{}\u00a0'.strip(), ' \u2003x\u3000'.rstrip(), 'a\u00a0b'.split(), 'a\u2003b "
              "c'.rsplit(none, 1)") == "'{}', ' \\u2003x', ['a', 'b'], ['a\\u2003b', 'c']");
  CHECK(fails("{{ 'a'.split('') }}"));
  CHECK(fails("{{ 'a'.index('q') }}"));
  CHECK(fails("{{ ','.join([1]) }}"));
  CHECK(fails("{{ 'a'.nope() }}"));
}

TEST_CASE("formatting") {
  CHECK(value("'%s-%d-%5.2f' % ('a', 7, 1.5), '%05d|%-4s|%x' % (42, 'a', 255), '%(a)s' % d, '%%' % "
              "()") == "'a-7- 1.50', '00042|a   |ff', '1', '%'");
  CHECK(value("'{}-{1}'.format(1)") ==
        "error: line 1, column 20: cannot mix '{}' and '{0}' in a format string");
  CHECK(value("'{} {}'.format(1, 'a'), '{0}{0}'.format('x'), '{a}'.format(a=1), "
              "'{:>4}|{:<4}|{:^4}'.format(1, 2, 3)") == "'1 a', 'xx', '1', '   1|2   | 3  '");
  CHECK(value("'{:.2f} {:05d} {:,} {:x} {:e}'.format(3.14159, 42, 1234567, 255, 12345.678)") ==
        "'3.14 00042 1,234,567 ff 1.234568e+04'");
  CHECK(value("'{0[a]} {0[b]}'.format(d), '{!r}'.format('a'), '{{}}'.format(), '{:{}}'.format('a', "
              "3)") == "'1 2', \"'a'\", '{}', 'a  '");
  CHECK(value("'%s %s'|format('a', 1), '%(x)s'|format(x=2)") == "'a 1', '2'");
  CHECK(fails("{{ '{:,x}'.format(1) }}"));
  CHECK(fails("{{ '{:-5}'.format('a') }}"));
  CHECK(fails("{{ '%d' % 'a' }}"));
  CHECK(fails("{{ '%s' % (1, 2) }}"));
  CHECK(fails("{{ '%s%s' % 1 }}"));
  CHECK(fails("{{ '{'.format(1) }}"));
}

TEST_CASE("loops") {
  CHECK(
      render("{% for x in l %}{{ loop.index }}/{{ loop.length }}{{ loop.revindex }}{{ loop.first }}"
             "{{ loop.last }};{% endfor %}") == "1/33TrueFalse;2/32FalseFalse;3/31FalseTrue;");
  CHECK(render("{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}") ==
        "<3>1 3<1>2 1<2> ");
  CHECK(render("{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }} {% endfor %}") ==
        "312 222 ");
  CHECK(
      render("{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 2) }} {% endfor %}") ==
      "aTrue bTrue aFalse ");
  CHECK(render("{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}") == "123");
  CHECK(render("{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}") ==
        "32");
  CHECK(render("{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}") == "3");
  // As in jinja2: else runs if no round came to its end.
  CHECK(render("{% for x in l %}{% break %}{% else %}else{% endfor %}") == "else");
  CHECK(render("{% for x in [1, [2, [3]]] recursive %}{{ loop.depth }}:{{ loop(x) if x is iterable "
               "else x }} "
               "{% endfor %}") == "1:1 1:2:2 2:3:3   ");
  CHECK(render(
            "{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }}"
            "{% endfor %}") == "121122");
  CHECK(render("{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}{% for k in d %}{{ k }}{% "
               "endfor %}") == "b2a1ba");
  // Names that look like keywords, and no comma in front of "in": as jinja2 reads them.
  CHECK(render("{% for in in l %}{{ in }}{% endfor %}{% for a in 1, recursive %}[{{ a }}]{% endfor "
               "%}{% for in, is in [(1, 2)] %}{{ in }}{{ is }}{% endfor %}") == "312[1][]12");
  CHECK(fails("{% for a, in l %}{% endfor %}"));
  CHECK(fails("{% for in l %}{% endfor %}"));
  CHECK(fails("{% for x in 5 %}{% endfor %}"));
  CHECK(fails("{% for a, b in [1] %}{% endfor %}"));
  CHECK(fails("{% break %}"));
  CHECK(fails("{% for x in l %}{% set loop = 1 %}{% endfor %}"));
  CHECK(fails("{% for x in l %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}"));
}

TEST_CASE("scopes") {
  CHECK(render("{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}") == "2");
  CHECK(render("{% set x = 1 %}{% for i in l %}{{ x }}{% set x = 9 %}{{ x }}{% endfor %}{{ x }}") ==
        "1919191");
  CHECK(render("{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}") == "15");
  CHECK(render("{% set a, b = 1, 2 %}{{ a }}{{ b }}") == "12");
  CHECK(render("{% set x %}a{{ n }}{% endset %}{{ x }}{% set y | upper %}q{% endset %}{{ y }}") ==
        "a5Q");
  CHECK(render("{% filter upper %}a{{ s }}{% endfilter %}") == "AHELLO");
  CHECK(render("{% block b %}x{{ n }}{% endblock b %}") == "x5");
  CHECK(render("{% generation %}a{{ n }}{% endgeneration %}") == "a5");
  // A name that a scope assigns before any use is unset in inner scopes before that.
  CHECK(render("{% macro f() %}[{{ n }}]{% endmacro %}{{ f() }}{% set n = 1 %}{{ f() }}") ==
        "[][1]");
  CHECK(render("{% macro f() %}[{{ n }}]{% endmacro %}{{ f() }}{% set n = n + 1 %}{{ f() }}") ==
        "[5][6]");
  CHECK(render("{% for i in [1] %}{% for j in [1] %}[{{ n }}]{% endfor %}{% set n = 2 %}{{ n }}{% "
               "endfor %}") == "[]2");
  CHECK(render("{% for i in [1] %}{% for j in [1] %}[{{ n }}]{% endfor %}{% if i %}{% set n = 2 "
               "%}{% endif %}"
               "{{ n }}{% endfor %}") == "[5]2");
  CHECK(render("{% set d.x = 1 %}").find("non-namespace") != std::string::npos);
}

TEST_CASE("macros and call blocks") {
  CHECK(render("{% macro f(a, b=a ~ '!') %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ "
               "f(b=3, a=4) }}") == "11!1243");
  CHECK(
      render(
          "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}") ==
      "1(2, 3){'x': 4}");
  CHECK(
      render("{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}b{{ n }}{% endcall %}") ==
      "<b5>");
  CHECK(render("{% macro f() %}{{ caller('x') }}{{ caller('y', 'z') }}{% endmacro %}"
               "{% call(a, b='q') f() %}{{ a }}{{ b }}{% endcall %}") == "xqyz");
  CHECK(render("{% macro f(a) %}{{ a is defined }}{% endmacro %}{{ f() }}") == "False");
  CHECK(render("{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ "
               "f(3) }}") == "321");
  CHECK(render("{% macro f(a, b) %}{% endmacro %}{{ f.name }}{{ f.arguments }}{{ f }}") ==
        "f('a', 'b')<Macro 'f'>");
  CHECK(fails("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}"));
  CHECK(fails("{% macro f(a) %}{% endmacro %}{{ f(q=2) }}"));
  CHECK(fails("{% macro f() %}{% endmacro %}{% call f() %}{% endcall %}"));
  CHECK(fails("{% macro f(a=1, b) %}{% endmacro %}"));
}

TEST_CASE("filters") {
  CHECK(value("l|sort, l|sort(reverse=true), ['b', 'A', 'c']|sort, ['b', "
              "'A']|sort(case_sensitive=true)") ==
        "[1, 2, 3], [3, 2, 1], ['A', 'b', 'c'], ['A', 'b']");
  CHECK(value("[(1, 'b'), (0, 'x'), (1, 'a')]|sort(attribute=0), [(1, 'b'), (0, 'x'), (1, "
              "'a')]|sort(true, attribute=0)") ==
        "[(0, 'x'), (1, 'b'), (1, 'a')], [(1, 'b'), (1, 'a'), (0, 'x')]");
  CHECK(value("people|sort(attribute='name')|map(attribute='name')|list") ==
        "['adam', 'Bob', 'Zoe']");
  CHECK(value("people|selectattr('age', 'defined')|map(attribute='age')|sum, "
              "people|rejectattr('age')|list|length") == "33, 1");
  CHECK(value("people|map(attribute='age', default=0)|list, l|map('string')|join('-')") ==
        "[3, 30, 0], '3-1-2'");
  CHECK(value("l|select('odd')|list, l|reject('gt', 1)|list, [0, 1, '', 'a']|select|list") ==
        "[3, 1], [1], [1, 'a']");
  CHECK(value("d|dictsort, d|dictsort(by='value', reverse=true), d|items|list") ==
        "[('a', 1), ('b', 2)], [('b', 2), ('a', 1)], [('b', 2), ('a', 1)]");
  CHECK(value("[1, 2, 3]|batch(2)|list, [1, 2, 3]|batch(2, 0)|list, [1, 2, 3]|slice(2)|list") ==
        "[[1, 2], [3]], [[1, 2], [3, 0]], [[1, 2], [3]]");
  CHECK(value("['a', 'A', 'b']|unique|list, [1, 1.0, true]|unique|list") == "['a', 'b'], [1]");
  CHECK(
      value(
          "2.5|round, 3.5|round, 42.55|round(1, 'floor'), 2.675|round(2), 25|round(-1), -7|abs") ==
      "2.0, 4.0, 42.5, 2.67, 20, 7");
  CHECK(value("'42'|int, '4.7'|int, 'x'|int, 'x'|int(5), '1f'|int(base=16), ' 1_0 '|int, "
              "'1.5'|float, 'q'|float") == "42, 4, 0, 5, 31, 10, 1.5, 0.0");
  CHECK(value("'hello big-world'|title, 'a b'|capitalize, ' x '|trim, 'xax'|trim('x'), 'a b "
              "c'|wordcount") == "'Hello Big-World', 'A b', 'x', 'a', 3");
  CHECK(
      value("'foo bar baz qux'|truncate(9), 'foo bar baz qux'|truncate(9, true), 'ab'|center(6)") ==
      "'foo...', 'foo ba...', '  ab  '");
  CHECK(value("'a\\nb\\n\\nc'|indent(2), 'a\\nb'|indent('> ', true)") ==
        "'a\\n  b\\n\\n  c', '> a\\n> b'");
  CHECK(value("l|first, l|last, []|first is defined, l|max, l|min, l|sum, l|reverse|list, "
              "'abc'|reverse") == "3, 2, False, 3, 1, 6, [2, 1, 3], 'cba'");
  CHECK(value("['a', 'b', 'a']|groupby(0)|list|length, people|groupby('age', "
              "default=3)|map('first')|list") == "2, [3, 30]");
  CHECK(value("'<a>'|e, '<a>'|safe, '<'|safe + '<', ('<'|e)|e, 'x'|e ~ '<'") ==
        "Markup('&lt;a&gt;'), Markup('<a>'), Markup('<&lt;'), Markup('&lt;'), 'x<'");
  CHECK(value("('ab'|e)|first, ('ab'|e)|last") == "'a', Markup('b')");
  CHECK(value("'a b/\u00e9'|urlencode, {'a': 1, 'b c': 'd'}|urlencode, 1000|filesizeformat, "
              "1|filesizeformat") == "'a%20b/%C3%A9', 'a=1&b+c=d', '1.0 kB', '1 Byte'");
  CHECK(render("{% set g = l|map('string') %}{{ g|list }}{{ g|list }}") == "['3', '1', '2'][]");
  CHECK(render("{% if []|map('string') %}a generator is true{% endif %}") == "a generator is true");
  CHECK(fails("{{ l|nofilter }}"));
  CHECK(render("{% if false %}{{ l|nofilter }}{% endif %}{{ 1|nofilter if false }}") == "");
  CHECK(fails("{{ l|join(', ', 1, 2) }}"));
  CHECK(fails("{{ l|join(x=1) }}"));
  CHECK(fails("{{ [1, 'a']|sort }}"));
  CHECK(fails("{{ l|map('string')|length }}"));
  CHECK(fails("{{ 5|list }}"));
}

TEST_CASE("tests") {
  CHECK(value("1 is odd, 2 is even, 9 is divisibleby 3, 9 is divisibleby(2), none is none, 1 is "
              "number") == "True, True, True, False, True, True");
  CHECK(value("s is string, l is sequence, d is mapping, d is iterable, 5 is iterable, 1.0 is "
              "float, true is integer") == "True, True, True, True, False, True, False");
  CHECK(
      value(
          "1 is in l, 'a' is eq 'a', 1 is lt 2, 'x' is filter, 'trim' is filter, 'odd' is test") ==
      "True, True, True, False, True, True");
  CHECK(value("s is not string, nope is undefined, 'a' is lower, 'A' is upper, true is true, 1 is "
              "true, true is boolean") == "False, True, True, True, True, False, True");
  CHECK(value("none is sameas none, range is callable, l is callable, ('a'|e) is escaped") ==
        "True, True, False, True");
  CHECK(fails("{{ 1 is nosuch }}"));
  CHECK(fails("{{ 1 is odd is even }}"));
}

TEST_CASE("global functions") {
  CHECK(value("range(3)|list, range(1, 4)|list, range(5, 0, -2)|list, range(3)") ==
        "[0, 1, 2], [1, 2, 3], [5, 3, 1], range(0, 3)");
  CHECK(value("dict(a=1, b=2), dict([('x', 1)], y=2), dict(d, b=3)") ==
        "{'a': 1, 'b': 2}, {'x': 1, 'y': 2}, {'b': 3, 'a': 1}");
  CHECK(render("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ "
               "c.current }}") == "abab");
  CHECK(render("{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b") == "a; b");
  CHECK(render("{% set ns = namespace(a=1) %}{% set ns.b = 2 %}{{ ns.a }}{{ ns['b'] }}{{ ns }}") ==
        "12<Namespace {'a': 1, 'b': 2}>");
  CHECK(value("dict(*[[('a', 1)]], **{'b': 2})") == "{'a': 1, 'b': 2}");
  CHECK(fails("{{ range(100001) }}"));
  CHECK(fails("{{ range(1, 2, 0) }}"));
}

TEST_CASE("syntax errors name line and column") {
  CHECK(render("a\n\n  {{ 1 + }}") == "error: line 3, column 10: unexpected '}}'");
  CHECK(
      render("{% if x %}\na") ==
      "error: line 2, column 2: unexpected end of template, expected 'elif' or 'else' or 'endif'");
  CHECK(render("{{ a.b[").find("line 1, column 1") != std::string::npos);
  CHECK(render("\u00e9\u00e9{{ ? }}") == "error: line 1, column 6: unexpected char '?'");
  CHECK(render("{{ (1] }}") == "error: line 1, column 6: unexpected ']', expected ')'");
  for (const char* source : {"{{",
                             "{%",
                             "{# ",
                             "{{ }}",
                             "{% %}",
                             "{% endif %}",
                             "{% else %}",
                             "{% raw %} ",
                             "{{ f(a=1, a=2) }}",
                             "{{ f(a=1, 2) }}",
                             "{{ a b }}",
                             "{% set 1 = 2 %}",
                             "{% set x.y.z = 2 %}",
                             "{% for %}",
                             "{% for x %}",
                             "{% macro f %}",
                             "{% call 1 %}{% endcall %}",
                             "{{ 1 if }}",
                             "{{ x| }}",
                             "{{ x is }}",
                             "{{ {1} }}",
                             "{{ [1 2] }}",
                             "{{ 'a' 1 }}",
                             "{% block a %}{% endblock %}{% block a %}{% endblock %}"}) {
    CAPTURE(source);
    CHECK(fails(source));
  }
}

TEST_CASE("a comment or raw block that begins at the very end is none") {
  for (const char* source : {"a{#", "a{#\n", "a {#-", "a{% raw %}", "a{% raw -%}  \n"}) {
    CAPTURE(source);
    CHECK(render(source) == "a");
  }
  CHECK(render("a {#+") == "a ");
  CHECK(fails("a{#\n\n"));
  CHECK(fails("a{% raw %}x"));
}

TEST_CASE("deep but allowed nesting works") {
  std::string expression = "1";
  for (int i = 0; i < 90; ++i) expression.insert(0, "(").append(")");
  CHECK(render("{{ " + expression + " }}") == "1");
  std::string sum = "0";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  CHECK(render("{{ " + sum + " }}") == "5000");
  std::string ifs = "x";
  for (int i = 0; i < 90; ++i) ifs.insert(0, "{% if true %}").append("{% endif %}");
  CHECK(render(ifs) == "x");
  CHECK(render("{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{% else %}end{% endif %}{% endmacro "
               "%}{{ f(150) }}") == "end");
}

TEST_CASE("strftime") {
  std::tm t{};
  t.tm_year = 124, t.tm_mon = 11, t.tm_mday = 30, t.tm_wday = 1, t.tm_yday = 364;  // Monday
  t.tm_hour = 15, t.tm_min = 5, t.tm_sec = 9;
  const auto format = [&](std::string_view f) {
    const auto text = format_time(f, t);
    return text.ok() ? *text : "error: " + text.error().message;
  };
  CHECK(format("%Y-%m-%d %H:%M:%S") == "2024-12-30 15:05:09");
  CHECK(format("%a %A %b %B %-d %e %I %p %j %y") == "Mon Monday Dec December 30 30 03 PM 365 24");
  CHECK(format("%G-W%V-%u %U %W %w %f%%") == "2025-W01-1 52 53 1 000000%");
  CHECK(format("%c|%x|%X") == "Mon Dec 30 15:05:09 2024|12/30/24|15:05:09");
  CHECK(format("%Q").starts_with("error"));
  CHECK(format("%").starts_with("error"));
}

TEST_CASE("UTF-8 with bad bytes") {
  for (const std::string s : {"\xff", "a\x80z", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80",
                              "\xc0\xaf", "\xf5\x80\x80\x80"}) {
    std::string copy;
    char32_t cp = 0;
    for (std::size_t pos = 0; pos < s.size();) {
      pos += decode_utf8(s, pos, &cp);
      append_utf8(cp, &copy);
    }
    CHECK(copy == s);
  }
  char32_t cp = 0;
  CHECK(decode_utf8("\U0001F600", 0, &cp) == 4);
  CHECK(cp == 0x1F600);
}

TEST_CASE("searching takes linear time") {
  const std::string text(3000000, 'a');
  const std::string needle = std::string(1000000, 'a') + "b";
  CHECK(Searcher(needle).find(text, 0) == std::string::npos);
  CHECK(Searcher("aaaaaaaaaaaaaaaaaaaaaaaaab").find("xxaaaaaaaaaaaaaaaaaaaaaaaaaaabyy", 0) == 4);
  CHECK(find_last("abcabc", "abc") == 3);
  CHECK(find_last("abc", "") == 3);
  CHECK(find_last("abc", "x") == std::string::npos);
}

}  // namespace
}  // namespace sluice::jinja
