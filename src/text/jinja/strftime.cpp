#include "src/text/jinja/strftime.h"

namespace sluice::jinja {
namespace {

constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};

// A number with the padding that a flag of glibc asks for: '-' none, '_' blanks, '0' zeros.
std::string number(int value, int width, char flag, char pad = '0') {
  if (flag == '-') return fmt::format("{}", value);
  if (flag == '_') pad = ' ';
  if (flag == '0') pad = '0';
  return pad == '0' ? fmt::format("{:0{}}", value, width) : fmt::format("{:{}}", value, width);
}

// Year and week of ISO 8601: weeks begin on Monday, week 1 has the first Thursday.
void iso_week(const std::tm& t, int* year, int* week) {
  const int weekday = (t.tm_wday + 6) % 7;  // Monday is 0
  *year = t.tm_year + 1900;
  *week = (t.tm_yday - weekday + 10) / 7;
  const auto weeks_in = [](int y) {
    const auto last_weekday = [](int of) { return (of + of / 4 - of / 100 + of / 400) % 7; };
    return last_weekday(y) == 4 || last_weekday(y - 1) == 3 ? 53 : 52;
  };
  if (*week < 1) {
    --*year;
    *week = weeks_in(*year);
  } else if (*week > weeks_in(*year)) {
    ++*year;
    *week = 1;
  }
}

Result<std::string> directive(char c, char flag, const std::tm& t) {
  const int year = t.tm_year + 1900;
  const int hour12 = t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12;
  const auto compose = [&](std::string_view format) { return format_time(format, t); };
  int iso_year = 0;
  int week = 0;
  switch (c) {
    case 'a':
      return std::string(kDays[t.tm_wday].substr(0, 3));
    case 'A':
      return std::string(kDays[t.tm_wday]);
    case 'b':
    case 'h':
      return std::string(kMonths[t.tm_mon].substr(0, 3));
    case 'B':
      return std::string(kMonths[t.tm_mon]);
    case 'c':
      return compose("%a %b %e %H:%M:%S %Y");
    case 'C':
      return number(year / 100, 2, flag);
    case 'd':
      return number(t.tm_mday, 2, flag);
    case 'D':
    case 'x':
      return compose("%m/%d/%y");
    case 'e':
      return number(t.tm_mday, 2, flag, ' ');
    case 'f':
      return std::string("000000");
    case 'F':
      return compose("%Y-%m-%d");
    case 'g':
      iso_week(t, &iso_year, &week);
      return number(iso_year % 100, 2, flag);
    case 'G':
      iso_week(t, &iso_year, &week);
      return number(iso_year, 4, flag);
    case 'V':
      iso_week(t, &iso_year, &week);
      return number(week, 2, flag);
    case 'H':
      return number(t.tm_hour, 2, flag);
    case 'I':
      return number(hour12, 2, flag);
    case 'j':
      return number(t.tm_yday + 1, 3, flag);
    case 'k':
      return number(t.tm_hour, 2, flag, ' ');
    case 'l':
      return number(hour12, 2, flag, ' ');
    case 'm':
      return number(t.tm_mon + 1, 2, flag);
    case 'M':
      return number(t.tm_min, 2, flag);
    case 'n':
      return std::string("\n");
    case 'p':
      return std::string(t.tm_hour < 12 ? "AM" : "PM");
    case 'P':
      return std::string(t.tm_hour < 12 ? "am" : "pm");
    case 'r':
      return compose("%I:%M:%S %p");
    case 'R':
      return compose("%H:%M");
    case 'S':
      return number(t.tm_sec, 2, flag);
    case 't':
      return std::string("\t");
    case 'T':
    case 'X':
      return compose("%H:%M:%S");
    case 'u':
      return number(t.tm_wday == 0 ? 7 : t.tm_wday, 1, flag);
    case 'U':
      return number((t.tm_yday + 7 - t.tm_wday) / 7, 2, flag);
    case 'w':
      return number(t.tm_wday, 1, flag);
    case 'W':
      return number((t.tm_yday + 7 - (t.tm_wday + 6) % 7) / 7, 2, flag);
    case 'y':
      return number(year % 100, 2, flag);
    case 'Y':
      return number(year, 4, flag);
    case 'z':
    case 'Z':
      return std::string();
    case '%':
      return std::string("%");
    default:
      return bad_input("strftime_now(): the directive '%{}' is not known", c);
  }
}

}  // namespace

Result<std::string> format_time(std::string_view format, const std::tm& time) {
  constexpr std::size_t kMaxFormat = 4096;
  if (format.size() > kMaxFormat) {
    return bad_input("strftime_now() with a format of more than {} bytes (limit)", kMaxFormat);
  }
  const bool valid = time.tm_wday >= 0 && time.tm_wday < 7 && time.tm_mon >= 0 && time.tm_mon < 12;
  if (!valid) return bad_input("strftime_now(): the clock is set to no date");
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    char flag = 0;
    if (++i < format.size() && (format[i] == '-' || format[i] == '_' || format[i] == '0')) {
      flag = format[i++];
    }
    if (i >= format.size()) return bad_input("strftime_now(): the format ends in '%'");
    SLUICE_ASSIGN_OR_RETURN(const std::string text, directive(format[i], flag, time));
    out += text;
  }
  return out;
}

}  // namespace sluice::jinja
