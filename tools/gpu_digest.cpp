// Prints a checksum of the logits' bits for many small models and passes on the first GPU. Built
// twice, for the GPU and for the emulator: their outputs must be the same text.
//
//   gpu_digest [--quick] [--part K/N]     --part: only every N-th case, from the K-th, K < N
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "cuda/host/cuda_platform.h"
#include "src/backend/cpu/thread_pool.h"
#include "src/backend/placement.h"
#include "src/gguf/gguf.h"
#include "src/kv/kv_cache.h"
#include "tools/model_maker/maker.h"

namespace sluice {
namespace {

constexpr std::uint32_t kPositions = 1024;
constexpr std::uint32_t kMaxRows = 96;

std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (std::size_t i = 0; i < bytes; ++i) {
    crc ^= p[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

struct Case {
  ModelShape shape;
  std::vector<std::uint32_t> passes;  // rows of each pass
  KvCacheType kv = KvCacheType::kInt8;
};

std::vector<Case> cases(bool quick) {
  std::vector<Case> all;
  std::uint64_t seed = 1;
  const auto add = [&](ModelShape shape, std::vector<std::uint32_t> passes,
                       KvCacheType kv = KvCacheType::kInt8) {
    shape.seed = seed++;
    shape.vocab = 301;
    all.push_back({shape, std::move(passes), kv});
  };
  for (const BlockTypeInfo& info : block_types()) {
    ModelShape shape;
    shape.type = info.type;
    shape.layers = 1;
    shape.heads = 4;
    shape.head_dim = 64;
    add(shape, {1, 2, 3, 5, 9, 17, quick ? 18u : 70u});
    if (quick && all.size() == 4) break;
  }
  for (const ArchitectureFacts& facts : model_architectures()) {
    if (quick && facts.name != "mixtral") continue;
    ModelShape shape;
    shape.arch = facts.name;
    shape.type = BlockType::kQ4_0;
    shape.layers = 2;
    shape.embd = 96;
    shape.heads = 6;
    shape.kv_heads = 2;
    shape.head_dim = 80;
    shape.ffn = 160;
    if (facts.qkv_bias) shape.key_bias_outliers = 20;
    add(shape, {7, 1, 1, 4, quick ? 5u : 33u, 1});
  }
  if (!quick) {  // several pieces of context
    ModelShape shape;
    shape.type = BlockType::kQ8_0;
    shape.layers = 1;
    shape.head_dim = 128;
    add(shape, {90, 90, 90, 1, 90, 16, 90, 1});
  }
  // An f16 cache: a head size that needs padding, many heads that share one, windows, key biases.
  for (const char* arch : {"llama", "gemma3", "qwen2"}) {
    if (quick && std::string_view(arch) != "llama") continue;
    ModelShape shape;
    shape.arch = arch;
    shape.type = BlockType::kQ4_0;
    shape.layers = std::string_view(arch) == "gemma3" ? 7 : 2;
    shape.embd = 96;
    shape.heads = 10;
    shape.kv_heads = 1;
    shape.head_dim = 80;
    shape.ffn = 160;
    if (std::string_view(arch) == "qwen2") shape.key_bias_outliers = 20;
    add(shape, {7, 1, 4, quick ? 5u : 70u, 1}, KvCacheType::kF16);
  }
  if (!quick) {  // several pieces of context
    ModelShape shape;
    shape.type = BlockType::kQ8_0;
    shape.layers = 1;
    shape.head_dim = 128;
    add(shape, {90, 90, 90, 1, 90, 16, 90, 1}, KvCacheType::kF16);
  }
  // An int4 cache: the same, with passes that fill blocks, end in the middle of them, and go past.
  for (const char* arch : {"llama", "gemma3", "qwen2"}) {
    if (quick && std::string_view(arch) != "llama") continue;
    ModelShape shape;
    shape.arch = arch;
    shape.type = BlockType::kQ4_0;
    shape.layers = std::string_view(arch) == "gemma3" ? 7 : 2;
    shape.embd = 96;
    shape.heads = 10;
    shape.kv_heads = 1;
    shape.head_dim = 80;
    shape.ffn = 160;
    if (std::string_view(arch) == "qwen2") shape.key_bias_outliers = 20;
    add(shape, {31, 1, 4, quick ? 5u : 70u, 1}, KvCacheType::kInt4);
  }
  if (!quick) {
    ModelShape shape;
    shape.type = BlockType::kQ8_0;
    shape.layers = 1;
    shape.head_dim = 128;
    add(shape, {90, 90, 90, 1, 90, 16, 90, 1}, KvCacheType::kInt4);
  }
  return all;
}

Result<std::uint32_t> digest(const Case& one, const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const auto made, make_model(one.shape, path, 1));
  (void)made;
  SLUICE_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  SLUICE_ASSIGN_OR_RETURN(const Model model, load_model(file, kPositions));
  PlacementRequest request;
  request.model = &model;
  request.gpu = cuda::platform();
  request.choice.kind = DeviceChoice::Kind::kGpu;
  request.choice.gpu_layers = model.spec.layers;
  request.cpu.pool = std::make_shared<cpu::ThreadPool>(1);
  request.cpu.kv = one.kv;
  request.cpu.kv_blocks = kPositions / 32;
  request.cpu.positions = kPositions;
  request.cpu.max_rows = kMaxRows;
  request.cpu.max_logits = kMaxRows;
  SLUICE_ASSIGN_OR_RETURN(const Placement placement, place(request));
  SLUICE_ASSIGN_OR_RETURN(const auto backend, create_backend(request, placement));
  KvCache kv(request.cpu.kv_blocks, backend->block_tokens());
  const SequenceId sequence = kv.create();
  std::mt19937 random(7);
  std::uint32_t crc = 0;
  std::uint32_t length = 0;
  for (const std::uint32_t count : one.passes) {
    SLUICE_RETURN_IF_ERROR(kv.reserve(sequence, length + count));
    std::vector<BatchRow> rows;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto token = static_cast<std::int32_t>(random() % model.spec.vocabulary);
      rows.push_back({token, length + i, sequence, true});
    }
    std::vector<float> logits(std::size_t{count} * model.spec.vocabulary);
    SLUICE_ASSIGN_OR_RETURN(
        const PassTraffic traffic,
        backend->forward(rows, kv, {0, model.spec.layers}, {{}, logits, nullptr}));
    (void)traffic;
    length += count;
    kv.set_length(sequence, length);
    crc = crc32(logits.data(), logits.size() * sizeof(float), crc);
  }
  return crc;
}

int run(bool quick, std::size_t part, std::size_t parts) {
  if (cuda::platform() == nullptr) {
    std::fputs("gpu_digest: built without CUDA\n", stderr);
    return 1;
  }
  const std::string path = std::filesystem::temp_directory_path() /
                           fmt::format("gpu_digest_{}.gguf", std::random_device()());
  int failures = 0;
  const std::vector<Case> all = cases(quick);
  for (std::size_t i = part; i < all.size(); i += parts) {
    const Case& one = all[i];
    const auto crc = digest(one, path);
    fmt::print("{:>2} {:<10} {:<8} {:<4} {}\n", i, one.shape.arch,
               block_type_info(one.shape.type).name,
               one.kv == KvCacheType::kF16    ? "f16"
               : one.kv == KvCacheType::kInt4 ? "int4"
                                              : "int8",
               crc.ok() ? fmt::format("{:08x}", *crc) : crc.error().message);
    std::fflush(stdout);
    failures += crc.ok() ? 0 : 1;
  }
  std::filesystem::remove(path);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  bool quick = false;
  std::size_t part = 0, parts = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--quick") {
      quick = true;
    } else if (arg == "--part" && i + 1 < argc &&
               std::sscanf(argv[++i], "%zu/%zu", &part, &parts) == 2 && part < parts) {
    } else {
      std::fputs("usage: gpu_digest [--quick] [--part K/N]\n", stderr);
      return 2;
    }
  }
  return sluice::run(quick, part, parts);
}
