#!/usr/bin/env python3
"""Compares our chat template language with jinja2 on small random templates.

    python3 -m venv venv && venv/bin/pip install jinja2
    venv/bin/python scripts/fuzz_jinja_differential.py build/release/tools/render_template -n 20000

Each template is rendered by jinja2 set up as transformers does it and by our developer program; the
outputs must be equal byte for byte, or both must be errors. What we document as unsupported or as a
limit (the message says so) is counted apart. Mismatches are printed with the seed that makes them.
"""
import argparse
import collections
import json
import random
import signal
import subprocess
import sys
import warnings
from datetime import datetime

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """{% generation %} blocks render their body, through a call block as in transformers."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(lineno)

    def _render(self, caller):
        return caller()


class Raised(jinja2.exceptions.TemplateError):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def make_environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    now = datetime(2026, 1, 2, 3, 4, 5)
    env.globals["strftime_now"] = now.strftime
    return env


CONTEXTS = [
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi <|im_end|> \u00e9\U0001f600 'q' \"d\"\n", "n": 3},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "1", "function": {"name": "f", "arguments": {"b": 1, "a": [1, 2.5, None]}}}]},
            {"role": "tool", "content": "  x  y  ", "ok": True},
        ],
        "tools": [{"type": "function", "function": {"name": "get", "parameters": {"z": {}, "a": []}}}],
        "x": 3, "y": -2, "f": 2.5, "g": 1e20, "t": True, "u": False, "z": None,
        "s": "Hello World", "e": "", "w": "a,b;c d\te\r\nf", "p": "stra\u00dfe \u03a3\u03b1\u03a3",
        "html": "<b>&'\"</b>", "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "le": [],
        "ll": [[1, 2], [3], []], "d": {"b": 2, "a": 1, "C": "x"}, "de": {}, "items": [1],
        "mix": [1, "a", None, 2.0, True, [1], {"k": "v"}],
    },
]

# Variables and literals by type: s text, n number, l list, d dict, a anything.
ATOMS = {
    "s": ["s", "e", "w", "p", "html", "messages[1].content", "messages[0]['role']", "''", "'a'", "' '",
          "'Hello'", "'%s'", "'\\n'", "\"it's\"", "'\\u00e9'", "'\\\\'", "'<'", "'a,b'", "'x y  z'",
          "'role'", "'aXbXc'", "'\u00df'", "'1'", "'2.5'", "'  3 '", "'0x1f'", "'k'", "'\\x41'",
          "'A\u0130\u01c6'", "'\\t|'", "'{{'", "'%}'", "'1_000'", "'nan'", "'\u03a3\u03a3 \u03a3'", "'\\q'",
          "'a' 'b'", "'\\101'", "'\\\u00e9'", "'ab\\\nc'", "s[1:]", "s[::-1]", "w[2]"],
    "n": ["x", "y", "f", "g", "t", "u", "0", "1", "2", "3", "-1", "7", "10", "100", "2.5", "0.1", "1e3",
          "1e16", "-0.0", "1_000", "0x10", "3.0", "0.5", "1.5", "255", "12345678901", "1e-5", "0b101",
          "0o17", "l[0]", "d.a", "messages[1].n", "messages|length", "true", "false"],
    "l": ["l", "ls", "le", "ll", "mix", "messages", "tools", "items", "[]", "[1, 2]", "['b', 'a', 'C']",
          "(1, 'x')", "()", "range(3)", "range(5, 0, -2)", "messages[1:]", "ls[::-1]", "d.items()",
          "d.keys()", "d.values()", "d|dictsort", "d|items", "s.split('o')", "[none, 1, 'a']", "ls|map('upper')",
          "l|select('odd')", "w.splitlines()", "[[1, 2], [3]]", "[1, 1.0, true, 'a', 'A', 'a']"],
    "d": ["d", "de", "{}", "messages[0]", "messages[1]", "messages[2].tool_calls[0].function", "tools[0]",
          "{'a': 1}", "dict(a=1, b=s)", "{1: 'x', 'k': none, 2.5: [], true: 'y'}", "messages[-1]"],
    "a": ["z", "none", "nope", "v1", "v2", "ns.a", "ns.b", "mix[3]", "messages[2].content", "nope|default('q')",
          "messages[2]", "l|first", "le|last", "l|max", "d.q", "mix|last", "none"],
}
LOOP = ["index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem",
        "depth", "cycle('a', 'b')", "changed(x)", "changed(loop.index // 2)", "nope", "index"]
FILTERS = {
    "abs": [""], "attr": ["('items')", "('upper')", "('x')"], "batch": ["(2)", "(2, 'f')", "(3)"],
    "capitalize": [""], "center": ["(9)", "(4)", "()"], "count": [""],
    "d": ["('D')", "('D', true)", ""], "default": ["(1)", "(x, boolean=true)", "('')"],
    "dictsort": ["", "(true)", "(false, 'value')", "(reverse=true)", "(by='value')"],
    "e": [""], "escape": [""], "filesizeformat": ["", "(true)"], "first": [""],
    "float": ["", "(1.5)"], "forceescape": [""], "format": ["(1)", "('a', 2)", "(x=1)", "(s, l)"],
    "groupby": ["('role')", "('n', default=0)", "(0)", "('role', case_sensitive=true)"],
    "indent": ["", "(2)", "(2, true)", "(first=true, blank=true)", "('> ')"],
    "int": ["", "(5)", "(0, 16)", "(default=-1)"], "join": ["", "(', ')", "('-', attribute='role')"],
    "last": [""], "length": [""], "list": [""], "lower": [""], "items": [""],
    "map": ["('upper')", "(attribute='role')", "(attribute='n', default=0)", "('int')", "('length')",
            "('default', 'q')", "('replace', 'a', 'b')"],
    "max": ["", "(attribute='n')", "(true)"], "min": ["", "(case_sensitive=true)"],
    "reject": ["", "('odd')", "('none')", "('equalto', 1)"],
    "rejectattr": ["('n')", "('content', 'none')", "('role', 'equalto', 'user')"],
    "replace": ["('a', 'b')", "('', '-')", "('a', '', 1)", "('l', 'LL')", "(' ', '_', count=2)"],
    "reverse": [""], "round": ["", "(1)", "(1, 'floor')", "(0, 'ceil')", "(-1)", "(method='floor')"],
    "safe": [""], "select": ["", "('string')", "('defined')", "('in', [1, 'a'])", "('>', 1)"],
    "selectattr": ["('role', '==', 'user')", "('content')", "('role', 'in', ['user', 'tool'])",
                   "('n', 'defined')"],
    "slice": ["(2)", "(3, 'f')"], "sort": ["", "(reverse=true)", "(true)", "(attribute='role')",
                                           "(attribute='role,content')", "(case_sensitive=true)"],
    "string": [""], "sum": ["", "(start=1)", "(attribute='n')"], "title": [""],
    "tojson": ["", "(indent=2)", "(sort_keys=true)", "(separators=(',', ':'))", "(ensure_ascii=true)",
               "(indent='>')", "(indent=0)", "(true)", "(indent=1, sort_keys=true)"],
    "trim": ["", "('a')", "('Hd')"], "truncate": ["(5)", "(6, true)", "(8, false, '!', 0)", "()"],
    "unique": ["", "(true)", "(attribute='role')"], "upper": [""], "urlencode": [""],
    "wordcount": [""], "xmlattr": ["", "(false)"],
}
TESTS = ["odd", "even", "divisibleby(2)", "divisibleby 3", "defined", "undefined", "none", "boolean",
         "false", "true", "integer", "float", "lower", "upper", "string", "mapping", "number",
         "sequence", "iterable", "callable", "sameas(none)", "sameas true", "escaped", "in [1, 'a']",
         "in(ls)", "eq(1)", "equalto('a')", "ne 2", "gt(1)", "lt 3", "ge 1", "le(1)", "filter", "test"]
STRING_METHODS = [
    "upper()", "lower()", "title()", "capitalize()", "strip()", "lstrip()", "rstrip()", "strip('Ha ')",
    "lstrip('H')", "rstrip('d')", "split()", "split(',')", "split(' ', 1)", "rsplit(' ', 1)", "rsplit()",
    "split('o')[0]", "split('</think>')[-1]", "splitlines()", "splitlines(true)", "replace('l', 'L')",
    "replace('o', '0', 1)", "replace('', '.')", "startswith('H')", "endswith('d')", "startswith(('a', 'H'))",
    "find('o')", "rfind('o')", "count('l')", "find('o', 5)", "count('')", "join(ls)", "join(['x', 'y'])",
    "format(1, x=2)", "format('a', s)", "removeprefix('He')", "removesuffix('ld')", "partition(' ')",
    "rpartition('o')", "zfill(8)", "center(15, '*')", "ljust(13)", "rjust(14, '.')", "isdigit()",
    "isalpha()", "isalnum()", "islower()", "isupper()", "isspace()", "istitle()", "isnumeric()",
    "isdecimal()", "isascii()", "isprintable()", "swapcase()", "expandtabs(4)", "split(maxsplit=1)",
    "split(sep='a', maxsplit=0)", "find('l', -4, -1)", "endswith(('x', 'd'), 2)", "center(4)", "index('')",
    "rsplit(None, 2)", "split('l', -1)", "rfind('')", "strip(none)", "format_map({'x': 1})"]
DICT_METHODS = ["items()", "keys()", "values()", "get('a')", "get('q', 5)", "get('role')", "copy()", "a",
                "role", "content", "items", "nothing", "b.x", "pop('a')", "update", "get('content', '') or ''"]
LIST_METHODS = ["index(1)", "count(1)", "append(1)", "append", "copy()", "0", "1", "nothing", "count('a')",
                "pop", "sort()", "index('a')"]
FORMATS = ["'{:>5}'", "'{:05d}'", "'{:.2f}'", "'{!r}'", "'{:^7}|'", "'{:,}'", "'{:x}'", "'{0[a]}'",
           "'{:*<6}'", "'{:+}'", "'{:e}'", "'{:%}'", "'{:#x}'", "'{}{}'", "'{1}{0}'", "'{{}}'", "'{:{}}'"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.depth = 0
        self.in_loop = 0
        self.in_macro = 0
        self.in_recursive = 0

    def pick(self, items):
        return self.r.choice(items)

    def chance(self, p):
        return self.r.random() < p

    # --- expressions
    def expression(self, level=3, kind=None):
        kind = kind or self.pick("sssnnlldaaa")
        if self.chance(0.04):
            kind = self.pick("snlda")  # of the wrong type
        if level <= 0 or self.chance(0.3):
            return self.atom(kind)
        sub = lambda k=None: self.paren(level - 1, k)
        choices = {
            "s": [lambda: f"{sub()} ~ {sub()}", lambda: f"{sub('s')} + {sub('s')}",
                  lambda: f"{sub('s')}.{self.pick(STRING_METHODS)}", lambda: f"{sub('s')}.{self.pick(STRING_METHODS)}",
                  lambda: f"{sub('s')}|{self.pick_filter('s')}", lambda: f"{sub('s')}|{self.pick_filter('s')}",
                  lambda: f"{sub()}|{self.pick(['string', 'tojson', 'tojson(indent=2)', 'default(s)', 'e', 'upper', 'trim'])}",
                  lambda: f"{sub()}|tojson{self.pick(FILTERS['tojson'])}",
                  lambda: f"{sub('l')}|join{self.pick(FILTERS['join'])}", lambda: f"{sub('s')}[{self.subscript(level)}]",
                  lambda: f"{sub('s')} * {self.pick(['0', '2', '3', '-1', 'x'])}",
                  lambda: f"{self.pick(FORMATS)}.format({sub()}, {sub('n')})",
                  lambda: f"'%s|%r' % ({sub()}, {sub()})", lambda: f"'%d %5.2f %x|' % ({sub('n')}, {sub('n')}, x)",
                  lambda: f"'%{self.pick(['', '-', '0', '+', ' ', '#', '-0', '+0'])}{self.pick(['', '3', '9', '*'])}{self.pick(['', '.0', '.2', '.', '.*'])}{self.pick('sssrddixXoeEfFgGc')}' % {sub(self.pick('snn'))}",
                  lambda: f"'{{:{self.pick(['', '', '*<', '>', '^', '=', '<', '0='])}{self.pick(['', '+', '-', ' '])}{self.pick(['', '', '#', '0'])}{self.pick(['', '5', '08', '12'])}{self.pick(['', '', ',', '_'])}{self.pick(['', '', '.0', '.2', '.5'])}{self.pick(['', '', 's', 'd', 'x', 'X', 'o', 'b', 'e', 'E', 'f', 'F', 'g', 'G', '%', 'n', 'q'])}}}'.format({sub(self.pick('snn'))})",
                  lambda: f"'%(a)s-%(b)s' % {sub('d')}", lambda: f"'{{}}{{!r:>9}}'.format({sub()}, {sub('s')})"],
            "n": [lambda: f"{sub('n')} {self.pick(['+', '-', '*', '/', '//', '%'])} {sub('n')}",
                  lambda: f"{sub('n')} ** {self.pick(['0', '1', '2', '3', '-1', '0.5', 'x'])}",
                  lambda: f"{self.pick(['-', '+'])}{sub('n')}", lambda: f"{sub('n')}|{self.pick_filter('n')}",
                  lambda: f"{sub('l')}|length", lambda: f"{sub()}|int", lambda: f"{sub()}|float(2)",
                  lambda: f"{sub('s')}|wordcount", lambda: f"{sub('l')}|sum", lambda: f"{sub('s')}.count('a')"],
            "l": [lambda: f"{sub('l')}|{self.pick_filter('l')}", lambda: f"{sub('l')}|{self.pick_filter('l')}|list",
                  lambda: f"{sub('l')}|{self.pick_filter('l')}|list", lambda: f"{sub('l')}[{self.subscript(level)}]",
                  lambda: f"{sub('l')}|list + {sub('l')}|list", lambda: f"{sub('l')}.{self.pick(LIST_METHODS)}",
                  lambda: "[" + ", ".join(sub() for _ in range(self.r.randint(0, 3))) + "]",
                  lambda: f"({sub()}, {sub()})", lambda: f"{sub('l')}|list|{self.pick_filter('l')}"],
            "d": [lambda: f"{sub('d')}.{self.pick(DICT_METHODS)}", lambda: f"dict({sub('d')}, q={sub()})",
                  lambda: "{" + ", ".join(f"{self.atom(self.pick('sn'))}: {sub()}" for _ in range(self.r.randint(0, 3))) + "}",
                  lambda: f"{sub('d')}[{self.pick(['1', repr('a'), repr('role'), repr('items')])}]",
                  lambda: f"{sub('d')}|{self.pick(['items|list', 'dictsort', 'dictsort(by=' + repr('value') + ')', 'list', 'xmlattr', 'length', 'urlencode', 'first'])}"],
            "a": [lambda: f"{sub()} {self.pick(['==', '!=', 'and', 'or', 'and', 'or'])} {sub()}",
                  lambda: f"{sub('n')} {self.pick(['<', '<=', '>', '>=', '==', '!='])} {sub('n')}",
                  lambda: f"{sub('s')} {self.pick(['<', '>=', 'in', 'not in', '=='])} {sub('s')}",
                  lambda: f"{sub('n')} < {sub('n')} <= {sub('n')}", lambda: f"not {sub()}",
                  lambda: f"{sub()} {self.pick(['in', 'not in'])} {sub(self.pick('ld'))}",
                  lambda: f"{sub()} is {self.pick(['', '', 'not '])}{self.pick(TESTS)}",
                  lambda: f"{sub()} is {self.pick(['', '', 'not '])}{self.pick(TESTS)}",
                  lambda: f"{sub()} if {sub()}", lambda: f"{sub()} if {sub()} else {sub()}",
                  lambda: f"{sub('l')}|{self.pick(['first', 'last', 'max', 'min', 'list|first', 'list|last'])}",
                  lambda: f"{sub('d')}.{self.pick(DICT_METHODS)}", lambda: self.call(level), lambda: self.call(level),
                  lambda: f"{sub()}|{self.pick(list(FILTERS))}", lambda: f"{sub('l')} < {sub('l')}"],
        }
        return self.pick(choices[kind])()

    def paren(self, level, kind=None):
        text = self.expression(level, kind)
        return text if self.chance(0.12) or text.isalnum() or text[-1] in "'\"" and text.count(text[-1]) == 2 else f"({text})"

    def pick_filter(self, kind):
        names = {
            "s": ["capitalize", "center", "d", "default", "e", "escape", "first", "float", "forceescape", "format",
                  "indent", "int", "last", "length", "list", "lower", "replace", "reverse", "safe", "string",
                  "title", "tojson", "trim", "truncate", "upper", "urlencode", "wordcount", "join", "attr"],
            "n": ["abs", "round", "round", "int", "float", "filesizeformat", "string", "tojson", "default"],
            "l": ["batch", "first", "groupby", "join", "last", "length", "list", "map", "max", "min", "reject",
                  "rejectattr", "reverse", "select", "selectattr", "slice", "sort", "sum", "unique", "tojson",
                  "count", "string", "map", "select", "selectattr"],
        }[kind]
        name = self.pick(names)
        return name + self.pick(FILTERS[name])

    def atom(self, kind):
        if self.in_loop and self.chance(0.15):
            return "loop." + self.pick(LOOP)
        if kind == "a" and self.chance(0.4):
            kind = self.pick("snld")
        return self.pick(ATOMS[kind])

    def subscript(self, level):
        if self.chance(0.6):
            part = lambda: self.pick(["", "", "0", "1", "2", "-1", "-2", "5", "x", "none"])
            if self.chance(0.5):
                return f"{part()}:{part()}"
            return f"{part()}:{part()}:{self.pick(['', '-1', '2', '-2', '1', '-1', '2', '3', '0'])}"
        return self.pick(["0", "1", "-1", "5", "'a'", "'role'", "'items'", "x", "true", "1.0", "none", "'upper'",
                          "(1, 2)", self.atom("n")])

    def call(self, level):
        sub = lambda: self.expression(level - 1)
        choices = [
            lambda: f"range({self.pick(['3', 'x', '1, 4', '5, 0, -2', '0'])})|list",
            lambda: f"dict(a={sub()}, b={sub()})",
            lambda: f"m1({sub()})", lambda: f"m1({sub()}, b={sub()})", lambda: f"m1(b={sub()})",
            lambda: f"m2({sub()}, {sub()}, q={sub()})", lambda: f"m2(*{self.atom('l')})",
            lambda: f"m2(**{self.pick(['d', 'de', '{}'])})",
            lambda: f"strftime_now('{self.pick(['%d %b %Y %H:%M', '%A %-d %B', '%y%j %I%p %U %W %V %G %u %w', '%c %x %X %D %F %T %R', '%e|%k|%l|%%|%f|%z|%Z|%h'])}')",
            lambda: f"cycler({sub()}, 1).next()", lambda: "joiner(',')() ~ 'j'", lambda: "ns.a", lambda: "m1.name",
        ]
        if self.chance(0.03):
            return f"raise_exception('no: ' ~ {self.atom('s')})"
        if self.in_macro and self.chance(0.3):
            return self.pick(["caller()", f"caller({sub()})", "varargs", "kwargs", "a", "b"])
        if self.in_recursive and self.chance(0.4):
            return f"loop({self.pick(['ll', 'l', 'le', self.atom('l')])}) if loop.depth < 3"
        return self.pick(choices)()

    # --- statements
    def space(self):
        return self.pick(["", "", "", " ", "\n", "  \n  ", "\n\n", "\t", " \n", "a", "b c", "\n  ", "\u00a0", "x\n"])

    def tag(self, text):
        open_, close = self.pick(["{%", "{%", "{%-", "{%+"]), self.pick(["%}", "%}", "-%}", "+%}"])
        return f"{open_} {text} {close}"

    def body(self):
        if self.depth > 3:
            return self.space() + self.print()
        self.depth += 1
        out = "".join(self.statement() for _ in range(self.r.randint(1, 3)))
        self.depth -= 1
        return out

    def print(self):
        open_, close = self.pick(["{{", "{{", "{{-"]), self.pick(["}}", "}}", "-}}"])
        return f"{open_} {self.expression()} {close}"

    def condition(self):
        return self.pick([lambda: self.paren(2, "a"), lambda: self.paren(2, "a"), lambda: self.expression(1)])()

    def statement(self):
        r = self.r.random()
        if r < 0.34:
            return self.space() + self.print() + self.space()
        if r < 0.46:
            name = self.pick(["v1", "v2", "x", "s", "ns.a", "ns.b", "nope", "d", "v1"])
            if self.chance(0.1):
                return self.tag(f"set v1, v2 = {self.expression(1)}, {self.expression(1)}")
            return self.space() + self.tag(f"set {name} = {self.expression()}")
        if r < 0.50:
            flt = self.pick(["", "", "| upper", "| trim | replace('a', 'b')"])
            return self.tag(f"set {self.pick(['v1', 'v2', 'x', 'ns.a'])} {flt}") + self.body() + self.tag("endset")
        if r < 0.62:
            out = self.space() + self.tag(f"if {self.condition()}") + self.body()
            while self.chance(0.25):
                out += self.tag(f"elif {self.condition()}") + self.body()
            if self.chance(0.4):
                out += self.tag("else") + self.body()
            return out + self.tag("endif") + self.space()
        if r < 0.77:
            return self.loop()
        if r < 0.82:
            name, params = self.pick([("m1", "a, b=x"), ("m2", "a='A', b=a"), ("m1", "v1"), ("m2", ""), ("m1", "a=b, b=1")])
            extra = self.pick(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ a }}{{ b }}"])
            outer, self.in_loop, self.in_recursive = (self.in_loop, self.in_recursive), 0, 0
            self.in_macro += 1
            out = self.tag(f"macro {name}({params})") + extra + self.body() + self.tag("endmacro")
            self.in_macro -= 1
            self.in_loop, self.in_recursive = outer
            return out
        if r < 0.87:
            params = self.pick(["", "(v1)", "(a, b=2)", "(a=1)"])
            return self.tag(f"call{params} {self.pick(['m1', 'm2', 'm3'])}({self.expression(1)})") + self.body() + self.tag("endcall")
        if r < 0.90:
            flt = self.pick(["upper", "trim", "replace('a', 'A')", "indent(2)", "length", "tojson", "trim|title"])
            return self.tag(f"filter {flt}") + self.body() + self.tag("endfilter")
        if r < 0.925:
            return self.tag(f"with v1 = {self.expression(2)}, v2 = {self.expression(1)}") + self.body() + self.tag("endwith")
        if r < 0.945:
            return self.tag("generation") + self.body() + self.tag("endgeneration")
        if r < 0.96:
            return self.space() + self.pick(["{# c #}", "{#- c -#}", "{# a\nb #}\n", "{#-#}", "{#+ c +#}", "{# c +#}\n"]) + self.space()
        if r < 0.97:
            return self.pick(["{% raw %}{{ x }}{% endraw %}", "{%- raw -%} {% x {%- endraw -%} ", "{% raw %}\n a \n  {% endraw %}\n"])
        if r < 0.975:
            return self.tag("set ns = namespace(a=1, b='q')")
        if r < 0.98:
            return self.tag(f"block b{self.r.randint(0, 9999)}") + self.body() + self.tag("endblock")
        if r < 0.99:
            return self.tag(f"print {self.expression(1)}")
        return self.pick(["{{", "{%", "}}", "{% endif %}", "{% bogus %}", "{{ }}", "{{ 'a }}", "{{ 1 1 }}", "{#", "{{ a. }}",
                          "{{ x|nofilter }}", "{{ x is notest }}", "{% if x %}", "{% else %}", "{{ m1(a=1, a=2) }}", "{{ 007 }}",
                          "{{ 'a' if false }}", "{{ x|nofilter if false }}", "{% if false %}{{ x|nofilter }}{% endif %}",
                          "{{ l[] }}", "{{ x.0.1 }}", "{{ -x|abs }}", "{{ 2**-1 }}", "{{ 2 ** 3 ** 2 }}", "{{ -2 ** 2 }}", "{{ {'a':{}}}}"])

    def loop(self):
        kind = self.r.random()
        if kind < 0.3:
            target, iterable = "v1, v2", self.pick(["d.items()", "d|items", "d|dictsort", "[(1, 2), (3, 4)]", "messages[0].items()",
                                                    "messages|groupby('role')", "d.items()|list", "[[1, 'a']]", "{'k': v1}.items()"])
            if self.chance(0.1):
                target = "(v1, v2)"
        else:
            target, iterable = self.pick(["v1", "v1", "v2", "x"]), self.paren(2, "l")
        test = f" if {self.condition()}" if self.chance(0.2) else ""
        recursive = self.chance(0.1)
        out = self.space() + self.tag(f"for {target} in {iterable}{test}{' recursive' if recursive else ''}")
        self.in_loop += 1
        self.in_recursive += recursive
        out += self.body()
        if self.chance(0.25):
            out += self.tag(f"if {self.condition()}") + self.tag(self.pick(["break", "continue"]))
            out += self.tag("endif") + self.body()
        self.in_loop -= 1
        self.in_recursive -= recursive
        if self.chance(0.2):
            out += self.tag("else") + self.body()
        return out + self.tag("endfor") + self.space()

    def one_expression(self):
        """A template of a single value, shown as Python writes it."""
        kind = self.pick("sssnnlldaaa")
        return "{% set ns = namespace(a=0, b='n') %}{{ [" + self.expression(self.r.randint(2, 4), kind) + "] }}"

    def template(self):
        out = ""
        if self.chance(0.9):
            out += "{% set ns = namespace(a=0, b='n') %}\n"
        if self.chance(0.9):
            out += "{% macro m1(a, b=2) %}<{{ a }}|{{ b }}>{% endmacro %}\n"
            out += "{% macro m2(a=1) %}[{{ a }}{{ varargs }}{{ kwargs }}]{% endmacro %}"
            out += "{% macro m3(a=1) %}({{ a }}{{ caller(1) if a is string else caller() }}){% endmacro %}"
        return out + "".join(self.statement() for _ in range(self.r.randint(1, 3))) + self.space()


def reference(env, template, context):
    """("output", text), ("raised", message), ("error", message) or ("skip", why)."""
    signal.setitimer(signal.ITIMER_REAL, 5)
    try:
        return "output", env.from_string(template).render(**context)
    except Raised as e:
        return "raised", str(e.message)
    except TimeoutError:
        return "skip", "timeout"
    except MemoryError:
        return "skip", "memory"
    except Exception as e:
        return "error", f"{type(e).__name__}: {e}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def on_alarm(*_):
    raise TimeoutError


def documented(message):
    """Our reason to refuse what jinja2 renders. (It folds constants: 1[2:] is undefined, x[2:] an error.)"""
    words = ("(limit)", "not supported", "memory address", "cannot be sliced")
    return next((word for word in words if word in message), None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("-n", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--expressions", action="store_true", help="single expressions instead of templates")
    parser.add_argument("--show", type=int, default=20, help="mismatches to print")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, on_alarm)
    env = make_environment()
    tool = subprocess.Popen([args.tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    counts = collections.Counter()
    shown = 0
    for seed in range(args.seed, args.seed + args.n):
        generator = Generator(seed)
        template = generator.one_expression() if args.expressions else generator.template()
        context = CONTEXTS[seed % len(CONTEXTS)]
        kind, text = reference(env, template, context)
        tool.stdin.write(json.dumps({"template": template, "context": context}) + "\n")
        tool.stdin.flush()
        line = tool.stdout.readline()
        if not line:
            print(f"seed {seed}: the program ended\n{template}")
            return 1
        ours = json.loads(line)
        if kind == "skip":
            counts["skipped: " + text] += 1
            continue
        if kind == "error" and text.startswith(("NameError: name 'nan'", "NameError: name 'inf'")):
            counts["skipped: constant folding of jinja2 cannot write nan or inf"] += 1
            continue
        if kind == "output" and " at 0x" in text:
            counts["skipped: address in the output"] += 1
            continue
        if "output" in ours:
            same = kind == "output" and text == ours["output"]
        elif ours["raised"]:
            same = kind == "raised" and text == ours["error"]
        else:
            word = documented(ours["error"])
            if kind != "error" and word:
                counts["documented: " + word] += 1
                continue
            same = kind == "error"
        counts["equal " + kind if same else "MISMATCH"] += 1
        if not same and shown < args.show:
            shown += 1
            print(f"--- seed {seed}\n{template!r}\n  jinja2 {kind}: {text!r}\n  ours: {ours!r}")
    tool.stdin.close()
    tool.wait()
    for name, count in sorted(counts.items()):
        print(f"{count:8d} {name}")
    return 1 if counts["MISMATCH"] else 0


if __name__ == "__main__":
    sys.exit(main())
