// Any bytes as a vocabulary file: refused with a message, or a tokenizer that works.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.ok()) return 0;
  const auto loaded = Tokenizer::load(*file);
  if (!loaded.ok()) {
    if (loaded.error().message.empty()) __builtin_trap();
    return 0;
  }
  const Tokenizer& tokenizer = **loaded;
  const std::string text = "<s> hello  world\n\n<|im_end|><tool>s 123 é😀\xff\xe2\x82";
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.encode(text, {.add_special = special, .parse_special = special});
    if (!ids.ok()) __builtin_trap();
    for (const std::int32_t id : *ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) __builtin_trap();
    }
    static_cast<void>(tokenizer.decode(*ids, special));
  }
  for (std::int32_t id = -1; id <= tokenizer.vocab_size(); ++id) {
    static_cast<void>(tokenizer.bytes_of(id, true));
  }
  for (const std::int32_t id : tokenizer.eog_ids()) {
    if (tokenizer.token_text(id).data() == nullptr) __builtin_trap();
  }
  return 0;
}
