#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "src/base/checked.h"
#include "src/base/half.h"
#include "src/base/mapped_file.h"
#include "src/base/rng.h"

using namespace sluice;

TEST_CASE("every half value survives the way to float and back") {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const auto half = static_cast<std::uint16_t>(h);
    const float f = half_to_float(half);
    const bool nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0;
    CHECK(std::isnan(f) == nan);
    if (!nan) CHECK(float_to_half(f) == half);
  }
}

TEST_CASE("half rounds to nearest even, overflows to infinity, keeps subnormals") {
  CHECK(float_to_half(1.0f) == 0x3c00);
  CHECK(float_to_half(1.0f + 0x1p-11f) == 0x3c00);      // tie goes to even
  CHECK(float_to_half(1.0f + 3 * 0x1p-11f) == 0x3c02);  // tie goes to even, up
  CHECK(float_to_half(65504.0f) == 0x7bff);
  CHECK(float_to_half(65519.9f) == 0x7bff);
  CHECK(float_to_half(65520.0f) == 0x7c00);
  CHECK(float_to_half(0x1p-24f) == 0x0001);
  CHECK(float_to_half(0x1p-25f) == 0x0000);
  CHECK(float_to_half(-0.0f) == 0x8000);
  CHECK(half_to_float(0x0001) == 0x1p-24f);
}

TEST_CASE("bfloat rounds to nearest even and keeps NaN") {
  CHECK(float_to_bfloat(1.0f) == 0x3f80);
  CHECK(float_to_bfloat(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(float_to_bfloat(1.0f + 3 * 0x1p-8f) == 0x3f82);
  CHECK(std::isnan(bfloat_to_float(float_to_bfloat(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("checked arithmetic refuses what wraps") {
  const auto max = std::numeric_limits<std::uint64_t>::max();
  CHECK(checked_add<std::uint64_t>(max, 0) == max);
  CHECK_FALSE(checked_add<std::uint64_t>(max, 1).has_value());
  CHECK_FALSE(
      checked_mul<std::uint64_t>(std::uint64_t{1} << 32, std::uint64_t{1} << 32).has_value());
  CHECK(checked_align<std::uint64_t>(33, 32) == 64);
  CHECK_FALSE(checked_align<std::uint64_t>(max - 3, 32).has_value());
}

TEST_CASE("philox gives the published known answers") {
  // From the kat_vectors of the Random123 distribution.
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
        std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform draws lie in [0, 1) and differ by each coordinate") {
  double sum = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const double u = uniform(42, 0, i, 0);
    CHECK(u >= 0.0);
    CHECK(u < 1.0);
    sum += u;
  }
  CHECK(sum / 10000 == doctest::Approx(0.5).epsilon(0.02));
  CHECK(uniform(1, 0, 0, 0) != uniform(2, 0, 0, 0));
  CHECK(uniform(1, 0, 0, 0) != uniform(1, 1, 0, 0));
  CHECK(uniform(1, 0, 0, 0) != uniform(1, 0, 1, 0));
  CHECK(uniform(1, 0, 0, 0) != uniform(1, 0, 0, 1));
}

TEST_CASE("mapping what is no regular file is an error with its path") {
  const auto missing = MappedFile::open("/nonexistent/file");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().message.find("/nonexistent/file") != std::string::npos);
  CHECK_FALSE(MappedFile::open("/").ok());
  CHECK_FALSE(MappedFile::open("/dev/null").ok());
}
