// A conversation saved with its keys and values, so that it goes on at once and with the same
// tokens as if it had never stopped.
#pragma once

#include <string>

#include "src/base/status.h"
#include "src/engine/cached_sequence.h"
#include "src/engine/chat/session_format.h"

namespace sluice {

// Writes a new file and renames it over `path` only when it is complete and on the disk.
Status write_session(const std::string& path, const ChatState& state,
                     const CachedSequence& sequence);

// Errors: kBadInput for what is no such file, is cut or damaged.
Result<SessionFile> read_session(const std::string& path);
bool is_session_file(const std::string& path);

// Puts the saved keys and values into the sequence. If they belong to another model, cache type or
// size of context, the sequence is empty and the reason is returned: the prompt is read anew then,
// with the same results.
std::string restore_cache(const SessionFile& file, CachedSequence& sequence);

}  // namespace sluice
