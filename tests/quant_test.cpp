#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/rng.h"
#include "src/gguf/gguf.h"
#include "src/quant/codec.h"
#include "src/quant/layout.h"
#include "tests/conformance.h"

using namespace sluice;

namespace {

// CRC-32 of zlib and PNG: reflected polynomial 0xEDB88320.
std::uint32_t crc32(std::span<const float> floats) {
  std::uint32_t crc = 0xffffffffu;
  for (const std::byte b : std::as_bytes(floats)) {
    crc ^= std::to_integer<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
  }
  return ~crc;
}

nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  REQUIRE_MESSAGE(in, path);
  return nlohmann::json::parse(in);
}

nlohmann::json fixture() { return read_json(SLUICE_SOURCE_DIR "/tests/data/quants.json"); }

double random_normal(std::uint64_t seed, std::uint64_t i) {
  const double radius = std::sqrt(-2 * std::log(1 - uniform(seed, 0, i, 0)));
  return radius * std::cos(6.283185307179586 * uniform(seed, 0, i, 1));
}

std::vector<float> random_weights(std::uint64_t seed, std::size_t n, double scale) {
  std::vector<float> weights(n);
  for (std::size_t i = 0; i < n; ++i) {
    weights[i] = static_cast<float>(scale * random_normal(seed, i));
  }
  return weights;
}

Status encode(BlockType type, std::span<const float> in, std::vector<std::byte>& bytes) {
  const BlockTypeInfo& info = block_type_info(type);
  bytes.assign(in.size() / info.block_size * info.block_bytes, std::byte{0xa5});
  return encode_blocks(type, in, bytes);
}

std::vector<float> round_trip(BlockType type, std::span<const float> in) {
  std::vector<std::byte> bytes;
  const Status status = encode(type, in, bytes);
  REQUIRE_MESSAGE(status.ok(), (status.ok() ? "" : status.error().message));
  std::vector<float> out(in.size());
  decode_blocks(type, bytes, out);
  return out;
}

// The largest error of one weight that a format allows, as a share of the largest weight of its
// block: half of the widest step, for steps that reach over the whole range of the block. For the
// types with minima the range can be twice the largest weight, and the steps and minima of groups
// are themselves rounded up to 1/15 (Q2_K) or 1/63 of the largest.
double allowed_error(BlockType type) {
  switch (type) {
    case BlockType::kF32:
      return 0;
    case BlockType::kF16:
      return 0x1p-11;
    case BlockType::kBF16:
      return 0x1p-8;
    case BlockType::kQ4_0:
      return 0.5 / 7.5 + 1e-3;
    case BlockType::kQ4_1:
      return 1.0 / 15 + 1e-3;
    case BlockType::kQ5_0:
      return 0.5 / 15.5 + 1e-3;
    case BlockType::kQ5_1:
      return 1.0 / 31 + 1e-3;
    case BlockType::kQ8_0:
      return 0.5 / 127 + 1e-5;
    case BlockType::kQ2_K:
      return (1.0 + 1.0 / 15) / 3 + 1.0 / 15 / 3 + 0.02;
    case BlockType::kQ3_K:
      return 0.5 / 3.5 * 1.07 + 1.0 / 32;
    case BlockType::kQ4_K:
      return (1.0 + 1.0 / 63) / 15 + 1.0 / 63 / 15 + 0.01;
    case BlockType::kQ5_K:
      return (1.0 + 1.0 / 63) / 31 + 1.0 / 63 / 31 + 0.01;
    case BlockType::kQ6_K:
      return 0.5 / 31.5 * 1.02 + 1.0 / 128;
    case BlockType::kIQ4_NL:
      return 12.5 / 125 + 1e-3;
    case BlockType::kIQ4_XS:
      return 12.5 / 125 * 1.07 + 1.0 / 32;
    case BlockType::kMXFP4:
      return 1.0 / 3.5;  // half of the step from 4 to 6, by the smallest block that uses it
  }
  return 0;
}

}  // namespace

TEST_CASE("decoding matches the reference results to the bit") {
  const std::string facts_path = test::conformance_file("quants/facts.json");
  if (facts_path.empty()) return;
  int checked = 0;
  const auto all_facts = read_json(facts_path);
  for (const auto& item : all_facts.items()) {
    const std::string& file_name = item.key();
    const auto& tensors = item.value();
    for (const auto& entry : tensors.items()) {
      const std::string& tensor_name = entry.key();
      const auto& facts = entry.value();
      const auto type = block_type_from_name(facts["type"].get<std::string>());
      if (!type) continue;  // IQ3_S, TQ1_0, TQ2_0: not read, see gguf_test
      INFO(file_name << " " << tensor_name);
      const auto file = GgufFile::open(test::conformance_file("quants/" + file_name));
      REQUIRE(file.ok());
      const GgufTensor* tensor = file->find_tensor(tensor_name);
      REQUIRE(tensor != nullptr);
      CHECK(tensor->type == *type);
      CHECK(tensor->dims == facts["shape"].get<std::vector<std::uint64_t>>());
      std::vector<float> floats(tensor->elements);
      decode_blocks(tensor->type, tensor->data, floats);
      CHECK(crc32(floats) == facts["crc32_of_f32_le"].get<std::uint32_t>());
      const auto first = facts["first16"].get<std::vector<float>>();
      CHECK(std::equal(first.begin(), first.end(), floats.begin()));
      ++checked;
    }
  }
  CHECK(checked == 30);  // 15 files, two tensors each
}

TEST_CASE("random blocks of every type decode as the gguf package does") {
  const auto random_blocks = fixture()["random_blocks"];
  CHECK(random_blocks.size() == block_types().size() - 1);  // all but F32
  for (const auto& item : random_blocks.items()) {
    const std::string& name = item.key();
    const auto& facts = item.value();
    INFO(name);
    const BlockType type = block_type_from_name(name).value();
    const BlockTypeInfo& info = block_type_info(type);
    std::vector<std::byte> bytes(std::size_t{256} * info.block_bytes);
    std::uint32_t x = 1;
    for (std::byte& b : bytes) {
      x = x * 1664525u + 1013904223u;
      b = static_cast<std::byte>(x >> 24);
    }
    for (std::size_t block = 0; block < 256; ++block) {
      for (const auto& offset : facts["half_offsets"]) {
        bytes[block * info.block_bytes + offset.get<std::size_t>() + 1] &= std::byte{0xbf};
      }
    }
    std::vector<float> floats(std::size_t{256} * info.block_size);
    decode_blocks(type, bytes, floats);
    CHECK(crc32(floats) == facts["crc32_of_f32_le"].get<std::uint32_t>());
  }
}

TEST_CASE("MXFP4 decodes as the gguf package does, at the ends of the scale too") {
  const auto mxfp4 = fixture()["mxfp4"];
  REQUIRE(mxfp4["blocks"].size() == 7);
  for (std::size_t b = 0; b < 7; ++b) {
    const auto hex = mxfp4["blocks"][b].get<std::string>();
    std::array<std::byte, 17> block;
    for (std::size_t i = 0; i < 17; ++i) {
      block[i] = static_cast<std::byte>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
    }
    std::array<float, 32> floats;
    decode_blocks(BlockType::kMXFP4, block, floats);
    const auto expected = mxfp4["floats"][b].get<std::string>();
    for (std::size_t i = 0; i < 32; ++i) {
      CHECK(std::bit_cast<std::uint32_t>(floats[i]) ==
            std::stoul(expected.substr(9 * i, 8), nullptr, 16));
    }
  }
}

TEST_CASE("encoding keeps the error of random weights within the bound of the format") {
  for (const BlockTypeInfo& info : block_types()) {
    for (const double scale : {1.0, 0.02, 1e-3, 1000.0}) {
      INFO(info.name << " scale " << scale);
      const auto in = random_weights(11, std::size_t{64} * 256, scale);
      const auto out = round_trip(info.type, in);
      double closest = 0;  // error over bound
      for (std::size_t start = 0; start < in.size(); start += info.block_size) {
        float peak = 0;
        const std::size_t end = start + info.block_size;
        for (std::size_t i = start; i < end; ++i) peak = std::max(peak, std::fabs(in[i]));
        for (std::size_t i = start; i < end; ++i) {
          const double bound = 1.002 * allowed_error(info.type) * peak + 0x1p-24;
          closest = std::max(closest, double{std::fabs(in[i] - out[i])} / bound);
        }
      }
      CHECK(closest <= 1);
      // The bound is not idle: errors come near it.
      if (info.type != BlockType::kF32 && scale >= 0.02) CHECK(closest >= 0.5);
    }
  }
}

TEST_CASE("relative error of normal weights is what the bits of each type can give") {
  // Root mean square error over root mean square weight; a few percent above what this encoder
  // gives, so that a mistake in one group or bit shows.
  const std::map<std::string_view, double> limits{
      {"F32", 0},       {"F16", 2.2e-4},   {"BF16", 0.0017},  {"Q4_0", 0.088},
      {"Q4_1", 0.081},  {"Q5_0", 0.044},   {"Q5_1", 0.039},   {"Q8_0", 0.0055},
      {"Q2_K", 0.365},  {"Q3_K", 0.161},   {"Q4_K", 0.082},   {"Q5_K", 0.041},
      {"Q6_K", 0.0197}, {"IQ4_NL", 0.082}, {"IQ4_XS", 0.084}, {"MXFP4", 0.115}};
  const auto in = random_weights(5, std::size_t{256} * 256, 1);
  double power = 0;
  for (const float x : in) power += double{x} * x;
  for (const BlockTypeInfo& info : block_types()) {
    const auto out = round_trip(info.type, in);
    double error = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      error += (double{in[i]} - out[i]) * (double{in[i]} - out[i]);
    }
    const double relative = std::sqrt(error / power);
    INFO(info.name << " relative error " << relative);
    CHECK(relative <= limits.at(info.name));
  }
}

TEST_CASE("all-zero blocks come back as exact zeros, with zero bits") {
  for (const BlockTypeInfo& info : block_types()) {
    INFO(info.name);
    for (const float zero : {0.0f, -0.0f}) {
      const std::vector<float> in(512, zero);
      const auto out = round_trip(info.type, in);
      CHECK(std::all_of(out.begin(), out.end(), [](float x) { return x == 0; }));
    }
  }
}

TEST_CASE("blocks of tiny values give zeros or tiny finite values") {
  for (const BlockTypeInfo& info : block_types()) {
    for (const float size : {1e-45f, 1e-40f, 1e-38f, 1e-20f, 3e-8f, 6e-8f, 1e-7f, 1e-6f, 1e-5f}) {
      INFO(info.name << " size " << size);
      auto in = random_weights(3, 512, 1);
      for (float& x : in) x = std::clamp(x, -1.0f, 1.0f) * size;
      for (const float x : round_trip(info.type, in)) {
        CHECK(std::isfinite(x));
        // A half cannot be smaller than 2^-24, and a K type adds a scale and a minimum of that.
        CHECK(std::fabs(x) <= 2 * size + 0x1p-22f);
      }
    }
  }
}

TEST_CASE("the largest value keeps its sign and size, in tiny blocks too") {
  for (const BlockTypeInfo& info : block_types()) {
    for (const float size : {1.0f, 3e-3f, 2e-5f, 3e-6f, 7e-7f, 2e-7f}) {
      for (const float sign : {1.0f, -1.0f}) {
        for (std::size_t at : {0u, 31u, 100u, 255u}) {
          INFO(info.name << " size " << sign * size << " at " << at);
          std::vector<float> in(256, 0.0f);
          in[at] = sign * size;
          const auto out = round_trip(info.type, in);
          // Halves end at 2^-24; the IQ4 table has gaps of 11 around zero.
          const bool iq4 = info.type == BlockType::kIQ4_NL || info.type == BlockType::kIQ4_XS;
          const double half_step =
              allowed_error(info.type) * size + (iq4 ? 5.5 * 0x1p-24 : 0x1p-25);
          CHECK(std::fabs(double{out[at]} - in[at]) <= half_step);
        }
      }
    }
  }
}

TEST_CASE("blocks of one constant keep it within rounding of the scale") {
  for (const BlockTypeInfo& info : block_types()) {
    for (const float constant : {1.0f, -1.0f, 0.3f, -7.7f, 1234.5f, -60000.0f}) {
      INFO(info.name << " constant " << constant);
      const std::vector<float> in(256, constant);
      // MXFP4 has no scales between powers of two: 5 times a scale is as far from 4 as from 6.
      const double share = info.type == BlockType::kMXFP4 ? 0.2 : 0.02;
      for (const float x : round_trip(info.type, in)) {
        CHECK(std::fabs(double{x} - constant) <= std::fabs(constant) * share);
      }
    }
  }
}

TEST_CASE("what a type can represent comes back within the rounding of its scale") {
  for (const BlockTypeInfo& info : block_types()) {
    INFO(info.name);
    std::vector<float> in(256);
    // Two values, the smaller of them zero, one a group: every type has integers for these.
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = i % 3 == 0 ? -6.0f : 0.0f;
    const bool has_zero =
        info.type != BlockType::kIQ4_NL && info.type != BlockType::kIQ4_XS;  // no 0 in the table
    const auto out = round_trip(info.type, in);
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (has_zero || in[i] != 0) CHECK(std::fabs(out[i] - in[i]) <= 6 * 0x1p-10f);
    }
  }
}

TEST_CASE("huge values are kept or refused with their index, never turned into infinity") {
  for (const BlockTypeInfo& info : block_types()) {
    for (const float size : {6e4f, 5e5f, 1e6f, 1e9f, 1e30f, 3.4e38f}) {
      for (const float sign : {1.0f, -1.0f}) {
        INFO(info.name << " size " << sign * size);
        std::vector<float> in(512, 0.25f);
        in[300] = sign * size;
        std::vector<std::byte> bytes;
        const Status status = encode(info.type, in, bytes);
        if (status.ok()) {
          std::vector<float> out(in.size());
          decode_blocks(info.type, bytes, out);
          CHECK(std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); }));
          CHECK(std::fabs(out[300] - in[300]) <= size * allowed_error(info.type) * 1.01);
        } else {
          CHECK(status.error().message.find("weight 300 ") != std::string::npos);
          CHECK(size > 65000);
        }
      }
    }
  }
  std::vector<std::byte> bytes;
  CHECK_FALSE(encode(BlockType::kQ4_0, std::vector<float>(32, 1e6f), bytes).ok());
  CHECK(encode(BlockType::kMXFP4, std::vector<float>(32, 2.9e38f), bytes).ok());
}

TEST_CASE("opposite giants do not overflow the range") {
  std::vector<float> in(256, 0.0f);
  in[3] = std::numeric_limits<float>::max();
  in[4] = -std::numeric_limits<float>::max();
  std::vector<std::byte> bytes;
  for (const BlockTypeInfo& info : block_types()) {
    INFO(info.name);
    CHECK(encode(info.type, in, bytes).ok() == (info.type == BlockType::kF32));
  }
}

TEST_CASE("values that are not finite are refused with their index") {
  for (const BlockTypeInfo& info : block_types()) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      std::vector<float> in(512, 1.0f);
      in[257] = bad;
      std::vector<std::byte> bytes;
      const Status status = encode(info.type, in, bytes);
      REQUIRE_FALSE(status.ok());
      CHECK(status.error().message.find("weight 257 ") != std::string::npos);
    }
  }
}

TEST_CASE("sizes that do not fit are refused") {
  std::vector<float> in(33, 1.0f);
  std::vector<std::byte> out(18);
  CHECK_FALSE(encode_blocks(BlockType::kQ4_0, in, out).ok());
  in.resize(32);
  CHECK(encode_blocks(BlockType::kQ4_0, in, out).ok());
  CHECK(encode_blocks(BlockType::kQ4_0, {}, {}).ok());
  decode_blocks(BlockType::kF32, {}, {});
  out.resize(17);
  CHECK_FALSE(encode_blocks(BlockType::kQ4_0, in, out).ok());
}

TEST_CASE("the block type table agrees with the structs and with itself") {
  const std::map<BlockType, std::size_t> sizes{
      {BlockType::kQ4_0, sizeof(BlockQ4_0)},     {BlockType::kQ4_1, sizeof(BlockQ4_1)},
      {BlockType::kQ5_0, sizeof(BlockQ5_0)},     {BlockType::kQ5_1, sizeof(BlockQ5_1)},
      {BlockType::kQ8_0, sizeof(BlockQ8_0)},     {BlockType::kQ2_K, sizeof(BlockQ2_K)},
      {BlockType::kQ3_K, sizeof(BlockQ3_K)},     {BlockType::kQ4_K, sizeof(BlockQ4_K)},
      {BlockType::kQ5_K, sizeof(BlockQ5_K)},     {BlockType::kQ6_K, sizeof(BlockQ6_K)},
      {BlockType::kIQ4_NL, sizeof(BlockIQ4_NL)}, {BlockType::kIQ4_XS, sizeof(BlockIQ4_XS)},
      {BlockType::kMXFP4, sizeof(BlockMXFP4)}};
  for (const BlockTypeInfo& info : block_types()) {
    CHECK(block_type_from_number(static_cast<std::uint32_t>(info.type)) == info.type);
    CHECK(block_type_from_name(info.name) == info.type);
    CHECK(known_type_name(static_cast<std::uint32_t>(info.type)) == info.name);
    if (const auto found = sizes.find(info.type); found != sizes.end()) {
      CHECK(found->second == info.block_bytes);
    }
  }
  CHECK(block_type_from_name("q4_k") == BlockType::kQ4_K);
  CHECK_FALSE(block_type_from_name("q4").has_value());
  CHECK_FALSE(block_type_from_number(21).has_value());
  CHECK(known_type_name(21) == "IQ3_S");
  CHECK(known_type_name(34) == "TQ1_0");
  CHECK(known_type_name(1000).empty());
}
