#include <algorithm>

#include "src/engine/batch/openai_format.h"
#include "src/engine/batch/shard.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

constexpr int kOk = 200;
constexpr int kBadRequest = 400;

std::string hex_id(const BatchItem& item) { return fmt::format("{:016x}", stable_hash(item.id)); }

BatchJson custom_id(const BatchItem& item) {
  if (item.id_is_number) return BatchJson::parse(item.id);
  return item.id;
}

const char* finish_reason(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

BatchJson token_json(std::int32_t id, double logprob, const Tokenizer& tokenizer) {
  const std::string bytes = tokenizer.bytes_of(id, true);
  BatchJson values = BatchJson::array();
  for (const char byte : bytes) values.push_back(static_cast<unsigned char>(byte));
  return {{"token", replace_invalid_utf8(bytes)},
          {"logprob", logprob_json(logprob)},
          {"bytes", std::move(values)}};
}

std::size_t alternatives(const BatchItem& item, const TokenLogprobs& entry) {
  return std::min<std::size_t>(item.logprobs.value_or(0), entry.top.size());
}

BatchJson chat_logprobs(const BatchItem& item, const GenerateResult& generated,
                        const Tokenizer& tokenizer) {
  BatchJson list = BatchJson::array();
  for (std::size_t i = 0; i < generated.logprobs.size(); ++i) {
    const TokenLogprobs& entry = generated.logprobs[i];
    BatchJson json = token_json(generated.tokens[i], entry.logprob, tokenizer);
    BatchJson top = BatchJson::array();
    for (std::size_t k = 0; k < alternatives(item, entry); ++k) {
      top.push_back(token_json(entry.top[k].first, entry.top[k].second, tokenizer));
    }
    json["top_logprobs"] = std::move(top);
    list.push_back(std::move(json));
  }
  return {{"content", std::move(list)}, {"refusal", nullptr}};
}

BatchJson completion_logprobs(const BatchItem& item, const GenerateResult& generated,
                              const Tokenizer& tokenizer) {
  BatchJson tokens = BatchJson::array();
  BatchJson values = BatchJson::array();
  BatchJson tops = BatchJson::array();
  BatchJson offsets = BatchJson::array();
  std::size_t offset = 0;  // in bytes of the text as generated
  for (std::size_t i = 0; i < generated.logprobs.size(); ++i) {
    const TokenLogprobs& entry = generated.logprobs[i];
    tokens.push_back(replace_invalid_utf8(tokenizer.bytes_of(generated.tokens[i], true)));
    values.push_back(logprob_json(entry.logprob));
    BatchJson top = BatchJson::object();
    for (std::size_t k = 0; k < alternatives(item, entry); ++k) {
      const auto& [id, value] = entry.top[k];
      top[replace_invalid_utf8(tokenizer.bytes_of(id, true))] = logprob_json(value);
    }
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += tokenizer.bytes_of(generated.tokens[i]).size();
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

BatchJson choice(const BatchItem& item, const GenerateResult& generated,
                 const Tokenizer& tokenizer) {
  BatchJson json;
  json["index"] = 0;
  const std::string text = replace_invalid_utf8(generated.text);
  if (item.form == ItemForm::kChat) {
    json["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  } else {
    json["text"] = text;
  }
  json["logprobs"] = nullptr;
  if (item.want_logprobs) {
    json["logprobs"] = item.form == ItemForm::kChat
                           ? chat_logprobs(item, generated, tokenizer)
                           : completion_logprobs(item, generated, tokenizer);
  }
  json["finish_reason"] = finish_reason(generated.finish);
  return json;
}

BatchJson response(const BatchItem& item, int status, BatchJson body) {
  return {
      {"status_code", status}, {"request_id", "req_" + hex_id(item)}, {"body", std::move(body)}};
}

std::string line(const BatchItem& item, BatchJson answer, BatchJson error) {
  BatchJson json;
  json["id"] = "batch_req_" + hex_id(item);
  json["custom_id"] = custom_id(item);
  json["response"] = std::move(answer);
  json["error"] = std::move(error);
  return batch_line(json);
}

}  // namespace

std::string openai_line(const BatchItem& item, const ItemResult& result,
                        const ResultContext& context) {
  const GenerateResult& generated = result.generated;
  const bool chat = item.form == ItemForm::kChat;
  BatchJson body;
  body["id"] = (chat ? "chatcmpl-" : "cmpl-") + hex_id(item);
  body["object"] = chat ? "chat.completion" : "text_completion";
  body["created"] = context.began;
  body["model"] = replace_invalid_utf8(context.model);
  body["choices"] = BatchJson::array({choice(item, generated, context.tokenizer)});
  body["usage"] = {{"prompt_tokens", generated.prompt_tokens},
                   {"completion_tokens", generated.tokens.size()},
                   {"total_tokens", generated.prompt_tokens + generated.tokens.size()}};
  body["timings"] = {{"queue_ms", milliseconds(result.latency.queue_ms)},
                     {"ttft_ms", milliseconds(result.latency.ttft_ms)},
                     {"tpot_ms", milliseconds(result.latency.tpot_ms)}};
  return line(item, response(item, kOk, std::move(body)), nullptr);
}

std::string openai_error_line(const BatchItem& item, const std::string& message) {
  const std::string text = fmt::format("line {}: {}", item.line, replace_invalid_utf8(message));
  if (item.unreadable) {
    return line(item, nullptr, {{"code", "invalid_line"}, {"message", text}});
  }
  BatchJson body;
  body["error"] = {
      {"message", text}, {"type", "invalid_request_error"}, {"param", nullptr}, {"code", nullptr}};
  return line(item, response(item, kBadRequest, std::move(body)), nullptr);
}

}  // namespace sluice
