#include "src/engine/chat/session_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "src/base/checked.h"
#include "src/base/mapped_file.h"
#include "src/engine/chat/model_fingerprint.h"
#include "src/gguf/output_file.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr char kMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'C', 'S'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t json_bytes;
  std::uint64_t tokens;
  std::uint64_t kv_bytes;
  std::uint64_t fingerprint;
  std::uint64_t checksum;  // hash_bytes of JSON, tokens, keys and values, one after another
};
static_assert(sizeof(Header) == 48);

Error damaged(const std::string& path, std::string_view what) {
  return bad_input("{}: not a whole saved conversation: {}", path, what);
}

std::uint64_t checksum(std::span<const std::byte> json, std::span<const std::byte> tokens,
                       std::span<const std::byte> kv) {
  return hash_bytes(kv, hash_bytes(tokens, hash_bytes(json)));
}

}  // namespace

Status write_session(const std::string& path, const ChatState& state,
                     const CachedSequence& sequence) {
  Engine& engine = sequence.engine();
  nlohmann::ordered_json json;
  json["model"] = std::filesystem::absolute(engine.file().name()).string();
  json["kv_format"] = engine.backend().kv_format();
  json["conversation"] = to_json(state);
  const std::string text =
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::vector<std::byte> kv(sequence.snapshot_bytes());
  sequence.export_snapshot(kv);
  const auto json_bytes = std::as_bytes(std::span(text));
  const auto token_bytes = std::as_bytes(std::span(sequence.tokens()));

  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.json_bytes = static_cast<std::uint32_t>(text.size());
  header.tokens = sequence.tokens().size();
  header.kv_bytes = kv.size();
  header.fingerprint = model_fingerprint(engine.file());
  header.checksum = checksum(json_bytes, token_bytes, kv);
  SLUICE_ASSIGN_OR_RETURN(
      OutputFile file,
      OutputFile::create(path, sizeof header + json_bytes.size() + token_bytes.size() + kv.size()));
  SLUICE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(&header, 1))));
  SLUICE_RETURN_IF_ERROR(file.write(json_bytes));
  SLUICE_RETURN_IF_ERROR(file.write(token_bytes));
  SLUICE_RETURN_IF_ERROR(file.write(kv));
  return file.commit();
}

bool is_session_file(const std::string& path) {
  char begin[sizeof kMagic] = {};
  std::ifstream file(path, std::ios::binary);
  return file.read(begin, sizeof begin) && std::memcmp(begin, kMagic, sizeof kMagic) == 0;
}

Result<SessionFile> read_session(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::open(path));
  const std::span<const std::byte> bytes = mapped.bytes();
  Header header;
  if (bytes.size() < sizeof header) return damaged(path, "it is too short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return damaged(path, "it does not begin with SLUICECS");
  }
  if (header.version != kVersion) {
    return bad_input("{}: a saved conversation of version {}; this program reads version {}", path,
                     header.version, kVersion);
  }
  const auto token_bytes = checked_mul<std::uint64_t>(header.tokens, sizeof(std::int32_t));
  std::optional<std::uint64_t> size = token_bytes;
  if (size) size = checked_add<std::uint64_t>(*size, sizeof header + header.json_bytes);
  if (size) size = checked_add<std::uint64_t>(*size, header.kv_bytes);
  if (!size || *size != bytes.size()) {
    return damaged(path, fmt::format("it has {} bytes, its head promises {}", bytes.size(),
                                     size ? std::to_string(*size) : "more than any file has"));
  }
  const auto json_part = bytes.subspan(sizeof header, header.json_bytes);
  const auto token_part = bytes.subspan(sizeof header + header.json_bytes, *token_bytes);
  const auto kv_part = bytes.last(header.kv_bytes);
  if (checksum(json_part, token_part, kv_part) != header.checksum) {
    return damaged(path, "its bytes have changed since it was written");
  }

  SessionFile file;
  const auto json = nlohmann::ordered_json::parse(
      reinterpret_cast<const char*>(json_part.data()),
      reinterpret_cast<const char*>(json_part.data() + json_part.size()), nullptr, false);
  const bool usable = json.is_object() && json.contains("model") && json["model"].is_string() &&
                      json.contains("kv_format") && json["kv_format"].is_string() &&
                      json.contains("conversation");
  if (!usable) return damaged(path, "its description lacks model, kv_format or conversation");
  SLUICE_ASSIGN_OR_RETURN(file.state, chat_state_from_json(json["conversation"]));
  file.model = json["model"].get<std::string>();
  file.kv_format = json["kv_format"].get<std::string>();
  file.fingerprint = header.fingerprint;
  file.tokens.resize(header.tokens);
  std::memcpy(file.tokens.data(), token_part.data(), token_part.size());
  file.kv.assign(kv_part.begin(), kv_part.end());
  return file;
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
