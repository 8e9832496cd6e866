// The bytes of a saved chat. Layout: docs/FORMATS.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/engine/chat/chat_state.h"

namespace sluice {

inline constexpr char kSessionMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'C', 'S'};

struct SessionFile {
  ChatState state;
  std::string model;              // path of the file
  std::uint64_t fingerprint = 0;  // of the model
  std::string kv_format;          // Backend::kv_format()
  std::vector<std::int32_t> tokens;
  std::vector<std::byte> kv;  // CachedSequence::export_snapshot()
};

using SessionBytes = std::vector<std::byte>;

// What stands in a file in front of its tokens, keys and values.
SessionBytes session_head(const SessionFile& file);

// A whole file; `name` is for messages. Errors: kBadInput for what is no such file, is cut or
// damaged.
Result<SessionFile> parse_session(std::span<const std::byte> bytes, const std::string& name);

}  // namespace sluice
