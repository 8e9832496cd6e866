// ==, <, in and sorting.
#include <algorithm>

#include "src/text/jinja/ops.h"
#include "src/text/jinja/text_ops.h"

namespace sluice::jinja {
namespace {

Result<bool> equals_inside(Runtime& rt, const Value& a, const Value& b, int depth);

Result<bool> equal_items(Runtime& rt, const std::vector<Value>& a, const std::vector<Value>& b,
                         int depth) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool equal, equals_inside(rt, a[i], b[i], depth));
    if (!equal) return false;
  }
  return true;
}

Result<bool> equal_dicts(Runtime& rt, const DictNode& a, const DictNode& b, int depth) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = b.find(key);
    if (other == nullptr) return false;
    SLUICE_ASSIGN_OR_RETURN(const bool equal, equals_inside(rt, value, *other, depth));
    if (!equal) return false;
  }
  return true;
}

bool equal_ranges(const RangeNode& a, const RangeNode& b) {
  return a.length == b.length &&
         (a.length == 0 || (a.start == b.start && (a.length == 1 || a.step == b.step)));
}

Result<bool> compare_views(Runtime& rt, Order order, const Value& a, const Value& b);

Result<bool> equal_views(Runtime& rt, const Value& a, const Value& b, int depth) {
  const auto& x = a.as<DictViewNode>();
  const auto& y = b.as<DictViewNode>();
  if (x.which == DictView::kValues || y.which == DictView::kValues) return a.node() == b.node();
  // Of keys and items only a tuple among the keys could be equal.
  if (x.which != y.which && x.dict->items.size() == y.dict->items.size()) {
    return compare_views(rt, Order::kLessEqual, a, b);
  }
  if (x.which != y.which) return false;
  if (x.which == DictView::kItems) return equal_dicts(rt, *x.dict, *y.dict, depth);
  if (x.dict->items.size() != y.dict->items.size()) return false;
  return std::all_of(x.dict->items.begin(), x.dict->items.end(),
                     [&](const auto& item) { return y.dict->find(item.first) != nullptr; });
}

Result<bool> equals_inside(Runtime& rt, const Value& a, const Value& b, int depth) {
  SLUICE_RETURN_IF_ERROR(rt.charge(1));
  if (depth > rt.limits().data_depth) {
    return bad_input("data with more than {} levels cannot be compared (limit)",
                     rt.limits().data_depth);
  }
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      SLUICE_RETURN_IF_ERROR(rt.charge_copy(a.text().size()));
      return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple:
      if (a.node() == b.node()) return true;
      return equal_items(rt, a.items(), b.items(), depth + 1);
    case Kind::kDict:
      if (a.node() == b.node()) return true;
      return equal_dicts(rt, a.as<DictNode>(), b.as<DictNode>(), depth + 1);
    case Kind::kRange:
      return equal_ranges(a.as<RangeNode>(), b.as<RangeNode>());
    case Kind::kDictView:
      return equal_views(rt, a, b, depth + 1);
    case Kind::kFunction:
      return a.as_int() == b.as_int();
    default:
      return a.node() == b.node();
  }
}

// Result of an order operator for a three-way comparison.
bool holds(Order order, int three_way) {
  switch (order) {
    case Order::kLess:
      return three_way < 0;
    case Order::kLessEqual:
      return three_way <= 0;
    case Order::kGreater:
      return three_way > 0;
    case Order::kGreaterEqual:
      return three_way >= 0;
  }
  return false;
}

std::string_view symbol(Order order) {
  switch (order) {
    case Order::kLess:
      return "<";
    case Order::kLessEqual:
      return "<=";
    case Order::kGreater:
      return ">";
    default:
      return ">=";
  }
}

// Keys and items compare as sets do: < is "a true subset of".
bool is_set_view(const Value& v) {
  return v.is(Kind::kDictView) && v.as<DictViewNode>().which != DictView::kValues;
}

Result<bool> compare_views(Runtime& rt, Order order, const Value& a, const Value& b) {
  const bool turned = order == Order::kGreater || order == Order::kGreaterEqual;
  const Value& small = turned ? b : a;
  const Value& large = turned ? a : b;
  const std::size_t size = small.as<DictViewNode>().dict->items.size();
  const std::size_t limit = large.as<DictViewNode>().dict->items.size();
  const bool strict = order == Order::kLess || order == Order::kGreater;
  if (strict ? size >= limit : size > limit) return false;
  SLUICE_ASSIGN_OR_RETURN(const auto iterator, iterate(rt, small));
  for (Value element;;) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &element));
    if (!more) return true;
    SLUICE_ASSIGN_OR_RETURN(const bool held, contains(rt, large, element));
    if (!held) return false;
  }
}

Result<bool> compare_inside(Runtime& rt, Order order, const Value& a, const Value& b, int depth) {
  SLUICE_RETURN_IF_ERROR(rt.charge(1));
  if (depth > rt.limits().data_depth) {
    return bad_input("data with more than {} levels cannot be compared (limit)",
                     rt.limits().data_depth);
  }
  if (a.is(Kind::kUndefined)) return undefined_error(a);
  if (b.is(Kind::kUndefined)) return undefined_error(b);
  if (a.is_number() && b.is_number()) {
    const int three_way = compare_numbers(a, b);
    return three_way != 2 && holds(order, three_way);
  }
  if (a.is_string() && b.is_string()) {
    SLUICE_RETURN_IF_ERROR(rt.charge_copy(std::min(a.text().size(), b.text().size())));
    return holds(order, a.str().compare(b.str()));  // byte order of UTF-8 is code point order
  }
  if (a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      SLUICE_ASSIGN_OR_RETURN(const bool equal, equals_inside(rt, x[i], y[i], depth + 1));
      if (!equal) return compare_inside(rt, order, x[i], y[i], depth + 1);
    }
    return holds(order, x.size() < y.size() ? -1 : (x.size() > y.size() ? 1 : 0));
  }
  if (is_set_view(a) && is_set_view(b)) return compare_views(rt, order, a, b);
  return bad_input("'{}' not supported between instances of '{}' and '{}'", symbol(order),
                   type_name(a), type_name(b));
}

}  // namespace

Result<bool> equals(Runtime& rt, const Value& a, const Value& b) {
  return equals_inside(rt, a, b, 0);
}

Result<bool> compare(Runtime& rt, Order order, const Value& a, const Value& b) {
  return compare_inside(rt, order, a, b, 0);
}

Result<bool> contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        return bad_input("'in <string>' requires string as left operand, not {}", type_name(item));
      }
      SLUICE_RETURN_IF_ERROR(rt.charge_scan(container.text().size() + item.text().size()));
      return Searcher(item.str()).find(container.str(), 0) != std::string_view::npos;
    case Kind::kDict:
      SLUICE_RETURN_IF_ERROR(check_hashable(item));
      return container.as<DictNode>().find(item) != nullptr;
    case Kind::kRange:
      if (item.is_integer()) {
        const RangeNode& range = container.as<RangeNode>();
        if (range.length == 0) return false;
        const std::int64_t last = range.start + (range.length - 1) * range.step;
        const auto [low, high] = std::minmax(range.start, last);
        if (item.as_int() < low || item.as_int() > high) return false;
        return (static_cast<std::uint64_t>(item.as_int()) - static_cast<std::uint64_t>(low)) %
                   static_cast<std::uint64_t>(range.step < 0 ? -range.step : range.step) ==
               0;
      }
      break;
    case Kind::kDictView:
      if (container.as<DictViewNode>().which == DictView::kKeys) {
        SLUICE_RETURN_IF_ERROR(check_hashable(item));
        return container.as<DictViewNode>().dict->find(item) != nullptr;
      }
      break;
    default:
      break;
  }
  if (!is_iterable(container)) {
    return bad_input("argument of type '{}' is not iterable", type_name(container));
  }
  SLUICE_ASSIGN_OR_RETURN(const auto iterator, iterate(rt, container));
  for (Value candidate;;) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &candidate));
    if (!more) return false;
    SLUICE_ASSIGN_OR_RETURN(const bool equal, equals(rt, candidate, item));
    if (equal) return true;
  }
}

Result<std::vector<Value>> sort_by_keys(Runtime& rt, std::vector<Value> items,
                                        const std::vector<Value>& keys, bool reverse) {
  // Bottom-up merge sort of indices: comparing can fail, which std::stable_sort cannot tell.
  const std::size_t count = items.size();
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = reverse ? count - 1 - i : i;
  std::vector<std::size_t> merged(count);
  for (std::size_t width = 1; width < count; width *= 2) {
    for (std::size_t begin = 0; begin < count; begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, count);
      const std::size_t end = std::min(begin + 2 * width, count);
      std::size_t left = begin;
      std::size_t right = middle;
      for (std::size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          SLUICE_ASSIGN_OR_RETURN(take_right,
                                  compare(rt, Order::kLess, keys[order[right]], keys[order[left]]));
        }
        merged[out] = take_right ? order[right++] : order[left++];
      }
    }
    order.swap(merged);
  }
  if (reverse) std::reverse(order.begin(), order.end());
  std::vector<Value> sorted(count);
  for (std::size_t i = 0; i < count; ++i) sorted[i] = std::move(items[order[i]]);
  return sorted;
}

}  // namespace sluice::jinja
