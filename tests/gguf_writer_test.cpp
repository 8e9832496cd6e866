#include "src/gguf/writer.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <bit>
#include <filesystem>

#include "src/base/rng.h"
#include "src/gguf/describe.h"
#include "tests/conformance.h"
#include "tests/gguf_builder.h"
#include "tests/temporary_folder.h"

using namespace sluice;
using test::TemporaryFolder;

namespace {

std::vector<std::byte> counted_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

std::string message_of(const Status& status) { return status.ok() ? "" : status.error().message; }

bool mentions(const Status& status, std::string_view part) {
  const bool found = message_of(status).find(part) != std::string::npos;
  if (!found) MESSAGE("\"" << message_of(status) << "\" lacks \"" << std::string(part) << "\"");
  return found;
}

bool same_array(const GgufArray& a, const GgufArray& b) {
  if (a.element_type != b.element_type || a.count != b.count || a.strings != b.strings)
    return false;
  if (!std::equal(a.packed.begin(), a.packed.end(), b.packed.begin(), b.packed.end())) return false;
  return std::equal(a.arrays.begin(), a.arrays.end(), b.arrays.begin(), b.arrays.end(), same_array);
}

bool same_value(const GgufValue& a, const GgufValue& b) {
  if (a.type != b.type) return false;
  if (a.type == GgufValueType::kArray) {
    return same_array(std::get<GgufArray>(a.data), std::get<GgufArray>(b.data));
  }
  if (const auto* x = std::get_if<std::uint64_t>(&a.data))
    return *x == std::get<std::uint64_t>(b.data);
  if (const auto* x = std::get_if<std::int64_t>(&a.data))
    return *x == std::get<std::int64_t>(b.data);
  if (const auto* x = std::get_if<double>(&a.data)) {
    return std::bit_cast<std::uint64_t>(*x) ==
           std::bit_cast<std::uint64_t>(std::get<double>(b.data));
  }
  return std::get<std::string_view>(a.data) == std::get<std::string_view>(b.data);
}

// Random numbers of a test, in a fixed order.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t below(std::uint64_t end) {
    return static_cast<std::uint64_t>(uniform(seed_, 0, at_++, 0) * static_cast<double>(end));
  }
  std::string text() {
    std::string out;
    for (std::uint64_t left = below(20); left > 0; --left) out += static_cast<char>(below(256));
    return out;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t at_ = 0;
};

// The bytes of a random value, as in a file.
std::string random_value(Draws& draws, std::uint32_t type, int depth) {
  constexpr std::size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  std::string out;
  if (type == static_cast<std::uint32_t>(GgufValueType::kString)) {
    test::GgufBuilder::put_text(out, draws.text());
  } else if (type == static_cast<std::uint32_t>(GgufValueType::kArray)) {
    std::uint32_t element = static_cast<std::uint32_t>(draws.below(13));
    if (element == type && depth >= 3) element = 5;
    const std::uint64_t count = draws.below(6);
    test::GgufBuilder::put(out, element);
    test::GgufBuilder::put(out, count);
    for (std::uint64_t i = 0; i < count; ++i) out += random_value(draws, element, depth + 1);
  } else {
    const bool is_bool = type == static_cast<std::uint32_t>(GgufValueType::kBool);
    for (std::size_t i = 0; i < kSizes[type]; ++i) {
      out += static_cast<char>(draws.below(is_bool ? 2 : 256));
    }
  }
  return out;
}

}  // namespace

TEST_CASE("what is written is read back: every metadata type and tensors of odd sizes") {
  const TemporaryFolder folder;
  for (const std::uint32_t alignment : {1u, 8u, 32u, 64u, 4096u}) {
    CAPTURE(alignment);
    GgufWriter writer(alignment);
    writer.add("u8", std::uint8_t{255});
    writer.add("i8", std::int8_t{-128});
    writer.add("u16", std::uint16_t{65535});
    writer.add("i16", std::int16_t{-1});
    writer.add("u32", std::uint32_t{1} << 31);
    writer.add("i32", std::int32_t{-5});
    writer.add("u64", ~std::uint64_t{0});
    writer.add("i64", std::int64_t{-6});
    writer.add("f32", 0.1f);
    writer.add("f64", 0.1);
    writer.add("bool", true);
    writer.add("text", "a text");  // not a bool
    const std::vector<std::string> texts{"one", "", "three"};
    writer.add_array("texts", std::span<const std::string>(texts));
    const std::vector<float> floats{1.5f, -2.5f};
    writer.add_array("floats", std::span<const float>(floats));
    const bool bools[] = {true, false, true};
    writer.add_array("bools", std::span<const bool>(bools));
    writer.add_tensor("one", BlockType::kF32, {1});
    writer.add_tensor("odd", BlockType::kF16, {3, 5, 7});
    writer.add_tensor("blocks", BlockType::kQ4_0, {96, 3});
    writer.add_tensor("k", BlockType::kQ6_K, {256, 1, 1, 3});
    const std::size_t sizes[] = {4, 210, 162, 630};
    const std::string path = folder / fmt::format("out-{}.gguf", alignment);
    const std::uint64_t expected_bytes = writer.file_bytes();
    REQUIRE(writer.begin(path).ok());
    // In one piece that covers several tensors, as any pieces are allowed.
    const auto all = counted_bytes(4 + 210 + 162 + 630);
    REQUIRE(writer.append(std::span(all).first(4 + 210 + 100)).ok());
    CHECK_FALSE(std::filesystem::exists(path));
    REQUIRE(writer.append(std::span(all).subspan(4 + 210 + 100)).ok());
    REQUIRE(writer.finish().ok());
    CHECK_FALSE(std::filesystem::exists(path + ".partial-0"));
    CHECK(std::filesystem::file_size(path) == expected_bytes);
    const auto file = GgufFile::open(path);
    REQUIRE(file.ok());
    CHECK(file->version() == 3);
    CHECK(file->metadata().size() == (alignment == 32 ? 15 : 16));
    CHECK(*file->get_uint("u8") == 255);
    CHECK(gguf_value_to_string(*file->find("i8")) == "-128");
    CHECK(*file->get_uint("u16") == 65535);
    CHECK(gguf_value_to_string(*file->find("i16")) == "-1");
    CHECK(*file->get_uint("u32") == 2147483648u);
    CHECK(gguf_value_to_string(*file->find("i32")) == "-5");
    CHECK(*file->get_uint("u64") == ~std::uint64_t{0});
    CHECK(gguf_value_to_string(*file->find("i64")) == "-6");
    CHECK(*file->get_float("f32") == double{0.1f});
    CHECK(*file->get_float("f64") == 0.1);
    CHECK(*file->get_bool("bool"));
    CHECK(*file->get_string("text") == "a text");
    CHECK((*file->get_array("texts"))->strings ==
          std::vector<std::string_view>{"one", "", "three"});
    CHECK((*file->get_array("floats"))->number_at(1) == -2.5);
    CHECK((*file->get_array("bools"))->integer_at(2) == 1);
    std::size_t start = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const GgufTensor& tensor = file->tensors()[i];
      REQUIRE(tensor.data.size() == sizes[i]);
      CHECK(std::equal(tensor.data.begin(), tensor.data.end(),
                       all.begin() + static_cast<std::ptrdiff_t>(start)));
      start += sizes[i];
    }
    CHECK(file->find_tensor("odd")->dims == std::vector<std::uint64_t>{3, 5, 7});
  }
}

TEST_CASE("random metadata survives reading, writing and reading") {
  const TemporaryFolder folder;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Draws draws(seed);
    test::GgufBuilder builder;
    const std::uint64_t keys = draws.below(12);
    for (std::uint64_t i = 0; i < keys; ++i) {
      const auto type = static_cast<std::uint32_t>(draws.below(13));
      const std::string key = fmt::format("{}.{}", i, draws.text());
      builder.key_bytes(key, type, random_value(draws, type, 0));
    }
    std::vector<std::byte> storage;
    const auto first = test::parse_exact(builder.bytes(), storage);
    REQUIRE_MESSAGE(first.ok(), (first.ok() ? "" : first.error().message));
    GgufWriter writer;
    for (const auto& [key, value] : first->metadata()) writer.add_value(key, value);
    REQUIRE(writer.begin(folder / "copy.gguf").ok());
    REQUIRE(writer.finish().ok());
    const auto second = GgufFile::open(folder / "copy.gguf");
    REQUIRE(second.ok());
    REQUIRE(second->metadata().size() == keys);
    for (std::size_t i = 0; i < keys; ++i) {
      CHECK(second->metadata()[i].first == first->metadata()[i].first);
      CHECK(same_value(second->metadata()[i].second, first->metadata()[i].second));
    }
  }
}

TEST_CASE("a reference model is copied with all its values and bytes") {
  const std::string path = test::conformance_file("quants/q4_K.gguf");
  if (path.empty()) return;
  const TemporaryFolder folder;
  const auto source = GgufFile::open(path);
  REQUIRE(source.ok());
  GgufWriter writer;
  for (const auto& [key, value] : source->metadata()) writer.add_value(key, value);
  for (const GgufTensor& tensor : source->tensors()) {
    writer.add_tensor(tensor.name, tensor.type, tensor.dims);
  }
  REQUIRE(writer.begin(folder / "copy.gguf").ok());
  for (const GgufTensor& tensor : source->tensors()) REQUIRE(writer.append(tensor.data).ok());
  REQUIRE(writer.finish().ok());
  CHECK(TemporaryFolder::read(folder / "copy.gguf") == TemporaryFolder::read(path));
}

TEST_CASE("mistakes in what is declared are told at the beginning") {
  const TemporaryFolder folder;
  const auto begun = [&](auto declare) {
    GgufWriter writer;
    declare(writer);
    const Status status = writer.begin(folder / "out.gguf");
    CHECK(folder.count() == 0);
    return status;
  };
  using W = GgufWriter&;
  CHECK(mentions(begun([](W w) { w.add("", true); }), "0 bytes"));
  CHECK(mentions(begun([](W w) { w.add(std::string(70000, 'k'), true); }), "70000 bytes"));
  CHECK(mentions(begun([](W w) { w.add("a", true), w.add("a", 1.0f); }), "'a' is added twice"));
  CHECK(mentions(begun([](W w) { w.add("general.alignment", std::uint32_t{64}); }), "alignment"));
  CHECK(mentions(begun([](W w) { w.add_tensor("", BlockType::kF32, {1}); }), "0 bytes"));
  CHECK(mentions(begun([](W w) {
                   w.add_tensor("t", BlockType::kF32, {1});
                   w.add_tensor("t", BlockType::kF32, {1});
                 }),
                 "'t' is added twice"));
  CHECK(mentions(begun([](W w) { w.add_tensor("t", BlockType::kF32, {}); }), "expected 1 to 4"));
  CHECK(mentions(begun([](W w) {
                   w.add_tensor("t", BlockType::kF32, {1, 1, 1, 1, 1});
                 }),
                 "expected 1 to 4"));
  CHECK(
      mentions(begun([](W w) { w.add_tensor("t", BlockType::kQ4_K, {128}); }), "multiple of 256"));
  CHECK(mentions(begun([](W w) { w.add_tensor("t", BlockType::kF32, {4, 0}); }), "zero"));
  const std::uint64_t huge = std::uint64_t{1} << 32;
  CHECK(mentions(begun([=](W w) { w.add_tensor("t", BlockType::kF32, {huge, huge}); }), "64 bits"));
  CHECK(mentions(begun([=](W w) {
                   w.add_tensor("a", BlockType::kF32, {huge, huge / 8});
                   w.add_tensor("b", BlockType::kF32, {huge, huge / 8});
                 }),
                 "'b' has sizes"));
  CHECK(mentions(begun([=](W w) {
                   w.add_tensor("t", BlockType::kF32, {huge, huge / 8});
                 }),
                 "more than a file can hold"));
  GgufWriter odd(33);
  CHECK(mentions(odd.begin(folder / "out.gguf"), "power of two"));
}

TEST_CASE("an unfinished file leaves nothing behind, and the older one untouched") {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.gguf", "older");
  {
    GgufWriter writer;
    writer.add_tensor("t", BlockType::kF32, {100});
    REQUIRE(writer.begin(path).ok());
    CHECK(folder.count() == 2);
    REQUIRE(writer.append(counted_bytes(100)).ok());
  }
  CHECK(folder.count() == 1);
  GgufWriter writer;
  writer.add_tensor("t", BlockType::kF32, {100});
  REQUIRE(writer.begin(path).ok());
  REQUIRE(writer.append(counted_bytes(399)).ok());
  CHECK(mentions(writer.finish(), "'t' got 399 of its 400 bytes"));
  CHECK(folder.count() == 1);
  CHECK(TemporaryFolder::read(path) == "older");
  GgufWriter greedy;
  greedy.add_tensor("t", BlockType::kF32, {1});
  CHECK(mentions(greedy.append(counted_bytes(4)), "before the file was begun"));
  CHECK(mentions(greedy.finish(), "before it was begun"));
  REQUIRE(greedy.begin(path).ok());
  CHECK(mentions(greedy.append(counted_bytes(5)), "beyond the last tensor"));
  REQUIRE(greedy.finish().ok());  // the four bytes that fit were taken
  CHECK(GgufFile::open(path).ok());
}

TEST_CASE("places that cannot be written are errors with the path") {
  const TemporaryFolder folder;
  for (const std::string& path : {folder / "missing/out.gguf", folder / "",
                                  std::string("/dev/full"), std::string("/dev/null")}) {
    GgufWriter writer;
    CHECK(mentions(writer.begin(path), path));
  }
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("a full disk is an error at once and leaves nothing behind") {
  // A limit on the size of files stands for a full disk: the same calls fail in the same places.
  const TemporaryFolder folder;
  struct rlimit before {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 100000;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  GgufWriter writer;
  writer.add_tensor("t", BlockType::kF32, {100000});
  const Status begun = writer.begin(folder / "out.gguf");
  // Where space cannot be reserved, it shows when the bytes are written.
  const auto grown = OutputFile::create(folder / "grown", 0);
  REQUIRE(grown.ok());
  OutputFile output = OutputFile::create(folder / "grown", 0).value();
  Status written;
  int pieces = 0;
  while (written.ok() && pieces < 100) {
    written = output.write(counted_bytes(10000));
    ++pieces;
  }
  const Status again = output.write(counted_bytes(200000));
  const Status committed = output.commit();
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  signal(SIGXFSZ, old_handler);
  CHECK(mentions(begun, "out.gguf"));
  CHECK(mentions(written, "grown"));
  CHECK(pieces < 20);
  CHECK_FALSE(again.ok());
  CHECK_FALSE(committed.ok());
  CHECK_FALSE(std::filesystem::exists(folder / "grown"));
  CHECK(folder.count() == 1);  // the temporary file of `grown`, still open
}
