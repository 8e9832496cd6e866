#include "src/cli/batch/batch_report.h"
#include "src/cli/batch/svg_plot.h"
#include "src/text/utf8.h"

namespace sluice::cli {
namespace {

constexpr const char* kBlue = "#2563ab";
constexpr const char* kOrange = "#c2571a";
constexpr const char* kGreen = "#2c7a4b";

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>sluice batch</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1320px; padding: 0 1em;
       color: #222; background: #fff; }
h1 { font-size: 1.4em; } h2 { font-size: 1.05em; margin: 0 0 .3em; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: .15em 1em .15em 0; text-align: right; font-variant-numeric: tabular-nums; }
td:first-child, th:first-child { text-align: left; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1.5em; }
svg { width: 100%; height: auto; background: #fafafa; border: 1px solid #e5e5e5; }
.t { font: 11px system-ui, sans-serif; } .g { stroke: #e5e5e5; }
</style>
</head>
<body>
)";

// Names of files and models can hold anything.
std::string html_text(std::string_view bytes) {
  std::string out;
  for (const char c : replace_invalid_utf8(bytes)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string fact(std::string_view name, const std::string& value) {
  return fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", name, html_text(value));
}

std::string latency_row(std::string_view name, const Percentiles& values) {
  if (values.count == 0) return fmt::format("<tr><td>{}</td><td>-</td></tr>\n", name);
  return fmt::format("<tr><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td></tr>\n", name,
                     values.p50, values.p90, values.p99);
}

std::string facts(const BatchReport& report) {
  const LatencyStats& latency = report.latency;
  std::string html = "<table>\n";
  html += fact("model", report.model);
  html += fact("device", report.device);
  html += fact("input", report.input);
  html += fact("output", report.output);
  html += fact("items", fmt::format("{} answered, {} failed, {} already there{}",
                                    report.counts.done, report.counts.failed, report.counts.skipped,
                                    report.complete ? "" : "; not complete"));
  html += fact("time", fmt::format("{:.1f} s", report.seconds));
  html += fact("throughput", fmt::format("{:.2f} items/s, {:.1f} prompt tokens/s, {:.1f} generated "
                                         "tokens/s",
                                         report.per_second(latency.items()),
                                         report.per_second(latency.prompt_tokens()),
                                         report.per_second(latency.tokens())));
  if (latency.goal().any()) {
    html += fact("goodput", fmt::format("{:.2f} items/s, {:.1f} generated tokens/s ({} of {} items "
                                        "met the goal)",
                                        report.per_second(latency.good_items()),
                                        report.per_second(latency.good_tokens()),
                                        latency.good_items(), latency.items()));
  }
  html +=
      fact("KV cache", fmt::format("{} of {} blocks of {} tokens at most", report.stats.blocks_most,
                                   report.stats.blocks_total, report.block_tokens));
  return html + "</table>\n";
}

using PointValue = double (*)(const TimelinePoint&);
using ItemValue = double (*)(const LatencyPoint&);

PlotSeries over_time(const BatchReport& report, const char* name, const char* colour,
                     PointValue value) {
  PlotSeries series = {name, colour, {}, false};
  for (const TimelinePoint& point : report.timeline.points()) {
    series.points.emplace_back(point.seconds, value(point));
  }
  return series;
}

PlotSeries of_items(const BatchReport& report, const char* name, const char* colour,
                    ItemValue value) {
  PlotSeries series = {name, colour, {}, true};
  for (const LatencyPoint& point : report.timeline.items()) {
    series.points.emplace_back(point.seconds, value(point));
  }
  return series;
}

std::string figure(const char* title, const std::string& svg) {
  return fmt::format("<section><h2>{}</h2>\n{}</section>\n", title, svg);
}

std::string plots(const BatchReport& report) {
  const std::string x = "seconds";
  std::string html = "<div class=\"plots\">\n";
  html += figure(
      "Latency of items",
      svg_plot(
          x, "ms",
          {of_items(report, "end to end", kGreen, [](auto& p) { return double{p.end_ms}; }),
           of_items(report, "first token", kBlue, [](auto& p) { return double{p.ttft_ms}; })}));
  html += figure(
      "Time per further token",
      svg_plot(x, "ms",
               {of_items(report, "TPOT", kOrange, [](auto& p) { return double{p.tpot_ms}; })}));
  html += figure(
      "Throughput",
      svg_plot(x, "tokens/s",
               {over_time(report, "prompts", kBlue, [](auto& p) { return p.prefill_per_s; }),
                over_time(report, "generated", kOrange, [](auto& p) { return p.decode_per_s; })}));
  html +=
      figure("Batch occupancy",
             svg_plot(x, "",
                      {over_time(report, "running", kGreen, [](auto& p) { return p.running; }),
                       over_time(report, "rows a pass", kBlue, [](auto& p) { return p.rows; }),
                       over_time(report, "waiting", kOrange, [](auto& p) { return p.waiting; })}));
  html += figure("KV cache",
                 svg_plot(x, "blocks",
                          {over_time(report, "in use", kBlue, [](auto& p) { return p.blocks; })}));
  return html + "</div>\n";
}

}  // namespace

std::string batch_report_html(const BatchReport& report) {
  std::string html(kHead);
  html += "<h1>sluice batch</h1>\n" + facts(report);
  html += "<table>\n<tr><th>ms</th><th>p50</th><th>p90</th><th>p99</th></tr>\n";
  html += latency_row("TTFT", report.latency.ttft());
  html += latency_row("TPOT", report.latency.tpot());
  html += latency_row("end to end", report.latency.end_to_end());
  html += latency_row("queue", report.latency.queue());
  html += "</table>\n" + plots(report);
  return html + "</body>\n</html>\n";
}

}  // namespace sluice::cli
