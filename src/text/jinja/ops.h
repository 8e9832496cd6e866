// Operators and conversions of Python values. All of them count their work in the Runtime; error
// texts say what Python would say, without a position (the interpreter adds line and column).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/jinja/runtime.h"
#include "src/text/jinja/value.h"

namespace sluice::jinja {

// The error of using an undefined value. Requires v.is(Kind::kUndefined).
Error undefined_error(const Value& v);

// --- text.cpp: str() and repr()
// repr() of a float: the shortest digits that read back as the same number ("1.0", "1e+16", "nan").
std::string float_repr(double value);
Status append_str(Runtime& rt, const Value& v, TaggedText* out);
Result<TaggedText> to_str(Runtime& rt, const Value& v);
// The result is content as a whole if any part of v is.
Result<TaggedText> to_repr(Runtime& rt, const Value& v);

// --- compare.cpp
Result<bool> equals(Runtime& rt, const Value& a, const Value& b);
enum class Order : std::uint8_t { kLess, kLessEqual, kGreater, kGreaterEqual };
Result<bool> compare(Runtime& rt, Order order, const Value& a, const Value& b);
// item in container
Result<bool> contains(Runtime& rt, const Value& container, const Value& item);
// Stable, by the keys; reverse keeps the order of equal items too, as sorted() does.
Result<std::vector<Value>> sort_by_keys(Runtime& rt, std::vector<Value> items,
                                        const std::vector<Value>& keys, bool reverse);

// --- arithmetic.cpp
enum class BinaryOp : std::uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
Result<Value> binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
Result<Value> negate(Runtime& rt, const Value& v);
Result<Value> unary_plus(Runtime& rt, const Value& v);
// String concatenation as + does it: with Markup on one side the other side is escaped.
Result<Value> concat(Runtime& rt, const Value& a, const Value& b);

// --- format.cpp, format_spec.cpp
// format % arguments, with a tuple, a mapping or one value.
Result<Value> format_percent(Runtime& rt, const Value& format, const Value& arguments);
// format.format(*positional, **keyword)
Result<Value> format_braces(Runtime& rt, const Value& format, const Args& args);
// format(value, spec) for numbers and strings.
Status append_formatted(Runtime& rt, const Value& v, std::string_view spec, TaggedText* out);

// --- access.cpp
// obj.name and obj[key] as jinja2 defines them: attribute first or item first, then the other, then
// an undefined value. Error if obj is undefined itself.
Result<Value> get_attribute(Runtime& rt, const Value& object, std::string_view name);
Result<Value> get_item(Runtime& rt, const Value& object, const Value& key);
// getattr() alone: a missing value (Kind::kMissing) where there is no such attribute.
Result<Value> attribute_only(Runtime& rt, const Value& object, std::string_view name);
// object[start:stop:step]; missing or None bounds are open.
Result<Value> get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
                        const Value& step);

// --- iterate.cpp
// len(); an error for what has no length.
Result<std::int64_t> length_of(Runtime& rt, const Value& v);
// iter(); walks characters, items or keys.
Result<std::shared_ptr<IteratorNode>> iterate(Runtime& rt, const Value& v);
bool is_iterable(const Value& v);
// True for what reversed() takes; reversed_iterator then walks it backwards.
bool is_reversible(const Value& v);
Result<std::shared_ptr<IteratorNode>> reversed_iterator(Runtime& rt, const Value& v);
Result<std::vector<Value>> to_vector(Runtime& rt, const Value& v);

// --- json.cpp
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;          // one level; used if indented
  std::string item_separator;  // after an item, without the line end
  std::string key_separator;
  bool content = false;  // the separators or the indent came from a message
};
// json.dumps(). The result is content as a whole if any part of v is.
Result<TaggedText> to_json(Runtime& rt, const Value& v, const JsonStyle& style);

}  // namespace sluice::jinja
