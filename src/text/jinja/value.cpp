#include "src/text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/text/jinja/runtime.h"

namespace sluice::jinja {

Node::Node(Runtime* runtime, std::size_t bytes)
    : runtime_(runtime), bytes_(runtime == nullptr ? 0 : bytes + 64) {
  if (runtime_ == nullptr) return;
  runtime_->bytes_ += bytes_;
  next_ = runtime_->nodes_;
  if (next_ != nullptr) next_->previous_ = this;
  runtime_->nodes_ = this;
}

Node::~Node() {
  if (runtime_ == nullptr) return;
  runtime_->bytes_ -= bytes_;
  if (next_ != nullptr) next_->previous_ = previous_;
  (previous_ == nullptr ? runtime_->nodes_ : previous_->next_) = next_;
}

void Node::drop(std::shared_ptr<Node> child) {
  if (child != nullptr && runtime_ != nullptr) runtime_->discard(std::move(child));
}

void Node::drop(Value& value) { drop(std::move(value.node_)); }

void Node::drop(std::vector<Value>& values) {
  for (Value& value : values) drop(value);
  values.clear();
}

void Node::grow(std::size_t bytes) {
  if (runtime_ == nullptr) return;
  bytes_ += bytes;
  runtime_->bytes_ += bytes;
}

Value Value::absent() {
  Value v = none();
  v.int_ = 1;
  return v;
}

Value Value::boolean(bool value, bool content) {
  Value v(Kind::kBool, nullptr);
  v.int_ = value ? 1 : 0;
  v.content_ = content;
  return v;
}

Value Value::integer(std::int64_t value, bool content) {
  Value v(Kind::kInt, nullptr);
  v.int_ = value;
  v.content_ = content;
  return v;
}

Value Value::number(double value, bool content) {
  Value v(Kind::kFloat, nullptr);
  v.float_ = value;
  v.content_ = content;
  return v;
}

Value Value::function(int id) {
  Value v(Kind::kFunction, nullptr);
  v.int_ = id;
  return v;
}

Value Value::with_content(bool content) const {
  Value v = *this;
  v.content_ = content;
  return v;
}

const TaggedText& Value::text() const { return as<StringNode>().text; }
bool Value::markup() const { return is_string() && as<StringNode>().markup; }
const std::vector<Value>& Value::items() const { return as<ListNode>().items; }

DictNode::DictNode(Runtime* runtime, std::vector<Item> values)
    : Node(runtime, values.capacity() * sizeof(Item)), items(std::move(values)) {
  constexpr std::size_t kSmall = 8;
  std::vector<std::uint32_t> sorted(items.size());
  std::iota(sorted.begin(), sorted.end(), 0u);
  std::stable_sort(sorted.begin(), sorted.end(), [&](std::uint32_t a, std::uint32_t b) {
    return compare_keys(items[a].first, items[b].first) < 0;
  });
  const auto same = [&](std::uint32_t a, std::uint32_t b) {
    return compare_keys(items[a].first, items[b].first) == 0;
  };
  if (std::adjacent_find(sorted.begin(), sorted.end(), same) != sorted.end()) {
    std::vector<bool> keep(items.size(), true);
    for (std::size_t i = 0; i < sorted.size();) {
      std::size_t last = i;
      while (last + 1 < sorted.size() && same(sorted[i], sorted[last + 1])) {
        keep[sorted[++last]] = false;
      }
      if (last != i) items[sorted[i]].second = items[sorted[last]].second;
      i = last + 1;
    }
    std::vector<Item> unique;
    std::vector<std::uint32_t> place(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      place[i] = static_cast<std::uint32_t>(unique.size());
      if (keep[i]) unique.push_back(std::move(items[i]));
    }
    std::erase_if(sorted, [&](std::uint32_t i) { return !keep[i]; });
    for (std::uint32_t& i : sorted) i = place[i];
    items = std::move(unique);
  }
  if (items.size() > kSmall) {
    grow(sorted.size() * sizeof(sorted[0]));
    order = std::move(sorted);
  }
}

void DictNode::drop_children() {
  for (Item& item : items) {
    drop(item.first);
    drop(item.second);
  }
  items.clear();
}

const Value* DictNode::find(const Value& key) const {
  if (order.empty()) {
    for (const Item& item : items) {
      if (compare_keys(item.first, key) == 0) return &item.second;
    }
    return nullptr;
  }
  const auto it = std::lower_bound(order.begin(), order.end(), key,
                                   [&](std::uint32_t index, const Value& wanted) {
                                     return compare_keys(items[index].first, wanted) < 0;
                                   });
  if (it == order.end() || compare_keys(items[*it].first, key) != 0) return nullptr;
  return &items[*it].second;
}

const Value* DictNode::find(std::string_view key) const {
  if (order.empty()) {
    for (const Item& item : items) {
      if (item.first.is_string() && item.first.str() == key) return &item.second;
    }
    return nullptr;
  }
  return find(Value(Kind::kString, std::make_shared<StringNode>(
                                       nullptr, TaggedText(std::string(key), false), false)));
}

RangeNode::RangeNode(Runtime* runtime, std::int64_t from, std::int64_t to, std::int64_t by)
    : Node(runtime, 0), start(from), stop(to), step(by), length(0) {
  // Unsigned: the distance of two int64 fits, and so does -step.
  const auto distance = [](std::int64_t low, std::int64_t high) {
    return static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  };
  std::uint64_t count = 0;
  if (step > 0 && start < stop) {
    count = (distance(start, stop) - 1) / static_cast<std::uint64_t>(step) + 1;
  } else if (step < 0 && start > stop) {
    count = (distance(stop, start) - 1) / (0 - static_cast<std::uint64_t>(step)) + 1;
  }
  length = count > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(count);
}

void NamespaceNode::drop_children() {
  for (auto& attribute : attributes) drop(attribute.second);
  attributes.clear();
}

const Value* NamespaceNode::find(std::string_view name) const {
  for (const auto& attribute : attributes) {
    if (attribute.first == name) return &attribute.second;
  }
  return nullptr;
}

void NamespaceNode::set(std::string_view name, Value value) {
  for (auto& attribute : attributes) {
    if (attribute.first == name) {
      std::swap(attribute.second, value);
      drop(value);
      return;
    }
  }
  add(name, std::move(value));
}

void NamespaceNode::add(std::string_view name, Value value) {
  grow(sizeof(attributes[0]) + name.size());
  attributes.emplace_back(std::string(name), std::move(value));
}

int compare_numbers(const Value& a, const Value& b) {
  const auto sign = [](auto x, auto y) { return x < y ? -1 : (x > y ? 1 : 0); };
  if (a.is_integer() && b.is_integer()) return sign(a.as_int(), b.as_int());
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) {
    if (std::isnan(a.as_float()) || std::isnan(b.as_float())) return 2;
    return sign(a.as_float(), b.as_float());
  }
  if (b.is(Kind::kFloat)) {
    const int reversed = compare_numbers(b, a);
    return reversed == 2 ? 2 : -reversed;
  }
  // A float and an int: beyond the range of int64 the float decides, else its integer part does.
  const double x = a.as_float();
  constexpr double kTop = 9223372036854775808.0;  // 2^63
  if (std::isnan(x)) return 2;
  if (x >= kTop) return 1;
  if (x < -kTop) return -1;
  const double whole = std::trunc(x);
  const int by_whole = sign(static_cast<std::int64_t>(whole), b.as_int());
  return by_whole != 0 ? by_whole : sign(x, whole);
}

int compare_keys(const Value& a, const Value& b) {
  const auto rank = [](const Value& v) {
    if (v.is(Kind::kUndefined)) return 0;
    if (v.is(Kind::kNone)) return 1;
    if (v.is_number()) return 2;
    if (v.is_string()) return 3;
    return v.is(Kind::kTuple) ? 4 : 5;
  };
  const int ra = rank(a);
  const int rb = rank(b);
  if (ra != rb) return ra < rb ? -1 : 1;
  switch (ra) {
    case 2: {
      const int order = compare_numbers(a, b);
      if (order != 2) return order;
      // NaN after all numbers; one NaN is as good as another.
      const bool nan_a = a.is(Kind::kFloat) && std::isnan(a.as_float());
      const bool nan_b = b.is(Kind::kFloat) && std::isnan(b.as_float());
      return static_cast<int>(nan_a) - static_cast<int>(nan_b);
    }
    case 3: {
      const int order = a.str().compare(b.str());
      return order < 0 ? -1 : (order > 0 ? 1 : 0);
    }
    case 4: {
      const auto& x = a.items();
      const auto& y = b.items();
      for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
        if (const int order = compare_keys(x[i], y[i]); order != 0) return order;
      }
      return x.size() < y.size() ? -1 : (x.size() > y.size() ? 1 : 0);
    }
    case 5: {
      if (a.kind() != b.kind()) return a.kind() < b.kind() ? -1 : 1;
      if (a.is(Kind::kFunction)) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
      return a.node() < b.node() ? -1 : (a.node() > b.node() ? 1 : 0);
    }
    default:
      return 0;
  }
}

namespace {

Status check_hashable_inside(const Value& v, int depth) {
  constexpr int kMaxDepth = 50;
  switch (v.kind()) {
    case Kind::kDictView:
      if (v.as<DictViewNode>().which == DictView::kValues) return {};
      [[fallthrough]];
    case Kind::kList:
    case Kind::kDict:
      return bad_input("unhashable type: '{}' cannot be the key of a dict", type_name(v));
    case Kind::kTuple:
      if (depth > kMaxDepth) {
        return bad_input("a key of more than {} tuples inside each other", kMaxDepth);
      }
      for (const Value& item : v.items()) {
        SLUICE_RETURN_IF_ERROR(check_hashable_inside(item, depth + 1));
      }
      return {};
    default:
      return {};
  }
}

}  // namespace

Status check_hashable(const Value& v) { return check_hashable_inside(v, 0); }

std::string_view type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return v.markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kDictView:
      switch (v.as<DictViewNode>().which) {
        case DictView::kKeys:
          return "dict_keys";
        case DictView::kValues:
          return "dict_values";
        default:
          return "dict_items";
      }
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kMethod:
      return "method";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

bool truth(const Value& v) {
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return v.as_int() != 0;
    case Kind::kFloat:
      return v.as_float() != 0.0;
    case Kind::kString:
      return !v.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !v.items().empty();
    case Kind::kDict:
      return !v.as<DictNode>().items.empty();
    case Kind::kRange:
      return v.as<RangeNode>().length != 0;
    case Kind::kDictView:
      return !v.as<DictViewNode>().dict->items.empty();
    default:
      return true;  // kLoop too: it has at least one item while it can be seen
  }
}

}  // namespace sluice::jinja
