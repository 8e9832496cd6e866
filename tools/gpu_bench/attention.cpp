#include <algorithm>
#include <cstdio>
#include <vector>

#include "cuda/host/launch.h"
#include "tools/gpu_bench/bench.h"

namespace sluice::cuda {

Status bench_attention(Device& device, const Options& options, PageKind pages, double copy,
                       Goals& goals) {
  const std::int32_t heads = 32, kv_heads = 8, dim = options.quick ? 32 : 128;
  const std::vector<std::int32_t> contexts =
      options.quick ? std::vector<std::int32_t>{300} : std::vector<std::int32_t>{1024, 8192, 32768};
  const std::vector<std::int32_t> row_counts =
      options.quick ? std::vector<std::int32_t>{1} : std::vector<std::int32_t>{1, 4, 16};
  const char* name = pages == PageKind::kF16 ? "f16" : pages == PageKind::kInt4 ? "int4" : "int8";
  fmt::print(
      "\nattention over {} ({} heads, {} KV heads of {}): GB/s of keys and values (share of the "
      "copy "
      "bandwidth)\n",
      name, heads, kv_heads, dim);
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
      if (context == contexts.back() && rows == 1)
        goals.at_least(
            fmt::format("attention, {} at {}, share of the copy bandwidth", name, context),
            rate / copy, 0.8);
    }
  }
  return {};
}

}  // namespace sluice::cuda
