// Bodies of the vocabulary passes, included once for each instruction set inside its own namespace.
// Only compiler built-ins here: a library inline function compiled with -mavx2 could be the copy
// that the linker keeps for the whole program.

using F8 = float __attribute__((vector_size(32)));
using F4 = float __attribute__((vector_size(16)));
using I8 = int __attribute__((vector_size(32)));
using D4 = double __attribute__((vector_size(32)));
using U4 = unsigned long long __attribute__((vector_size(32)));

constexpr float kMinusInf = -__builtin_inff();

// m = greater of m and x in each lane; x's NaNs are ignored.
inline void max8(F8& m, const F8& x) { m = x > m ? x : m; }

inline float block_of_32(const float* x, I8& nan) {
  F8 v[4];
  __builtin_memcpy(v, x, sizeof v);
  nan |= (v[0] != v[0]) | (v[1] != v[1]) | (v[2] != v[2]) | (v[3] != v[3]);
  F8 m = v[0];
  max8(m, v[1]);
  max8(v[2], v[3]);
  max8(m, v[2]);
  F8 swapped = __builtin_shufflevector(m, m, 4, 5, 6, 7, 0, 1, 2, 3);
  max8(m, swapped);
  swapped = __builtin_shufflevector(m, m, 2, 3, 0, 1, 6, 7, 4, 5);
  max8(m, swapped);
  swapped = __builtin_shufflevector(m, m, 1, 0, 3, 2, 5, 4, 7, 6);
  max8(m, swapped);
  return m[0];
}

ScanResult scan(const float* x, std::size_t n, float* block_max) {
  I8 nan = {};
  float max = kMinusInf;
  std::size_t block = 0;
  for (; (block + 1) * kScanBlock <= n; ++block) {
    const float m = block_of_32(x + block * kScanBlock, nan);
    block_max[block] = m;
    max = m > max ? m : max;
  }
  if (block * kScanBlock < n) {  // the last block, filled up with -inf
    float rest[kScanBlock];
    const std::size_t count = n - block * kScanBlock;
    for (std::size_t i = 0; i < kScanBlock; ++i) {
      rest[i] = i < count ? x[block * kScanBlock + i] : kMinusInf;
    }
    const float m = block_of_32(rest, nan);
    block_max[block] = m;
    max = m > max ? m : max;
  }
  int any = 0;
  for (int lane = 0; lane < 8; ++lane) any |= nan[lane];
  return {max, any != 0};
}

// e = exp(x) for x <= 0, to about 2 ulp; 0 below -708 (e^-708 is the last that is a normal double
// with room to spare). x = k ln 2 + r, |r| <= ln 2 / 2; Taylor polynomial of degree 12 for e^r,
// whose error is 2e-16; the exponent is put in place by integer addition.
inline void exp4(const D4& x, D4& e) {
  constexpr double kRound = 0x1.8p52;                // adding it rounds to a whole number
  constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 21 zero bits at the end: k * this is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const D4 shifted = x * 0x1.71547652b82fep0 + kRound;  // x / ln 2
  const D4 k = shifted - kRound;
  const D4 r = (x - k * kLn2High) - k * kLn2Low;
  const D4 r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;
  const D4 p01 = 1.0 + r;
  const D4 p23 = 1.0 / 2 + r * (1.0 / 6);
  const D4 p45 = 1.0 / 24 + r * (1.0 / 120);
  const D4 p67 = 1.0 / 720 + r * (1.0 / 5040);
  const D4 p89 = 1.0 / 40320 + r * (1.0 / 362880);
  const D4 pab = 1.0 / 3628800 + r * (1.0 / 39916800);
  const D4 low = (p01 + p23 * r2) + (p45 + p67 * r2) * r4;
  const D4 high = (p89 + pab * r2) + r4 * (1.0 / 479001600);
  const D4 p = low + high * r8;
  const U4 bits = (U4)p + ((U4)shifted << 52);
  e = (D4)(bits & (U4)(x >= -708.0));
}

// Exponents of 4 logits: d = (x - max) / temperature, and w = exp(d).
inline void weigh4(const float* x, double max, double temperature, D4& d, D4& w) {
  F4 v;
  __builtin_memcpy(&v, x, sizeof v);
  d = __builtin_convertvector(v, D4) - max;
  if (temperature != 1.0) d = d / temperature;
  exp4(d, w);
}

template <bool kMoment>
inline WeightSums sums_of(const float* x, std::size_t n, double max, double temperature) {
  D4 weight[2] = {};
  D4 moment[2] = {};
  float rest[8];
  for (std::size_t i = 0; i < n; i += 8) {
    const float* at = x + i;
    if (n - i < 8) {
      for (std::size_t j = 0; j < 8; ++j) rest[j] = i + j < n ? x[i + j] : kMinusInf;
      at = rest;
    }
    for (int half = 0; half < 2; ++half) {
      D4 d, w;
      weigh4(at + 4 * half, max, temperature, d, w);
      weight[half] += w;
      // What weighs nothing adds nothing, also where d is -inf.
      if (kMoment) moment[half] += w * (D4)((U4)d & (U4)(w > 0.0));
    }
  }
  const D4 a = weight[0] + weight[1];
  const D4 b = moment[0] + moment[1];
  return {(a[0] + a[2]) + (a[1] + a[3]), (b[0] + b[2]) + (b[1] + b[3])};
}

double sum(const float* x, std::size_t n, double max, double temperature) {
  return sums_of<false>(x, n, max, temperature).weight;
}

WeightSums sums(const float* x, std::size_t n, double max, double temperature) {
  return sums_of<true>(x, n, max, temperature);
}

void weights(const float* x, std::size_t n, double max, double temperature, double* w) {
  std::size_t i = 0;
  D4 d, e;
  for (; i + 4 <= n; i += 4) {
    weigh4(x + i, max, temperature, d, e);
    __builtin_memcpy(w + i, &e, sizeof e);
  }
  if (i < n) {
    float rest[4];
    for (std::size_t j = 0; j < 4; ++j) rest[j] = i + j < n ? x[i + j] : kMinusInf;
    weigh4(rest, max, temperature, d, e);
    for (std::size_t j = 0; i + j < n; ++j) w[i + j] = e[static_cast<int>(j)];
  }
}

constexpr VocabPasses kPasses = {scan, sum, sums, weights};
