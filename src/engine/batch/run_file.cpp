#include "src/engine/batch/run_file.h"

#include <sys/stat.h>

#include <span>

#include "src/base/mapped_file.h"
#include "src/gguf/output_file.h"
#include "src/text/bounded_json.h"

namespace sluice {
namespace {

constexpr int kVersion = 1;

std::string shown(const BatchJson& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "not set";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

}  // namespace

Result<std::optional<RunFile>> RunFile::read(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::optional<RunFile>();
  SLUICE_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::open(path));
  const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()),
                              mapped.bytes().size());
  SLUICE_ASSIGN_OR_RETURN(const BatchJson json,
                          parse_bounded_json(text, "'" + path + "'", "what a batch wrote there"));
  const auto has = [&](const char* key, auto is) {
    return json.contains(key) && (json[key].*is)();
  };
  const bool usable =
      json.is_object() && json.contains("sluice_batch") && has("settings", &BatchJson::is_object) &&
      has("seed", &BatchJson::is_number_unsigned) && has("began", &BatchJson::is_number_integer);
  if (!usable) {
    return bad_input("'{}' does not say what its output was made with; give another output", path);
  }
  if (json["sluice_batch"] != kVersion) {
    return bad_input("'{}' is of version {}; this program knows version {}", path,
                     json["sluice_batch"].dump(), kVersion);
  }
  RunFile run;
  run.settings = json["settings"];
  run.seed = json["seed"].get<std::uint64_t>();
  run.began = json["began"].get<std::int64_t>();
  const auto input = json.find("input");
  if (input != json.end() && input->is_object()) {
    const auto number = [&](const char* key) -> std::uint64_t {
      const auto found = input->find(key);
      return found != input->end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
    };
    run.input = InputSummary{0, number("bytes"), number("hash"), number("bytes")};
  }
  return std::optional<RunFile>(std::move(run));
}

Status RunFile::write(const std::string& path) const {
  BatchJson json;
  json["sluice_batch"] = kVersion;
  json["began"] = began;
  json["seed"] = seed;
  json["input"] = nullptr;
  if (input) json["input"] = {{"bytes", input->bytes}, {"hash", input->hash}};
  json["settings"] = settings;
  const std::string text = json.dump(2, ' ', false, BatchJson::error_handler_t::replace) + "\n";
  SLUICE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path, text.size()));
  SLUICE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

std::vector<std::string> differences(const BatchJson& before, const BatchJson& now) {
  std::vector<std::string> lines;
  const auto compare = [&](const std::string& key) {
    const std::string old_value = shown(before, key);
    const std::string new_value = shown(now, key);
    if (old_value != new_value) {
      lines.push_back(fmt::format("{} was {} and is {}", key, old_value, new_value));
    }
  };
  for (const auto& [key, value] : before.items()) compare(key);
  for (const auto& [key, value] : now.items()) {
    if (!before.contains(key)) compare(key);
  }
  return lines;
}

}  // namespace sluice
