#include "src/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/gguf/describe.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";
constexpr std::string_view kPreKey = "tokenizer.ggml.pre";

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct ByteChars {
  static constexpr std::size_t kCodes = 0x100 + 68;  // one above the highest code point in use

  std::array<std::uint16_t, 256> code_of_byte{};
  std::array<std::int16_t, kCodes> byte_of_code{};  // -1: spells no byte
  std::array<std::array<char, 2>, 256> utf8{};      // all are of one or two bytes
  std::array<std::uint8_t, 256> length{};

  constexpr ByteChars() {
    byte_of_code.fill(-1);
    std::uint16_t moved = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto code = stands_for_itself(byte) ? static_cast<std::uint16_t>(byte) : moved++;
      code_of_byte[byte] = code;
      byte_of_code[code] = static_cast<std::int16_t>(byte);
      if (code < 0x80) {
        utf8[byte] = {static_cast<char>(code), 0};
        length[byte] = 1;
      } else {
        utf8[byte] = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
        length[byte] = 2;
      }
    }
  }
};
constexpr ByteChars kByteChars;

}  // namespace

std::string_view bpe_char_of_byte(unsigned char byte) {
  return {kByteChars.utf8[byte].data(), kByteChars.length[byte]};
}

std::string bpe_text_to_bytes(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Char next = decode_utf8(text);
    const bool spells = next.status == Utf8Status::kValid && next.code < ByteChars::kCodes &&
                        kByteChars.byte_of_code[next.code] >= 0;
    if (spells) {
      out += static_cast<char>(kByteChars.byte_of_code[next.code]);
    } else {
      out += text.substr(0, next.length);
    }
    text.remove_prefix(next.length);
  }
  return out;
}

Result<BpeEncoder> BpeEncoder::load(const GgufFile& file, Vocab& vocab) {
  SLUICE_ASSIGN_OR_RETURN(const auto name, file.get_string_or(kPreKey, ""));
  const PreTokenizer* row = find_pretokenizer(name);
  if (row == nullptr) {
    row = &default_pretokenizer();
    vocab.warn(
        name.empty()
            ? fmt::format("'{}' does not name its pre-tokenizer (key '{}'): using the default "
                          "one, tokens may differ from those the model was trained on; "
                          "convert the model again",
                          file.name(), kPreKey)
            : fmt::format("'{}' has the unknown pre-tokenizer '{}' (key '{}'): using the "
                          "default one, tokens may differ from those the model was trained "
                          "on",
                          file.name(), printable(name, 60), kPreKey));
  }
  vocab.set_default_add_bos(row->add_bos);
  SLUICE_ASSIGN_OR_RETURN(auto splitter, RegexSplitter::compile(row->regexes));
  BpeEncoder encoder(*row, std::move(splitter));
  SLUICE_RETURN_IF_ERROR(encoder.read_merges(file));

  std::array<bool, 256> missing{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    missing[byte] = vocab.find(bpe_char_of_byte(static_cast<unsigned char>(byte))) == kNoToken;
  }
  vocab.warn_missing_bytes(missing);
  return encoder;
}

Status BpeEncoder::read_merges(const GgufFile& file) {
  SLUICE_ASSIGN_OR_RETURN(const GgufArray* merges, file.get_array(kMergesKey));
  if (merges->element_type != GgufValueType::kString) {
    return bad_input("'{}': key '{}' is an array of {}, expected strings", file.name(), kMergesKey,
                     gguf_value_type_name(merges->element_type));
  }
  merges_ = merges->strings;
  merge_index_.reset(merges_.size());
  for (std::uint32_t i = 0; i < merges_.size(); ++i) {
    const std::string_view merge = merges_[i];
    // The space between the two: never the first character, which may be a space itself.
    const std::size_t space = merge.empty() ? std::string_view::npos : merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return bad_input(
          "'{}': entry {} of key '{}' is '{}', expected two texts with a space between "
          "them",
          file.name(), i, kMergesKey, printable(merge, 60));
    }
    const std::uint64_t hash =
        hash_pair(hash_bytes(merge.substr(0, space)), hash_bytes(merge.substr(space + 1)));
    // Of equal merges the first counts.
    const auto inserted =
        merge_index_.insert(hash, i, [&](std::uint32_t j) { return merges_[j] == merge; });
    if (inserted == HashIndex::kTooManyCollisions) {
      return bad_input(
          "'{}': the texts of key '{}' were made to collide in a hash table; they are "
          "no real vocabulary",
          file.name(), kMergesKey);
    }
  }
  return {};
}

std::int64_t BpeEncoder::rank_of(std::string_view text, const MergeSymbol& left,
                                 const MergeSymbol& right) const {
  const std::string_view first = text.substr(left.begin, left.length);
  const std::string_view second = text.substr(right.begin, right.length);
  return merge_index_.find(hash_pair(left.hash, right.hash), [&](std::uint32_t i) {
    const std::string_view merge = merges_[i];
    return merge.size() == first.size() + 1 + second.size() && merge.starts_with(first) &&
           merge[first.size()] == ' ' && merge.ends_with(second);
  });
}

Status BpeEncoder::encode(const Vocab& vocab, std::string_view text, Scratch& scratch,
                          std::vector<std::int32_t>& ids) const {
  SLUICE_ASSIGN_OR_RETURN(const auto ends, splitter_.split(text));
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    encode_piece(vocab, text.substr(begin, end - begin), scratch, ids);
    begin = end;
  }
  return {};
}

void BpeEncoder::encode_piece(const Vocab& vocab, std::string_view piece, Scratch& scratch,
                              std::vector<std::int32_t>& ids) const {
  scratch.text.clear();
  for (const char c : piece) scratch.text += bpe_char_of_byte(static_cast<unsigned char>(c));
  const std::string_view text = scratch.text;
  if (pretokenizer_->ignore_merges) {
    const std::int32_t whole = vocab.find_plain(text, hash_bytes(text));
    if (whole != kNoToken) {
      ids.push_back(whole);
      return;
    }
  }
  scratch.symbols.clear();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text[at]);
    append_symbol(scratch.symbols, text, at, length);
    at += length;
  }
  merge_symbols(
      text, scratch.symbols, scratch.heap,
      [&](const MergeSymbol& left, const MergeSymbol& right) -> std::optional<std::uint32_t> {
        const std::int64_t rank = rank_of(text, left, right);
        if (rank < 0) return std::nullopt;
        return static_cast<std::uint32_t>(rank);
      });
  const std::vector<MergeSymbol>& symbols = scratch.symbols;
  for (std::int32_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    const MergeSymbol& symbol = symbols[static_cast<std::size_t>(i)];
    std::string_view spelled = text.substr(symbol.begin, symbol.length);
    const std::int32_t id = vocab.find_plain(spelled, symbol.hash);
    if (id != kNoToken) {
      ids.push_back(id);
      continue;
    }
    // A merge whose result is no token, or a byte without one: byte by byte.
    for (; !spelled.empty(); spelled.remove_prefix(utf8_length(spelled[0]))) {
      const std::string_view one = spelled.substr(0, utf8_length(spelled[0]));
      std::int32_t byte_id = vocab.find_plain(one, hash_bytes(one));
      if (byte_id == kNoToken) byte_id = vocab.unknown_id();
      if (byte_id != kNoToken) ids.push_back(byte_id);
    }
  }
}

}  // namespace sluice
