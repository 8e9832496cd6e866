// `inspect --fit` on devices of other sizes and speeds than this machine has, which the emulator
// pretends to be.
#include <doctest/doctest.h>

#include <utility>

#include "cuda/host/cuda_platform.h"
#include "src/cli/inspect_gpu_fit.h"
#include "src/engine/engine.h"
#include "tests/simt/runtime_emulated.h"
#include "tests/temporary_folder.h"
#include "tools/model_maker/maker.h"

using namespace sluice;
using namespace sluice::cli;

namespace {

constexpr std::size_t kInt8 = 1;  // in kFitTypes
constexpr std::uint32_t kLayers = 6;

using Kind = DeviceChoice::Kind;

class Machine {
 public:
  Machine() { cuda::emulated_machine() = {}; }
  ~Machine() { cuda::emulated_machine() = {}; }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  cuda::EmulatedMachine* operator->() { return &cuda::emulated_machine(); }
};

class Made {
 public:
  Made() : path_(folder_ / "model.gguf") {
    ModelShape shape;
    shape.layers = kLayers;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.head_dim = 64;
    shape.embd = 128;
    shape.ffn = 256;
    shape.vocab = 300;
    REQUIRE(make_model(shape, path_, 1).ok());
    auto file = GgufFile::open(path_);
    REQUIRE(file.ok());
    file_ = std::make_unique<GgufFile>(std::move(file).value());
    auto model = load_model(*file_, 0);
    REQUIRE(model.ok());
    model_ = std::make_unique<Model>(std::move(model).value());
  }
  Result<std::unique_ptr<Engine>> load(Kind kind) const {
    return Engine::load(
        path_, {.context = 512, .threads = 1, .gpu = cuda::platform(), .device = {.kind = kind}});
  }

  Result<std::optional<GpuFit>> fit(DeviceChoice choice = {}) const {
    Fit cpu;
    cpu.bandwidth = 1e10;
    cpu.rows.resize(1);
    cpu.rows[0].context = 512;
    return compute_gpu_fit(*model_, cuda::platform(), choice, cpu);
  }
  GpuFitCell int8(DeviceChoice choice = {}) const {
    const auto result = fit(choice);
    REQUIRE(result.ok());
    REQUIRE(result->has_value());
    return (*result)->rows.at(0).cells[kInt8];
  }

 private:
  test::TemporaryFolder folder_;
  std::string path_;
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Model> model_;
};

TEST_CASE("what is said to be needed is what a model takes; with less some layers fit") {
  const Made made;
  Machine machine;
  const GpuFitCell whole = made.int8();
  CHECK(whole.layers == kLayers);
  {
    const auto engine = made.load(Kind::kGpu);
    REQUIRE(engine.ok());
    CHECK((*engine)->info().memory.total() == whole.needed.total());
  }

  machine->bytes = whole.needed.total();
  CHECK(made.int8().layers == kLayers);
  machine->bytes = whole.needed.total() - 1;
  const GpuFitCell some = made.int8();
  CHECK(some.layers < kLayers);
  CHECK(some.layers > 0);
  CHECK(some.needed.total() == whole.needed.total());
  CHECK(some.tokens_per_s < whole.tokens_per_s);  // the CPU is slower
  machine->bytes = 1000;
  CHECK(made.int8().layers == 0);
  CHECK(made.int8().needed.total() == whole.needed.total());
  machine->devices = 2;
  machine->bytes = whole.needed.total() - 1;
  CHECK(made.int8().layers == kLayers);
  CHECK(made.int8({.kind = Kind::kGpu, .device = 1}).layers == some.layers);
}

TEST_CASE("what another model holds on a device is not free") {
  const Made made;
  Machine machine;
  machine->bytes = made.int8().needed.total();
  auto first = made.load(Kind::kGpu);
  REQUIRE(first.ok());
  CHECK((*first)->info().on_gpu);
  const std::uint64_t bytes = std::exchange(machine->bytes, (std::uint64_t{1} << 20) * 3 / 2);
  const auto second = made.load(Kind::kGpu);
  REQUIRE(!second.ok());
  CHECK(second.error().code == ErrorCode::kNoMemory);
  CHECK(second.error().message.find("not one layer fits into the GPU's memory: weights") == 0);
  CHECK(second.error().message.find("0 MiB are free") != std::string::npos);
  const auto beside = made.load(Kind::kAuto);
  REQUIRE(beside.ok());
  CHECK(!(*beside)->info().on_gpu);
  CHECK((*beside)->info().placement == "cpu layers 0 to 5");
  first.value().reset();
  machine->bytes = bytes;
  const auto third = made.load(Kind::kGpu);
  REQUIRE(third.ok());
  CHECK((*third)->info().placement == "emulated GPU (0) layers 0 to 5");
}

TEST_CASE("speed follows the device's bandwidth") {
  const Made made;
  Machine machine;
  const double fast = made.int8().tokens_per_s;
  machine->bandwidth /= 4;
  CHECK(made.int8().tokens_per_s == doctest::Approx(fast / 4));
  machine->bandwidth = 0;
  CHECK(made.int8().tokens_per_s == 0);
  CHECK(describe_gpu_fit(**made.fit()).find("bandwidth unknown") != std::string::npos);
}

TEST_CASE("a cache that a device cannot have stays on the CPU; no device") {
  const Made made;
  Machine machine;
  const GpuFit fit = **made.fit();
  CHECK(fit.rows[0].cells[3].needed.total() == 0);  // f32
  CHECK(fit.rows[0].cells[3].layers == 0);
  CHECK(describe_gpu_fit(fit).find("f32 needs --device cpu: running on the CPU") !=
        std::string::npos);

  CHECK(!made.fit({.kind = Kind::kCpu})->has_value());
  CHECK(made.fit({.kind = Kind::kGpu, .device = 1}).error().code == ErrorCode::kUsage);
  machine->devices = 0;
  CHECK(made.fit({.kind = Kind::kGpu}).error().code == ErrorCode::kUsage);
  CHECK(describe_gpu_fit(**made.fit()) == "\nno GPU: no NVIDIA driver found\n");
}

}  // namespace
