// The seam between the engine and the devices. The engine owns policy (which rows run when); a
// backend owns weight layout, KV bytes, fusion and scheduling inside a pass.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>

#include "src/backend/profile.h"
#include "src/base/status.h"
#include "src/kv/kv_cache.h"
#include "src/model/model_spec.h"

namespace sluice {

// One token to run. A prompt chunk, a decode step, a draft block and many sequences are all just
// rows. Rows of one sequence have ascending positions; a row sees its sequence's tokens up to its
// own position, those of the same pass included.
struct BatchRow {
  std::int32_t token = 0;  // in [0, vocabulary)
  std::uint32_t position = 0;
  SequenceId sequence = 0;
  bool logits = false;  // whether the row's logits are wanted
};

// Layers [first, last) of a model; a backend that runs only some hands the residual stream on.
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

// kInt4: the block that a token lies in is f16, those before it are in 4 bits.
enum class KvCacheType : std::uint8_t { kInt8, kF16, kF32, kInt4 };

// What a pass read from memory and multiplied, for the shares of what the machine can do.
struct PassTraffic {
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::uint64_t multiply_adds = 0;  // of the weight matrices
  void add(const PassTraffic& other) {
    weight_bytes += other.weight_bytes;
    kv_bytes += other.kv_bytes;
    multiply_adds += other.multiply_adds;
  }
};

// Where the logits of a pass go: whole rows, or of each row its `top` largest ones only, which is
// less to bring over from a device. Of equal ones the first are taken; NaN counts as the largest.
struct LogitsOut {
  LogitsOut() = default;
  template <class Floats>
  // NOLINTNEXTLINE: a span is the plain case
  requires std::is_convertible_v<Floats, std::span<float>> LogitsOut(Floats&& rows) : whole(rows) {}

  std::span<float> whole;  // [wanted rows, vocabulary]; not used where top > 0
  std::uint32_t top = 0;   // at most Backend::most_top_logits()
  // Tokens from this one on are not looked at (rows of padding); top <= candidates <= vocabulary.
  std::uint32_t candidates = 0;
  std::span<std::int32_t> top_ids;  // [wanted rows, top], ascending in a row
  std::span<float> top_logits;      // [wanted rows, top]
};

struct ForwardIo {
  // [rows, embedding], the residual stream: read when layers.first > 0; written when layers.last <
  // model's layers, and after the last layer too where it is given.
  std::span<float> hidden;
  // In the order of the rows that want them; written when the range ends with the last layer.
  LogitsOut logits;
  // Becomes true when the user wants to stop: the pass ends soon with kInterrupted.
  const std::atomic<bool>* cancel = nullptr;
  // Where given, what each stage took is added; a backend that can't tell leaves it as it is.
  PassProfile* profile = nullptr;
};

// Bytes that running a model takes, before anything is allocated.
struct MemoryPlan {
  std::uint64_t weights = 0;  // beyond the mapped file
  std::uint64_t kv_cache = 0;
  std::uint64_t work = 0;       // activations, logits
  std::uint64_t available = 0;  // 0: unknown
  std::uint64_t total() const { return weights + kv_cache + work; }
};

class Backend {
 public:
  virtual ~Backend() = default;

  // For people: "cpu (avx2, 2 threads)".
  virtual std::string description() const = 0;
  // What it measured of its device and chose by it, for people; empty: nothing.
  virtual std::string tuning() const { return {}; }
  virtual const ModelSpec& spec() const = 0;
  virtual std::uint32_t block_tokens() const = 0;  // of the KV cache
  virtual std::uint32_t max_rows() const = 0;      // in one pass
  virtual std::uint32_t max_logits() const = 0;    // rows with logits in one pass
  // The most that LogitsOut::top may be; 0: logits are in the host's memory anyway.
  virtual std::uint32_t most_top_logits() const { return 0; }

  // Runs the rows through a range of layers. Keys and values are stored in the blocks that `kv` has
  // reserved for their positions; a row's results depend on its own sequence only, bit for bit.
  // The caller advances kv's lengths afterwards. kFailed where a sequence goes on from another
  // length than one that resumable_length() gives, or max_open_blocks() are not enough.
  virtual Result<PassTraffic> forward(std::span<const BatchRow> rows, const KvCache& kv,
                                      LayerRange layers, const ForwardIo& io) = 0;

  // A sequence of `kv` that is to be cut back to `length` tokens, or was just imported: the largest
  // length, at most that, from which it can go on; what lies between is to be run again. A length
  // that a pass has just left, and one within that pass, is always given back as it is, and so is
  // a multiple of block_tokens().
  virtual std::uint32_t resumable_length(const KvCache& /*kv*/, SequenceId /*sequence*/,
                                         std::uint32_t length) const {
    return length;
  }
  // Blocks that a pass can write to, those that other sequences end in the middle of included.
  virtual std::uint32_t max_open_blocks() const {
    return std::numeric_limits<std::uint32_t>::max();
  }

  // Copies keys and values of a block of `kv`, all layers. kFailed as forward().
  virtual Status copy_kv_block(const KvCache& kv, BlockCopy copy) = 0;

  // Snapshots: keys and values of one block of the cache, all layers, as bytes. They are good for
  // any backend with the same kv_format() and the same weights.
  virtual std::string kv_format() const = 0;  // "cpu-1 int8 32x128": layout, type, shape
  virtual std::size_t kv_block_bytes() const = 0;
  // `bytes` has kv_block_bytes(). kFailed where the device no longer answers.
  virtual Status export_kv_block(std::uint32_t block, std::span<std::byte> bytes) const = 0;
  virtual void import_kv_block(std::uint32_t block, std::span<const std::byte> bytes) = 0;
};

}  // namespace sluice
