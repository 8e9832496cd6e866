// The JSON form of `sluice inspect`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/base/status.h"
#include "src/cli/inspect_gpu_fit.h"
#include "src/gguf/gguf.h"
#include "src/model/model_spec.h"
#include "src/text/tokenizer.h"

namespace sluice::cli {

// One line: a valid JSON object whatever bytes the file holds (bytes that are not UTF-8 become
// U+FFFD, numbers that JSON lacks become null).
std::string inspect_json(const GgufFile& file, const Result<Model>& model,
                         const Result<std::unique_ptr<Tokenizer>>& tokenizer,
                         const std::optional<Fit>& fit, const std::optional<GpuFit>& gpu_fit);

}  // namespace sluice::cli
