// What tests of kernels that go through rows have in common: random rows, buffers for int8 results,
// and comparisons to the bit that say what is wrong first.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/arguments.h"
#include "src/backend/cpu/generic.h"
#include "tests/kernels_testing.h"

namespace sluice::simt {

inline std::vector<float> random_floats(std::size_t count, float magnitude,
                                        cpu::testing::Random& random) {
  std::vector<float> x(count);
  for (float& value : x) value = cpu::testing::uniform(random, -magnitude, magnitude);
  return x;
}

// A buffer that the host has written.
template <class T>
class Filled : public Buffer {
 public:
  Filled(std::string name, const std::vector<T>& values)
      : Buffer(std::move(name), std::max<std::size_t>(1, values.size() * sizeof(T))) {
    write(std::span<const T>(values));
  }
  Global<T> begin() { return pointer<T>(); }
};

// The same bits, or two NaNs, whose bits differ between machines.
inline bool same_float(float a, float b) {
  return float_bits(a) == float_bits(b) || (std::isnan(a) && std::isnan(b));
}

// Whether the values of a buffer from `first` on are these; the first difference, or nothing.
template <class T>
std::string compare(const Buffer& found, std::span<const T> wanted, std::size_t first = 0) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::size_t at = (first + i) * sizeof(T);
    if (found.first_unwritten(at, at + sizeof(T))) {
      return fmt::format("{}[{}] is left unwritten", found.name(), first + i);
    }
    const T value = found.read<T>(first + i);
    bool same = false;
    if constexpr (std::is_same_v<T, float>) {
      same = same_float(value, wanted[i]);
    } else {
      same = value == wanted[i];
    }
    if (!same) {
      return fmt::format("{}[{}] is {}, not {}", found.name(), first + i, value, wanted[i]);
    }
  }
  return {};
}
template <class T>
std::string compare(const Buffer& found, const std::vector<T>& wanted) {
  return compare(found, std::span<const T>(wanted));
}

// Memory for rows of int8 codes, and what must be in it.
class QuantizedResult {
 public:
  QuantizedResult(std::size_t rows, std::size_t cols)
      : q_("q", rows * cols),
        scale_("scale", rows * (cols + 31) / 32 * 4),
        sum_("sum", rows * (cols + 31) / 32 * 4) {}

  cuda::QuantizedOut out() {
    return {.q = q_.pointer<std::int8_t>(),
            .scale = scale_.pointer<float>(),
            .sum = sum_.pointer<std::uint32_t>()};
  }
  // Against the CPU's quantization of these values.
  std::string compare_with(const std::vector<float>& x) const {
    std::vector<std::int8_t> q(x.size());
    std::vector<float> scale(x.size() / 32);
    std::vector<std::int16_t> sum(x.size() / 16);
    for (std::size_t g = 0; g < scale.size(); ++g) {
      scale[g] = cpu::generic_quantize_group(&x[32 * g], 32, &q[32 * g]);
    }
    for (std::size_t i = 0; i < q.size(); ++i)
      sum[i / 16] = static_cast<std::int16_t>(sum[i / 16] + q[i]);
    if (std::string wrong = compare(q_, q); !wrong.empty()) return wrong;
    if (std::string wrong = compare(scale_, scale); !wrong.empty()) return wrong;
    return compare(sum_, sum);
  }

 private:
  Buffer q_, scale_, sum_;
};

// The first complaint of some.
inline std::string first_of(std::initializer_list<std::string> complaints) {
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) return complaint;
  }
  return {};
}

}  // namespace sluice::simt
