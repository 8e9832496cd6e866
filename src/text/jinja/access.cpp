// Attributes, items and slices.
#include <algorithm>

#include "src/text/jinja/builtins.h"
#include "src/text/jinja/interpreter_nodes.h"
#include "src/text/jinja/ops.h"
#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

// As jinja2 names an object in the message of an undefined value.
std::string object_name(const Value& v) {
  switch (v.kind()) {
    case Kind::kNone:
      return "None";
    case Kind::kNamespace:
    case Kind::kCycler:
    case Kind::kJoiner:
      return fmt::format("jinja2.utils.{} object", type_name(v));
    case Kind::kMacro:
    case Kind::kLoop:
      return fmt::format("jinja2.runtime.{} object", type_name(v));
    default:
      return fmt::format("{} object", type_name(v));
  }
}

Value no_attribute(Runtime& rt, const Value& object, std::string_view name) {
  return rt.make_undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), name));
}

Value unsafe(Runtime& rt, const Value& object, std::string_view name) {
  return rt.make_undefined(
      fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(object)));
}

// Attributes that are no methods; a missing value if there is none.
Result<Value> property(Runtime& rt, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kRange: {
      const RangeNode& range = object.as<RangeNode>();
      if (name == "start") return Value::integer(range.start);
      if (name == "stop") return Value::integer(range.stop);
      if (name == "step") return Value::integer(range.step);
      return Value();
    }
    case Kind::kTuple:
      if (object.as<ListNode>().group) {  // of |groupby
        if (name == "grouper") return object.items()[0];
        if (name == "list") return object.items()[1];
      }
      return Value();
    case Kind::kLoop:
      return object.as<LoopNode>().attribute(rt, name);
    case Kind::kCycler: {
      const CyclerNode& cycler = object.as<CyclerNode>();
      if (name == "current") return cycler.items[cycler.position];
      if (name == "items") return rt.make_tuple(cycler.items);
      if (name == "pos") return Value::integer(static_cast<std::int64_t>(cycler.position));
      return Value();
    }
    case Kind::kJoiner:
      if (name == "sep") return object.as<JoinerNode>().separator;
      if (name == "used") return Value::boolean(object.as<JoinerNode>().used);
      return Value();
    case Kind::kMacro: {
      const Macro& macro = *object.as<MacroNode>().macro;
      if (name == "name") return macro.name.empty() ? Value::none() : rt.make_string(macro.name);
      if (name == "catch_kwargs") return Value::boolean(macro.uses_kwargs);
      if (name == "catch_varargs") return Value::boolean(macro.uses_varargs);
      if (name == "caller") return Value::boolean(macro.uses_caller);
      if (name == "arguments") {
        std::vector<Value> names;
        for (const auto& parameter : macro.parameters) {
          names.push_back(rt.make_string(parameter.first));
        }
        return rt.make_tuple(std::move(names));
      }
      return Value();
    }
    default:
      return Value();
  }
}

// Attributes every Python object has; the sandbox forbids them.
bool is_object_internal(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "__class__",  "__delattr__",   "__dir__",         "__doc__",
      "__eq__",     "__format__",    "__ge__",          "__getattribute__",
      "__gt__",     "__hash__",      "__init__",        "__init_subclass__",
      "__le__",     "__lt__",        "__ne__",          "__new__",
      "__reduce__", "__reduce_ex__", "__repr__",        "__setattr__",
      "__sizeof__", "__str__",       "__subclasshook__"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool is_unsupported_number_attribute(const Value& object, std::string_view name) {
  if (!object.is_number()) return false;
  constexpr std::string_view kNames[] = {
      "real",       "imag",      "numerator", "denominator", "conjugate",
      "bit_length", "bit_count", "to_bytes",  "from_bytes",  "as_integer_ratio",
      "is_integer", "hex",       "fromhex"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// An item by key, or a missing value (then the attribute is tried).
Result<Value> item_only(Runtime& rt, const Value& object, const Value& key) {
  const auto index_of = [&](std::int64_t length) -> std::int64_t {
    const std::int64_t index = key.as_int();
    if (index < -length || index >= length) return -1;
    return index < 0 ? index + length : index;
  };
  switch (object.kind()) {
    case Kind::kDict: {
      if (!check_hashable(key).ok()) return Value();
      const Value* found = object.as<DictNode>().find(key);
      return found == nullptr ? Value() : *found;
    }
    case Kind::kList:
    case Kind::kTuple: {
      if (!key.is_integer()) return Value();
      const std::int64_t index = index_of(static_cast<std::int64_t>(object.items().size()));
      return index < 0 ? Value() : object.items()[static_cast<std::size_t>(index)];
    }
    case Kind::kRange: {
      if (!key.is_integer()) return Value();
      const std::int64_t index = index_of(object.as<RangeNode>().length);
      return index < 0 ? Value() : object.as<RangeNode>().at(index);
    }
    case Kind::kString: {
      if (!key.is_integer()) return Value();
      SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, length_of(rt, object));
      const std::int64_t index = index_of(length);
      if (index < 0) return Value();
      const std::size_t begin = byte_offset(object.str(), static_cast<std::size_t>(index));
      char32_t cp = 0;
      const std::size_t size = decode_utf8(object.str(), begin, &cp);
      return rt.make_string(object.text().slice(begin, begin + size), object.markup());
    }
    default:
      return Value();
  }
}

struct SliceBounds {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};

// Python's rules for bounds outside of the sequence and for negative steps.
Result<SliceBounds> slice_bounds(const Value& start, const Value& stop, const Value& step,
                                 std::int64_t length) {
  SliceBounds out;
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->missing() && !bound->is(Kind::kNone) && !bound->is_integer()) {
      return bad_input("slice indices must be integers or None, not {}", type_name(*bound));
    }
  }
  const auto open = [](const Value& v) { return v.missing() || v.is(Kind::kNone); };
  if (!open(step)) out.step = step.as_int();
  if (out.step == 0) return bad_input("slice step cannot be zero");
  out.step = std::clamp(out.step, -INT64_MAX, INT64_MAX);
  const bool back = out.step < 0;
  const std::int64_t low = back ? -1 : 0;
  const std::int64_t high = back ? length - 1 : length;
  const auto clip = [&](const Value& v, std::int64_t fallback) {
    if (open(v)) return fallback;
    const std::int64_t index = v.as_int();
    if (index < 0) return index < -length ? low : std::max(index + length, low);
    return std::min(index, high);
  };
  out.start = clip(start, back ? high : low);
  out.stop = clip(stop, back ? low : high);
  // Unsigned, so that a step as large as it can be does no harm.
  const std::int64_t reach = back ? out.start - out.stop : out.stop - out.start;
  if (reach > 0) {
    const auto distance = static_cast<std::uint64_t>(reach);
    const auto stride = static_cast<std::uint64_t>(back ? -out.step : out.step);
    out.count = static_cast<std::int64_t>((distance - 1) / stride + 1);
  }
  return out;
}

Result<Value> slice_string(Runtime& rt, const Value& object, const SliceBounds& bounds) {
  const TaggedText& text = object.text();
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(text.size()));
  TaggedText out;
  if (bounds.step == 1) {
    const std::size_t begin = byte_offset(text.view(), static_cast<std::size_t>(bounds.start));
    const std::size_t size =
        byte_offset(text.view().substr(begin), static_cast<std::size_t>(bounds.count));
    return rt.make_string(text.slice(begin, begin + size), object.markup());
  }
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, length_of(rt, object));
  SLUICE_RETURN_IF_ERROR(rt.check_list_size(static_cast<std::uint64_t>(length)));
  std::vector<std::size_t> begins;  // of each character, and the end
  char32_t cp = 0;
  for (std::size_t pos = 0; pos < text.size(); pos += decode_utf8(text.view(), pos, &cp)) {
    begins.push_back(pos);
  }
  begins.push_back(text.size());
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    const auto index = static_cast<std::size_t>(bounds.start + i * bounds.step);
    out.append_range(text, begins[index], begins[index + 1]);
  }
  return rt.make_string(std::move(out), object.markup());
}

}  // namespace

Result<Value> attribute_only(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is(Kind::kUndefined)) return undefined_error(object);
  const bool hidden = name.starts_with('_');
  if (object.is(Kind::kNamespace)) {
    SLUICE_RETURN_IF_ERROR(rt.charge(object.as<NamespaceNode>().attributes.size() / 16));
    const Value* found = object.as<NamespaceNode>().find(name);
    if (found == nullptr) return Value();
    return hidden ? unsafe(rt, object, name) : *found;
  }
  SLUICE_ASSIGN_OR_RETURN(Value found, property(rt, object, name));
  if (!found.missing()) return found;
  if (const MethodInfo* info = find_method(object.kind(), name)) {
    if (info->access == MethodAccess::kMutates) return unsafe(rt, object, name);
    return Value(Kind::kMethod, rt.make<MethodNode>(object, info));
  }
  if (is_unsupported_number_attribute(object, name)) {
    return bad_input("the attribute '{}' of numbers is not supported", name);
  }
  if (hidden && is_object_internal(name)) return unsafe(rt, object, name);
  return Value();
}

Result<Value> get_attribute(Runtime& rt, const Value& object, std::string_view name) {
  SLUICE_RETURN_IF_ERROR(rt.charge(1));
  SLUICE_ASSIGN_OR_RETURN(Value found, attribute_only(rt, object, name));
  if (!found.missing()) return found;
  if (object.is(Kind::kDict)) {
    if (const Value* item = object.as<DictNode>().find(name)) return *item;
  }
  return no_attribute(rt, object, name);
}

Result<Value> get_item(Runtime& rt, const Value& object, const Value& key) {
  SLUICE_RETURN_IF_ERROR(rt.charge(1));
  if (object.is(Kind::kUndefined)) return undefined_error(object);
  SLUICE_ASSIGN_OR_RETURN(Value found, item_only(rt, object, key));
  if (!found.missing()) return found;
  if (key.is_string()) {
    SLUICE_ASSIGN_OR_RETURN(found, attribute_only(rt, object, key.str()));
    if (!found.missing()) return found;
    return no_attribute(rt, object, key.str());
  }
  return rt.make_undefined(
      fmt::format("{} has no element of that index or key", object_name(object)));
}

Result<Value> get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
                        const Value& step) {
  SLUICE_RETURN_IF_ERROR(rt.charge(1));
  const bool can = object.is_string() || object.is(Kind::kList) || object.is(Kind::kTuple) ||
                   object.is(Kind::kRange);
  if (object.is(Kind::kUndefined)) return undefined_error(object);
  if (!can) return bad_input("'{}' object cannot be sliced", type_name(object));
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, length_of(rt, object));
  SLUICE_ASSIGN_OR_RETURN(const SliceBounds bounds, slice_bounds(start, stop, step, length));
  if (object.is_string()) return slice_string(rt, object, bounds);
  if (object.is(Kind::kRange)) {
    const RangeNode& range = object.as<RangeNode>();
    std::int64_t first = 0;
    std::int64_t end = 0;
    std::int64_t by = 0;
    if (__builtin_mul_overflow(bounds.start, range.step, &first) ||
        __builtin_add_overflow(first, range.start, &first) ||
        __builtin_mul_overflow(bounds.stop, range.step, &end) ||
        __builtin_add_overflow(end, range.start, &end) ||
        __builtin_mul_overflow(range.step, bounds.step, &by)) {
      return bad_input("an integer is beyond 64 bits (limit)");
    }
    return Value(Kind::kRange, rt.make<RangeNode>(first, end, by));
  }
  SLUICE_RETURN_IF_ERROR(rt.check_list_size(static_cast<std::uint64_t>(bounds.count)));
  std::vector<Value> items;
  items.reserve(static_cast<std::size_t>(bounds.count));
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    items.push_back(object.items()[static_cast<std::size_t>(bounds.start + i * bounds.step)]);
  }
  return object.is(Kind::kList) ? rt.make_list(std::move(items)) : rt.make_tuple(std::move(items));
}

}  // namespace sluice::jinja
