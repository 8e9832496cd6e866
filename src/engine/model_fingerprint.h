// Telling whether saved keys and values belong to a model.
#pragma once

#include <cstdint>
#include <span>

#include "src/gguf/gguf.h"

namespace sluice {

// A hash of the metadata, of every tensor's name, type and shape, and of the first and last bytes
// of its data: differs between models, fine-tunes and quantizations, and costs milliseconds. Not
// made to withstand a forger.
std::uint64_t model_fingerprint(const GgufFile& file);

// FNV-1a over 64-bit words; for finding damage in files.
std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace sluice
