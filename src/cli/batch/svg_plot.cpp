#include "src/cli/batch/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice::cli {
namespace {

constexpr double kWidth = 620, kHeight = 260;
constexpr double kLeft = 62, kRight = 12, kTop = 26, kBottom = 40;

struct Scale {
  double most = 1;
  double begin = 0, end = 0;  // in the picture
  double at(double value) const { return begin + (end - begin) * value / most; }
};

std::string axis_number(double value) { return fmt::format("{:.6g}", value); }

std::string grid(const Scale& x, const Scale& y) {
  std::string svg;
  const double x_step = plot_step(x.most);
  for (int i = 0; i * x_step <= x.most * 1.0001; ++i) {
    svg += fmt::format("<text class=\"t\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{}\">{}</text>\n",
                       x.at(i * x_step), kHeight - kBottom + 16, axis_number(i * x_step));
  }
  const double y_step = plot_step(y.most);
  for (int i = 0; i * y_step <= y.most * 1.0001; ++i) {
    const double at = y.at(i * y_step);
    svg += fmt::format(
        "<line class=\"g\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"t\" text-anchor=\"end\" x=\"{}\" y=\"{:.1f}\">{}</text>\n",
        kLeft, kWidth - kRight, at, at, kLeft - 6, at + 4, axis_number(i * y_step));
  }
  return svg;
}

std::string draw(const PlotSeries& series, const Scale& x, const Scale& y) {
  std::string svg;
  if (series.dots) {
    svg += fmt::format("<g fill=\"{}\" fill-opacity=\"0.5\">", series.colour);
    for (const auto& [px, py] : series.points) {
      svg += fmt::format("<circle r=\"2\" cx=\"{:.1f}\" cy=\"{:.1f}\"/>", x.at(px), y.at(py));
    }
    return svg + "</g>\n";
  }
  svg += fmt::format("<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"{}\" points=\"",
                     series.colour);
  for (const auto& [px, py] : series.points)
    svg += fmt::format("{:.1f},{:.1f} ", x.at(px), y.at(py));
  return svg + "\"/>\n";
}

}  // namespace

double plot_step(double most) {
  if (!(most > 0) || !std::isfinite(most)) return 1;
  const double power = std::pow(10, std::floor(std::log10(most)));
  for (const double factor : {0.2, 0.5, 1.0}) {
    if (most / (factor * power) <= 7) return factor * power;
  }
  return 2 * power;
}

std::string svg_plot(const std::string& x_name, const std::string& y_name,
                     const std::vector<PlotSeries>& series) {
  double most_x = 0;
  double most_y = 0;
  for (const PlotSeries& each : series) {
    for (const auto& [px, py] : each.points) {
      most_x = std::max(most_x, px);
      most_y = std::max(most_y, py);
    }
  }
  const Scale x = {most_x > 0 ? most_x : 1, kLeft, kWidth - kRight};
  const Scale y = {most_y > 0 ? most_y * 1.05 : 1, kHeight - kBottom, kTop};
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">\n", kWidth, kHeight);
  svg += grid(x, y);
  for (const PlotSeries& each : series) svg += draw(each, x, y);
  svg += fmt::format("<text class=\"t\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">{}</text>\n",
                     (kLeft + kWidth - kRight) / 2, kHeight - 6, x_name);
  svg += fmt::format("<text class=\"t\" x=\"{}\" y=\"14\">{}</text>\n", 4, y_name);
  double at = kWidth - kRight;
  for (auto each = series.rbegin(); each != series.rend(); ++each) {
    svg += fmt::format(
        "<text class=\"t\" text-anchor=\"end\" fill=\"{}\" x=\"{}\" y=\"14\">{}</text>\n",
        each->colour, at, each->name);
    at -= 7.5 * static_cast<double>(each->name.size()) + 14;
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::cli
