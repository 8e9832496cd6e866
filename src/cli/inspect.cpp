// sluice inspect: what a model file holds. Works on any readable GGUF file, also on models that
// sluice can't run.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "cuda/host/cuda_platform.h"
#include "src/cli/command.h"
#include "src/cli/flags.h"
#include "src/cli/inspect_fit.h"
#include "src/cli/inspect_gpu_fit.h"
#include "src/cli/inspect_json.h"
#include "src/cli/interrupt.h"
#include "src/cli/model_flags.h"
#include "src/cli/numbers.h"
#include "src/gguf/describe.h"
#include "src/gguf/gguf.h"
#include "src/model/model_spec.h"
#include "src/text/tokenizer.h"

namespace sluice::cli {
namespace {

struct InspectOptions {
  std::vector<std::string> model;
  bool tensors = false;
  bool fit = false;
  bool json = false;
  std::vector<std::int64_t> contexts;
  std::optional<DeviceChoice> device;
};

constexpr std::size_t kNameColumn = 24;
constexpr std::size_t kKeyBytes = 100;  // longer keys and names are shortened
constexpr std::size_t kValueBytes = 120;

std::string row(std::string_view name, std::string_view value) {
  return fmt::format("{:<{}}{}\n", name, kNameColumn, value);
}

// Bytes and tensors by type, largest first.
std::string describe_types(const GgufFile& file) {
  struct Sum {
    std::string_view name;
    std::uint64_t tensors = 0, bytes = 0;
  };
  std::map<BlockType, Sum> sums;
  std::uint64_t total = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    Sum& sum = sums[tensor.type];
    sum.name = block_type_info(tensor.type).name;
    ++sum.tensors;
    sum.bytes += tensor.data.size();
    total += tensor.data.size();
  }
  std::vector<Sum> sorted;
  for (const auto& [type, sum] : sums) sorted.push_back(sum);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Sum& a, const Sum& b) { return a.bytes > b.bytes; });
  std::string text;
  for (const Sum& sum : sorted) {
    const double share =
        total ? 100.0 * static_cast<double>(sum.bytes) / static_cast<double>(total) : 0.0;
    text += row(text.empty() ? "tensor types" : "",
                fmt::format("{:<8}{:>6} tensors {:>10} {:>5.1f}%", sum.name, sum.tensors,
                            format_bytes(sum.bytes), share));
  }
  return text;
}

std::string describe_spec(const Result<Model>& model) {
  if (!model.ok()) return row("can be run", "no: " + printable_message(model.error().message, 400));
  const ModelSpec& spec = model->spec;
  std::string text = row("can be run", "yes");
  text += row("layers", fmt::format("{} of width {}", spec.layers, spec.embedding));
  text += row("heads", fmt::format("{}, {} for keys and values, {} values each", spec.heads,
                                   spec.kv_heads, spec.head_dim));
  if (spec.experts > 0) {
    text += row("experts", fmt::format("{}, {} used a token, {} wide", spec.experts,
                                       spec.experts_used, spec.expert_feed_forward));
  } else {
    text += row("feed forward", fmt::format("{}", spec.feed_forward));
  }
  text += row("vocabulary", fmt::format("{}", spec.vocabulary));
  text += row("context", fmt::format("{} tokens trained", spec.context));
  const auto windowed = static_cast<std::size_t>(std::count_if(
      spec.layer.begin(), spec.layer.end(), [](const LayerSpec& l) { return l.window > 0; }));
  if (windowed > 0) {
    std::uint32_t window = 0;
    for (const LayerSpec& layer : spec.layer) window = std::max(window, layer.window);
    text += row("sliding window", fmt::format("{} tokens in {} layers", window, windowed));
  }
  for (const std::string& warning : spec.warnings)
    text += row("note", printable_message(warning, 400));
  return text;
}

std::string describe_tokenizer(const Result<std::unique_ptr<Tokenizer>>& loaded) {
  if (!loaded.ok())
    return row("tokenizer", "unusable: " + printable_message(loaded.error().message, 400));
  const Tokenizer& tokenizer = **loaded;
  std::string text = fmt::format("{}", tokenizer.model());
  if (!tokenizer.pretokenizer().empty()) text += fmt::format(", {}", tokenizer.pretokenizer());
  text += fmt::format(", {} tokens", tokenizer.vocab_size());
  if (tokenizer.add_bos()) text += ", adds BOS";
  if (tokenizer.add_eos()) text += ", adds EOS";
  text = row("tokenizer", text);
  std::string ends;
  for (const std::int32_t id : tokenizer.eog_ids()) {
    ends += fmt::format("{}{} {}", ends.empty() ? "" : ", ", id,
                        printable(tokenizer.token_text(id), 40));
  }
  text += row("ends of generation", ends.empty() ? "none known" : ends);
  for (const std::string& warning : tokenizer.warnings()) {
    text += row("note", printable_message(warning, 400));
  }
  return text;
}

std::string describe_overview(const GgufFile& file, const Result<Model>& model,
                              const Result<std::unique_ptr<Tokenizer>>& tokenizer) {
  std::string text = row("file", printable(file.name(), 400));
  text += row("size",
              fmt::format("{}, GGUF version {}", format_bytes(file.file_bytes()), file.version()));
  const auto string_row = [&](std::string_view name, std::string_view key) {
    const GgufValue* value = file.find(key);
    if (value) text += row(name, gguf_value_to_string(*value, kValueBytes));
  };
  string_row("name", "general.name");
  string_row("architecture", "general.architecture");
  double parameters = 0;
  for (const GgufTensor& tensor : file.tensors())
    parameters += static_cast<double>(tensor.elements);
  text += row("parameters", format_count(parameters));
  text += describe_types(file);
  text += describe_spec(model);
  text += describe_tokenizer(tokenizer);
  const GgufValue* chat = file.find("tokenizer.chat_template");
  const auto* chat_text = chat ? std::get_if<std::string_view>(&chat->data) : nullptr;
  text += row("chat template",
              chat_text ? fmt::format("yes, {} bytes", chat_text->size()) : std::string("no"));
  return text;
}

std::string describe_metadata(const GgufFile& file) {
  std::size_t width = 0;
  for (const auto& [key, value] : file.metadata()) {
    width = std::max(width, printable(key, kKeyBytes).size());
  }
  std::string text = fmt::format("\nmetadata ({} keys)\n", file.metadata().size());
  for (const auto& [key, value] : file.metadata()) {
    text += fmt::format("{:<{}}  {}\n", printable(key, kKeyBytes), std::min<std::size_t>(width, 60),
                        gguf_value_to_string(value, kValueBytes));
  }
  return text;
}

std::string describe_tensors(const GgufFile& file) {
  std::size_t width = 4;
  for (const GgufTensor& tensor : file.tensors()) {
    width = std::max(width, printable(tensor.name, kKeyBytes).size());
  }
  width = std::min<std::size_t>(width, 60);
  std::string text = fmt::format("\ntensors ({}), columns x rows\n", file.tensors().size());
  for (const GgufTensor& tensor : file.tensors()) {
    text += fmt::format("{:<{}}  {:<8}{:<20}{:>10}\n", printable(tensor.name, kKeyBytes), width,
                        block_type_info(tensor.type).name, gguf_dims_to_string(tensor),
                        format_bytes(tensor.data.size()));
  }
  return text;
}

Status read_contexts(std::string_view text, std::vector<std::int64_t>* contexts) {
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<std::int32_t> list,
      parse_number_list(text, "a number of tokens", 1, std::numeric_limits<std::int32_t>::max()));
  contexts->assign(list.begin(), list.end());
  return {};
}

}  // namespace

Status inspect_command(std::span<const std::string> args, Console& console) {
  InspectOptions options;
  std::optional<std::string> model_flag;
  Flags flags("inspect", "inspect MODEL [--tensors] [--fit [-c N,N,...] [--device NAME]] [--json]",
              "Shows what a GGUF file holds: an overview and its metadata. Works on any readable "
              "file, also where sluice can't run the model.");
  flags.positional("MODEL", "the file; of a split model any part", 1, &options.model);
  flags.text("-m,--model", "FILE", "", &model_flag);
  flags.toggle("--tensors", "the tensors instead of the metadata: name, type, shape, bytes",
               &options.tensors);
  flags.toggle("--fit",
               "memory by context and cache type, what fits here, and the speed to expect, from "
               "the measured memory bandwidth",
               &options.fit);
  flags.value("-c,--ctx-size", "N,N,...", "contexts for --fit (powers of two to the trained one)",
              [&options](std::string_view text) { return read_contexts(text, &options.contexts); });
  declare_device(flags, [&options](const DeviceChoice& choice) { options.device = choice; });
  flags.toggle("--json", "everything as one JSON object", &options.json);
  SLUICE_ASSIGN_OR_RETURN(const Flags::Outcome outcome, flags.parse(args));
  if (!outcome.help.empty()) return console.print(outcome.help);

  if (model_flag) options.model.push_back(*model_flag);
  if (options.model.size() != 1) {
    return make_error(ErrorCode::kUsage, "inspect wants one model file: sluice inspect MODEL");
  }
  if (!options.contexts.empty() && !options.fit) {
    return make_error(ErrorCode::kUsage, "-c belongs to --fit");
  }
  if (options.device && !options.fit) {
    return make_error(ErrorCode::kUsage, "--device belongs to --fit");
  }

  const ExitOnInterrupt nothing_to_lose;
  SLUICE_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(options.model[0]));
  const Result<Model> model = load_model(file, 0);
  const Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::load(file);
  std::optional<Fit> fit;
  std::optional<GpuFit> gpu_fit;
  if (options.fit) {
    if (!model.ok()) return model.error();
    fit = compute_fit(*model, options.contexts, console.cancel());
    SLUICE_ASSIGN_OR_RETURN(
        gpu_fit,
        compute_gpu_fit(*model, cuda::platform(), options.device.value_or(DeviceChoice()), *fit));
  }

  if (options.json) return console.print(inspect_json(file, model, tokenizer, fit, gpu_fit));
  std::string text = describe_overview(file, model, tokenizer);
  if (!options.tensors && !options.fit) text += describe_metadata(file);
  if (options.tensors) text += describe_tensors(file);
  if (fit) text += describe_fit(*fit);
  if (gpu_fit) text += describe_gpu_fit(*gpu_fit);
  return console.print(text);
}

}  // namespace sluice::cli
