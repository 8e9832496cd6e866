// Which file keeps the packed weights of a model (src/backend/cpu/packed_file.h).
#pragma once

#include <cstdint>
#include <string>

#include "src/backend/cpu/packed_file.h"
#include "src/gguf/gguf.h"

namespace sluice {

// One file for a model's path, so that a model that changes replaces what is kept of it. Its label
// has the path, size, times and number of each of the model's files, and the model's fingerprint.
// `directory` empty: nothing is kept, nor for models that are not in files.
cpu::PackedFile packed_file_of(const GgufFile& file, const std::string& directory,
                               std::uint64_t least_bytes);

}  // namespace sluice
