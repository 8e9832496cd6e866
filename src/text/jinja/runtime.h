// What a rendering shares: limits, memory, and calls back into the interpreter.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/text/jinja/value.h"

namespace sluice::jinja {

// A template beyond one of these ends in an error. All templates of well-known models stay far
// below: rendering a long conversation takes some ten thousand steps.
struct Limits {
  std::uint64_t steps = 10'000'000;       // an operation or a bit of copied text is a step: ~1 s
  std::size_t text_bytes = 64u << 20;     // of one string, and of the output
  std::size_t memory_bytes = 256u << 20;  // all values alive at one time
  std::int64_t range_length = 100'000;    // as the sandbox of jinja2
  int call_depth = 200;                   // macros, caller() and recursive loops inside each other
  int eval_depth = 2'000;                 // expressions and statements inside each other
  int data_depth = 200;                   // nesting of lists and dicts that are printed or compared
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

class Runtime {
 public:
  explicit Runtime(const Limits& limits) : limits_(limits) {}
  virtual ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Limits& limits() const { return limits_; }
  std::uint64_t steps() const { return steps_; }

  // Counts work done; an error once the limits of steps or memory are passed.
  Status charge(std::uint64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.steps || bytes_ > limits_.memory_bytes) return limit_error();
    return {};
  }
  // For copying, looking at, or doing something with each of that many bytes.
  Status charge_copy(std::size_t bytes) { return charge(bytes / 32); }
  Status charge_scan(std::size_t bytes) { return charge(bytes / 8); }
  Status charge_each(std::size_t bytes) { return charge(bytes / 2); }
  // Error if a string of that size must not be made. Call before making it.
  Status check_text_size(std::uint64_t bytes);
  // Counts a list of that many values, before it is made. Strings of its own take more each.
  Status check_list_size(std::uint64_t count, std::size_t bytes_each = sizeof(Value));
  Status check_string_list_size(std::uint64_t count) { return check_list_size(count, 256); }

  Value make_string(TaggedText text, bool markup = false);
  Value make_string(std::string_view text) {
    return make_string(TaggedText(std::string(text), false));
  }
  Value make_list(std::vector<Value> items);
  Value make_tuple(std::vector<Value> items);
  Value make_undefined(std::string message);
  // A generator; begin makes the iterator behind it when the first item is asked for.
  using Begin = Result<std::shared_ptr<IteratorNode>> (*)(Runtime& rt, const Value& value,
                                                          Args& args);
  Value make_lazy(Begin begin, const Value& value, Args args);
  template <class T, class... A>
  std::shared_ptr<T> make(A&&... args) {
    return std::make_shared<T>(this, std::forward<A>(args)...);
  }

  // Calls a macro, method, function or other callable.
  virtual Result<Value> call(const Value& callee, Args args) = 0;
  // Applies a filter or test by name, as map and select do.
  virtual Result<Value> call_filter(std::string_view name, const Value& value, Args args) = 0;
  virtual Result<bool> call_test(std::string_view name, const Value& value, Args args) = 0;

 private:
  friend class Node;
  friend class Nesting;
  Error limit_error() const;
  void discard(std::shared_ptr<Node> node);

  Limits limits_;
  std::uint64_t steps_ = 0;
  std::size_t bytes_ = 0;
  int depth_ = 0;
  Node* nodes_ = nullptr;  // all that are alive, linked
  std::vector<std::shared_ptr<Node>> trash_;
  bool emptying_trash_ = false;
};

// One more level of evaluation while it lives. Every function that can come back to itself through
// the template's data or code makes one and checks it, so the stack cannot overflow.
class Nesting {
 public:
  explicit Nesting(Runtime& rt) : rt_(rt) { ++rt_.depth_; }
  ~Nesting() { --rt_.depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  Status check() const {
    if (rt_.depth_ <= rt_.limits_.eval_depth) return {};
    return bad_input("the template nests more than {} levels at run time (limit)",
                     rt_.limits_.eval_depth);
  }

 private:
  Runtime& rt_;
};

}  // namespace sluice::jinja
