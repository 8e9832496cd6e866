// AVX2 with AVX-VNNI: as AVX2, but four products of bytes are one instruction.
#pragma once

#include "src/backend/cpu/avx2_isa.h"

namespace sluice::cpu {
namespace {

struct AvxVnni : Avx2 {
  static constexpr bool kHasByteDot = true;
  // acc + the sum of four products, codes unsigned and x signed.
  SLUICE_MEMBER I byte_dot(I acc, I codes, I x) { return _mm256_dpbusd_avx_epi32(acc, codes, x); }
};

}  // namespace
}  // namespace sluice::cpu
