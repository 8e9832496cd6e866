// The CUDA backend from end to end, its kernels run by the emulator: against the CPU backend, and
// against itself in other passes, to the bit. With SLUICE_ON_DEVICE the same cases run on a GPU.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda/host/cuda_platform.h"
#include "cuda/host/few_rows.h"
#include "tests/conformance.h"
#include "tests/reference_model.h"
#include "tests/run_model.h"
#ifndef SLUICE_ON_DEVICE
#include "tests/simt/runtime_emulated.h"
#endif
#include "tests/temporary_folder.h"
#include "tools/model_maker/maker.h"

using namespace sluice;
using sluice::test::ModelRun;

namespace {

using Kind = DeviceChoice::Kind;

constexpr std::uint32_t kPositions = 512;

constexpr KvCacheType kCaches[] = {KvCacheType::kInt8, KvCacheType::kF16};

cpu::CpuOptions options(KvCacheType kv = KvCacheType::kInt8) {
  return {.threads = 1, .kv = kv, .max_rows = 64, .max_logits = 64};
}

double relative_l2(std::span<const float> got, std::span<const float> want) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - want[i];
    error += difference * difference;
    norm += static_cast<double>(want[i]) * want[i];
  }
  return std::sqrt(error / norm);
}

std::int32_t argmax(std::span<const float> row) {
  return static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// Distance of the best logit to the second.
float gap(std::vector<float> row) {
  std::nth_element(row.begin(), row.begin() + 1, row.end(), std::greater<>());
  return row[0] - row[1];
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::vector<std::int32_t> random_tokens(std::uint32_t seed, std::size_t count,
                                        std::size_t vocabulary) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % vocabulary);
  return tokens;
}

// A made model in a file.
class MadeModel {
 public:
  explicit MadeModel(const ModelShape& shape) : path_(folder_ / "model.gguf") {
    const auto made = make_model(shape, path_, 1);
    REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().message));
  }
  const std::string& path() const { return path_; }

 private:
  test::TemporaryFolder folder_;
  std::string path_;
};

ModelRun on_gpu(const std::string& path, DeviceChoice choice = {.kind = Kind::kGpu},
                KvCacheType kv = KvCacheType::kInt8) {
  return ModelRun(path, options(kv), kPositions, cuda::platform(), choice);
}
ModelRun on_gpu(const std::string& path, KvCacheType kv) {
  return on_gpu(path, {.kind = Kind::kGpu}, kv);
}

TEST_CASE("reference models give the CPU backend's tokens") {
  for (const char* name : {"llama", "llama-untied-ropefactors", "mixtral", "qwen2", "qwen3",
                           "qwen3moe", "gemma2", "gemma3", "phi3"}) {
    const std::string path = test::conformance_file("models/" + std::string(name) + ".gguf");
    if (path.empty()) return;
    CAPTURE(name);
    for (const KvCacheType kv : kCaches) {
      // What differs between models is the same for both caches, but for heads and windows.
      const bool own_attention = name == std::string_view("llama") ||
                                 name == std::string_view("gemma2") ||
                                 name == std::string_view("phi3");
      if (kv != KvCacheType::kInt8 && !own_attention) continue;
      ModelRun cpu(path, options(kv), kPositions);
      ModelRun gpu = on_gpu(path, kv);
      const std::size_t vocabulary = cpu.spec().vocabulary;
      const auto tokens = random_tokens(1, 9, vocabulary);
      const auto want = cpu.forward(tokens);
      const auto got = gpu.forward(tokens);
      const double distance = relative_l2(got, want);
      std::vector<float> last(want.end() - static_cast<std::ptrdiff_t>(vocabulary), want.end());
      std::vector<float> last_gpu(got.end() - static_cast<std::ptrdiff_t>(vocabulary), got.end());
      const int steps = 4;
      int equal = 0;
      for (int i = 0; i < steps; ++i) {
        const std::int32_t token = argmax(last);
        // Where two logits are as good as equal, rounding decides.
        if (gap(last) > 0.01f) CHECK(argmax(last_gpu) == token);
        equal += argmax(last_gpu) == token ? 1 : 0;
        last = cpu.forward({token});
        last_gpu = gpu.forward({token});
      }
      std::printf(
          "%-24s %s cache: relative L2 %.1e from the CPU backend, %d of %d greedy tokens equal\n",
          name, kv == KvCacheType::kF16 ? "f16" : "int8", distance, equal, steps);
      CHECK(distance < 5e-3);
    }
  }
}

// Distances from the exact evaluation. Activations and cache are int8 in both backends, and sums of
// another order round some of them to the neighbouring code: the GPU's logits may differ from the
// CPU's by as much as both do from exact ones, but must be as good.
struct Distances {
  double cpu;
  double gpu;
};
Distances distances_from_exact(const std::string& path, const std::vector<std::int32_t>& tokens) {
  ModelRun cpu(path, options(), kPositions);
  ModelRun gpu = on_gpu(path);
  std::vector<float> exact;
  for (const std::vector<double>& row : test::reference_logits(cpu.model(), tokens)) {
    exact.insert(exact.end(), row.begin(), row.end());
  }
  return {relative_l2(cpu.forward(tokens), exact), relative_l2(gpu.forward(tokens), exact)};
}

TEST_CASE("block types: logits as near to the exact ones as the CPU backend's") {
  for (const BlockTypeInfo& info : block_types()) {
    CAPTURE(info.name);
    ModelShape shape;
    shape.type = info.type;
    shape.layers = 1;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.head_dim = 64;
    shape.vocab = 300;
    shape.seed = 7;
    const MadeModel model(shape);
    const Distances distance = distances_from_exact(model.path(), random_tokens(2, 9, 300));
    std::printf("%-8s relative L2 from exact logits: CPU %.2e, GPU %.2e\n",
                std::string(info.name).c_str(), distance.cpu, distance.gpu);
    CHECK(distance.cpu < 5e-2);
    CHECK(distance.gpu < 1.2 * distance.cpu);
  }
}

ModelShape small_shape(std::string_view arch) {
  ModelShape shape;
  shape.arch = arch;
  shape.type = BlockType::kQ4_0;
  shape.layers = arch == "gemma3" ? 7 : 2;
  shape.embd = 96;
  shape.heads = 6;
  shape.kv_heads = 2;
  shape.head_dim = 64;
  shape.ffn = 160;
  shape.vocab = 300;
  shape.seed = 3;
  if (arch == "qwen2") shape.key_bias_outliers = 20;
  return shape;
}

TEST_CASE("a row's logits are the same bits in any pass") {
  struct Case {
    const char* arch;
    KvCacheType kv;
  };
  for (const Case& one : {Case{"llama", KvCacheType::kInt8},
                          {"mixtral", KvCacheType::kInt8},
                          {"gemma2", KvCacheType::kInt8},
                          {"llama", KvCacheType::kF16},
                          {"gemma2", KvCacheType::kF16}}) {
    CAPTURE(one.arch);
    CAPTURE(static_cast<int>(one.kv));
    const MadeModel model(small_shape(one.arch));
    ModelRun run = on_gpu(model.path(), one.kv);
    const auto tokens = random_tokens(4, 25, 300);
    const auto want = run.forward(tokens);  // in one pass
    for (const std::uint32_t chunk : {1u, 7u, 18u}) {
      CAPTURE(chunk);
      run.restart();
      CHECK(same_bits(run.forward(tokens, chunk), want));
    }
    // Beside rows of two other sequences.
    run.restart();
    KvCache& kv = run.kv();
    const SequenceId before = kv.create(), after = kv.create();
    std::vector<float> logits(64 * run.spec().vocabulary);
    for (std::size_t done = 0; done < tokens.size();) {
      const std::size_t own = std::min<std::size_t>(1 + done % 5, tokens.size() - done);
      std::vector<BatchRow> rows;
      const auto add = [&](SequenceId sequence, std::size_t count) {
        const std::uint32_t length = kv.length(sequence);
        REQUIRE(kv.reserve(sequence, length + static_cast<std::uint32_t>(count)).ok());
        for (std::uint32_t i = 0; i < count; ++i) {
          const bool mine = sequence == run.sequence();
          rows.push_back(
              {mine ? tokens[done + i] : static_cast<std::int32_t>(i), length + i, sequence, true});
        }
        kv.set_length(sequence, length + static_cast<std::uint32_t>(count));
      };
      add(before, done % 4);
      const std::size_t first = rows.size();
      add(run.sequence(), own);
      add(after, 3);
      const auto pass =
          run.backend().forward(rows, kv, {0, run.spec().layers}, {{}, logits, nullptr});
      REQUIRE_MESSAGE(pass.ok(), (pass.ok() ? "" : pass.error().message));
      const std::size_t vocabulary = run.spec().vocabulary;
      CHECK(same_bits(std::span(logits).subspan(first * vocabulary, own * vocabulary),
                      std::span(want).subspan(done * vocabulary, own * vocabulary)));
      done += own;
    }
  }
}

TEST_CASE("few rows: dp4a as long as it is at least as fast as tensor cores") {
  cuda::KernelTimes times{.dp4a = {1, 2, 3, 4}, .mma = {2, 2, 2, 2}};
  CHECK(times.most_dp4a() == 2);
  times.dp4a = {3, 1, 1, 1};
  CHECK(times.most_dp4a() == 0);
  times.dp4a = {1, 1, 1, 1};
  CHECK(times.most_dp4a() == 4);
}

#ifndef SLUICE_ON_DEVICE
TEST_CASE("kernels are chosen by what the device measures; no choice changes a bit") {
  for (const char* arch : {"llama", "mixtral"}) {
    CAPTURE(arch);
    ModelShape shape = small_shape(arch);
    shape.type = BlockType::kQ4_K;
    shape.embd = 256;
    shape.heads = 4;
    shape.ffn = 256;
    shape.layers = 1;
    const MadeModel model(shape);
    const auto tokens = random_tokens(6, 5, 300);
    std::vector<float> first;
    for (const int rows : {0, 1, 2, 3, 4}) {
      CAPTURE(rows);
      // A kind's graphs: dp4a with one row, tensor cores with one row, dp4a with two, ...
      cuda::emulated_machine().time_of = [rows, n = 0]() mutable {
        const int x_rows = n / 2 % cuda::kMostDp4aRows + 1;
        return n++ % 2 != 0 ? 2.0 : x_rows <= rows ? 1.0 : 3.0;
      };
      cuda::emulated_machine().runs_what_it_times = rows == 0;
      ModelRun run = on_gpu(model.path());
      cuda::emulated_machine() = {};
      const std::string tuning = run.backend().tuning();
      CHECK(tuning.find("rows that dp4a takes: ") == 0);
      CHECK(tuning.find(fmt::format("Q4_K {}", rows)) != std::string::npos);
      std::vector<float> logits;
      for (const std::uint32_t chunk : {1u, 2u, 3u, 4u}) {
        run.restart();
        const auto some = run.forward(tokens, chunk);
        logits.insert(logits.end(), some.begin(), some.end());
      }
      if (first.empty()) first = logits;
      CHECK(same_bits(logits, first));
    }
  }
}
#endif

TEST_CASE("the largest logits of rows alone are those among all") {
  const MadeModel model(small_shape("llama"));
  ModelRun run = on_gpu(model.path());
  const auto tokens = random_tokens(6, 5, 300);
  const auto all = run.forward(tokens);
  const std::size_t vocabulary = run.spec().vocabulary;
  for (const std::uint32_t top : {1u, 40u, run.backend().most_top_logits()}) {
    run.restart();
    KvCache& kv = run.kv();
    REQUIRE(kv.reserve(run.sequence(), 5).ok());
    std::vector<BatchRow> rows;
    for (std::uint32_t i = 0; i < 5; ++i) rows.push_back({tokens[i], i, run.sequence(), i != 2});
    std::vector<std::int32_t> ids(std::size_t{4} * top);
    std::vector<float> logits(ids.size());
    ForwardIo io;
    io.logits.top = top;
    io.logits.candidates = static_cast<std::uint32_t>(vocabulary) - 3;
    io.logits.top_ids = ids;
    io.logits.top_logits = logits;
    REQUIRE(run.backend().forward(rows, kv, {0, run.spec().layers}, io).ok());
    for (std::size_t r = 0; r < 4; ++r) {
      const float* row = &all[(r < 2 ? r : r + 1) * vocabulary];
      std::vector<std::int32_t> order(vocabulary - 3);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int32_t a, std::int32_t b) { return row[a] > row[b]; });
      std::sort(order.begin(), order.begin() + top);
      for (std::size_t i = 0; i < top; ++i) {
        CHECK(ids[r * top + i] == order[i]);
        CHECK(logits[r * top + i] == row[order[i]]);
      }
    }
  }
  ForwardIo io;
  io.logits.top = run.backend().most_top_logits() + 1;
  io.logits.candidates = static_cast<std::uint32_t>(vocabulary);
  const std::vector<BatchRow> rows = {{1, 0, run.sequence(), true}};
  CHECK_FALSE(run.backend().forward(rows, run.kv(), {0, run.spec().layers}, io).ok());
}

#ifndef SLUICE_ON_DEVICE
TEST_CASE("layers on the CPU and on GPUs: good logits, same bits in any pass") {
  const MadeModel model(small_shape("gemma3"));
  const auto tokens = random_tokens(5, 12, 300);
  for (const KvCacheType kv : kCaches) {
    ModelRun cpu(model.path(), options(kv), kPositions);
    const auto want = cpu.forward(tokens);
    std::vector<float> exact;
    for (const std::vector<double>& row : test::reference_logits(cpu.model(), tokens)) {
      exact.insert(exact.end(), row.begin(), row.end());
    }
    cuda::emulated_machine().devices = 2;
    for (const std::uint32_t layers : {1u, 4u, 7u}) {
      CAPTURE(layers);
      ModelRun split = on_gpu(model.path(), {.kind = Kind::kGpu, .gpu_layers = layers}, kv);
      const auto got = split.forward(tokens);
      CHECK(relative_l2(got, exact) < 1.2 * relative_l2(want, exact));
      split.restart();
      CHECK(same_bits(split.forward(tokens, 6), got));
    }
  }
  cuda::emulated_machine() = {};
}

#endif

TEST_CASE("keys and values: copied, exported and imported blocks") {
  const MadeModel model(small_shape("llama"));
  for (const KvCacheType cache : kCaches) {
    ModelRun run = on_gpu(model.path(), cache);
    CHECK((run.backend().kv_format().find("f16") != std::string::npos) ==
          (cache == KvCacheType::kF16));
    const auto tokens = random_tokens(6, 40, 300);
    run.forward(tokens);
    const auto want = run.forward({5});
    // The second block moves to another place: through the host, and within the device.
    KvCache& kv = run.kv();
    for (const bool through_host : {true, false}) {
      kv.truncate(run.sequence(), 40);
      const std::uint32_t from = kv.blocks(run.sequence())[1];
      const SequenceId other = kv.create();
      REQUIRE(kv.reserve(other, 1).ok());
      const std::uint32_t to = kv.blocks(other)[0];
      if (through_host) {
        std::vector<std::byte> bytes(run.backend().kv_block_bytes());
        REQUIRE(run.backend().export_kv_block(from, bytes).ok());
        run.backend().import_kv_block(to, bytes);
      } else {
        REQUIRE(run.backend().copy_kv_block(kv, {from, to}).ok());
      }
      kv.retain(to);
      kv.release(other);
      kv.replace_block(run.sequence(), 1, to);
      CHECK(same_bits(run.forward({5}), want));
    }
  }
}

TEST_CASE("an f16 cache needs no outliers, and is as near to exact logits as the CPU's") {
  const MadeModel model(small_shape("qwen2"));
  const auto tokens = random_tokens(8, 20, 300);
  ModelRun cpu(model.path(), options(KvCacheType::kF16), kPositions);
  ModelRun gpu = on_gpu(model.path(), KvCacheType::kF16);
  std::vector<float> exact;
  for (const std::vector<double>& row : test::reference_logits(cpu.model(), tokens)) {
    exact.insert(exact.end(), row.begin(), row.end());
  }
  const double of_cpu = relative_l2(cpu.forward(tokens), exact);
  const double of_gpu = relative_l2(gpu.forward(tokens), exact);
  std::printf("key biases, f16 cache: relative L2 from exact logits: CPU %.2e, GPU %.2e\n", of_cpu,
              of_gpu);
  CHECK(of_gpu < 1.2 * of_cpu);
}

#ifndef SLUICE_ON_DEVICE
TEST_CASE("a lost device is an error, also of every later pass") {
  const MadeModel model(small_shape("llama"));
  ModelRun run = on_gpu(model.path());
  run.forward({1, 2, 3});
  cuda::emulated_machine().fail_at_launch = 1;
  std::vector<float> logits(run.spec().vocabulary);
  REQUIRE(run.kv().reserve(run.sequence(), 4).ok());
  const std::vector<BatchRow> rows = {{4, 3, run.sequence(), true}};
  for (int i = 0; i < 2; ++i) {
    const auto pass =
        run.backend().forward(rows, run.kv(), {0, run.spec().layers}, {{}, logits, nullptr});
    REQUIRE(!pass.ok());
    CHECK(pass.error().code == ErrorCode::kFailed);
    CHECK(pass.error().message.find("--device cpu") != std::string::npos);
    cuda::emulated_machine() = {};
  }
}

// -- Placement -----------------------------------------------------------------------------------

class Placed {
 public:
  explicit Placed(const ModelShape& shape) : made_(shape) {
    auto file = GgufFile::open(made_.path());
    REQUIRE(file.ok());
    file_ = std::make_unique<GgufFile>(std::move(file).value());
    auto model = load_model(*file_, kPositions);
    REQUIRE(model.ok());
    model_ = std::make_unique<Model>(std::move(model).value());
    request.model = model_.get();
    request.gpu = cuda::platform();
    request.cpu = options();
    request.cpu.positions = kPositions;
    request.cpu.kv_blocks = kPositions / 32;
  }
  PlacementRequest request;

 private:
  MadeModel made_;
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Model> model_;
};

TEST_CASE("placement: what fits goes to the GPU, the rest stays on the CPU") {
  Placed placed(small_shape("gemma3"));
  PlacementRequest& request = placed.request;
  const auto whole = place(request);
  REQUIRE(whole.ok());
  REQUIRE(whole->parts.size() == 1);
  CHECK(whole->parts[0].gpu);
  CHECK(whole->notes.empty());

  // One byte less than all layers need.
  cuda::emulated_machine().bytes = whole->parts[0].memory.total() - 1;
  const auto some = place(request);
  REQUIRE(some.ok());
  REQUIRE(some->parts.size() == 2);
  CHECK(!some->parts[0].gpu);
  CHECK(some->parts[0].layers.last == 1);
  CHECK(some->parts[1].layers.first == 1);
  CHECK(some->parts[1].layers.last == 7);
  CHECK(some->fits());
  CHECK(some->notes.size() == 1);

  // Two such devices take all of them.
  cuda::emulated_machine().devices = 2;
  const auto two = place(request);
  REQUIRE(two.ok());
  REQUIRE(two->parts.size() == 2);
  CHECK(two->parts[0].gpu);
  CHECK(two->parts[0].device == 0);
  CHECK(two->parts[1].device == 1);
  CHECK(two->fits());
  // One of them only: a part stays on the CPU.
  request.choice.device = 1;
  const auto one = place(request);
  REQUIRE(one.ok());
  CHECK(!one->parts[0].gpu);
  CHECK(one->parts[1].device == 1);
  request.choice.device.reset();

  // A number of layers that does not fit is kept, and does not fit.
  cuda::emulated_machine().devices = 1;
  request.choice.gpu_layers = 7;
  const auto demanded = place(request);
  REQUIRE(demanded.ok());
  CHECK(!demanded->fits());

  // Nothing fits: said, or an error where a GPU was asked for. So is asking for one without layers.
  cuda::emulated_machine().bytes = 1000;
  request.choice = {.kind = Kind::kGpu};
  CHECK(place(request).error().code == ErrorCode::kNoMemory);
  request.choice = {.kind = Kind::kGpu, .gpu_layers = 0};
  CHECK(place(request).error().code == ErrorCode::kUsage);
  request.choice = {.kind = Kind::kCpu, .gpu_layers = 3};
  CHECK(place(request)->notes.size() == 1);
  request.choice = {};
  const auto none = place(request);
  REQUIRE(none.ok());
  CHECK(!none->parts[0].gpu);
  CHECK(none->notes.size() == 1);
  cuda::emulated_machine() = {};
}

TEST_CASE("an f16 cache that wants more shared memory than a GPU has: the CPU, or an error") {
  ModelShape shape = small_shape("llama");
  shape.heads = 2;
  shape.head_dim = 256;
  Placed placed(shape);
  placed.request.cpu.pool = std::make_shared<cpu::ThreadPool>(1);
  const auto place_on = [&](std::uint32_t major, KvCacheType kv, Kind kind) {
    cuda::emulated_machine() = {};
    cuda::emulated_machine().major = major;
    placed.request.cpu.kv = kv;
    placed.request.choice.kind = kind;
    return place(placed.request);
  };
  for (const auto& [major, kv] : {std::pair{8u, KvCacheType::kF16}, {7u, KvCacheType::kInt8}}) {
    const auto fits = place_on(major, kv, Kind::kAuto);
    REQUIRE(fits.ok());
    CHECK(fits->parts[0].gpu);
    CHECK(fits->notes.empty());
    CHECK(create_backend(placed.request, *fits).ok());
  }
  const auto on_cpu = place_on(7, KvCacheType::kF16, Kind::kAuto);
  REQUIRE(on_cpu.ok());
  CHECK(!on_cpu->parts[0].gpu);
  REQUIRE(on_cpu->notes.size() == 1);
  CHECK(on_cpu->notes[0].find("over an f16 cache with heads of 256 values") != std::string::npos);
  CHECK(on_cpu->notes[0].ends_with(": running on the CPU"));
  const auto refused = place_on(7, KvCacheType::kF16, Kind::kGpu);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kUsage);
  CHECK(refused.error().message.find("--kv int8") != std::string::npos);
  // What was placed for a better device.
  Placement placement = place_on(8, KvCacheType::kF16, Kind::kGpu).value();
  cuda::emulated_machine().major = 7;
  CHECK(create_backend(placed.request, placement).error().code == ErrorCode::kUsage);
  cuda::emulated_machine() = {};
}

TEST_CASE("a device that is lost while kernels are timed is an error") {
  Placed placed(small_shape("llama"));
  placed.request.cpu.pool = std::make_shared<cpu::ThreadPool>(1);
  placed.request.choice.kind = Kind::kGpu;
  const auto placement = place(placed.request);
  REQUIRE(placement.ok());
  cuda::emulated_machine().runs_what_it_times = true;
  cuda::emulated_machine().fail_at_launch = 2;
  const auto backend = create_backend(placed.request, *placement);
  cuda::emulated_machine() = {};
  REQUIRE(!backend.ok());
  CHECK(backend.error().code == ErrorCode::kFailed);
  CHECK(backend.error().message.find("it was lost") != std::string::npos);
}

TEST_CASE("placement: no device, no backend, wrong device, unknown cache") {
  Placed placed(small_shape("llama"));
  PlacementRequest& request = placed.request;
  cuda::emulated_machine().devices = 0;
  const auto on_cpu = place(request);
  REQUIRE(on_cpu.ok());
  CHECK(!on_cpu->parts[0].gpu);
  REQUIRE(on_cpu->notes.size() == 1);
  CHECK(on_cpu->notes[0] == "no NVIDIA driver found: running on the CPU");
  request.choice.kind = Kind::kGpu;
  const auto demanded = place(request);
  REQUIRE(!demanded.ok());
  CHECK(demanded.error().code == ErrorCode::kUsage);
  request.choice.kind = Kind::kCpu;
  CHECK(place(request)->notes.empty());
  cuda::emulated_machine() = {};

  request.choice = {.kind = Kind::kGpu, .device = 3};
  CHECK(place(request).error().code == ErrorCode::kUsage);

  request.choice = {};
  request.cpu.packed_file.directory = "kept";
  CHECK(place(request)->notes ==
        std::vector<std::string>{"packed weights are not kept for later starts: all layers "
                                 "are on the GPU"});
  request.choice.gpu_layers = 1;
  REQUIRE(place(request)->notes.size() == 1);
  CHECK(place(request)->notes[0] == "1 of 2 layers are on the GPU, 1 on the CPU");
  request.choice = {};
  request.cpu.packed_file.directory.clear();
  request.cpu.kv = KvCacheType::kF16;
  const auto f16 = place(request);
  REQUIRE(f16.ok());
  CHECK(f16->parts[0].gpu);
  // 64 dimensions of two KV heads: 2 bytes a number, and no scales.
  CHECK(f16->parts[0].memory.kv_cache == std::uint64_t{2} * 2 * 2 * 64 * 2 * kPositions);
  request.cpu.kv = KvCacheType::kF32;
  const auto f32 = place(request);
  REQUIRE(f32.ok());
  CHECK(!f32->parts[0].gpu);
  CHECK(f32->notes.size() == 1);
  request.choice.kind = Kind::kGpu;
  CHECK(place(request).error().code == ErrorCode::kUsage);

  request.gpu = nullptr;
  request.cpu.kv = KvCacheType::kInt8;
  CHECK(place(request).error().code == ErrorCode::kUsage);
  request.choice.kind = Kind::kAuto;
  CHECK(!place(request)->parts[0].gpu);
}

#endif

}  // namespace
