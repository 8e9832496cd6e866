#!/usr/bin/env python3
"""Compares our chat template language with jinja2 on small random templates.

    python3 -m venv venv && venv/bin/pip install jinja2
    venv/bin/python scripts/fuzz_jinja_differential.py build/release/tools/render_template -n 20000

Four kinds of input: whole templates of which most render (the default: a statement that jinja2
refuses is drawn again), --wild templates of which many are errors, --expressions, and --mutate DIR,
the chat templates of a folder with a few tokens deleted, doubled, swapped or replaced. Each template is rendered by jinja2 set up as transformers does it and by our developer program; the
outputs must be equal byte for byte, or both must be errors. What we document as unsupported or as a
limit (the message says so) is counted apart. Mismatches are printed with the seed that makes them.
"""
import argparse
import collections
import copy
import json
import pathlib
import random
import re
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
        "tree": [{"n": "p", "kids": [{"n": "q", "kids": []}, {"n": "r", "kids": [{"n": "s", "kids": []}]}]},
                 {"n": "t", "kids": [{"n": "u", "kids": []}]}],
    },
    {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "caf\u00e9 \u65e5\u672c\n{{ x }}"}, {"type": "image"}]},
            {"role": "assistant", "content": "<think>\n a \n</think>\n\n answer ", "reasoning_content": "why", "n": -1},
            {"role": "user", "content": "", "n": 0.5},
        ],
        "tools": [{"name": "g", "parameters": {"properties": {"p": {"type": ["string", "null"], "enum": ["\u2028", "</s>", "a/b"]}}}},
                  {"name": "h", "strict": False, "n": 1}],
        "x": 0, "y": 9007199254740993, "f": -0.1, "g": 1.5e-7, "t": True, "u": False, "z": None,
        "s": "\u00c9t\u00e9 \U0001f44d\u1f600 o\u0301l", "e": "", "w": "\u00a0one\u2003two\x1cthree\x85four\u2028five", "p": "\ufb01 \u0130\u0131 \u01c5",
        "html": "a\"b\\c\u007f\u0001/'", "l": [0, -5, 10, 10], "ls": ["\u00e9", "e", "E", "\u00c9"], "le": [],
        "ll": [[[1]], [], [2, [3]]], "d": {"a": None, "b": {"x": [1]}, "items": 1, "C": 0, "\u00e9": "\u00e9"}, "de": {}, "items": {"k": "v"},
        "mix": [0, "", False, 0.0, {}, [], "0"],
        "tree": [{"n": 1, "kids": []}, {"n": 2, "kids": [{"n": 3, "kids": [{"n": 4, "kids": []}, {"n": 5, "kids": []}]}]}],
    },
]

# Pieces of random string literals.
PIECES = ["a", "B", " ", "  ", "\u00e9", "\u65e5", "\U0001f600", "\\n", "\\t", "\\\\", "\\'", '\\"', "\\x7e", "\\u00df", "\\U0001F60A", "\\0",
          "\\7", "\\x00", "\\u2028", "\n", "{", "}", "%", "{{ x }}", "{% if %}", "{#", "#}", "-%}", "<|im_end|>", "1", "-", ".", ",", "o", "l", "\\ud83d",
          "\\r", "\\N{DASH}", "\\x9", "\\", "\u0130", "e\u0301", "\u00a0", "%s", "{0}", "&lt;", "</think>"]

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
LOOP = ["depth0", "cycle(1, 2, 3)", "cycle(*ls)", "changed()", "changed(v1, v2)", "previtem is defined", "nextitem|default('end')",
        "index is divisibleby 2", "length - loop.index", "index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem",
        "depth", "cycle('a', 'b')", "changed(x)", "changed(loop.index // 2)", "nope", "index"]
FILTERS = {
    "abs": [""], "attr": ["('items')", "('upper')", "('x')"], "batch": ["(2)", "(2, 'f')", "(3)"],
    "capitalize": [""], "center": ["(9)", "(4)", "()"], "count": [""],
    "d": ["('D')", "('D', true)", ""], "default": ["(1)", "(x, boolean=true)", "('')"],
    "dictsort": ["", "(true)", "(false, 'value')", "(reverse=true)", "(by='value')"],
    "e": [""], "escape": [""], "filesizeformat": ["", "(true)"], "first": [""],
    "float": ["", "(1.5)"], "forceescape": [""], "format": ["(1)", "('a', 2)", "(x=1)", "(s, l)"],
    "groupby": ["('role')", "('n', default=0)", "(0)", "('role', case_sensitive=true)", "(attribute='content.0.type', default='x')"],
    "indent": ["", "(2)", "(2, true)", "(first=true, blank=true)", "('> ')"],
    "int": ["", "(5)", "(0, 16)", "(default=-1)"], "join": ["", "(', ')", "('-', attribute='role')"],
    "last": [""], "length": [""], "list": [""], "lower": [""], "items": [""],
    "map": ["('upper')", "(attribute='role')", "(attribute='n', default=0)", "('int')", "('length')",
            "('default', 'q')", "('replace', 'a', 'b')", "('tojson', indent=1)", "('round', precision=1)", "('truncate', 5, end='~')",
            "(attribute='function.name')", "(attribute='content.0.text', default='-')", "(attribute=0)", "('first')", "('items')",
            "('trim', chars='a')", "('nofilter')", "('join', '+')"],
    "max": ["", "(attribute='n')", "(true)"], "min": ["", "(case_sensitive=true)"],
    "reject": ["", "('odd')", "('none')", "('equalto', 1)"],
    "rejectattr": ["('n')", "('content', 'none')", "('role', 'equalto', 'user')", "('function.name', 'defined')", "('n', 'gt', 0)"],
    "replace": ["('a', 'b')", "('', '-')", "('a', '', 1)", "('l', 'LL')", "(' ', '_', count=2)"],
    "reverse": [""], "round": ["", "(1)", "(1, 'floor')", "(precision=2, method='ceil')", "(20)", "(0, 'ceil')", "(-1)", "(method='floor')"],
    "safe": [""], "select": ["", "('string')", "('defined')", "('in', [1, 'a'])", "('>', 1)"],
    "selectattr": ["('role', '==', 'user')", "('content')", "('role', 'in', ['user', 'tool'])",
                   "('n', 'defined')", "('content', 'string')", "('content', 'iterable')", "('function.name', 'equalto', 'get')", "('n', 'lt', 1)",
                   "('kids')", "(0)", "('role', 'notest')"],
    "slice": ["(2)", "(3, 'f')"], "sort": ["", "(reverse=true)", "(true)", "(attribute='role')",
                                           "(attribute='role,content')", "(case_sensitive=true)"],
    "string": [""], "sum": ["", "(start=1)", "(attribute='n')"], "title": [""],
    "tojson": ["", "(indent=2)", "(sort_keys=true)", "(separators=(',', ':'))", "(ensure_ascii=true)",
               "(indent='>')", "(indent=0)", "(true)", "(indent=1, sort_keys=true)", "(false, 2)",
               "(indent=4, separators=(',', ': '))", "(ensure_ascii=true, separators=(', ', ':'), sort_keys=true)",
               "(indent=none)", "(indent=-1)", "(indent=true)", "(separators=none)", "(indent='\\t', ensure_ascii=false)",
               "(separators=['|', '='])", "(sort_keys=x)", "(false, 2, (';', '>'), true)"],
    "trim": ["", "('a')", "('Hd')", "(chars='o ')", "(none)", "('')"], "truncate": ["(5)", "(6, true)", "(8, false, '!', 0)", "()", "(length=7, killwords=true, end='\u2026', leeway=1)", "(2, end='...')"],
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
        if kind in "sn" and self.chance(0.15):
            return self.literal(kind)
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
            lambda: self.chain(), lambda: self.chain(), lambda: self.chain(),
            lambda: self.pick(["m1.name", "m2.arguments", "m3.caller", "m2.catch_varargs", "m2.catch_kwargs", "m1.nothing", "m2.defaults"]),
            lambda: f"cycler({sub()}, 1).next()", lambda: "cycler('a', 'b').current", lambda: "ns.a ~ ns.nothing", lambda: "joiner(',')() ~ 'j'", lambda: "ns.a", lambda: "m1.name",
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
        if self.chance(0.12):
            return self.space() + self.pick([self.recursive_loop, self.caller_block, self.namespaces])() + self.space()
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

    def literal(self, kind):
        """A random string or number."""
        if kind == "s":
            quote = self.pick("'\"")
            text = "".join(self.pick(PIECES) for _ in range(self.r.randint(0, 5)))
            return quote + text.replace(quote, "" if self.chance(0.9) else quote) + quote
        r = self.r
        return self.pick([
            lambda: str(r.randint(-20, 20)), lambda: str(r.randint(0, 2**63 - 1)), lambda: str(2 ** r.randint(0, 63) - 1),
            lambda: repr(r.uniform(-10, 10)), lambda: repr(r.random() * 10 ** r.randint(-320, 300)), lambda: f"{r.randint(0, 999)}.{r.randint(0, 999)}",
            lambda: f"{r.randint(1, 9)}e{r.randint(-30, 30)}", lambda: f"{r.randint(0, 99)}.5", lambda: hex(r.randint(0, 2**40)),
            lambda: f"{r.randint(1, 99)}_{r.randint(0, 99)}.{r.randint(0, 9)}E+{r.randint(0, 9)}"])()

    def recursive_loop(self):
        """A loop over a tree that calls itself."""
        inner = self.pick(["loop(v1.kids)", "loop(v1.kids)|upper", "loop(v1.kids[::-1])", "loop(v1.kids|selectattr('kids'))", "loop(v1['kids'] or [])"])
        guard = self.pick(["if v1.kids", "if v1.kids and loop.depth < 3", "if not loop.last", "if true"])
        shown = self.pick(["loop.depth", "loop.depth0", "loop.index", "loop.first", "loop.revindex", "loop.changed(v1.n)", "v1.n", "loop.length",
                           "loop.previtem.n", "(loop.nextitem or v1).n", "loop.cycle('a', 'b')"])
        head = self.tag("for v1 in tree" + self.pick(["", "", " if v1.n", " if v1.kids", "[:1]", "|reverse"]) + " recursive")
        out = head + self.space() + "{{ v1.n }}{{ " + shown + " }}" + self.space() + self.tag(guard) + "({{ " + inner + " }})" + self.tag("endif")
        if self.chance(0.3):
            out += self.tag("else") + "-" + self.space()
        return out + self.tag("endfor")

    def caller_block(self):
        """A macro that hands arguments to its caller, and a call block that takes them."""
        name = self.pick(["m4", "m5"])
        given, taken = self.pick([("1", "v1"), ("1, 2", "v1, v2"), ("s, v2=x", "v1, v2"), ("v1=l", "v1=1, v2='z'"), ("", "v1=3, v2=v1"), ("*l", "v1, v2=0, x=0"),
                                  ("**{'v1': 1}", "v1"), ("1, 2, 3", "v1"), ("q=1", "v1"), ("", "")])
        params = self.pick(["a=1, caller=none", "a=2", "a=3, b=a", "a=4"])
        once = self.pick(["{{ caller(%s) }}", "[{{ caller(%s)|upper }}]", "{%% for i in [1, 2] %%}{{ caller(%s) }}{%% endfor %%}", "{%% if caller %%}{{ caller(%s) }}{%% endif %%}",
                          "{%% set v = caller(%s) %%}{{ v|length }}{{ v }}", "{{ caller is callable }}{{ caller(%s) if caller is defined }}", "{{ caller.arguments }}{{ caller(%s) }}"]) % given
        out = self.tag(f"macro {name}({params})") + "{{ a }}" + once + self.tag("endmacro")
        block = f"call({taken})" if taken else "call"
        out += self.tag(f"{block} {name}({self.pick(['', 'a=s', 'x', repr('k')])})") + self.pick(["{{ v1 }}", "{{ v1 }}/{{ v2 }}", "", "{{ varargs }}"])
        out += (self.body() if self.chance(0.4) else self.space()) + self.tag("endcall")
        if self.chance(0.3):
            out += f"{{{{ {name}({self.pick(['', '5', 'a=6', 'caller=m1'])}) }}}}"
        return out

    def chain(self):
        """A comparison chain, membership or concatenation of several."""
        if self.chance(0.3):
            return " ~ ".join(self.paren(1) for _ in range(self.r.randint(2, 4)))
        kind = self.pick("nnsl")
        out = self.paren(1, kind)
        for _ in range(self.r.randint(1, 3)):
            out += f" {self.pick(['<', '<=', '>', '>=', '==', '!='])} {self.paren(1, kind)}"
        return out + self.pick(["", "", f" in {self.paren(1, 'l')}", f" not in {self.atom('l')}", " is true", " and x", " or 'q'"])

    def namespaces(self):
        made = self.pick(["namespace()", "namespace(a=1, b=s)", "namespace(d)", "namespace({'a': 5}, b=7)", "namespace(**d)", "namespace([('a', 2)])"])
        out = self.tag(f"set ns = {made}")
        for _ in range(self.r.randint(1, 3)):
            out += self.pick([self.tag(f"set ns.a = {self.expression(1)}"), self.tag("set ns.b") + self.body() + self.tag("endset"), "{{ ns.a }}", "{{ ns.b is defined }}",
                              self.tag(f"for v1 in {self.atom('l')}") + self.tag("set ns.a = (ns.a or 0) ~ loop.index") + self.tag("endfor"),
                              self.tag("set ns.a, v1 = 1, 2"), "{{ ns['a'] }}{{ ns.nothing }}", "{{ ns.items }}", self.tag("if not ns.q") + "." + self.tag("endif")])
        return out

    def one_expression(self):
        """A template of a single value, shown as Python writes it."""
        kind = self.pick("sssnnlldaaa")
        return "{% set ns = namespace(a=0, b='n') %}{{ [" + self.expression(self.r.randint(2, 4), kind) + "] }}"

    def template(self, accept=lambda text: True):
        """Of statements that accept, given the template up to and with it, does not refuse."""
        out = ""
        if self.chance(0.9):
            out += "{% set ns = namespace(a=0, b='n') %}\n"
        if self.chance(0.9):
            out += "{% macro m1(a, b=2) %}<{{ a }}|{{ b }}>{% endmacro %}\n"
            out += "{% macro m2(a=1) %}[{{ a }}{{ varargs }}{{ kwargs }}]{% endmacro %}"
            out += "{% macro m3(a=1) %}({{ a }}{{ caller(1) if a is string else caller() }}){% endmacro %}"
        for _ in range(self.r.randint(1, 3)):
            for _ in range(6):
                statement = self.statement()
                if accept(out + statement):
                    break
            out += statement
        return out + self.space()


TOKEN = re.compile(r"\{[%{#][-+]?|[-+]?[%}#]\}|'[^'\n]*'|\"[^\"\n]*\"|\w+|\s+|[^\w\s]")


class Mutator:
    """Chat templates as people write them, with a few tokens changed."""

    def __init__(self, folder):
        expected = json.loads((folder / "expected.json").read_text())
        self.templates = [(folder / name).read_text() for name in sorted(expected)]
        self.cases = [[case for case in expected[name]] for name in sorted(expected)]
        self.tokens = [TOKEN.findall(template) for template in self.templates]
        for template, tokens in zip(self.templates, self.tokens):
            assert "".join(tokens) == template

    def draw(self, seed):
        r = random.Random(seed)
        chosen = r.randrange(len(self.templates))
        tokens = list(self.tokens[chosen])
        for _ in range(r.choice([1, 1, 1, 2, 3, 5])):
            at, other = r.randrange(len(tokens)), r.randrange(len(tokens))
            how = r.random()
            if how < 0.2:
                del tokens[at]
            elif how < 0.3:
                tokens.insert(at, tokens[at])
            elif how < 0.4:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            elif how < 0.55:
                same = [t for t in tokens if t.isidentifier()]
                at = r.choice([i for i, t in enumerate(tokens) if t.isidentifier()])
                tokens[at] = r.choice(same)
            elif how < 0.8:  # white space control
                at = r.choice([i for i, t in enumerate(tokens) if t[:1] in "{-+%}#" and len(t) in (2, 3) and t.strip("{}%#-+") == ""] or [at])
                if tokens[at].startswith("{"):
                    tokens[at] = tokens[at][:2] + r.choice(["", "-", "+"])
                else:
                    tokens[at] = r.choice(["", "-", "+"]) + tokens[at][-2:]
            else:
                tokens[at] = r.choice([" ", "\n", "'x'", "0", "none", "not ", "-", "[0]", "[-1:]", "|trim", "|length", "(", ")", "|tojson", "|string", ".x", " == ", ", "])
        case = r.choice(self.cases[chosen])
        context = {key: value for key, value in case.items() if key not in ("expected", "error", "name")}
        context.setdefault("tools", None)
        context.update(documents=None, bos_token="<BOS>", eos_token="<EOS>")
        return "".join(tokens), context


def reference(env, template, context):
    """("output", text), ("raised", message), ("error", message) or ("skip", why)."""
    signal.setitimer(signal.ITIMER_REAL, 5)
    try:
        # A copy: some filters of jinja2 change what they are given (indent extends a list).
        return "output", env.from_string(template).render(**copy.deepcopy(context))
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
    words = ("(limit)", "is not supported", "are not supported", "memory address", "cannot be sliced")
    if not any(word in message for word in words):
        return None
    return re.sub(r"'[^']*'", "_", re.sub(r"^line \d+, column \d+: ", "", message))


def ask(tool, requests):
    """What our program answers to each (template, context); fewer answers if it ended on one."""
    lines = "".join(json.dumps({"template": template, "context": context}) + "\n" for template, context in requests)
    done = subprocess.run([tool], input=lines, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def compare(kind, text, ours):
    """The heading to count a comparison under."""
    if kind == "skip":
        return "skipped: " + text
    if kind == "error" and text.startswith(("NameError: name 'nan'", "NameError: name 'inf'")):
        return "skipped: constant folding of jinja2 cannot write nan or inf"
    if kind == "output" and " at 0x" in text:
        return "skipped: address in the output"
    if "output" in ours:
        same = kind == "output" and text == ours["output"]
    elif ours["raised"]:
        same = kind == "raised" and text == ours["error"]
    else:
        word = documented(ours["error"])
        if kind != "error" and word:
            return "documented: " + word
        same = kind == "error"
    return "equal " + kind if same else "MISMATCH"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("-n", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--expressions", action="store_true", help="single expressions instead of templates")
    parser.add_argument("--wild", action="store_true", help="templates of which many are errors")
    parser.add_argument("--mutate", type=pathlib.Path, metavar="DIR", help="change the templates of DIR (with its expected.json)")
    parser.add_argument("--show", type=int, default=20, help="mismatches to print")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, on_alarm)
    env = make_environment()
    mutator = Mutator(args.mutate) if args.mutate else None
    counts = collections.Counter()
    shown = 0
    last = args.seed + args.n
    for start in range(args.seed, last, 100):
        seeds = range(start, min(start + 100, last))
        requests, answers = [], []
        for seed in seeds:
            generator = Generator(seed)
            context = CONTEXTS[seed % len(CONTEXTS)]
            if mutator:
                template, context = mutator.draw(seed)
            elif args.expressions:
                template = generator.one_expression()
            elif args.wild:
                template = generator.template()
            else:
                template = generator.template(lambda text: reference(env, text, context)[0] != "error")
            requests.append((template, context))
            answers.append(reference(env, template, context))
        replies = ask(args.tool, requests)
        if len(replies) < len(requests):
            print(f"seed {seeds[len(replies)]}: the program ended\n{requests[len(replies)][0]!r}")
            return 1
        for seed, (template, _), (kind, text), ours in zip(seeds, requests, answers, replies):
            verdict = compare(kind, text, ours)
            counts[verdict] += 1
            if verdict == "MISMATCH" and shown < args.show:
                shown += 1
                print(f"--- seed {seed}\n{template!r}\n  jinja2 {kind}: {text!r}\n  ours: {ours!r}", flush=True)
    for name, count in sorted(counts.items()):
        print(f"{count:8d} {name}")
    return 1 if counts["MISMATCH"] else 0


if __name__ == "__main__":
    sys.exit(main())
