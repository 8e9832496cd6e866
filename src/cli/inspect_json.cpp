#include "src/cli/inspect_json.h"

#include <cmath>

#include "src/cli/json.h"

namespace sluice::cli {
namespace {

Json array_to_json(const GgufArray& array) {
  Json list = Json::array();
  for (const std::string_view text : array.strings) list.push_back(json_text(text));
  for (const GgufArray& inner : array.arrays) list.push_back(array_to_json(inner));
  const bool numbers =
      array.element_type != GgufValueType::kString && array.element_type != GgufValueType::kArray;
  for (std::uint64_t i = 0; numbers && i < array.count; ++i) {
    switch (array.element_type) {
      case GgufValueType::kFloat32:
      case GgufValueType::kFloat64:
        list.push_back(array.number_at(i));  // NaN and infinity are printed as null
        break;
      case GgufValueType::kBool:
        list.push_back(array.integer_at(i) != 0);
        break;
      case GgufValueType::kUint64:
        list.push_back(static_cast<std::uint64_t>(array.integer_at(i)));
        break;
      default:
        list.push_back(array.integer_at(i));
    }
  }
  return list;
}

Json value_to_json(const GgufValue& value) {
  if (value.type == GgufValueType::kBool) return std::get<std::uint64_t>(value.data) != 0;
  if (const auto* number = std::get_if<std::uint64_t>(&value.data)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&value.data)) return *number;
  if (const auto* number = std::get_if<double>(&value.data)) return *number;
  if (const auto* text = std::get_if<std::string_view>(&value.data)) return json_text(*text);
  return array_to_json(std::get<GgufArray>(value.data));
}

Json spec_to_json(const ModelSpec& spec) {
  Json json;
  json["layers"] = spec.layers;
  json["embedding"] = spec.embedding;
  json["heads"] = spec.heads;
  json["kv_heads"] = spec.kv_heads;
  json["head_dim"] = spec.head_dim;
  json["feed_forward"] = spec.feed_forward;
  json["vocabulary"] = spec.vocabulary;
  json["context"] = spec.context;
  json["experts"] = spec.experts;
  json["experts_used"] = spec.experts_used;
  return json;
}

Json tokenizer_to_json(const Tokenizer& tokenizer) {
  Json json;
  json["model"] = json_text(tokenizer.model());
  json["pretokenizer"] = json_text(tokenizer.pretokenizer());
  json["tokens"] = tokenizer.vocab_size();
  json["bos"] = tokenizer.bos_id();
  json["eos"] = tokenizer.eos_id();
  json["add_bos"] = tokenizer.add_bos();
  json["add_eos"] = tokenizer.add_eos();
  json["ends_of_generation"] = tokenizer.eog_ids();
  return json;
}

}  // namespace

std::string inspect_json(const GgufFile& file, const Result<Model>& model,
                         const Result<std::unique_ptr<Tokenizer>>& tokenizer,
                         const std::optional<Fit>& fit, const std::optional<GpuFit>& gpu_fit) {
  Json json;
  json["file"] = json_text(file.name());
  json["gguf_version"] = file.version();
  json["bytes"] = file.file_bytes();
  const GgufValue* architecture = file.find("general.architecture");
  json["architecture"] = architecture ? value_to_json(*architecture) : Json();
  std::uint64_t parameters = 0;
  for (const GgufTensor& tensor : file.tensors()) parameters += tensor.elements;
  json["parameters"] = parameters;
  json["runnable"] = model.ok();
  if (model.ok()) {
    json["model"] = spec_to_json(model->spec);
  } else {
    json["not_runnable_because"] = json_text(model.error().message);
  }
  if (tokenizer.ok()) {
    json["tokenizer"] = tokenizer_to_json(**tokenizer);
  } else {
    json["tokenizer"] = nullptr;
    json["tokenizer_unusable_because"] = json_text(tokenizer.error().message);
  }
  json["chat_template"] = file.find("tokenizer.chat_template") != nullptr;

  Json metadata = Json::object();
  for (const auto& [key, value] : file.metadata()) metadata[json_text(key)] = value_to_json(value);
  json["metadata"] = std::move(metadata);
  Json tensors = Json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    Json entry;
    entry["name"] = json_text(tensor.name);
    entry["type"] = block_type_info(tensor.type).name;
    entry["shape"] = tensor.dims;
    entry["bytes"] = tensor.data.size();
    tensors.push_back(std::move(entry));
  }
  json["tensors"] = std::move(tensors);
  if (fit) json["fit"] = fit_to_json(*fit);
  if (gpu_fit) json["gpu_fit"] = gpu_fit_to_json(*gpu_fit);
  return json_line(json);
}

}  // namespace sluice::cli
