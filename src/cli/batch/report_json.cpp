#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "src/cli/batch/batch_report.h"
#include "src/cli/json.h"
#include "src/gguf/output_file.h"

namespace sluice::cli {
namespace {

Json percentiles_json(const Percentiles& values) {
  if (values.count == 0) return {};
  return {{"p50", values.p50}, {"p90", values.p90}, {"p99", values.p99}};
}

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json goodput_json(const BatchReport& report) {
  const LatencyStats& latency = report.latency;
  if (!latency.goal().any()) return {};
  return {{"ttft_ms", optional_json(latency.goal().ttft_ms)},
          {"tpot_ms", optional_json(latency.goal().tpot_ms)},
          {"items", latency.good_items()},
          {"items_per_s", report.per_second(latency.good_items())},
          {"tokens_per_s", report.per_second(latency.good_tokens())}};
}

Json timeline_json(const Timeline& timeline) {
  Json list = Json::array();
  for (const TimelinePoint& point : timeline.points()) {
    list.push_back({{"s", point.seconds},
                    {"prefill_per_s", point.prefill_per_s},
                    {"decode_per_s", point.decode_per_s},
                    {"rows", point.rows},
                    {"running", point.running},
                    {"waiting", point.waiting},
                    {"kv_blocks", point.blocks}});
  }
  return list;
}

Json items_json(const Timeline& timeline) {
  Json list = Json::array();
  for (const LatencyPoint& point : timeline.items()) {
    list.push_back({{"s", point.seconds},
                    {"ttft_ms", point.ttft_ms},
                    {"tpot_ms", point.tpot_ms},
                    {"end_ms", point.end_ms}});
  }
  return list;
}

}  // namespace

std::string batch_report_json(const BatchReport& report) {
  const SchedulerStats& stats = report.stats;
  const LatencyStats& latency = report.latency;
  Json json;
  json["model"] = json_text(report.model);
  json["device"] = json_text(report.device);
  json["input"] = json_text(report.input);
  json["output"] = json_text(report.output);
  json["complete"] = report.complete;
  json["seconds"] = report.seconds;
  json["items"] = {{"answered", report.counts.done},
                   {"failed", report.counts.failed},
                   {"skipped", report.counts.skipped},
                   {"skipped_errors", report.counts.skipped_errors}};
  json["tokens"] = {{"prompt", latency.prompt_tokens()}, {"generated", latency.tokens()}};
  json["throughput"] = {{"items_per_s", report.per_second(latency.items())},
                        {"prompt_tokens_per_s", report.per_second(latency.prompt_tokens())},
                        {"generated_tokens_per_s", report.per_second(latency.tokens())}};
  json["latency_ms"] = {{"ttft", percentiles_json(latency.ttft())},
                        {"tpot", percentiles_json(latency.tpot())},
                        {"end_to_end", percentiles_json(latency.end_to_end())},
                        {"queue", percentiles_json(latency.queue())}};
  json["goodput"] = goodput_json(report);
  json["scheduler"] = {{"slots", report.slots},
                       {"passes", stats.passes},
                       {"pass_ms", stats.pass_ms},
                       {"rows", stats.rows},
                       {"prompt_tokens", stats.prompt_tokens},
                       {"prefill_tokens", stats.prefill_tokens},
                       {"shared_tokens", stats.shared_tokens},
                       {"decode_tokens", stats.decode_tokens},
                       {"drafted_tokens", stats.drafted_tokens},
                       {"accepted_tokens", stats.accepted_tokens},
                       {"preemptions", stats.preemptions},
                       {"recomputed_tokens", stats.recomputed_tokens}};
  json["kv_cache"] = {{"blocks", stats.blocks_total},
                      {"blocks_most", stats.blocks_most},
                      {"block_tokens", report.block_tokens}};
  json["timeline"] = timeline_json(report.timeline);
  json["items_over_time"] = items_json(report.timeline);
  return json_line(json);
}

Status check_report_path(const std::string& path) {
  if (!path.ends_with(".json") && !path.ends_with(".html")) {
    return make_error(ErrorCode::kUsage, "'{}' ends neither in .json nor in .html", path);
  }
  // Better said now than after a night.
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0) return {};
  return make_error(ErrorCode::kUsage, "'{}' can't be written there: {}", path,
                    std::strerror(errno));
}

Status write_batch_report(const std::string& path, const BatchReport& report) {
  const std::string text =
      path.ends_with(".html") ? batch_report_html(report) : batch_report_json(report);
  SLUICE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path, text.size()));
  SLUICE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace sluice::cli
