#!/usr/bin/env python3
"""Writes src/text/jinja/unicode_classes.inc and unicode_cases.inc: characters as Python sees them.

The chat template language has Python's strings, so the tables are taken from Python itself
(run with the interpreter whose behaviour is wanted; 3.11 has Unicode 14). Usage:
    python3 scripts/make_unicode_tables.py classes > src/text/jinja/unicode_classes.inc
    python3 scripts/make_unicode_tables.py cases > src/text/jinja/unicode_cases.inc
"""
import sys
import unicodedata

TOP = 0x110000
ALPHA, DECIMAL, DIGIT, NUMERIC, LOWER, UPPER, TITLE, SPACE, PRINTABLE, IGNORABLE = (
    1 << i for i in range(10)
)


def flags(cp):
    c = chr(cp)
    f = 0
    f |= ALPHA * c.isalpha() | DECIMAL * c.isdecimal() | DIGIT * c.isdigit()
    f |= NUMERIC * c.isnumeric() | LOWER * c.islower() | UPPER * c.isupper()
    f |= TITLE * (c.istitle() and not c.isupper()) | SPACE * c.isspace()
    f |= PRINTABLE * c.isprintable()
    # Ignorable between a letter and a final sigma: the sigma after it still ends a word.
    f |= IGNORABLE * (not f & (LOWER | UPPER | TITLE) and ("A" + c + "\u03a3").lower()[-1] == "\u03c2")
    return f


def wrap(items):
    lines, line = [], "   "
    for item in items:
        if len(line) + 1 + len(item) > 99:
            lines.append(line)
            line = "   "
        line += " " + item
    lines.append(line)
    return "\n".join(lines)


def class_table():
    items, last = [], None
    for cp in range(TOP):
        f = flags(cp)
        if f != last:
            items.append(f"{{0x{cp:x}, 0x{f:x}}},")
            last = f
    return items


def case_tables(name, mapping):
    """Ranges {first, last, step, delta} for one-to-one mappings, and a list of the others."""
    pairs, special = [], []
    for cp in range(TOP):
        to = mapping(chr(cp))
        if to == chr(cp):
            continue
        if len(to) == 1:
            pairs.append((cp, ord(to) - cp))
        else:
            special.append((cp, to))
    ranges = []
    for cp, delta in pairs:
        if ranges:
            r = ranges[-1]
            if r[3] == delta and r[0] == r[1] and cp - r[1] in (1, 2):
                r[1], r[2] = cp, cp - r[1]
                continue
            if r[3] == delta and cp - r[1] == r[2]:
                r[1] = cp
                continue
        ranges.append([cp, cp, 1, delta])
    print(f"constexpr CaseRange k{name}Ranges[] = {{")
    print(wrap(f"{{0x{a:x}, 0x{b:x}, {s}, {d}}}," for a, b, s, d in ranges))
    print("};")
    print(f"constexpr CaseSpecial k{name}Special[] = {{")
    print(wrap("{0x%x, {%s}}," % (cp, ", ".join(f"0x{ord(c):x}" for c in to)) for cp, to in special))
    print("};")


def title_where_not_upper(c):
    return c.title() if c.title() != c.upper() else c


print("// Made by scripts/make_unicode_tables.py from Unicode", unicodedata.unidata_version + ".")
print("// clang-format off")
if sys.argv[1:] == ["classes"]:
    print("constexpr ClassRange kClassRanges[] = {")
    print(wrap(class_table()))
    print("};")
else:
    case_tables("Upper", str.upper)
    case_tables("Lower", str.lower)
    case_tables("Title", title_where_not_upper)
print("// clang-format on")
