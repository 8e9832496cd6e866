// Any bytes as an autosave and as a saved chat. The checksum of a saved chat would keep a fuzzer
// out, so the first byte chooses: as it is, or with the description's JSON taken from the input and
// the head made for it.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "src/engine/chat/journal.h"
#include "src/engine/chat/session_format.h"

// What was read must be written and read again as the same.
static void check_state(const sluice::ChatState& state) {
  const nlohmann::ordered_json json = sluice::to_json(state);
  const auto again = sluice::chat_state_from_json(json);
  if (!again.ok() || sluice::to_json(*again) != json) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const auto journal = sluice::parse_journal(text, "fuzz");
    if (journal.ok()) check_state(journal->state);
    return 0;
  }
  const auto bytes = std::as_bytes(std::span(text));
  const auto session = sluice::parse_session(bytes, "fuzz");
  if (session.ok()) check_state(session->state);
  const auto json = nlohmann::ordered_json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded()) return 0;
  const auto state = sluice::chat_state_from_json(json);
  if (!state.ok()) return 0;
  check_state(*state);
  sluice::SessionFile file;
  file.state = *state;
  file.model = "m";
  file.kv_format = "f";
  file.tokens = {1, 2, 3};
  file.kv.resize(5);
  sluice::SessionBytes whole = sluice::session_head(file);
  const auto tokens = std::as_bytes(std::span(file.tokens));
  whole.insert(whole.end(), tokens.begin(), tokens.end());
  whole.insert(whole.end(), file.kv.begin(), file.kv.end());
  const auto again = sluice::parse_session(whole, "fuzz");
  if (!again.ok() || again->tokens != file.tokens || again->kv != file.kv) std::abort();
  return 0;
}
