// The tests of "is", and the tables by name.
#include <algorithm>

#include "src/text/jinja/args.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/ops.h"
#include "src/text/jinja/text_ops.h"

namespace sluice::jinja {
namespace {

template <bool (*check)(const Value&)>
Result<bool> simple(Runtime&, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("this test", args));
  return check(value);
}

bool is_defined(const Value& v) { return !v.is(Kind::kUndefined); }
bool is_undefined(const Value& v) { return v.is(Kind::kUndefined); }
bool is_none(const Value& v) { return v.is(Kind::kNone); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_integer(const Value& v) { return v.is(Kind::kInt); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_escaped(const Value& v) { return v.markup(); }
// What has a length and items by index or key.
bool is_sequence(const Value& v) {
  return v.is(Kind::kUndefined) || v.is_string() || v.is(Kind::kList) || v.is(Kind::kTuple) ||
         v.is(Kind::kDict) || v.is(Kind::kRange);
}
bool is_callable(const Value& v) {
  return v.is(Kind::kUndefined) || v.is(Kind::kMacro) || v.is(Kind::kMethod) ||
         v.is(Kind::kFunction) || v.is(Kind::kLoop) || v.is(Kind::kJoiner);
}

Result<bool> divides(Runtime& rt, const Value& value, const Value& divisor, std::int64_t rest) {
  SLUICE_ASSIGN_OR_RETURN(const Value remainder, binary(rt, BinaryOp::kMod, value, divisor));
  return equals(rt, remainder, Value::integer(rest));
}

Result<bool> odd(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("odd", args));
  return divides(rt, value, Value::integer(2), 1);
}

Result<bool> even(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("even", args));
  return divides(rt, value, Value::integer(2), 0);
}

Result<bool> divisible_by(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("divisibleby", args, {"num"}, 1));
  return divides(rt, value, bound[0], 0);
}

Result<bool> lower(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("lower", args));
  SLUICE_ASSIGN_OR_RETURN(const TaggedText text, to_str(rt, value));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(text.size()));
  return is_lower_text(text.view());
}

Result<bool> upper(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("upper", args));
  SLUICE_ASSIGN_OR_RETURN(const TaggedText text, to_str(rt, value));
  SLUICE_RETURN_IF_ERROR(rt.charge_scan(text.size()));
  return is_upper_text(text.view());
}

Result<bool> same_as(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("sameas", args, {"other"}, 1));
  const Value& other = bound[0];
  if (value.kind() != other.kind()) return false;
  switch (value.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFunction:
      return value.as_int() == other.as_int();
    case Kind::kFloat:
      return bad_input("sameas of two floats is not supported: it compares addresses");
    case Kind::kString:
      // Whether two equal texts are one object is a detail of Python's implementation.
      if (value.node() != other.node() && value.str() == other.str()) {
        return bad_input("sameas of two equal texts is not supported; use ==");
      }
      return value.node() == other.node();
    default:
      (void)rt;
      return value.node() == other.node();
  }
}

Result<bool> iterable(Runtime&, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("iterable", args));
  return is_iterable(value);
}

Result<bool> in(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("in", args, {"seq"}, 1));
  return contains(rt, bound[0], value);
}

template <bool wanted>
Result<bool> equal(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("eq", args, {"other"}, 1, 1));
  SLUICE_ASSIGN_OR_RETURN(const bool same, equals(rt, value, bound[0]));
  return same == wanted;
}

template <Order order>
Result<bool> ordered(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("comparison", args, {"other"}, 1, 1));
  return compare(rt, order, value, bound[0]);
}

Result<bool> is_filter(Runtime&, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("filter", args));
  SLUICE_RETURN_IF_ERROR(check_hashable(value));
  return value.is_string() && find_filter(value.str()) != nullptr;
}

Result<bool> is_test(Runtime&, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("test", args));
  SLUICE_RETURN_IF_ERROR(check_hashable(value));
  return value.is_string() && find_test(value.str()) != nullptr;
}

constexpr TestInfo kTests[] = {
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisible_by},
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"filter", is_filter},
    {"test", is_test},
    {"none", simple<is_none>},
    {"boolean", simple<is_boolean>},
    {"false", simple<is_false>},
    {"true", simple<is_true>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"lower", lower},
    {"upper", upper},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"number", simple<is_number>},
    {"sequence", simple<is_sequence>},
    {"iterable", iterable},
    {"callable", simple<is_callable>},
    {"sameas", same_as},
    {"escaped", simple<is_escaped>},
    {"in", in},
    {"==", equal<true>},
    {"eq", equal<true>},
    {"equalto", equal<true>},
    {"!=", equal<false>},
    {"ne", equal<false>},
    {">", ordered<Order::kGreater>},
    {"gt", ordered<Order::kGreater>},
    {"greaterthan", ordered<Order::kGreater>},
    {"ge", ordered<Order::kGreaterEqual>},
    {">=", ordered<Order::kGreaterEqual>},
    {"<", ordered<Order::kLess>},
    {"lt", ordered<Order::kLess>},
    {"lessthan", ordered<Order::kLess>},
    {"<=", ordered<Order::kLessEqual>},
    {"le", ordered<Order::kLessEqual>},
};

}  // namespace

const FilterInfo* find_filter(std::string_view name) {
  for (const FilterTable& table :
       {text_filters(), number_filters(), sequence_filters(), select_filters()}) {
    for (std::size_t i = 0; i < table.size; ++i) {
      if (table.begin[i].name == name) return &table.begin[i];
    }
  }
  return nullptr;
}

const TestInfo* find_test(std::string_view name) {
  const auto* it = std::find_if(std::begin(kTests), std::end(kTests),
                                [&](const TestInfo& test) { return test.name == name; });
  return it == std::end(kTests) ? nullptr : it;
}

const MethodInfo* find_method(Kind kind, std::string_view name) {
  for (const MethodTable& table : {string_methods(), string_query_methods(), container_methods()}) {
    for (std::size_t i = 0; i < table.size; ++i) {
      if (table.begin[i].kind == kind && table.begin[i].name == name) return &table.begin[i];
    }
  }
  return nullptr;
}

}  // namespace sluice::jinja
