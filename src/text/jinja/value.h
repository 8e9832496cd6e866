// Values of the template language: Python's None, bool, int (64 bit), float, str, list, tuple, dict
// and the helper objects of jinja2. Values are cheap to copy; containers are shared and immutable
// (the sandbox of chat templates forbids changing them), only a namespace can change.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/text/jinja/tagged_text.h"

namespace sluice::jinja {

class Runtime;
class Value;

enum class Kind : std::uint8_t {
  kMissing,  // internal: no value at all (an argument that was not given)
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kDictView,   // dict.keys(), .values(), .items()
  kIterator,   // generators of filters such as map; can be walked once
  kNamespace,  // namespace()
  kMacro,
  kMethod,    // a method bound to its object, "x".upper
  kFunction,  // a global function
  kLoop,      // the loop variable
  kCycler,
  kJoiner,
};

// Base of everything a Value points to. Nodes of a rendering are counted and linked in its Runtime:
// memory is limited, deep structures are freed without recursion, cycles are broken at the end.
class Node {
 public:
  // runtime may be null (constants of the parsed template). bytes is what the node holds.
  Node(Runtime* runtime, std::size_t bytes);
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Hands every reference to another node to drop(). Destructors of derived classes call it.
  virtual void drop_children() {}

 protected:
  void drop(std::shared_ptr<Node> child);
  void drop(Value& value);
  void drop(std::vector<Value>& values);
  Runtime* runtime() const { return runtime_; }
  void grow(std::size_t bytes);

 private:
  friend class Runtime;
  Runtime* runtime_;
  std::size_t bytes_;
  Node* previous_ = nullptr;
  Node* next_ = nullptr;
};

class Value {
 public:
  Value() = default;
  Value(Kind kind, std::shared_ptr<Node> node) : kind_(kind), node_(std::move(node)) {}
  static Value none() { return Value(Kind::kNone, nullptr); }
  // None for something that was not given; unlike None, a loop over it is empty.
  static Value absent();
  // content: the number or truth value came from a message, so its digits are content when printed.
  static Value boolean(bool value, bool content = false);
  static Value integer(std::int64_t value, bool content = false);
  static Value number(double value, bool content = false);
  static Value function(int id);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool missing() const { return kind_ == Kind::kMissing; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_integer() const {
    return kind_ == Kind::kInt || kind_ == Kind::kBool;
  }  // as Python's int
  bool is_number() const { return is_integer() || kind_ == Kind::kFloat; }
  bool content() const { return content_; }
  Value with_content(bool content) const;

  bool as_bool() const { return int_ != 0; }
  std::int64_t as_int() const { return int_; }  // kInt, kBool, kFunction (its id)
  bool is_absent() const { return kind_ == Kind::kNone && int_ != 0; }
  double as_float() const { return float_; }  // kFloat
  double to_double() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }

  template <class T>
  T& as() const {
    return static_cast<T&>(*node_);
  }
  template <class T>
  std::shared_ptr<T> ref() const {
    return std::static_pointer_cast<T>(node_);
  }
  const Node* node() const { return node_.get(); }
  // Requires is_string().
  const TaggedText& text() const;
  std::string_view str() const { return text().view(); }
  bool markup() const;  // a string that is already escaped for HTML (made by |safe, |escape)
  const std::vector<Value>& items() const;  // kList, kTuple

 private:
  friend class Node;
  Kind kind_ = Kind::kMissing;
  bool content_ = false;
  union {
    std::int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<Node> node_;
};

struct StringNode : Node {
  StringNode(Runtime* runtime, TaggedText value, bool is_markup)
      : Node(runtime, value.footprint()), text(std::move(value)), markup(is_markup) {}
  TaggedText text;
  bool markup;
};

// The result of looking up what is not there. It prints as nothing; using it is an error.
struct UndefinedNode : Node {
  UndefinedNode(Runtime* runtime, std::string why)
      : Node(runtime, why.size()), message(std::move(why)) {}
  std::string message;
};

struct ListNode : Node {
  ListNode(Runtime* runtime, std::vector<Value> values)
      : Node(runtime, values.capacity() * sizeof(Value)), items(std::move(values)) {}
  ~ListNode() override { drop_children(); }
  void drop_children() override { drop(items); }
  std::vector<Value> items;
  bool group = false;  // a tuple of |groupby, with attributes grouper and list
};

// Keys in the order of insertion.
struct DictNode : Node {
  using Item = std::pair<Value, Value>;
  // The keys must be hashable; of equal keys the first place and the last value stay.
  DictNode(Runtime* runtime, std::vector<Item> values);
  ~DictNode() override { drop_children(); }
  void drop_children() override;
  const Value* find(const Value& key) const;  // requires a hashable key
  const Value* find(std::string_view key) const;

  std::vector<Item> items;
  std::vector<std::uint32_t> order;  // indices of items sorted by key; empty for small dicts
};

struct RangeNode : Node {
  RangeNode(Runtime* runtime, std::int64_t from, std::int64_t to, std::int64_t by);
  std::int64_t start, stop, step;  // step != 0
  std::int64_t length;
  Value at(std::int64_t index) const { return Value::integer(start + index * step); }
};

enum class DictView : std::uint8_t { kKeys, kValues, kItems };
struct DictViewNode : Node {
  DictViewNode(Runtime* runtime, DictView view, std::shared_ptr<DictNode> of)
      : Node(runtime, 0), which(view), dict(std::move(of)) {}
  ~DictViewNode() override { drop_children(); }
  void drop_children() override { drop(std::move(dict)); }
  DictView which;
  std::shared_ptr<DictNode> dict;
};

class IteratorNode : public Node {
 public:
  explicit IteratorNode(Runtime* runtime) : Node(runtime, 64) {}
  // Stores the next item and returns true, or returns false at the end (and ever after).
  virtual Result<bool> next(Runtime& rt, Value* item) = 0;
};

struct NamespaceNode : Node {
  explicit NamespaceNode(Runtime* runtime) : Node(runtime, 64) {}
  ~NamespaceNode() override { drop_children(); }
  void drop_children() override;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
  void add(std::string_view name, Value value);  // a name that is not there yet
  std::vector<std::pair<std::string, Value>> attributes;
};

struct MethodInfo;  // an entry of a method table, see builtins.h
struct MethodNode : Node {
  MethodNode(Runtime* runtime, Value object, const MethodInfo* method)
      : Node(runtime, 0), self(std::move(object)), info(method) {}
  ~MethodNode() override { drop_children(); }
  void drop_children() override { drop(self); }
  Value self;
  const MethodInfo* info;
};

struct CyclerNode : Node {
  CyclerNode(Runtime* runtime, std::vector<Value> values)
      : Node(runtime, values.capacity() * sizeof(Value)), items(std::move(values)) {}
  ~CyclerNode() override { drop_children(); }
  void drop_children() override { drop(items); }
  std::vector<Value> items;  // not empty
  std::size_t position = 0;
};

struct JoinerNode : Node {
  JoinerNode(Runtime* runtime, Value between) : Node(runtime, 0), separator(std::move(between)) {}
  ~JoinerNode() override { drop_children(); }
  void drop_children() override { drop(separator); }
  Value separator;
  bool used = false;
};

// A total order of hashable values in which equal keys (1, 1.0, True) compare as equal: -1, 0, 1.
int compare_keys(const Value& a, const Value& b);
// -1, 0, 1; unordered (a NaN) is 2. Exact also where an int has no double.
int compare_numbers(const Value& a, const Value& b);
// Error unless v can be the key of a dict (lists and dicts cannot).
Status check_hashable(const Value& v);
// Python's name of the type, for messages: "str", "int", "dict" ...
std::string_view type_name(const Value& v);
// Python's bool().
bool truth(const Value& v);

}  // namespace sluice::jinja
