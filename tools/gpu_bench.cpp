// What a GPU does with the backend's kernels and passes, as tables: bandwidth, matrices times rows,
// attention, whole models of made-up weights.
//
//   gpu_bench [--quick] [--only copy,matvec,attention,models]
//
// Times are of many launches in sequence, warmed up. Matrices are taken in turn from enough memory
// that no cache holds them. --quick: sizes for the emulator, whose times mean nothing.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cuda/host/backend.h"
#include "cuda/host/cuda_platform.h"
#include "cuda/host/launch.h"
#include "cuda/host/runtime.h"
#include "cuda/kv_pages.h"
#include "cuda/pack.h"
#include "src/backend/cpu/thread_pool.h"

namespace sluice::cuda {
namespace {

struct Options {
  bool quick = false;
  std::string only;
  bool wants(std::string_view part) const {
    return only.empty() || ("," + only + ",").find(fmt::format(",{},", part)) != std::string::npos;
  }
};

// Seconds of one run of `queue`, which is recorded once and repeated.
Result<double> seconds_of(Device& device, bool quick, const std::function<void()>& queue) {
  device.begin_graph();
  queue();
  SLUICE_ASSIGN_OR_RETURN(const Graph graph, device.end_graph());
  const auto time = [&](int repeats) -> Result<double> {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) device.run(graph);
    SLUICE_RETURN_IF_ERROR(device.synchronize());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
           repeats;
  };
  SLUICE_ASSIGN_OR_RETURN(const double first, time(1));
  if (quick) return first;
  SLUICE_ASSIGN_OR_RETURN(const double warm, time(3));
  const int repeats = static_cast<int>(std::clamp(0.05 / warm, 3.0, 1000.0));
  std::vector<double> runs;
  for (int i = 0; i < 5; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const double run, time(repeats));
    runs.push_back(run);
  }
  std::sort(runs.begin(), runs.end());
  return runs[2];
}

double giga(double per_second) { return per_second / 1e9; }

// -- Copy ----------------------------------------------------------------------------------------

// Bytes read and written a second.
Result<double> copy_bandwidth(Device& device, const Options& options) {
  const std::size_t bytes = options.quick ? 1 << 16 : std::size_t{1} << 30;
  SLUICE_ASSIGN_OR_RETURN(const Memory from, device.allocate("copy", bytes));
  SLUICE_ASSIGN_OR_RETURN(const Memory to, device.allocate("copy", bytes));
  device.zero(from.at<std::uint8_t>(), bytes);
  const auto time = [&](int repeats) -> Result<double> {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) {
      device.copy(to.at<std::uint8_t>(), from.at<const std::uint8_t>(), bytes);
    }
    SLUICE_RETURN_IF_ERROR(device.synchronize());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
           repeats;
  };
  SLUICE_ASSIGN_OR_RETURN(const double warm, time(2));
  (void)warm;
  SLUICE_ASSIGN_OR_RETURN(const double seconds, time(options.quick ? 1 : 20));
  return 2.0 * static_cast<double>(bytes) / seconds;
}

// -- Matrices ------------------------------------------------------------------------------------

constexpr BlockType kMatvecTypes[] = {BlockType::kQ4_0,  BlockType::kQ4_K, BlockType::kIQ4_NL,
                                      BlockType::kMXFP4, BlockType::kQ5_K, BlockType::kQ6_K,
                                      BlockType::kQ8_0};

struct MatrixShape {
  const char* name;
  std::uint32_t rows, cols;
};

Status bench_matvec(Device& device, const Options& options, double copy) {
  const std::vector<MatrixShape> shapes =
      options.quick ? std::vector<MatrixShape>{{"small", 64, 256}}
                    : std::vector<MatrixShape>{{"qkv", 6144, 4096},
                                               {"output", 4096, 4096},
                                               {"gate and up", 28672, 4096},
                                               {"down", 4096, 14336}};
  const std::size_t pool_bytes = options.quick ? 1 << 16 : std::size_t{512} << 20;
  const std::vector<std::int32_t> rows = options.quick
                                             ? std::vector<std::int32_t>{1, 17}
                                             : std::vector<std::int32_t>{1, 2, 4, 8, 16, 512};
  fmt::print(
      "\nmatrix times rows: GB/s of weights (share of the copy bandwidth), time against one row\n");
  fmt::print("{:<8}{:<14}", "type", "shape");
  for (const std::int32_t r : rows) fmt::print("{:>22}", fmt::format("{} rows", r));
  fmt::print("\n");
  for (const BlockType type : kMatvecTypes) {
    for (const MatrixShape& shape : shapes) {
      const std::size_t bytes = packed_bytes(type, shape.rows, shape.cols);
      const std::size_t count = std::max<std::size_t>(1, pool_bytes / bytes);
      SLUICE_ASSIGN_OR_RETURN(const Memory weights, device.allocate("weights", bytes * count));
      device.zero(weights.at<std::uint8_t>(), bytes * count);
      const auto most = static_cast<std::size_t>(rows.back());
      SLUICE_ASSIGN_OR_RETURN(const Memory q, device.allocate("x", most * shape.cols));
      SLUICE_ASSIGN_OR_RETURN(const Memory scale, device.allocate("x", most * shape.cols / 8));
      SLUICE_ASSIGN_OR_RETURN(const Memory sum, device.allocate("x", most * shape.cols / 8));
      SLUICE_ASSIGN_OR_RETURN(const Memory out, device.allocate("out", most * shape.rows * 4));
      for (const Memory* m : {&q, &scale, &sum}) device.zero(m->at<std::uint8_t>(), m->size());
      fmt::print("{:<8}{:<14}", block_type_info(type).name, shape.name);
      double one = 0;
      for (const std::int32_t r : rows) {
        SLUICE_ASSIGN_OR_RETURN(
            const double all, seconds_of(device, options.quick, [&] {
              for (std::size_t i = 0; i < count; ++i) {
                MatvecArgs args{};
                args.weights = weights.at<const std::uint8_t>(static_cast<std::int64_t>(i * bytes));
                args.x = {q.at<const std::int8_t>(), scale.at<const float>(),
                          sum.at<const std::uint32_t>()};
                args.out = out.at<float>();
                args.out_stride = shape.rows;
                args.rows = static_cast<std::int32_t>(shape.rows);
                args.cols = static_cast<std::int32_t>(shape.cols);
                args.x_rows = r;
                launch_matvec(device, *tile_kind(type), args);
              }
            }));
        const double seconds = all / static_cast<double>(count);
        if (one == 0) one = seconds;
        const double rate = static_cast<double>(bytes) / seconds;
        if (r <= 16) {
          fmt::print("{:>22}", fmt::format("{:.0f} ({:.0f}%) {:.2f}x", giga(rate),
                                           100 * rate / copy, seconds / one));
        } else {
          const double operations = 2.0 * shape.rows * shape.cols * r / seconds;
          fmt::print("{:>22}", fmt::format("{:.0f} TOP/s", operations / 1e12));
        }
      }
      fmt::print("\n");
      std::fflush(stdout);
    }
  }
  return {};
}

// -- Attention -----------------------------------------------------------------------------------

Status bench_attention(Device& device, const Options& options, PageKind pages, double copy) {
  const std::int32_t heads = 32, kv_heads = 8, dim = options.quick ? 32 : 128;
  const std::vector<std::int32_t> contexts =
      options.quick ? std::vector<std::int32_t>{300} : std::vector<std::int32_t>{1024, 8192, 32768};
  const std::vector<std::int32_t> row_counts =
      options.quick ? std::vector<std::int32_t>{1} : std::vector<std::int32_t>{1, 4, 16};
  fmt::print(
      "\nattention over {} ({} heads, {} KV heads of {}): GB/s of keys and values (share of the "
      "copy "
      "bandwidth)\n",
      pages == PageKind::kF16    ? "f16"
      : pages == PageKind::kInt4 ? "int4"
                                 : "int8",
      heads, kv_heads, dim);
  for (const std::int32_t context : contexts) {
    const std::int32_t blocks = (context + kPageTokens - 1) / kPageTokens;
    const std::int64_t layer_bytes = blocks * visit_pages(pages, [&](auto kind) {
                                       return page_bytes<decltype(kind)>(kv_heads, dim);
                                     });
    // int4: of the block that the rows are in.
    const std::int64_t slot_bytes =
        pages == PageKind::kInt4 ? page_bytes<HalfPages>(kv_heads, dim) : 0;
    // As many layers as no cache holds.
    const std::int64_t layers =
        options.quick ? 1 : std::max<std::int64_t>(1, (512ll << 20) / layer_bytes);
    SLUICE_ASSIGN_OR_RETURN(const Memory cache,
                            device.allocate("KV", static_cast<std::size_t>(layer_bytes * layers)));
    device.zero(cache.at<std::uint8_t>(), cache.size());
    SLUICE_ASSIGN_OR_RETURN(
        const Memory recent,
        device.allocate("newest blocks", static_cast<std::size_t>(slot_bytes * layers)));
    if (slot_bytes > 0) device.zero(recent.at<std::uint8_t>(), recent.size());
    for (const std::int32_t rows : row_counts) {
      const std::int32_t group = heads / kv_heads;
      const std::int32_t tiles = (rows * group + 15) / 16;
      const std::int32_t pieces = (context - 1) / kPieceTokens + 1;
      std::vector<std::int32_t> position;
      std::vector<AttentionRow> row;
      std::vector<AttentionTile> tile;
      std::vector<std::uint32_t> table;
      for (std::int32_t r = 0; r < rows; ++r) {
        position.push_back(context - rows + r);
        row.push_back({r * group / 16, r * group % 16});
      }
      for (std::int32_t t = 0; t < tiles; ++t) {
        tile.push_back({0, 16 * t, std::min(16, rows * group - 16 * t), 0});
      }
      for (std::int32_t b = 0; b < blocks; ++b) table.push_back(static_cast<std::uint32_t>(b));
      std::vector<Memory> memory;
      const auto put = [&](const void* data, std::size_t bytes) -> Status {
        SLUICE_ASSIGN_OR_RETURN(Memory m, device.allocate("inputs", bytes));
        if (data != nullptr) {
          device.upload(m.at<std::uint8_t>(), data, bytes);
        } else {
          device.zero(m.at<std::uint8_t>(), bytes);
        }
        memory.push_back(std::move(m));
        return {};
      };
      const auto r = static_cast<std::size_t>(rows);
      const auto q = r * heads * static_cast<std::size_t>(dim);
      const auto units = static_cast<std::size_t>(tiles) * kv_heads * pieces * 16;
      SLUICE_RETURN_IF_ERROR(put(position.data(), position.size() * 4));
      SLUICE_RETURN_IF_ERROR(put(row.data(), row.size() * sizeof(AttentionRow)));
      SLUICE_RETURN_IF_ERROR(put(tile.data(), tile.size() * sizeof(AttentionTile)));
      SLUICE_RETURN_IF_ERROR(put(table.data(), table.size() * 4));
      SLUICE_RETURN_IF_ERROR(put(nullptr, 4 * q));  // floats, or codes
      SLUICE_RETURN_IF_ERROR(put(nullptr, q / 8));
      SLUICE_RETURN_IF_ERROR(put(nullptr, units * static_cast<std::size_t>(dim) * 4));
      SLUICE_RETURN_IF_ERROR(put(nullptr, units * 8));
      SLUICE_RETURN_IF_ERROR(put(nullptr, q));
      SLUICE_RETURN_IF_ERROR(put(nullptr, q / 8));
      SLUICE_RETURN_IF_ERROR(put(nullptr, q / 8));
      SLUICE_RETURN_IF_ERROR(put(nullptr, r * 4));  // slots
      SLUICE_RETURN_IF_ERROR(device.synchronize());
      SLUICE_ASSIGN_OR_RETURN(const double all, seconds_of(device, options.quick, [&] {
                                for (std::int64_t layer = 0; layer < layers; ++layer) {
                                  AttentionArgs args{};
                                  args.position = memory[0].at<const std::int32_t>();
                                  args.row = memory[1].at<const AttentionRow>();
                                  args.tiles = memory[2].at<const AttentionTile>();
                                  args.blocks = memory[3].at<const std::uint32_t>();
                                  args.q = memory[4].at<const std::int8_t>();
                                  args.q_scale = memory[5].at<const float>();
                                  args.q_floats = memory[4].at<const float>();
                                  args.partial_out = memory[6].at<float>();
                                  args.partial_state = memory[7].at<float>();
                                  args.quantized = {memory[8].at<std::int8_t>(),
                                                    memory[9].at<float>(),
                                                    memory[10].at<std::uint32_t>()};
                                  args.cache = cache.at<const std::uint8_t>(layer * layer_bytes);
                                  if (pages == PageKind::kInt4) {
                                    args.recent = recent.at<const std::uint8_t>(layer * slot_bytes);
                                    args.row_slot = memory[11].at<const std::uint32_t>();
                                  }
                                  args.rows = rows;
                                  args.tile_count = tiles;
                                  args.chunks = pieces;
                                  args.chunk_pieces = 1;
                                  args.heads = heads;
                                  args.kv_heads = kv_heads;
                                  args.head_dim = dim;
                                  args.scale = 0.1f;
                                  launch_attention(device, pages, args, rows * group <= 8);
                                }
                              }));
      const std::int64_t own_in_4_bits = slot_bytes > 0 ? layer_bytes / blocks : 0;  // is not read
      const double rate =
          static_cast<double>((layer_bytes + slot_bytes - own_in_4_bits) * layers) / all;
      fmt::print("context {:>6}, {:>2} rows: {:>6.0f} GB/s ({:.0f}%), {:.1f} us a layer\n", context,
                 rows, giga(rate), 100 * rate / copy, 1e6 * all / static_cast<double>(layers));
      std::fflush(stdout);
    }
  }
  return {};
}

// -- Models --------------------------------------------------------------------------------------

struct MadeUp {
  const char* name;
  std::uint32_t layers, embedding, heads, kv_heads, head_dim, feed_forward, vocabulary;
};

// A model all of whose layers have the same weights in host memory, Q4_0 with random codes.
class MadeUpModel {
 public:
  explicit MadeUpModel(const MadeUp& s) {
    ModelSpec& spec = model_.spec;
    spec.architecture = "llama";
    spec.layers = s.layers;
    spec.embedding = s.embedding;
    spec.heads = s.heads;
    spec.kv_heads = s.kv_heads;
    spec.head_dim = s.head_dim;
    spec.feed_forward = s.feed_forward;
    spec.vocabulary = s.vocabulary;
    spec.context = 1 << 17;
    spec.norm_epsilon = 1e-5f;
    spec.attention_scale = 0.1f;
    spec.rope_dims = s.head_dim;
    spec.ropes.resize(1);
    spec.ropes[0].inverse_frequency.assign(s.head_dim / 2, 0.01);
    spec.layer.resize(s.layers);

    const std::uint32_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
    const std::uint64_t most =
        std::max({std::uint64_t{s.vocabulary} * s.embedding,
                  std::uint64_t{s.feed_forward} * s.embedding, std::uint64_t{q} * s.embedding});
    blocks_.resize(most / 32 * 18);
    std::uint64_t state = 1;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      blocks_[i] = static_cast<std::byte>(state);
      if (i % 18 == 0) blocks_[i] = std::byte{0x00};  // the scale: 2^-7 as f16
      if (i % 18 == 1) blocks_[i] = std::byte{0x20};
    }
    const auto matrix = [this](std::uint32_t rows, std::uint32_t cols) {
      return MatrixRef{BlockType::kQ4_0, blocks_.data(), rows, cols};
    };
    Weights& w = model_.weights;
    w.embedding = matrix(s.vocabulary, s.embedding);
    w.output = w.embedding;
    w.tied = true;
    w.output_norm.assign(s.embedding, 1.0f);
    LayerWeights layer;
    layer.attention_norm.assign(s.embedding, 1.0f);
    layer.feed_forward_norm.assign(s.embedding, 1.0f);
    layer.query = matrix(q, s.embedding);
    layer.key = matrix(kv, s.embedding);
    layer.value = matrix(kv, s.embedding);
    layer.attention_output = matrix(s.embedding, q);
    layer.gate = matrix(s.feed_forward, s.embedding);
    layer.up = matrix(s.feed_forward, s.embedding);
    layer.down = matrix(s.embedding, s.feed_forward);
    w.layer.assign(s.layers, layer);
  }
  const Model& model() const { return model_; }

 private:
  Model model_;
  std::vector<std::byte> blocks_;
};

struct ModelTimes {
  double step = 0;               // seconds of a decode step at position 512
  std::map<int, double> passes;  // by rows
  double prompt = 0;             // of a pass of `prompt_rows`
  double bytes = 0;              // that a step reads
};

Result<ModelTimes> time_model(const Model& model, bool graphs, bool quick,
                              std::uint32_t prompt_rows) {
  GpuOptions options;
  options.layers = {0, model.spec.layers};
  options.positions = quick ? 128 : 4096;
  options.kv_blocks = options.positions / 32;
  options.max_rows = prompt_rows;
  options.max_logits = 16;
  options.graphs = graphs;
  options.pool = std::make_shared<cpu::ThreadPool>(cpu::default_threads());
  SLUICE_ASSIGN_OR_RETURN(const auto backend, CudaBackend::create(model, options));
  KvCache kv(options.kv_blocks, backend->block_tokens());
  const SequenceId sequence = kv.create();
  SLUICE_RETURN_IF_ERROR(kv.reserve(sequence, options.positions));
  std::vector<float> logits(std::size_t{16} * model.spec.vocabulary);
  ModelTimes times;
  const auto pass = [&](std::uint32_t rows, std::uint32_t position, int repeats) -> Result<double> {
    std::vector<BatchRow> batch;
    for (std::uint32_t i = 0; i < rows; ++i) {
      batch.push_back(
          {static_cast<std::int32_t>(i), position + i, sequence, rows <= 16 || i + 1 == rows});
    }
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) {
      SLUICE_ASSIGN_OR_RETURN(
          const PassTraffic traffic,
          backend->forward(batch, kv, {0, model.spec.layers}, {{}, logits, nullptr}));
      times.bytes = static_cast<double>(traffic.weight_bytes + traffic.kv_bytes);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
           repeats;
  };
  const int repeats = quick ? 1 : 20;
  const std::uint32_t at = quick ? 20 : 512;
  SLUICE_ASSIGN_OR_RETURN(times.prompt, pass(prompt_rows, 0, 1));
  if (!quick) {  // warm now
    SLUICE_ASSIGN_OR_RETURN(times.prompt, pass(prompt_rows, 0, 3));
  }
  for (const int rows : {16, 8, 4, 2, 1}) {
    if (quick && rows > 2) continue;
    if (!quick) {
      SLUICE_ASSIGN_OR_RETURN(const double warm, pass(static_cast<std::uint32_t>(rows), at, 2));
      (void)warm;
    }
    SLUICE_ASSIGN_OR_RETURN(times.passes[rows],
                            pass(static_cast<std::uint32_t>(rows), at, repeats));
  }
  times.step = times.passes[1];
  return times;
}

Status bench_models(const Options& options, double copy) {
  const std::vector<MadeUp> models =
      options.quick ? std::vector<MadeUp>{{"tiny", 2, 64, 2, 1, 32, 96, 100}}
                    : std::vector<MadeUp>{{"1B", 16, 2048, 32, 8, 64, 8192, 128256},
                                          {"8B", 32, 4096, 32, 8, 128, 14336, 128256},
                                          {"70B", 80, 8192, 64, 8, 128, 28672, 128256}};
  const std::uint32_t prompt_rows = options.quick ? 20 : 512;
  fmt::print("\nmodels of Q4_0 weights, int8 cache, at position 512\n");
  for (const MadeUp& shape : models) {
    const MadeUpModel made(shape);
    double parameters = 0;
    for (const LayerWeights& w : made.model().weights.layer) {
      for (const MatrixRef* m :
           {&w.query, &w.key, &w.value, &w.attention_output, &w.gate, &w.up, &w.down}) {
        parameters += static_cast<double>(m->rows) * m->cols;
      }
    }
    SLUICE_ASSIGN_OR_RETURN(const ModelTimes with,
                            time_model(made.model(), true, options.quick, prompt_rows));
    const double rate = with.bytes / with.step;
    fmt::print(
        "{:<4} {:.1f} tokens/s, {:.0f} GB/s ({:.0f}% of copy); prompt of {}: {:.0f} tokens/s, "
        "{:.1f} TFLOP/s\n",
        shape.name, 1 / with.step, giga(rate), 100 * rate / copy, prompt_rows,
        prompt_rows / with.prompt, 2 * parameters * prompt_rows / with.prompt / 1e12);
    std::string curve;
    for (const auto& [rows, seconds] : with.passes) {
      curve += fmt::format(" {}: {:.2f}x", rows, seconds / with.step);
    }
    fmt::print("     a pass by rows, against one row:{}\n", curve);
    std::fflush(stdout);
    if (shape.layers <= 32) {
      SLUICE_ASSIGN_OR_RETURN(const ModelTimes without,
                              time_model(made.model(), false, options.quick, prompt_rows));
      fmt::print("     without graphs: {:.1f} tokens/s\n", 1 / without.step);
    }
    std::fflush(stdout);
  }
  return {};
}

Status run(const Options& options) {
  if (platform() == nullptr) return failed("built without CUDA");
  SLUICE_ASSIGN_OR_RETURN(const auto device, Device::open(0));
  const DeviceInfo& info = device->info();
  fmt::print("{}: sm_{}{}, {} multiprocessors, {:.0f} GiB\n", info.name, info.major, info.minor,
             info.multiprocessors, static_cast<double>(info.total_bytes) / (1 << 30));
  SLUICE_ASSIGN_OR_RETURN(const double copy, copy_bandwidth(*device, options));
  fmt::print("copy: {:.0f} GB/s read and written\n", giga(copy));
  if (options.wants("matvec")) SLUICE_RETURN_IF_ERROR(bench_matvec(*device, options, copy));
  if (options.wants("attention")) {
    for (const PageKind pages : {PageKind::kInt8, PageKind::kF16, PageKind::kInt4}) {
      SLUICE_RETURN_IF_ERROR(bench_attention(*device, options, pages, copy));
    }
  }
  if (options.wants("models")) SLUICE_RETURN_IF_ERROR(bench_models(options, copy));
  return {};
}

}  // namespace
}  // namespace sluice::cuda

int main(int argc, char** argv) {
  sluice::cuda::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--quick") {
      options.quick = true;
    } else if (arg == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else {
      std::fputs("usage: gpu_bench [--quick] [--only copy,matvec,attention,models]\n", stderr);
      return 2;
    }
  }
  const sluice::Status status = sluice::cuda::run(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "gpu_bench: {}\n", status.error().message);
  return static_cast<int>(status.error().code);
}
