// Filters on numbers.
#include <charconv>
#include <cmath>

#include "src/text/jinja/args.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/format_spec.h"
#include "src/text/jinja/number_parse.h"
#include "src/text/jinja/ops.h"

namespace sluice::jinja {
namespace {

Result<Value> absolute(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("abs", args));
  if (value.is(Kind::kFloat)) return Value::number(std::fabs(value.as_float()), value.content());
  if (value.is_integer()) return value.as_int() < 0 ? negate(rt, value) : unary_plus(rt, value);
  return bad_input("bad operand type for abs(): '{}'", type_name(value));
}

bool fits_int64(double value) {
  constexpr double kTop = 9223372036854775808.0;  // 2^63
  return value >= -kTop && value < kTop;
}

Result<Value> to_int(Runtime&, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("int", args, {"default", "base"}, 0));
  const Value fallback = bound[0].missing() ? Value::integer(0) : bound[0];
  if (value.is(Kind::kUndefined)) return undefined_error(value);
  if (value.is_integer()) return Value::integer(value.as_int(), value.content());
  std::optional<double> number;
  bool content = value.content();
  if (value.is_string()) {
    content = value.text().any_content();
    SLUICE_ASSIGN_OR_RETURN(const std::int64_t base, int_arg("int", bound[1], 10));
    SLUICE_ASSIGN_OR_RETURN(const auto parsed, parse_python_int(value.str(), base));
    if (parsed) return Value::integer(*parsed, content);
    number = parse_python_float(value.str());
    if (number && !std::isfinite(*number)) return fallback;
  } else if (value.is(Kind::kFloat)) {
    number = value.as_float();
    if (std::isnan(*number)) return fallback;
    if (std::isinf(*number)) return bad_input("cannot convert float infinity to integer");
  }
  if (!number) return fallback;
  if (!fits_int64(*number)) return bad_input("an integer is beyond 64 bits (limit)");
  return Value::integer(static_cast<std::int64_t>(*number), content);
}

Result<Value> to_float(Runtime&, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("float", args, {"default"}, 0));
  if (value.is(Kind::kUndefined)) return undefined_error(value);
  if (value.is_number()) return Value::number(value.to_double(), value.content());
  if (value.is_string()) {
    if (const auto number = parse_python_float(value.str())) {
      return Value::number(*number, value.text().any_content());
    }
  }
  return bound[0].missing() ? Value::number(0.0) : bound[0];
}

// To the nearest, halves to the even neighbour, by the exact decimal value of the double.
Result<double> round_half_even(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits >= 0) {
    char buffer[800];
    const auto printed = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                       std::chars_format::fixed, static_cast<int>(digits));
    double rounded = 0;
    std::from_chars(buffer, printed.ptr, rounded);
    return rounded;
  }
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  const double rounded = std::nearbyint(value / unit) * unit;  // the default mode: halves to even
  if (!std::isfinite(rounded)) return bad_input("rounded value too large to represent");
  return rounded;
}

Result<Value> round_integer(const Value& value, std::int64_t digits) {
  if (digits >= 0) return Value::integer(value.as_int(), value.content());
  if (digits < -18) return Value::integer(0, value.content());
  std::int64_t unit = 1;
  for (std::int64_t i = digits; i < 0; ++i) unit *= 10;
  const std::int64_t v = value.as_int();
  std::int64_t quotient = v / unit;
  const std::int64_t remainder = v % unit;
  const std::int64_t twice =
      remainder < 0 ? -2 * (remainder + unit / 2) : 2 * (remainder - unit / 2);
  // twice is 0 at a half and positive beyond.
  if (twice > 0 || (twice == 0 && quotient % 2 != 0)) quotient += v < 0 ? -1 : 1;
  std::int64_t rounded = 0;
  if (__builtin_mul_overflow(quotient, unit, &rounded)) {
    return bad_input("an integer is beyond 64 bits (limit)");
  }
  return Value::integer(rounded, value.content());
}

Result<Value> round_filter(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("round", args, {"precision", "method"}, 0));
  std::string_view method = "common";
  if (!bound[1].missing()) {
    if (!bound[1].is_string()) return bad_input("method must be common, ceil or floor");
    method = bound[1].str();
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return bad_input("method must be common, ceil or floor");
  }
  if (bound[0].is(Kind::kNone)) return bad_input("round() without a precision is not supported");
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t digits, int_arg("round", bound[0], 0));
  if (!value.is_number()) return bad_input("type {} doesn't define rounding", type_name(value));
  if (method == "common") {
    if (value.is_integer()) return round_integer(value, digits);
    SLUICE_ASSIGN_OR_RETURN(const double rounded, round_half_even(value.as_float(), digits));
    return Value::number(rounded, value.content());
  }
  SLUICE_ASSIGN_OR_RETURN(const Value unit,
                          binary(rt, BinaryOp::kPow, Value::integer(10), Value::integer(digits)));
  SLUICE_ASSIGN_OR_RETURN(const Value scaled, binary(rt, BinaryOp::kMul, value, unit));
  if (scaled.is_integer()) return binary(rt, BinaryOp::kDiv, scaled, unit);
  if (!std::isfinite(scaled.as_float()))
    return bad_input("cannot convert float infinity or NaN to integer");
  const double whole =
      method == "ceil" ? std::ceil(scaled.as_float()) : std::floor(scaled.as_float());
  // Python goes through an integer, which has no negative zero.
  return binary(rt, BinaryOp::kDiv, Value::number(whole == 0.0 ? 0.0 : whole, value.content()),
                unit);
}

Result<Value> filesizeformat(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("filesizeformat", args, {"binary"}, 0));
  if (value.is(Kind::kUndefined)) return undefined_error(value);
  std::optional<double> bytes;
  bool content = value.content();
  if (value.is_number()) bytes = value.to_double();
  if (value.is_string()) {
    bytes = parse_python_float(value.str());
    content = value.text().any_content();
  }
  if (!bytes) return bad_input("could not convert {} to float", type_name(value));
  const bool binary_units = !bound[0].missing() && truth(bound[0]);
  const double base = binary_units ? 1024 : 1000;
  constexpr std::string_view kUnits[2][8] = {
      {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
      {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
  const auto text = [&](std::string s) {
    return rt.make_string(TaggedText(std::move(s), content));
  };
  if (*bytes == 1.0) return text("1 Byte");
  if (!std::isfinite(*bytes)) return bad_input("filesizeformat of a number that is not finite");
  if (*bytes < base) {
    if (!fits_int64(*bytes)) return bad_input("an integer is beyond 64 bits (limit)");
    return text(fmt::format("{} Bytes", static_cast<std::int64_t>(*bytes)));
  }
  double unit = base;
  for (std::size_t i = 0; i < 8; ++i) {
    unit *= base;
    if (*bytes >= unit && i < 7) continue;
    NumberStyle style;
    style.type = 'f';
    style.precision = 1;
    return text(float_digits(base * *bytes / unit, style).digits + " " +
                std::string(kUnits[binary_units ? 1 : 0][i]));
  }
  return text("");
}

constexpr FilterInfo kNumberFilters[] = {
    {"abs", absolute},       {"filesizeformat", filesizeformat},
    {"float", to_float},     {"int", to_int},
    {"round", round_filter},
};

}  // namespace

FilterTable number_filters() { return {kNumberFilters, std::size(kNumberFilters)}; }

}  // namespace sluice::jinja
