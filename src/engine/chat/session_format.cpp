#include "src/engine/chat/session_format.h"

#include <bit>
#include <cstring>

#include "src/base/checked.h"
#include "src/engine/model_fingerprint.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::uint32_t kSessionVersion = 1;

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

SessionBytes session_head(const SessionFile& file) {
  nlohmann::ordered_json json;
  json["model"] = file.model;
  json["kv_format"] = file.kv_format;
  json["conversation"] = to_json(file.state);
  const std::string text =
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  const auto json_bytes = std::as_bytes(std::span(text));
  Header header = {};
  std::memcpy(header.magic, kSessionMagic, sizeof header.magic);
  header.version = kSessionVersion;
  header.json_bytes = static_cast<std::uint32_t>(text.size());
  header.tokens = file.tokens.size();
  header.kv_bytes = file.kv.size();
  header.fingerprint = file.fingerprint;
  header.checksum = checksum(json_bytes, std::as_bytes(std::span(file.tokens)), file.kv);
  SessionBytes head(sizeof header + text.size());
  std::memcpy(head.data(), &header, sizeof header);
  std::memcpy(head.data() + sizeof header, text.data(), text.size());
  return head;
}

Result<SessionFile> parse_session(std::span<const std::byte> bytes, const std::string& path) {
  Header header;
  if (bytes.size() < sizeof header) return damaged(path, "it is too short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kSessionMagic, sizeof header.magic) != 0) {
    return damaged(path, "it does not begin with SLUICECS");
  }
  if (header.version != kSessionVersion) {
    return bad_input("{}: a saved conversation of version {}; this program reads version {}", path,
                     header.version, kSessionVersion);
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

}  // namespace sluice
