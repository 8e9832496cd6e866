// Tables of filters, tests, methods and global functions.
#pragma once

#include <string_view>

#include "src/text/jinja/runtime.h"
#include "src/text/jinja/value.h"

namespace sluice::jinja {

struct FilterInfo {
  std::string_view name;
  Result<Value> (*apply)(Runtime& rt, const Value& value, Args& args);
};
struct TestInfo {
  std::string_view name;
  Result<bool> (*apply)(Runtime& rt, const Value& value, Args& args);
};
// Null if there is none of that name.
const FilterInfo* find_filter(std::string_view name);
const TestInfo* find_test(std::string_view name);

enum class MethodAccess {
  kSafe,
  kMutates,      // the sandbox forbids it: looking it up gives an unsafe undefined value
  kUnsupported,  // exists in Python, not here
};
struct MethodInfo {
  Kind kind;  // of the object it belongs to
  std::string_view name;
  MethodAccess access;
  Result<Value> (*call)(Runtime& rt, const Value& self, Args& args);
};
// Null if values of that kind have no such method.
const MethodInfo* find_method(Kind kind, std::string_view name);

enum class Function : int {
  kRange,
  kDict,
  kNamespace,
  kCycler,
  kJoiner,
  kRaiseException,
  kStrftimeNow,
  kLipsum,
};
// The id of a global function, or -1.
int find_function(std::string_view name);
// All functions but raise_exception and strftime_now, which the interpreter answers itself.
Result<Value> call_function(Runtime& rt, Function function, Args& args);

// Filters by topic, each a table with its size.
struct FilterTable {
  const FilterInfo* begin;
  std::size_t size;
};
FilterTable text_filters();
FilterTable number_filters();
FilterTable sequence_filters();
FilterTable select_filters();

struct MethodTable {
  const MethodInfo* begin;
  std::size_t size;
};
MethodTable string_methods();
MethodTable string_query_methods();
MethodTable container_methods();

}  // namespace sluice::jinja
