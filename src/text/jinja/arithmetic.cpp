// + - * / // % ** and the unary signs. Integers are 64 bit: what Python would make larger is an
// error here, never a wrong number.
#include <cmath>

#include "src/text/jinja/ops.h"
#include "src/text/jinja/text_ops.h"

namespace sluice::jinja {
namespace {

std::string_view symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSub:
      return "-";
    case BinaryOp::kMul:
      return "*";
    case BinaryOp::kDiv:
      return "/";
    case BinaryOp::kFloorDiv:
      return "//";
    case BinaryOp::kMod:
      return "%";
    case BinaryOp::kPow:
      return "**";
  }
  return "?";
}

Error type_error(BinaryOp op, const Value& a, const Value& b) {
  return bad_input("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(a),
                   type_name(b));
}

Error overflow_error() { return bad_input("an integer is beyond 64 bits (limit)"); }

Result<std::int64_t> integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return overflow_error();
    }
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) return overflow_error();
  }
}

Result<double> float_power(double a, double b) {
  if (a == 0.0 && b < 0.0) return bad_input("0.0 cannot be raised to a negative power");
  if (a < 0.0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    return bad_input("a negative number to a fractional power is not supported");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    return bad_input("Numerical result out of range");
  }
  return result;
}

// Python's remainder has the sign of the divisor.
double float_modulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder == 0.0) return std::copysign(0.0, b);
  if ((b < 0.0) != (remainder < 0.0)) remainder += b;
  return remainder;
}

double float_floor_divide(double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0.0 && (b < 0.0) != (remainder < 0.0)) quotient -= 1.0;
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

Result<Value> integer_binary(BinaryOp op, std::int64_t a, std::int64_t b, bool content) {
  std::int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return overflow_error();
      return Value::integer(result, content);
    case BinaryOp::kSub:
      if (__builtin_sub_overflow(a, b, &result)) return overflow_error();
      return Value::integer(result, content);
    case BinaryOp::kMul:
      if (__builtin_mul_overflow(a, b, &result)) return overflow_error();
      return Value::integer(result, content);
    case BinaryOp::kDiv: {
      if (b == 0) return bad_input("division by zero");
      // 64 bits of mantissa hold both numbers.
      const long double quotient = static_cast<long double>(a) / static_cast<long double>(b);
      return Value::number(static_cast<double>(quotient), content);
    }
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod: {
      if (b == 0) return bad_input("integer division or modulo by zero");
      if (b == -1) {  // INT64_MIN / -1 overflows
        if (op == BinaryOp::kMod) return Value::integer(0, content);
        if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) return overflow_error();
        return Value::integer(result, content);
      }
      std::int64_t quotient = a / b;
      std::int64_t remainder = a % b;
      if (remainder != 0 && (remainder < 0) != (b < 0)) {
        --quotient;
        remainder += b;
      }
      return Value::integer(op == BinaryOp::kMod ? remainder : quotient, content);
    }
    case BinaryOp::kPow: {
      if (b < 0) {
        SLUICE_ASSIGN_OR_RETURN(const double power,
                                float_power(static_cast<double>(a), static_cast<double>(b)));
        return Value::number(power, content);
      }
      SLUICE_ASSIGN_OR_RETURN(result, integer_power(a, b));
      return Value::integer(result, content);
    }
  }
  return overflow_error();
}

Result<Value> float_binary(BinaryOp op, double a, double b, bool content) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::number(a + b, content);
    case BinaryOp::kSub:
      return Value::number(a - b, content);
    case BinaryOp::kMul:
      return Value::number(a * b, content);
    case BinaryOp::kDiv:
      if (b == 0.0) return bad_input("float division by zero");
      return Value::number(a / b, content);
    case BinaryOp::kFloorDiv:
      if (b == 0.0) return bad_input("float floor division by zero");
      return Value::number(float_floor_divide(a, b), content);
    case BinaryOp::kMod:
      if (b == 0.0) return bad_input("float modulo");
      return Value::number(float_modulo(a, b), content);
    case BinaryOp::kPow: {
      SLUICE_ASSIGN_OR_RETURN(const double power, float_power(a, b));
      return Value::number(power, content);
    }
  }
  return overflow_error();
}

// A string, list or tuple `times` times.
Result<Value> repeat(Runtime& rt, const Value& v, std::int64_t times) {
  const std::uint64_t count = times < 0 ? 0 : static_cast<std::uint64_t>(times);
  std::uint64_t size = 0;
  const bool is_text = v.is_string();
  const std::uint64_t one = is_text ? v.text().size() : v.items().size();
  if (__builtin_mul_overflow(one, count, &size)) size = UINT64_MAX;
  if (is_text) {
    SLUICE_RETURN_IF_ERROR(rt.check_text_size(size));
    SLUICE_RETURN_IF_ERROR(rt.charge_copy(size));
    TaggedText out;
    for (std::uint64_t i = 0; one > 0 && i < count; ++i) out.append(v.text());
    return rt.make_string(std::move(out), v.markup());
  }
  SLUICE_RETURN_IF_ERROR(rt.check_list_size(size));
  std::vector<Value> items;
  items.reserve(size);
  for (std::uint64_t i = 0; one > 0 && i < count; ++i) {
    items.insert(items.end(), v.items().begin(), v.items().end());
  }
  return v.is(Kind::kList) ? rt.make_list(std::move(items)) : rt.make_tuple(std::move(items));
}

bool is_sequence(const Value& v) {
  return v.is_string() || v.is(Kind::kList) || v.is(Kind::kTuple);
}

}  // namespace

Result<Value> concat(Runtime& rt, const Value& a, const Value& b) {
  const bool markup = a.markup() || b.markup();
  SLUICE_RETURN_IF_ERROR(rt.check_text_size(a.text().size() + b.text().size() * (markup ? 5 : 1)));
  SLUICE_RETURN_IF_ERROR(rt.charge_copy(a.text().size() + b.text().size()));
  TaggedText out = markup && !a.markup() ? escape_html(a.text()) : a.text();
  out.append(markup && !b.markup() ? escape_html(b.text()) : b.text());
  return rt.make_string(std::move(out), markup);
}

Result<Value> binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  SLUICE_RETURN_IF_ERROR(rt.charge(1));
  const bool content = a.content() || b.content();
  if (a.is_integer() && b.is_integer()) return integer_binary(op, a.as_int(), b.as_int(), content);
  if (a.is_number() && b.is_number()) {
    return float_binary(op, a.to_double(), b.to_double(), content);
  }
  if (op == BinaryOp::kMod && a.is_string()) return format_percent(rt, a, b);
  if (a.is(Kind::kUndefined)) return undefined_error(a);
  if (b.is(Kind::kUndefined)) return undefined_error(b);
  if (op == BinaryOp::kMul) {
    if (is_sequence(a) && b.is_integer()) return repeat(rt, a, b.as_int());
    if (is_sequence(b) && a.is_integer()) return repeat(rt, b, a.as_int());
  }
  if (op == BinaryOp::kAdd) {
    if (a.is_string() && b.is_string()) return concat(rt, a, b);
    if (a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
      SLUICE_RETURN_IF_ERROR(rt.check_list_size(a.items().size() + b.items().size()));
      std::vector<Value> items;
      items.reserve(a.items().size() + b.items().size());
      items.insert(items.end(), a.items().begin(), a.items().end());
      items.insert(items.end(), b.items().begin(), b.items().end());
      return a.is(Kind::kList) ? rt.make_list(std::move(items)) : rt.make_tuple(std::move(items));
    }
  }
  return type_error(op, a, b);
}

Result<Value> negate(Runtime& rt, const Value& v) {
  SLUICE_RETURN_IF_ERROR(rt.charge(1));
  if (v.is(Kind::kFloat)) return Value::number(-v.as_float(), v.content());
  if (v.is_integer()) return integer_binary(BinaryOp::kSub, 0, v.as_int(), v.content());
  if (v.is(Kind::kUndefined)) return undefined_error(v);
  return bad_input("bad operand type for unary -: '{}'", type_name(v));
}

Result<Value> unary_plus(Runtime& rt, const Value& v) {
  SLUICE_RETURN_IF_ERROR(rt.charge(1));
  if (v.is(Kind::kFloat)) return v;
  if (v.is_integer()) return Value::integer(v.as_int(), v.content());
  if (v.is(Kind::kUndefined)) return undefined_error(v);
  return bad_input("bad operand type for unary +: '{}'", type_name(v));
}

}  // namespace sluice::jinja
