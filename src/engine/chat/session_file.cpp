#include "src/engine/chat/session_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "src/base/mapped_file.h"
#include "src/engine/model_fingerprint.h"
#include "src/gguf/output_file.h"

namespace sluice {

Status write_session(const std::string& path, const ChatState& state,
                     const CachedSequence& sequence) {
  Engine& engine = sequence.engine();
  SessionFile session;
  session.state = state;
  session.model = std::filesystem::absolute(engine.file().name()).string();
  session.fingerprint = model_fingerprint(engine.file());
  session.kv_format = engine.backend().kv_format();
  session.tokens = sequence.tokens();
  session.kv.resize(sequence.snapshot_bytes());
  SLUICE_RETURN_IF_ERROR(sequence.export_snapshot(session.kv));
  const SessionBytes head = session_head(session);
  const auto token_bytes = std::as_bytes(std::span(session.tokens));
  SLUICE_ASSIGN_OR_RETURN(
      OutputFile file,
      OutputFile::create(path, head.size() + token_bytes.size() + session.kv.size()));
  SLUICE_RETURN_IF_ERROR(file.write(head));
  SLUICE_RETURN_IF_ERROR(file.write(token_bytes));
  SLUICE_RETURN_IF_ERROR(file.write(session.kv));
  return file.commit();
}

bool is_session_file(const std::string& path) {
  char begin[sizeof kSessionMagic] = {};
  std::ifstream file(path, std::ios::binary);
  return file.read(begin, sizeof begin) && std::memcmp(begin, kSessionMagic, sizeof begin) == 0;
}

Result<SessionFile> read_session(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::open(path));
  return parse_session(mapped.bytes(), path);
}

std::string restore_cache(const SessionFile& file, CachedSequence& sequence) {
  Engine& engine = sequence.engine();
  sequence.truncate(0);
  if (file.fingerprint != model_fingerprint(engine.file())) {
    return fmt::format("saved with another model, {}", file.model);
  }
  if (file.kv_format != engine.backend().kv_format()) {
    return fmt::format("its cache is '{}', here it is '{}'", file.kv_format,
                       engine.backend().kv_format());
  }
  const Status imported = sequence.import_snapshot(file.tokens, file.kv);
  return imported.ok() ? "" : imported.error().message;
}

}  // namespace sluice
