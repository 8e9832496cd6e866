// Plots as SVG text, to stand inside a page.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sluice::cli {

struct PlotSeries {
  std::string name;
  std::string colour;                             // as in CSS
  std::vector<std::pair<double, double>> points;  // by x
  bool dots = false;                              // else a line
};

// Axes begin at 0; the scale of y follows the largest value. Names are made of our own text.
std::string svg_plot(const std::string& x_name, const std::string& y_name,
                     const std::vector<PlotSeries>& series);

// A step of 1, 2 or 5 times a power of ten, so that `most` has 3 to 7 of them.
double plot_step(double most);

}  // namespace sluice::cli
