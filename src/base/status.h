// Errors as values. The library returns them; only the command line prints them and turns the
// code into the program's exit status.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

namespace sluice {

// Numeric values are the documented exit codes of the program.
enum class ErrorCode : int {
  kFailed = 1,         // failed at run time
  kUsage = 2,          // wrong flags or arguments
  kBadInput = 3,       // unusable model or input file
  kNoMemory = 4,       // not enough memory
  kInterrupted = 130,  // stopped by the user
};

// A message says what was found, what was expected and what to do.
struct Error {
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
};

// Success, or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return !error_.has_value(); }
  // Requires !ok().
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

// A value, or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return value_.has_value(); }
  // Require ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  // Requires !ok().
  const Error& error() const { return error_; }

 private:
  std::optional<T> value_;
  Error error_;
};

template <class... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Error bad_input(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kBadInput, format, std::forward<Args>(args)...);
}
template <class... Args>
Error failed(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kFailed, format, std::forward<Args>(args)...);
}

}  // namespace sluice

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

// Returns the error of a Status or Result expression from the enclosing function.
#define SLUICE_RETURN_IF_ERROR(expr)                       \
  do {                                                     \
    auto sluice_status = (expr);                           \
    if (!sluice_status.ok()) return sluice_status.error(); \
  } while (false)

// SLUICE_ASSIGN_OR_RETURN(auto x, f()): x = value of f(), or return its error.
#define SLUICE_ASSIGN_OR_RETURN(decl, expr)                 \
  auto SLUICE_CONCAT(sluice_result_, __LINE__) = (expr);    \
  if (!SLUICE_CONCAT(sluice_result_, __LINE__).ok())        \
    return SLUICE_CONCAT(sluice_result_, __LINE__).error(); \
  decl = std::move(SLUICE_CONCAT(sluice_result_, __LINE__)).value()
