#include "cuda/host/weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "cuda/pack.h"
#include "src/backend/cpu/key_outliers.h"
#include "src/base/mapped_file.h"

namespace sluice::cuda {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{16} << 20;  // of each of two buffers
constexpr std::uint32_t kTileRows = 32;                       // of cuda/weight_tiles.h

bool is_float(BlockType type) { return block_type_info(type).block_size == 1; }

std::uint64_t bytes_of(BlockType type, std::uint32_t rows, std::uint32_t cols) {
  if (!is_float(type)) return packed_bytes(type, rows, cols);
  return std::uint64_t{rows} * cols * block_type_info(type).block_bytes;
}

// What one DeviceMatrix is made of: `experts` times the same parts, or one part.
struct Source {
  BlockType type = BlockType::kF32;
  std::uint32_t rows = 0;  // of one expert, all parts together
  std::uint32_t cols = 0;
  std::uint32_t out = 0;
  std::vector<std::vector<MatrixRef>> parts;  // [experts][parts]
  bool pairs = false;                         // two parts whose tiles alternate
};

// Matrices side by side become one where that needs no padding in between. `parts`
// [parts][experts].
std::vector<Source> join(const std::vector<std::vector<MatrixRef>>& parts) {
  std::vector<Source> sources;
  std::uint32_t out = 0;
  for (const std::vector<MatrixRef>& part : parts) {
    const MatrixRef& first = part.front();
    const auto same_type = [&](BlockType type) {
      return std::all_of(part.begin(), part.end(),
                         [&](const MatrixRef& m) { return m.type == type; });
    };
    Source* last = sources.empty() ? nullptr : &sources.back();
    const bool joins = last != nullptr && same_type(last->type) && last->cols == first.cols &&
                       (is_float(last->type) || last->rows % kTileRows == 0);
    if (!joins) {
      sources.push_back({first.type, 0, first.cols, out, {}});
      last = &sources.back();
      last->parts.resize(part.size());
    }
    for (std::size_t e = 0; e < part.size(); ++e) last->parts[e].push_back(part[e]);
    last->rows += first.rows;
    out += first.rows;
  }
  return sources;
}

// Gate and up of a feed-forward block: tile by tile in turn where one kernel can do both.
std::vector<Source> pair(const std::vector<std::vector<MatrixRef>>& parts) {
  std::vector<Source> sources = join(parts);
  Source& first = sources.front();
  first.pairs = sources.size() == 1 && parts.size() == 2 && !is_float(first.type) &&
                parts[0].front().rows == parts[1].front().rows;
  return sources;
}

std::vector<std::vector<MatrixRef>> one_each(std::initializer_list<MatrixRef> matrices) {
  std::vector<std::vector<MatrixRef>> parts;
  for (const MatrixRef& matrix : matrices) {
    if (matrix) parts.push_back({matrix});
  }
  return parts;
}

// Calls visit(sources, place) for every product of the layers, in the order of a pass.
template <class Visit>
void for_each_product(const Model& model, LayerRange layers, DeviceWeights& weights, Visit visit) {
  weights.layer.resize(model.spec.layers);
  for (std::uint32_t i = layers.first; i < layers.last; ++i) {
    const LayerWeights& from = model.weights.layer[i];
    DeviceLayer& to = weights.layer[i];
    visit(join(one_each({from.query, from.key, from.value})), to.qkv);
    visit(join(one_each({from.attention_output})), to.attention_output);
    if (model.spec.layer[i].experts) {
      visit(join(one_each({from.router})), to.router);
      visit(pair({from.expert_gate, from.expert_up}), to.gate_up);
      visit(join({from.expert_down}), to.down);
    } else {
      visit(pair(one_each({from.gate, from.up})), to.gate_up);
      visit(join(one_each({from.down})), to.down);
    }
  }
  if (layers.last == model.spec.layers) {
    visit(join(one_each({model.weights.output})), weights.output);
  }
}

// The biases of queries, keys and values in one vector; keys without their outlying pairs. Empty
// where there are none.
Vector joined_bias(const ModelSpec& spec, const LayerWeights& w,
                   const std::vector<cpu::KeyOutliers>& outliers) {
  if (w.query_bias.empty() && w.key_bias.empty() && w.value_bias.empty()) return {};
  const std::size_t q = std::size_t{spec.heads} * spec.head_dim;
  const std::size_t kv = std::size_t{spec.kv_heads} * spec.head_dim;
  Vector all(q + 2 * kv);
  std::copy(w.query_bias.begin(), w.query_bias.end(), all.begin());
  std::copy(w.key_bias.begin(), w.key_bias.end(), all.begin() + static_cast<std::ptrdiff_t>(q));
  std::copy(w.value_bias.begin(), w.value_bias.end(),
            all.begin() + static_cast<std::ptrdiff_t>(q + kv));
  for (std::size_t h = 0; h < outliers.size(); ++h) {
    for (const cpu::KeyOutliers::Pair& pair : outliers[h].pairs) {
      all[q + h * spec.head_dim + pair.first] = 0;
      all[q + h * spec.head_dim + pair.second] = 0;
    }
  }
  return all;
}

// Key outliers of a layer; only the int8 cache needs them.
std::vector<cpu::KeyOutliers> outliers_of(const Model& model, std::uint32_t layer, KvCacheType kv,
                                          std::uint32_t positions) {
  if (kv != KvCacheType::kInt8 && kv != KvCacheType::kInt4) return {};
  return cpu::find_key_outliers(model.spec, model.weights.layer[layer], model.spec.layer[layer],
                                positions);
}

std::size_t most_pairs(const std::vector<cpu::KeyOutliers>& heads) {
  std::size_t most = 0;
  for (const cpu::KeyOutliers& head : heads) most = std::max(most, head.pairs.size());
  return most;
}

// Streams weights through two pinned buffers: one is filled while the other one is on its way.
class Uploader {
 public:
  Uploader(Device& device, cpu::ThreadPool& pool, const std::atomic<bool>* cancel,
           const std::function<void(double)>& on_progress, std::uint64_t total, bool mapped)
      : device_(device),
        pool_(pool),
        cancel_(cancel),
        on_progress_(on_progress),
        total_(total),
        mapped_(mapped) {}

  Status prepare() {
    for (HostMemory& buffer : staging_) {
      SLUICE_ASSIGN_OR_RETURN(buffer, device_.allocate_host("uploads", kStagingBytes));
    }
    return {};
  }

  Result<DeviceMatrix> matrix(const Source& source, const std::string& name) {
    DeviceMatrix matrix;
    matrix.type = source.type;
    matrix.rows = source.rows;
    matrix.cols = source.cols;
    std::uint64_t one = 0;
    for (const MatrixRef& part : source.parts.front()) {
      one += bytes_of(part.type, part.rows, part.cols);
    }
    matrix.expert_bytes = static_cast<std::int64_t>(one);
    SLUICE_ASSIGN_OR_RETURN(matrix.memory, device_.allocate(name, one * source.parts.size()));
    std::uint64_t at = 0;
    for (const std::vector<MatrixRef>& expert : source.parts) {
      // What is packed together: all parts where their tiles alternate, otherwise each by itself.
      const std::size_t together = source.pairs ? expert.size() : 1;
      for (std::size_t i = 0; i < expert.size(); i += together) {
        const std::span<const MatrixRef> parts(&expert[i], together);
        SLUICE_RETURN_IF_ERROR(is_float(expert[i].type) ? floats(expert[i], matrix.memory, at)
                                                        : tiles(parts, matrix.memory, at));
        for (const MatrixRef& part : parts) {
          at += bytes_of(part.type, part.rows, part.cols);
          if (mapped_) release_mapped_pages(part.data, part.bytes());
        }
      }
    }
    return matrix;
  }

  Result<Memory> bytes(const void* data, std::size_t count, const std::string& name) {
    SLUICE_ASSIGN_OR_RETURN(Memory memory, device_.allocate(name, count));
    device_.upload(memory.at<std::uint8_t>(), data, count);
    SLUICE_RETURN_IF_ERROR(device_.synchronize());  // `data` may go
    return memory;
  }
  // Null for an empty vector.
  Result<Memory> vector(const Vector& values, const std::string& name) {
    if (values.empty()) return Memory();
    return bytes(values.data(), values.size() * sizeof(float), name);
  }

 private:
  // Tiles of matrices of one shape in turn: tile i is tile i / n of matrix i % n.
  Status tiles(std::span<const MatrixRef> parts, const Memory& to, std::uint64_t at) {
    const MatrixRef& from = parts.front();
    const auto n = static_cast<std::uint32_t>(parts.size());
    const std::uint32_t count = n * tile_count(from.rows);
    const std::size_t tile_bytes = packed_bytes(from.type, kTileRows, from.cols);
    // A tile may be larger than a staging buffer where rows are very long.
    const auto some =
        static_cast<std::uint32_t>(std::clamp<std::size_t>(kStagingBytes / tile_bytes, 1, count));
    if (tile_bytes > staging_[0].size()) {
      SLUICE_RETURN_IF_ERROR(device_.synchronize());  // nothing is on its way from the old ones
      for (HostMemory& buffer : staging_) {
        SLUICE_ASSIGN_OR_RETURN(buffer, device_.allocate_host("uploads", tile_bytes));
      }
    }
    for (std::uint32_t first = 0; first < count; first += some) {
      const std::uint32_t last = std::min(count, first + some);
      std::byte* buffer = staging_[next_].data();
      pool_.parallel_for(
          last - first, 4,
          [&](std::uint64_t begin, std::uint64_t end) {
            for (std::uint64_t i = begin; i < end; ++i) {
              const std::uint32_t tile = first + static_cast<std::uint32_t>(i);
              pack_tiles(from.type, parts[tile % n].data, from.rows, from.cols, tile / n,
                         tile / n + 1, buffer + i * tile_bytes);
            }
          },
          cancel_);
      SLUICE_RETURN_IF_ERROR(send(to, at + first * tile_bytes, (last - first) * tile_bytes));
    }
    return {};
  }

  Status floats(const MatrixRef& from, const Memory& to, std::uint64_t at) {
    for (std::size_t done = 0; done < from.bytes();) {
      const std::size_t some = std::min(kStagingBytes, from.bytes() - done);
      std::memcpy(staging_[next_].data(), from.data + done, some);
      SLUICE_RETURN_IF_ERROR(send(to, at + done, some));
      done += some;
    }
    return {};
  }

  // Sends what is in the buffer; the other one is free when this returns.
  Status send(const Memory& to, std::uint64_t at, std::size_t bytes) {
    if (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed)) {
      return make_error(ErrorCode::kInterrupted, "interrupted while the weights were uploaded");
    }
    SLUICE_RETURN_IF_ERROR(device_.synchronize());
    device_.upload(to.at<std::uint8_t>(static_cast<std::int64_t>(at)), staging_[next_].data(),
                   bytes);
    next_ = 1 - next_;
    done_ += bytes;
    if (on_progress_) on_progress_(static_cast<double>(done_) / static_cast<double>(total_));
    return {};
  }

  Device& device_;
  cpu::ThreadPool& pool_;
  const std::atomic<bool>* cancel_;
  const std::function<void(double)>& on_progress_;
  std::uint64_t total_;
  bool mapped_;  // the matrices' pages can be given back
  std::uint64_t done_ = 0;
  std::array<HostMemory, 2> staging_;
  std::size_t next_ = 0;
};

Status upload_outliers(Uploader& uploader, const std::vector<cpu::KeyOutliers>& heads,
                       std::uint32_t positions, const std::string& name, DeviceLayer& layer) {
  const std::size_t most = most_pairs(heads);
  layer.most_outliers = static_cast<std::int32_t>(most);
  if (most == 0) return {};
  std::vector<OutlierPair> pairs;
  std::vector<float> table;
  for (const cpu::KeyOutliers& head : heads) {
    for (const cpu::KeyOutliers::Pair& pair : head.pairs) {
      pairs.push_back({static_cast<std::int32_t>(pair.first),
                       static_cast<std::int32_t>(pair.second), pair.bias_first, pair.bias_second});
    }
    pairs.resize((pairs.size() + most - 1) / most * most, {-1, -1, 0, 0});
    table.insert(table.end(), head.table.begin(), head.table.end());
    table.resize(table.size() + (most - head.pairs.size()) * 2 * positions);
  }
  // A head without pairs has its share too.
  pairs.resize(heads.size() * most, {-1, -1, 0, 0});
  SLUICE_ASSIGN_OR_RETURN(layer.outlier_pairs,
                          uploader.bytes(pairs.data(), pairs.size() * sizeof pairs[0], name));
  SLUICE_ASSIGN_OR_RETURN(layer.outlier_table,
                          uploader.bytes(table.data(), table.size() * sizeof(float), name));
  return {};
}

Status upload_vectors(Uploader& uploader, const Model& model, std::uint32_t index, KvCacheType kv,
                      std::uint32_t positions, DeviceLayer& layer) {
  const LayerWeights& w = model.weights.layer[index];
  const std::string name = fmt::format("vectors of layer {}", index);
  const auto outliers = outliers_of(model, index, kv, positions);
  const Vector bias = joined_bias(model.spec, w, outliers);
  struct Place {
    const Vector* from;
    Memory* to;
  };
  for (const Place& place : {
           Place{&w.attention_norm, &layer.attention_norm},
           Place{&bias, &layer.query_key_value_bias},
           Place{&w.query_norm, &layer.query_norm},
           Place{&w.key_norm, &layer.key_norm},
           Place{&w.attention_output_bias, &layer.attention_output_bias},
           Place{&w.attention_post_norm, &layer.attention_post_norm},
           Place{&w.feed_forward_norm, &layer.feed_forward_norm},
           Place{&w.feed_forward_post_norm, &layer.feed_forward_post_norm},
       }) {
    SLUICE_ASSIGN_OR_RETURN(*place.to, uploader.vector(*place.from, name));
  }
  return upload_outliers(uploader, outliers, positions, name, layer);
}

std::uint64_t source_bytes(const std::vector<Source>& sources) {
  std::uint64_t bytes = 0;
  for (const Source& source : sources) {
    for (const auto& expert : source.parts) {
      for (const MatrixRef& part : expert) bytes += bytes_of(part.type, part.rows, part.cols);
    }
  }
  return bytes;
}

std::uint64_t matrix_bytes(const Model& model, LayerRange layers) {
  DeviceWeights unused;
  std::uint64_t bytes = 0;
  for_each_product(model, layers, unused, [&](const std::vector<Source>& sources, DeviceProduct&) {
    bytes += source_bytes(sources);
  });
  return bytes;
}

}  // namespace

bool DeviceProduct::any_quantized() const {
  return std::any_of(pieces.begin(), pieces.end(),
                     [](const Piece& piece) { return !is_float(piece.matrix.type); });
}
bool DeviceProduct::any_float() const {
  return std::any_of(pieces.begin(), pieces.end(),
                     [](const Piece& piece) { return is_float(piece.matrix.type); });
}

std::int32_t most_outliers(const Model& model, std::uint32_t layer, KvCacheType kv) {
  return static_cast<std::int32_t>(most_pairs(outliers_of(model, layer, kv, 0)));
}

std::uint64_t product_bytes(const DeviceProduct& product) {
  std::uint64_t bytes = 0;
  for (const auto& piece : product.pieces) {
    bytes += static_cast<std::uint64_t>(piece.matrix.expert_bytes);
  }
  return bytes;
}

std::uint64_t weight_bytes(const Model& model, LayerRange layers, KvCacheType kv,
                           std::uint32_t positions) {
  std::uint64_t bytes = matrix_bytes(model, layers);
  for (std::uint32_t i = layers.first; i < layers.last; ++i) {
    const LayerWeights& w = model.weights.layer[i];
    for (const Vector* v :
         {&w.attention_norm, &w.query_bias, &w.key_bias, &w.value_bias, &w.query_norm, &w.key_norm,
          &w.attention_output_bias, &w.attention_post_norm, &w.feed_forward_norm,
          &w.feed_forward_post_norm}) {
      bytes += v->size() * sizeof(float);
    }
    const auto outliers = outliers_of(model, i, kv, 0);
    bytes += most_pairs(outliers) * outliers.size() *
             (sizeof(OutlierPair) + std::uint64_t{2} * positions * sizeof(float));
  }
  return bytes;
}

Result<DeviceWeights> upload_weights(Device& device, const Model& model, LayerRange layers,
                                     KvCacheType kv, std::uint32_t positions, cpu::ThreadPool& pool,
                                     const std::atomic<bool>* cancel,
                                     const std::function<void(double)>& on_progress) {
  DeviceWeights weights;
  Uploader uploader(device, pool, cancel, on_progress, matrix_bytes(model, layers),
                    model.weights.mapped);
  SLUICE_RETURN_IF_ERROR(uploader.prepare());
  Status status;
  for_each_product(model, layers, weights,
                   [&](const std::vector<Source>& sources, DeviceProduct& product) {
                     for (const Source& source : sources) {
                       if (!status.ok()) return;
                       auto matrix = uploader.matrix(source, "weights");
                       if (matrix.ok()) {
                         product.pairs = source.pairs;
                         product.pieces.push_back({std::move(matrix).value(), source.out});
                       } else {
                         status = matrix.error();
                       }
                     }
                   });
  if (!status.ok()) return status.error();
  for (std::uint32_t i = layers.first; i < layers.last; ++i) {
    SLUICE_RETURN_IF_ERROR(upload_vectors(uploader, model, i, kv, positions, weights.layer[i]));
    weights.most_outliers = std::max(weights.most_outliers, weights.layer[i].most_outliers);
  }
  SLUICE_ASSIGN_OR_RETURN(weights.output_norm,
                          uploader.vector(model.weights.output_norm, "output norm"));
  SLUICE_RETURN_IF_ERROR(device.synchronize());
  return weights;
}

}  // namespace sluice::cuda
