#include "src/gguf/gguf.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "src/gguf/describe.h"
#include "tests/conformance.h"
#include "tests/gguf_builder.h"
#include "tests/temporary_folder.h"

using namespace sluice;
using test::GgufBuilder;
using test::TemporaryFolder;

namespace {

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ4_0 = 2;

// The message of the refusal of `bytes`; fails the test if they are accepted.
std::string refusal(std::string_view bytes) {
  std::vector<std::byte> storage;
  const auto file = test::parse_exact(bytes, storage);
  CHECK_FALSE(file.ok());
  if (file.ok()) return {};
  CHECK(file.error().code == ErrorCode::kBadInput);
  CHECK(file.error().message.find("test.gguf") != std::string::npos);
  return file.error().message;
}

bool contains(const std::string& text, std::string_view part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("\"" << text << "\" lacks \"" << std::string(part) << "\"");
  return found;
}

// A small file with something of everything.
GgufBuilder good_file() {
  GgufBuilder builder;
  builder.text("general.architecture", "llama")
      .number("llama.block_count", 2)
      .key("a.float", GgufValueType::kFloat32, 0.5f)
      .key("a.bool", GgufValueType::kBool, std::uint8_t{1})
      .tensor("first", {8, 3}, kF32, 96)
      .tensor("second", {64, 2}, kQ4_0, 72)
      .tensor("third", {5}, kF32, 20);
  return builder;
}

// The bytes of an array value: element type, count, elements.
template <class T>
std::string array_bytes(GgufValueType type, std::vector<T> elements) {
  std::string bytes;
  GgufBuilder::put(bytes, static_cast<std::uint32_t>(type));
  GgufBuilder::put<std::uint64_t>(bytes, elements.size());
  for (const T element : elements) GgufBuilder::put(bytes, element);
  return bytes;
}

constexpr auto kArrayType = static_cast<std::uint32_t>(GgufValueType::kArray);
constexpr auto kStringType = static_cast<std::uint32_t>(GgufValueType::kString);

}  // namespace

TEST_CASE("a good file is read: metadata, tensors and their bytes") {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBuilder builder = good_file();
    builder.version = version;
    std::vector<std::byte> storage;
    const auto file = test::parse_exact(builder.bytes(), storage);
    REQUIRE(file.ok());
    CHECK(file->version() == version);
    CHECK(file->file_bytes() == storage.size());
    CHECK(file->metadata().size() == 4);
    CHECK(*file->get_string("general.architecture") == "llama");
    CHECK(*file->get_uint("llama.block_count") == 2);
    CHECK(*file->get_float("a.float") == 0.5);
    CHECK(*file->get_bool("a.bool"));
    REQUIRE(file->tensors().size() == 3);
    const GgufTensor* second = file->find_tensor("second");
    REQUIRE(second != nullptr);
    CHECK(second == &file->tensors()[1]);
    CHECK(second->type == BlockType::kQ4_0);
    CHECK(second->columns() == 64);
    CHECK(second->rows() == 2);
    CHECK(second->data.size() == 72);
    CHECK(second->data[5] == std::byte{5});
    CHECK(file->find_tensor("third")->data.size() == 20);
    CHECK(gguf_dims_to_string(*second) == "64 x 2");
    CHECK(file->find("nothing") == nullptr);
    CHECK(file->find_tensor("nothing") == nullptr);
    // Zero-copy: strings and data lie inside the bytes.
    const auto* text =
        reinterpret_cast<const std::byte*>(file->get_string("general.architecture")->data());
    CHECK(text >= storage.data());
    CHECK(text < storage.data() + storage.size());
  }
}

TEST_CASE("every cut of a file is refused with a message, without reading beyond it") {
  const std::string bytes = good_file().bytes();
  // The file ends with the last tensor's data, so every cut hurts.
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    const std::string message = refusal(std::string_view(bytes).substr(0, size));
    CHECK((message.find("cut short") != std::string::npos ||
           message.find("can hold") != std::string::npos));
  }
}

TEST_CASE("a cut inside the data names the file and the first tensor outside") {
  const std::string bytes = good_file().bytes();
  const std::string message = refusal(std::string_view(bytes).substr(0, bytes.size() - 21));
  CHECK(contains(message, "'third'"));  // 20 bytes of data: the cut ends before its first byte
  CHECK(contains(refusal(std::string_view(bytes).substr(0, bytes.size() - 60)), "'second'"));
}

TEST_CASE("every flipped bit gives a result or a message, nothing else") {
  const std::string bytes = good_file().bytes();
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * (bytes.size() - 200); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    std::vector<std::byte> storage;
    const auto file = test::parse_exact(changed, storage);
    if (!file.ok()) ++refused;
  }
  CHECK(refused > 1000);
}

TEST_CASE("magic, byte order and version are told apart") {
  GgufBuilder builder = good_file();
  builder.magic = "ggml";
  CHECK(contains(refusal(builder.bytes()), "not a GGUF file"));
  builder.magic = "FUGG";
  CHECK(contains(refusal(builder.bytes()), "byte order"));
  builder.magic = "GGUF";
  for (const std::uint32_t version : {0x02000000u, 0x03000000u}) {
    builder.version = version;
    CHECK(contains(refusal(builder.bytes()), "byte order"));
  }
  for (const std::uint32_t version : {0u, 1u, 4u, 0xffffffffu}) {
    builder.version = version;
    CHECK(contains(refusal(builder.bytes()), "version"));
  }
  CHECK(contains(refusal("tjgg............"), "older GGML format"));
  CHECK(contains(refusal("version https://git-lfs.github.com/spec/v1\n"), "Git LFS"));
  CHECK(contains(refusal(""), "cut short"));
}

TEST_CASE("counts that the file cannot hold are refused before anything is allocated") {
  for (const std::uint64_t count :
       {std::uint64_t{100000}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
    GgufBuilder builder = good_file();
    builder.claimed_keys = count;
    CHECK(contains(refusal(builder.bytes()), "metadata keys"));
    builder = good_file();
    builder.claimed_tensors = count;
    CHECK(contains(refusal(builder.bytes()), "tensors"));
    for (const std::uint32_t element : {0u, 4u, 7u, 8u, 9u, 12u}) {
      std::string value;
      GgufBuilder::put(value, element);
      GgufBuilder::put(value, count);
      CHECK(contains(refusal(good_file().key_bytes("the.array", kArrayType, value).bytes()),
                     "'the.array'"));
    }
    std::string text;
    GgufBuilder::put(text, count);
    CHECK(contains(refusal(good_file().key_bytes("the.text", kStringType, text).bytes()),
                   "'the.text'"));
  }
}

TEST_CASE("dimensions: 1 to 4, none of them zero, whole blocks") {
  for (const std::size_t count : {0u, 5u, 100u}) {
    CHECK(contains(
        refusal(
            good_file().tensor_at("bad", std::vector<std::uint64_t>(count, 32), kF32, 224).bytes()),
        "dimensions, expected 1 to 4"));
  }
  CHECK(contains(refusal(good_file().tensor("bad", {0}, kF32, 0).bytes()), "'bad' has size 0"));
  CHECK(contains(refusal(good_file().tensor("bad", {32, 0}, kF32, 0).bytes()), "'bad' has size 0"));
  CHECK(contains(refusal(good_file().tensor("bad", {33}, kQ4_0, 36).bytes()), "multiple of 32"));
  CHECK(contains(refusal(good_file().tensor("bad", {128}, 12, 144).bytes()), "multiple of 256"));
}

TEST_CASE("products, paddings and sums that wrap are refused with the tensor and the overflow") {
  const std::uint64_t huge = std::uint64_t{1} << 32;
  // Elements.
  CHECK(contains(refusal(good_file().tensor_at("bad", {huge, huge}, kF32, 224).bytes()),
                 "'bad' has dimensions whose product overflows"));
  CHECK(contains(refusal(good_file().tensor_at("bad", {huge, huge / 2, 2, 4}, kF32, 224).bytes()),
                 "overflows"));
  // Bytes: 2^63 elements of 4 bytes.
  CHECK(contains(refusal(good_file().tensor_at("bad", {huge, huge / 2}, kF32, 224).bytes()),
                 "bytes of tensor 'bad' overflow"));
  // Padding: 2^64 - 4 bytes, rounded up.
  CHECK(contains(
      refusal(good_file().tensor_at("bad", {(std::uint64_t{1} << 62) - 1}, kF32, 224).bytes()),
      "'bad' has 18446744073709551612 bytes; rounding up to the alignment 32 overflows"));
  // Sum: two tensors of 2^63 bytes.
  GgufBuilder sum;
  sum.tensor_at("one", {std::uint64_t{1} << 61}, kF32, 0);
  sum.tensor_at("two", {std::uint64_t{1} << 61}, kF32, std::uint64_t{1} << 63);
  CHECK(contains(refusal(sum.bytes()), "up to tensor 'two' overflow"));
  // Place in the file: a sum that fits, but not with the start of the data.
  GgufBuilder place;
  place.tensor_at("one", {(std::uint64_t{1} << 62) - 8}, kF32, 0);
  CHECK(contains(refusal(place.bytes()), "'one'"));
}

TEST_CASE("tensors beyond the file, misplaced or repeated are refused by name") {
  CHECK(
      contains(refusal(good_file().tensor_at("far", {1000}, kF32, 224).bytes()), "'far' ends at"));
  for (const std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{96}, std::uint64_t{192}, std::uint64_t{225},
        std::uint64_t{256}, ~std::uint64_t{0}, ~std::uint64_t{31}}) {
    GgufBuilder builder = good_file();
    builder.tensor_at("moved", {4}, kF32, offset);
    builder.extra_bytes = 4096;
    CHECK(contains(refusal(builder.bytes()), "'moved' has data offset"));
  }
  CHECK(contains(refusal(good_file().tensor("first", {4}, kF32, 16).bytes()),
                 "'first' is there twice"));
  CHECK(contains(refusal(good_file().tensor("", {4}, kF32, 16).bytes()), "expected 1 to 65535"));
  CHECK(contains(refusal(good_file().tensor(std::string(65536, 'n'), {4}, kF32, 16).bytes()),
                 "expected 1 to 65535"));
  std::vector<std::byte> storage;
  CHECK(
      test::parse_exact(good_file().tensor(std::string(65535, 'n'), {4}, kF32, 16).bytes(), storage)
          .ok());
}

TEST_CASE("types that are not read are refused by name, with the tensor") {
  const std::string known = refusal(good_file().tensor("odd", {256}, 21, 110).bytes());
  CHECK(contains(known, "tensor 'odd' has type IQ3_S"));
  CHECK(contains(known, "Q4_K"));
  CHECK(contains(refusal(good_file().tensor("odd", {256}, 34, 54).bytes()), "TQ1_0"));
  CHECK(contains(refusal(good_file().tensor("odd", {256}, 4000000000u, 54).bytes()),
                 "'odd' has the unknown type number 4000000000"));
}

TEST_CASE("alignment: any power of two as UINT32, nothing else") {
  for (const std::uint32_t alignment : {1u, 2u, 8u, 16u, 32u, 64u, 4096u}) {
    GgufBuilder builder;
    builder.alignment = alignment;
    builder.number("general.alignment", alignment)
        .tensor("first", {3}, kF32, 12)
        .tensor("second", {32, 3}, kQ4_0, 54)
        .tensor("third", {1}, kF32, 4);
    std::vector<std::byte> storage;
    const auto file = test::parse_exact(builder.bytes(), storage);
    REQUIRE(file.ok());
    CHECK(file->find_tensor("second")->data[53] == std::byte{53});
    CHECK(file->find_tensor("third")->data[3] == std::byte{3});
  }
  for (const std::uint32_t alignment : {0u, 3u, 33u, 0xffffffffu}) {
    GgufBuilder builder = good_file();
    builder.number("general.alignment", alignment);
    CHECK(contains(refusal(builder.bytes()), "power of two"));
  }
  CHECK(contains(
      refusal(
          good_file().key("general.alignment", GgufValueType::kUint64, std::uint64_t{32}).bytes()),
      "UINT64, expected UINT32"));
  CHECK(contains(refusal(good_file().text("general.alignment", "32").bytes()), "expected UINT32"));
  // An alignment that the data does not have.
  CHECK(contains(refusal(good_file().number("general.alignment", 64).bytes()), "data offset"));
}

TEST_CASE("extra bytes after the last tensor are fine, and so is a file without tensors") {
  GgufBuilder builder = good_file();
  builder.extra_bytes = 1000;
  std::vector<std::byte> storage;
  CHECK(test::parse_exact(builder.bytes(), storage).ok());
  GgufBuilder empty;
  const auto file = test::parse_exact(empty.bytes(), storage);
  REQUIRE(file.ok());
  CHECK(file->tensors().empty());
  CHECK(file->metadata().empty());
}

TEST_CASE("keys: repeated, empty, too long, of unknown type") {
  CHECK(contains(refusal(good_file().number("llama.block_count", 3).bytes()),
                 "'llama.block_count' is there twice"));
  CHECK(contains(refusal(good_file().number("", 3).bytes()), "has 0 bytes"));
  CHECK(contains(refusal(good_file().number(std::string(65536, 'k'), 3).bytes()), "65536 bytes"));
  CHECK(contains(refusal(good_file().key_bytes("odd", 13, "....").bytes()), "value type 13"));
  CHECK(contains(refusal(good_file().key("odd", GgufValueType::kBool, std::uint8_t{2}).bytes()),
                 "bool with value 2"));
  CHECK(contains(refusal(good_file()
                             .key_bytes("odd", kArrayType,
                                        array_bytes<std::uint8_t>(GgufValueType::kBool, {0, 1, 7}))
                             .bytes()),
                 "bool with value 7"));
}

TEST_CASE("all value types are read, at the ends of their ranges") {
  GgufBuilder builder;
  builder.key("u8", GgufValueType::kUint8, std::uint8_t{255})
      .key("i8", GgufValueType::kInt8, std::int8_t{-128})
      .key("u16", GgufValueType::kUint16, std::uint16_t{65535})
      .key("i16", GgufValueType::kInt16, std::int16_t{-32768})
      .key("u32", GgufValueType::kUint32, std::uint32_t{4294967295u})
      .key("i32", GgufValueType::kInt32, std::int32_t{-2147483647 - 1})
      .key("u64", GgufValueType::kUint64, ~std::uint64_t{0})
      .key("i64", GgufValueType::kInt64, std::numeric_limits<std::int64_t>::min())
      .key("f32", GgufValueType::kFloat32, 1e-5f)
      .key("f64", GgufValueType::kFloat64, 1e-300)
      .key("no", GgufValueType::kBool, std::uint8_t{0})
      .text("text", std::string_view("a\0b", 3))
      .text("empty", "");
  std::vector<std::byte> storage;
  const auto file = test::parse_exact(builder.bytes(), storage);
  REQUIRE(file.ok());
  CHECK(*file->get_uint("u8") == 255);
  CHECK(*file->get_uint("u16") == 65535);
  CHECK(*file->get_uint("u32") == 4294967295u);
  CHECK(*file->get_uint("u64") == ~std::uint64_t{0});
  CHECK(*file->get_float("f32") == double{1e-5f});
  CHECK(*file->get_float("f64") == 1e-300);
  CHECK_FALSE(*file->get_bool("no"));
  CHECK(*file->get_string("text") == std::string_view("a\0b", 3));
  CHECK(file->get_string("empty")->empty());
  const std::pair<std::string_view, std::string_view> shown[] = {
      {"i8", "-128"},         {"i16", "-32768"},
      {"i32", "-2147483648"}, {"i64", "-9223372036854775808"},
      {"u8", "255"},          {"f32", "1e-05"},
      {"f64", "1e-300"},      {"u64", "18446744073709551615"},
      {"no", "false"},        {"text", "\"a\\x00b\""},
      {"empty", "\"\""}};
  for (const auto& [key, text] : shown) CHECK(gguf_value_to_string(*file->find(key)) == text);
}

TEST_CASE("arrays of every element type, nested ones too") {
  std::string nested;
  GgufBuilder::put(nested, kArrayType);
  GgufBuilder::put<std::uint64_t>(nested, 2);
  nested += array_bytes<std::uint8_t>(GgufValueType::kUint8, {1, 2, 3});
  std::string texts;
  GgufBuilder::put(texts, kStringType);
  GgufBuilder::put<std::uint64_t>(texts, 2);
  GgufBuilder::put_text(texts, "");
  GgufBuilder::put_text(texts, "two");
  nested += texts;
  GgufBuilder builder;
  builder.key_bytes("nested", kArrayType, nested)
      .key_bytes("texts", kArrayType, texts)
      .key_bytes("u8", kArrayType, array_bytes<std::uint8_t>(GgufValueType::kUint8, {0, 255}))
      .key_bytes("i8", kArrayType, array_bytes<std::int8_t>(GgufValueType::kInt8, {-128, 127}))
      .key_bytes("u16", kArrayType, array_bytes<std::uint16_t>(GgufValueType::kUint16, {0, 65535}))
      .key_bytes("i16", kArrayType, array_bytes<std::int16_t>(GgufValueType::kInt16, {-32768, 1}))
      .key_bytes("u32", kArrayType,
                 array_bytes<std::uint32_t>(GgufValueType::kUint32, {7, 4294967295u}))
      .key_bytes("i32", kArrayType, array_bytes<std::int32_t>(GgufValueType::kInt32, {-5, 6}))
      .key_bytes("u64", kArrayType,
                 array_bytes<std::uint64_t>(GgufValueType::kUint64, {~std::uint64_t{0}}))
      .key_bytes("i64", kArrayType, array_bytes<std::int64_t>(GgufValueType::kInt64, {-1}))
      .key_bytes("f32", kArrayType,
                 array_bytes<float>(GgufValueType::kFloat32,
                                    {0.5f, -1e30f, std::numeric_limits<float>::quiet_NaN()}))
      .key_bytes("f64", kArrayType,
                 array_bytes<double>(GgufValueType::kFloat64, {0.25, 1e300, -2.75}))
      .key_bytes("bool", kArrayType, array_bytes<std::uint8_t>(GgufValueType::kBool, {1, 0}))
      .key_bytes("none", kArrayType, array_bytes<std::uint8_t>(GgufValueType::kInt32, {}));
  std::vector<std::byte> storage;
  const auto file = test::parse_exact(builder.bytes(), storage);
  REQUIRE(file.ok());
  const auto array = [&](std::string_view key) -> const GgufArray& {
    return **file->get_array(key);
  };
  CHECK(array("u8").number_at(1) == 255);
  CHECK(array("i8").integer_at(0) == -128);
  CHECK(array("u16").integer_at(1) == 65535);
  CHECK(array("i16").number_at(0) == -32768);
  CHECK(array("u32").integer_at(1) == 4294967295);
  CHECK(array("i32").integer_at(0) == -5);
  CHECK(array("u64").number_at(0) == 0x1p64);
  CHECK(array("i64").number_at(0) == -1);
  CHECK(array("f32").number_at(0) == 0.5);
  CHECK(array("f32").integer_at(1) == std::numeric_limits<std::int64_t>::min());
  CHECK(array("f32").integer_at(2) == 0);
  CHECK(array("f64").number_at(0) == 0.25);
  CHECK(array("f64").integer_at(1) == std::numeric_limits<std::int64_t>::max());
  CHECK(array("f64").integer_at(2) == -2);
  CHECK(array("bool").integer_at(0) == 1);
  CHECK(array("none").count == 0);
  CHECK(array("texts").strings == std::vector<std::string_view>{"", "two"});
  CHECK(array("nested").arrays.at(0).integer_at(2) == 3);
  CHECK(array("nested").arrays.at(1).strings.at(1) == "two");
  const std::pair<std::string_view, std::string_view> shown[] = {
      {"nested", "[[1, 2, 3], [\"\", \"two\"]]"},
      {"bool", "[true, false]"},
      {"none", "[]"},
      {"u64", "[18446744073709551615]"},
      {"f64", "[0.25, 1e+300, -2.75]"}};
  for (const auto& [key, text] : shown) CHECK(gguf_value_to_string(*file->find(key)) == text);
}

TEST_CASE("arrays nested without end are refused, not followed") {
  std::string value;
  for (int depth = 0; depth < 100000; ++depth) {
    GgufBuilder::put(value, kArrayType);
    GgufBuilder::put<std::uint64_t>(value, 1);
  }
  CHECK(contains(refusal(GgufBuilder().key_bytes("deep", kArrayType, value).bytes()),
                 "'deep' nests arrays"));
}

TEST_CASE("typed look-ups name the key, what was found and what was expected") {
  GgufBuilder builder = good_file();
  builder.key("negative", GgufValueType::kInt32, std::int32_t{-3})
      .key("positive", GgufValueType::kInt64, std::int64_t{3})
      .key_bytes("list", kArrayType, array_bytes<std::uint8_t>(GgufValueType::kUint8, {1, 2}));
  std::vector<std::byte> storage;
  const auto file = test::parse_exact(builder.bytes(), storage);
  REQUIRE(file.ok());
  CHECK(*file->get_uint("positive") == 3);
  const auto negative = file->get_uint("negative");
  REQUIRE_FALSE(negative.ok());
  CHECK(contains(negative.error().message, "'negative' is -3 of type INT32, expected an integer"));
  CHECK(contains(file->get_uint("absent").error().message, "'absent' is missing"));
  CHECK(contains(file->get_uint("a.bool").error().message, "is true of type BOOL"));
  CHECK(contains(file->get_uint("a.float").error().message, "is 0.5 of type FLOAT32"));
  CHECK(contains(file->get_float("llama.block_count").error().message, "expected a float"));
  CHECK(contains(file->get_bool("llama.block_count").error().message, "expected a bool"));
  CHECK(contains(file->get_string("list").error().message,
                 "is [1, 2] of type ARRAY, expected a string"));
  CHECK(contains(file->get_array("general.architecture").error().message, "expected an array"));
  CHECK(contains(file->get_array("absent").error().message, "missing"));
  CHECK(*file->get_uint_or("absent", 7) == 7);
  CHECK(*file->get_uint_or("llama.block_count", 7) == 2);
  CHECK_FALSE(file->get_uint_or("general.architecture", 7).ok());
  CHECK(*file->get_float_or("absent", 0.25) == 0.25);
  CHECK_FALSE(file->get_float_or("general.architecture", 7).ok());
  CHECK(*file->get_bool_or("absent", true));
  CHECK_FALSE(file->get_bool_or("a.float", true).ok());
  CHECK(*file->get_string_or("absent", "x") == "x");
  CHECK_FALSE(file->get_string_or("a.float", "x").ok());
}

TEST_CASE("names from the file never reach a message raw") {
  const std::string evil = "evil\x1b]0;title\x07\r\n\xc2\x9b\xe2\x80\xae\xff";
  const std::string messages[] = {
      refusal(good_file().tensor(evil, {0}, kF32, 0).bytes()),
      refusal(good_file().tensor(evil, {256}, 21, 110).bytes()),
      refusal(good_file().tensor(evil, {4}, kF32, 16).tensor(evil, {4}, kF32, 16).bytes()),
      refusal(good_file().number(evil, 1).number(evil, 2).bytes()),
      refusal(good_file().key_bytes(evil, 99, "").bytes())};
  for (const std::string& message : messages) {
    CHECK(contains(message, "evil\\x1b]0;title\\x07\\r\\n\\u{9b}\\u{202e}\\xff"));
    CHECK(std::none_of(message.begin(), message.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }));
  }
}

TEST_CASE("printable keeps text, escapes the rest, and cuts at characters") {
  CHECK(printable("plain text") == "plain text");
  CHECK(printable("Grüße, 世界 \xf0\x9f\x98\x80") == "Grüße, 世界 \xf0\x9f\x98\x80");
  CHECK(printable("a\\b\t\n\x7f") == "a\\\\b\\t\\n\\x7f");
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
  CHECK(printable("\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xe4\xb8") ==
        "\\xc0\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xe4\\xb8");
  CHECK(printable("\xef\xbb\xbf\xe2\x81\xa6") == "\\u{feff}\\u{2066}");
  CHECK(printable("世界世界", 7) == "世界... (12 bytes)");
  CHECK(printable("abc", 3) == "abc");
  CHECK(printable("abcd", 3) == "abc... (4 bytes)");
  CHECK(printable("", 0).empty());
  // One line, whatever it holds, and bounded.
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  for (const char c : printable(all, 1000)) CHECK(static_cast<unsigned char>(c) >= 0x20);
}

TEST_CASE("long values are shortened with their length") {
  const std::vector<std::uint32_t> many(100000, 12345);
  GgufBuilder builder;
  builder.key_bytes("many", kArrayType, array_bytes<std::uint32_t>(GgufValueType::kUint32, many))
      .text("long", std::string(100000, 'x'));
  std::vector<std::byte> storage;
  const auto file = test::parse_exact(builder.bytes(), storage);
  REQUIRE(file.ok());
  const std::string array = gguf_value_to_string(*file->find("many"), 40);
  CHECK(array.size() < 80);
  CHECK(contains(array, "... (100000 values)]"));
  const std::string text = gguf_value_to_string(*file->find("long"), 40);
  CHECK(text.size() < 80);
  CHECK(contains(text, "... (100000 bytes)"));
}

TEST_CASE("files are opened by path, with the path in every message") {
  const TemporaryFolder folder;
  const auto file = GgufFile::open(folder.file("good.gguf", good_file().bytes()));
  REQUIRE(file.ok());
  CHECK(file->find_tensor("third") != nullptr);
  CHECK(file->name() == folder / "good.gguf");
  // Moved, the views stay valid.
  GgufFile moved = GgufFile::open(folder / "good.gguf").value();
  const GgufFile other = std::move(moved);
  CHECK(other.find_tensor("third")->data[19] == std::byte{19});
  for (const std::string& bad : {folder.file("empty.gguf", ""), folder.file("bad.gguf", "GGUF"),
                                 folder / "missing.gguf", folder / ""}) {
    const auto refused = GgufFile::open(bad);
    REQUIRE_FALSE(refused.ok());
    CHECK(contains(refused.error().message, bad));
  }
}

namespace {

std::string part_bytes(std::uint16_t number, std::uint16_t count, std::int32_t tensors,
                       const std::string& tensor) {
  GgufBuilder builder;
  if (number == 0) builder.text("general.architecture", "llama");
  builder.key("split.no", GgufValueType::kUint16, number)
      .key("split.count", GgufValueType::kUint16, count)
      .key("split.tensors.count", GgufValueType::kInt32, tensors);
  if (!tensor.empty()) builder.tensor(tensor, {4}, kF32, 16);
  return builder.bytes();
}

}  // namespace

TEST_CASE("a split model is opened whole from any of its parts") {
  const TemporaryFolder folder;
  folder.file("m-00001-of-00003.gguf", part_bytes(0, 3, 2, ""));
  folder.file("m-00002-of-00003.gguf", part_bytes(1, 3, 2, "a"));
  folder.file("m-00003-of-00003.gguf", part_bytes(2, 3, 2, "b"));
  CHECK(gguf_part_path(folder / "m", 2, 3) == folder / "m-00002-of-00003.gguf");
  for (std::uint64_t number = 1; number <= 3; ++number) {
    const auto file = GgufFile::open(gguf_part_path(folder / "m", number, 3));
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().message));
    CHECK(file->tensors().size() == 2);
    CHECK(*file->get_string("general.architecture") == "llama");
    CHECK(file->find_tensor("a")->data[15] == std::byte{15});
    CHECK(file->find_tensor("b")->data[15] == std::byte{15});
    CHECK(file->find_tensor("b") == &file->tensors()[1]);
    CHECK(file->file_bytes() ==
          part_bytes(0, 3, 2, "").size() + 2 * part_bytes(1, 3, 2, "a").size());
  }
  SUBCASE("a missing part is named") {
    std::filesystem::remove(folder / "m-00002-of-00003.gguf");
    const auto file = GgufFile::open(folder / "m-00003-of-00003.gguf");
    REQUIRE_FALSE(file.ok());
    CHECK(contains(file.error().message, "m-00002-of-00003.gguf"));
    CHECK(contains(file.error().message, "part 2 of 3"));
  }
  SUBCASE("a part in the wrong place is refused") {
    folder.file("m-00002-of-00003.gguf", part_bytes(2, 3, 2, "a"));
    const auto file = GgufFile::open(folder / "m-00001-of-00003.gguf");
    REQUIRE_FALSE(file.ok());
    CHECK(contains(file.error().message, "'split.no' 2"));
  }
  SUBCASE("a count that differs from the name is refused") {
    folder.file("m-00001-of-00003.gguf", part_bytes(0, 4, 2, ""));
    const auto file = GgufFile::open(folder / "m-00001-of-00003.gguf");
    REQUIRE_FALSE(file.ok());
    CHECK(contains(file.error().message, "'split.count' is 4"));
  }
  SUBCASE("a tensor in two parts is refused") {
    folder.file("m-00003-of-00003.gguf", part_bytes(2, 3, 2, "a"));
    const auto file = GgufFile::open(folder / "m-00001-of-00003.gguf");
    REQUIRE_FALSE(file.ok());
    CHECK(contains(file.error().message, "'a' is in an earlier part"));
  }
  SUBCASE("missing tensors are noticed") {
    folder.file("m-00003-of-00003.gguf", part_bytes(2, 3, 2, ""));
    const auto file = GgufFile::open(folder / "m-00001-of-00003.gguf");
    REQUIRE_FALSE(file.ok());
    CHECK(contains(file.error().message, "1 tensors, expected 2"));
  }
  SUBCASE("a part under another name is refused") {
    folder.file("renamed.gguf", part_bytes(1, 3, 2, "a"));
    const auto file = GgufFile::open(folder / "renamed.gguf");
    REQUIRE_FALSE(file.ok());
    CHECK(contains(file.error().message, "original names"));
  }
  SUBCASE("a part without keys is refused") {
    folder.file("m-00002-of-00003.gguf", good_file().bytes());
    CHECK_FALSE(GgufFile::open(folder / "m-00001-of-00003.gguf").ok());
  }
  SUBCASE("one part alone is a whole model, whatever its name") {
    folder.file("m-00001-of-00001.gguf", part_bytes(0, 1, 1, "a"));
    CHECK(GgufFile::open(folder / "m-00001-of-00001.gguf").ok());
    folder.file("x-00001-of-00002.gguf", good_file().bytes());
    CHECK(GgufFile::open(folder / "x-00001-of-00002.gguf").ok());
  }
}

TEST_CASE("the reference files are read") {
  const std::string readme = test::conformance_file("README.md");
  if (readme.empty()) return;
  int read = 0;
  int refused = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::filesystem::path(readme).parent_path())) {
    if (entry.path().extension() != ".gguf") continue;
    const auto file = GgufFile::open(entry.path().string());
    if (file.ok()) {
      ++read;
      CHECK(file->get_string("general.architecture").ok());
    } else {
      ++refused;
      const std::string stem = entry.path().stem().string();
      CHECK((stem == "iq3_s" || stem == "tq1_0" || stem == "tq2_0"));
      CHECK(contains(file.error().message, "which is not supported"));
    }
  }
  CHECK(read >= 31);
  CHECK(refused == 3);
}
