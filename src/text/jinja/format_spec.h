// Pieces shared by % formatting and str.format: numbers to digits, padding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/text/jinja/runtime.h"

namespace sluice::jinja {

struct NumberStyle {
  char type = 'g';         // d x X o b, or e E f F g G
  int precision = -1;      // -1: the default of the type
  bool alternate = false;  // #, only for integers
  char plus = '-';         // '+' or ' ': what stands before a positive number
};
struct Digits {
  std::string sign;    // "-", "+", " " or ""
  std::string prefix;  // "0x" and the like, with alternate
  std::string digits;  // the rest
};
Digits integer_digits(std::int64_t value, const NumberStyle& style);
// style.precision is at most kMaxPrecision.
Digits float_digits(double value, const NumberStyle& style);
constexpr int kMaxPrecision = 1000;
// Widths above this are refused: no prompt needs them.
constexpr int kMaxWidth = 1 << 20;

}  // namespace sluice::jinja
