// The model that comes with the program.
#pragma once

#include <string>

namespace sluice::cli {

// Path of the bundled model: where `install` puts it, else in the source tree. "" when absent.
std::string find_bundled_model();

// Where it was looked for, for messages.
std::string bundled_model_places();

}  // namespace sluice::cli
