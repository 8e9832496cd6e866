#include "src/engine/batch/native_format.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

BatchJson id_of(const BatchItem& item) {
  if (item.id_is_number) return BatchJson::parse(item.id);
  return item.id;
}

BatchJson logprobs(const GenerateResult& generated, const Tokenizer& tokenizer) {
  BatchJson list = BatchJson::array();
  for (std::size_t i = 0; i < generated.logprobs.size(); ++i) {
    const TokenLogprobs& entry = generated.logprobs[i];
    BatchJson top = BatchJson::array();
    for (const auto& [id, value] : entry.top) {
      top.push_back({{"token", id},
                     {"text", replace_invalid_utf8(tokenizer.bytes_of(id, true))},
                     {"logprob", logprob_json(value)}});
    }
    list.push_back({{"token", generated.tokens[i]},
                    {"logprob", logprob_json(entry.logprob)},
                    {"top", std::move(top)}});
  }
  return list;
}

}  // namespace

std::string native_line(const BatchItem& item, const ItemResult& result,
                        const ResultContext& context) {
  const GenerateResult& generated = result.generated;
  BatchJson json;
  json["id"] = id_of(item);
  json["text"] = replace_invalid_utf8(generated.text);
  json["prompt_tokens"] = generated.prompt_tokens;
  json["generated_tokens"] = generated.tokens.size();
  json["finish_reason"] = finish_reason_name(generated.finish);
  if (!generated.stop_string.empty()) {
    json["stop"] = replace_invalid_utf8(generated.stop_string);
  }
  if (item.want_tokens.value_or(false)) json["tokens"] = generated.tokens;
  if (item.logprobs.value_or(0) > 0) json["logprobs"] = logprobs(generated, context.tokenizer);
  json["timings"] = {{"queue_ms", milliseconds(result.latency.queue_ms)},
                     {"ttft_ms", milliseconds(result.latency.ttft_ms)},
                     {"tpot_ms", milliseconds(result.latency.tpot_ms)}};
  return batch_line(json);
}

std::string native_error_line(const BatchItem& item, const std::string& message) {
  BatchJson json;
  json["id"] = id_of(item);
  json["line"] = item.line;
  json["error"] = replace_invalid_utf8(message);
  return batch_line(json);
}

}  // namespace sluice
