#include "src/engine/sampling/state.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "states are stored little-endian");

struct Header {
  char magic[4] = {'S', 'L', 'S', 'M'};
  std::uint32_t version = 1;
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;
  std::uint32_t zero = 0;
  std::uint64_t tokens = 0;
  std::uint64_t mus = 0;
};
static_assert(sizeof(Header) == 40);

}  // namespace

std::vector<std::byte> encode_sampler_state(const SamplerState& state) {
  Header header;
  header.seed = state.seed;
  header.stream = state.stream;
  header.tokens = state.history.size();
  header.mus = state.mirostat_mu.size();
  const std::size_t token_bytes = state.history.size() * sizeof(std::int32_t);
  const std::size_t mu_bytes = state.mirostat_mu.size() * sizeof(double);
  std::vector<std::byte> bytes(sizeof header + token_bytes + mu_bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (token_bytes) std::memcpy(bytes.data() + sizeof header, state.history.data(), token_bytes);
  if (mu_bytes) {
    std::memcpy(bytes.data() + sizeof header + token_bytes, state.mirostat_mu.data(), mu_bytes);
  }
  return bytes;
}

Result<SamplerState> decode_sampler_state(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header) {
    return bad_input("the sampler state has {} bytes; expected at least {}", bytes.size(),
                     sizeof header);
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, "SLSM", 4) != 0 || header.version != 1 || header.zero != 0) {
    return bad_input("the sampler state does not start with SLSM version 1; is the file damaged?");
  }
  const std::size_t rest = bytes.size() - sizeof header;
  // Counts above rest / size cannot be right, and below it the products cannot wrap.
  if (header.tokens > rest / sizeof(std::int32_t) || header.mus > rest / sizeof(double) ||
      header.tokens * sizeof(std::int32_t) + header.mus * sizeof(double) != rest) {
    return bad_input(
        "the sampler state has {} bytes after its header; expected {} tokens of 4 and "
        "{} numbers of 8",
        rest, header.tokens, header.mus);
  }
  if (header.mus != 0 && header.mus != header.tokens + 1) {
    return bad_input("the sampler state has {} mirostat values for {} tokens; expected none or {}",
                     header.mus, header.tokens, header.tokens + 1);
  }
  SamplerState state;
  state.seed = header.seed;
  state.stream = header.stream;
  state.history.resize(header.tokens);
  state.mirostat_mu.resize(header.mus);
  const std::byte* at = bytes.data() + sizeof header;
  const std::size_t token_bytes = state.history.size() * sizeof(std::int32_t);
  if (header.tokens) std::memcpy(state.history.data(), at, token_bytes);
  if (header.mus) {
    std::memcpy(state.mirostat_mu.data(), at + token_bytes, header.mus * sizeof(double));
  }
  for (const double mu : state.mirostat_mu) {
    if (!std::isfinite(mu)) return bad_input("the sampler state has a mirostat value of {}", mu);
  }
  return state;
}

}  // namespace sluice
