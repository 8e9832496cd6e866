// Gates and values, and their product after the CPU's own activation, which the kernel must give to
// the bit; logits and their soft cap.
#pragma once

#include "cuda/kernels/activate.cuh"
#include "cuda/kernels/softcap.cuh"
#include "src/backend/cpu/math.h"
#include "tests/simt/row_checks.h"

namespace sluice::simt {

struct ActivateShape {
  std::uint32_t rows = 1;
  std::uint32_t cols = 32;
  std::uint32_t stride = 32;
  bool gelu = false;
  bool floats = true;
  bool quantized = false;
  bool in_place = false;  // `out` is `gate`; stride is cols
  bool pairs = false;     // gate and up in turn; cols is a multiple of 32
  float magnitude = 10.0f;

  std::string text() const {
    return fmt::format("{} x {} of {} up to {}:{}{}{}{}", rows, cols, stride, magnitude,
                       gelu ? " gelu" : " silu", floats ? " floats" : "", quantized ? " codes" : "",
                       in_place ? " in place"
                       : pairs  ? " in turn"
                                : "");
  }
};

// Values that polynomials and quantization find hard.
inline const std::vector<float>& awkward_floats() {
  static const std::vector<float> kValues = {0.0f,    -0.0f, 1e-40f, -1e-40f,  0.625f, -0.625f,
                                             88.0f,   89.0f, -87.0f, -88.7f,   -104.f, 200.0f,
                                             -200.0f, 1e30f, -1e30f, INFINITY, NAN,    -INFINITY};
  return kValues;
}

// Runs a kernel and says what was wrong first, or nothing.
inline std::string check_activate(void (*kernel)(cuda::ActivateArgs), const ActivateShape& shape,
                                  std::uint64_t seed, bool awkward = false, bool reversed = false) {
  cpu::testing::Random random(seed);
  // Both in one buffer, so that `up` begins where the gates end.
  const std::size_t half = std::size_t{shape.rows} * shape.stride;
  std::vector<float> both = random_floats(2 * half, shape.magnitude, random);
  if (awkward) {
    for (std::size_t i = 0; i < awkward_floats().size() && i < half; ++i) {
      both[i] = awkward_floats()[i];
    }
  }
  const cpu::Kernels& generic = *cpu::find_kernels("generic");
  std::vector<float> wanted(std::size_t{shape.rows} * shape.cols);
  for (std::size_t r = 0; r < shape.rows; ++r) {
    const float* gate = &both[r * shape.stride];
    (shape.gelu ? generic.gelu_mul : generic.silu_mul)(gate, gate + half, shape.cols,
                                                       &wanted[r * shape.cols]);
  }

  std::vector<float> in_turn;  // 32 columns of each
  for (std::size_t r = 0; r < shape.rows && shape.pairs; ++r) {
    for (std::size_t i = 0; i < std::size_t{2} * shape.cols; ++i) {
      in_turn.push_back(both[i % 64 / 32 * half + r * shape.stride + i / 64 * 32 + i % 32]);
    }
  }
  std::vector<float> up_values(both.begin() + static_cast<std::ptrdiff_t>(half), both.end());
  both.resize(half);
  Filled<float> gate("gate", both);
  Filled<float> up("up", up_values);
  Buffer out("out", wanted.size() * 4);
  QuantizedResult quantized(shape.rows, shape.cols);
  cuda::ActivateArgs args = {};
  args.gate = gate.begin();
  args.up = up.begin();
  if (shape.floats) args.out = shape.in_place ? gate.begin() : out.pointer<float>();
  if (shape.quantized) args.quantized = quantized.out();
  args.stride = shape.stride;
  Filled<float> pairs("gate and up", in_turn);
  if (shape.pairs) {
    args.pairs = true;
    args.gate = pairs.begin();
    args.up = pairs.begin() + 32;
    args.stride = std::int64_t{2} * shape.cols;
  }
  args.rows = static_cast<std::int32_t>(shape.rows);
  args.cols = static_cast<std::int32_t>(shape.cols);
  args.gelu = shape.gelu;
  const auto blocks = static_cast<std::uint32_t>(cuda::activate_row_blocks(args.cols));
  if (std::string fault = run(
          {.blocks = shape.rows * blocks, .threads = cuda::kActivateThreads, .reversed = reversed},
          [&] { kernel(args); });
      !fault.empty()) {
    return fault;
  }
  if (shape.floats) {
    std::string wrong = compare(shape.in_place ? gate : out, wanted);
    if (!wrong.empty()) return wrong;
  }
  return shape.quantized ? quantized.compare_with(wanted) : "";
}

// `count` logits; those from `first` on exist, and only their blocks run.
inline std::string check_softcap(void (*kernel)(cuda::SoftcapArgs), std::int64_t count, float cap,
                                 std::uint64_t seed, std::int64_t first = 0) {
  cpu::testing::Random random(seed);
  const auto some = static_cast<std::size_t>(count - first);
  std::vector<float> x = random_floats(some, 3 * cap, random);
  for (std::size_t i = 0; i < awkward_floats().size() && i < some; ++i) x[i] = awkward_floats()[i];
  Buffer logits("logits", static_cast<std::size_t>(count) * 4);
  logits.write(static_cast<std::size_t>(first) * 4, x.data(), x.size() * 4);
  cuda::SoftcapArgs args = {};
  args.x = logits.pointer<float>();
  args.count = count;
  args.cap = cap;
  const Shape grid = {.blocks = static_cast<std::uint32_t>(cuda::softcap_blocks(count)),
                      .threads = cuda::kSoftcapThreads,
                      .first_block = static_cast<std::uint32_t>(first / cuda::kRowStep)};
  if (std::string fault = run(grid, [&] { kernel(args); }); !fault.empty()) return fault;
  for (float& value : x) value = cap * cpu::scalar_tanh(value / cap);
  return compare(logits, std::span<const float>(x), static_cast<std::size_t>(first));
}

}  // namespace sluice::simt
