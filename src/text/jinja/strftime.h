// strftime with English names whatever the user's locale is.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace sluice::jinja {

// Python's datetime.strftime of a time without a zone: %f is 000000, %z and %Z are nothing.
// An error for a directive that is not known, and for a format of more than 4 KiB.
Result<std::string> format_time(std::string_view format, const std::tm& time);

}  // namespace sluice::jinja
