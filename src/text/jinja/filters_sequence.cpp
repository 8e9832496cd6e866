// Filters on sequences.
#include <algorithm>
#include <set>

#include "src/text/jinja/args.h"
#include "src/text/jinja/attribute_path.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/ops.h"

namespace sluice::jinja {
namespace {

using IteratorPtr = std::shared_ptr<IteratorNode>;

bool flag(const Value& v) { return !v.missing() && truth(v); }

Result<Value> length(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("length", args));
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t size, length_of(rt, value));
  return Value::integer(size);
}

Result<Value> list(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("list", args));
  SLUICE_ASSIGN_OR_RETURN(std::vector<Value> items, to_vector(rt, value));
  return rt.make_list(std::move(items));
}

Result<Value> first(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("first", args));
  SLUICE_ASSIGN_OR_RETURN(const auto iterator, iterate(rt, value));
  Value item;
  SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &item));
  return more ? item : rt.make_undefined("No first item, sequence was empty.");
}

Result<Value> last(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("last", args));
  SLUICE_ASSIGN_OR_RETURN(const auto iterator, reversed_iterator(rt, value));
  Value item;
  SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &item));
  return more ? item : rt.make_undefined("No last item, sequence was empty.");
}

Result<Value> reverse(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("reverse", args));
  if (value.is_string()) {
    return get_slice(rt, value, Value(), Value(), Value::integer(-1));
  }
  if (is_reversible(value)) {
    SLUICE_ASSIGN_OR_RETURN(auto iterator, reversed_iterator(rt, value));
    return Value(Kind::kIterator, std::move(iterator));
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<Value> items, to_vector(rt, value));
  std::reverse(items.begin(), items.end());
  return rt.make_list(std::move(items));
}

Result<Value> default_filter(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound,
                          bind_args("default", args, {"default_value", "boolean"}, 0));
  if (!value.is(Kind::kUndefined) && !(flag(bound[1]) && !truth(value))) return value;
  return bound[0].missing() ? rt.make_string("") : bound[0];
}

Result<Value> attr(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("attr", args, {"name"}, 1));
  SLUICE_RETURN_IF_ERROR(check_string_arg("attr", bound[0]));
  SLUICE_ASSIGN_OR_RETURN(Value found, attribute_only(rt, value, bound[0].str()));
  if (!found.missing()) return found;
  return rt.make_undefined(
      fmt::format("'{} object' has no attribute '{}'", type_name(value), bound[0].str()));
}

Result<Value> join(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("join", args, {"d", "attribute"}, 0));
  TaggedText separator;
  if (!bound[0].missing()) {
    SLUICE_ASSIGN_OR_RETURN(separator, to_str(rt, bound[0]));
  }
  const AttributePath path(rt, bound[1]);
  SLUICE_ASSIGN_OR_RETURN(const auto iterator, iterate(rt, value));
  TaggedText out;
  Value item;
  for (bool at_first = true;; at_first = false) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &item));
    if (!more) return rt.make_string(std::move(out));
    SLUICE_ASSIGN_OR_RETURN(item, path.get(rt, std::move(item)));
    SLUICE_RETURN_IF_ERROR(rt.check_text_size(out.size() + separator.size()));
    SLUICE_RETURN_IF_ERROR(rt.charge_copy(separator.size()));
    if (!at_first) out.append(separator);
    SLUICE_RETURN_IF_ERROR(append_str(rt, item, &out));
  }
}

// Comma separated attributes to sort by; the key is the list of their values.
Result<std::vector<Value>> sort_keys(Runtime& rt, const std::vector<Value>& items,
                                     const Value& attribute, bool case_sensitive) {
  std::vector<AttributePath> paths;
  if (attribute.is_string()) {
    std::string_view rest = attribute.str();
    for (bool more = true; more;) {
      const std::size_t comma = rest.find(',');
      more = comma != std::string_view::npos;
      paths.emplace_back(rt, rt.make_string(rest.substr(0, comma)));
      if (more) rest = rest.substr(comma + 1);
    }
  } else {
    paths.emplace_back(rt, attribute);
  }
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      SLUICE_ASSIGN_OR_RETURN(Value part, path.get(rt, item));
      if (part.is_string()) SLUICE_RETURN_IF_ERROR(rt.charge_scan(part.text().size()));
      key.push_back(case_sensitive ? part : ignore_case(rt, part));
    }
    keys.push_back(rt.make_list(std::move(key)));
  }
  return keys;
}

Result<Value> sort(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound,
                          bind_args("sort", args, {"reverse", "case_sensitive", "attribute"}, 0));
  SLUICE_ASSIGN_OR_RETURN(std::vector<Value> items, to_vector(rt, value));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                          sort_keys(rt, items, bound[2], flag(bound[1])));
  SLUICE_ASSIGN_OR_RETURN(items, sort_by_keys(rt, std::move(items), keys, flag(bound[0])));
  return rt.make_list(std::move(items));
}

Result<Value> dictsort(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound,
                          bind_args("dictsort", args, {"case_sensitive", "by", "reverse"}, 0));
  std::string_view by = "key";
  if (!bound[1].missing()) by = bound[1].is_string() ? bound[1].str() : "";
  if (by != "key" && by != "value") {
    return bad_input("You can only sort by either \"key\" or \"value\"");
  }
  if (value.is(Kind::kUndefined)) return undefined_error(value);
  if (!value.is(Kind::kDict)) return bad_input("dictsort needs a dict, not {}", type_name(value));
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, item] : value.as<DictNode>().items) {
    items.push_back(rt.make_tuple({key, item}));
    const Value& wanted = by == "key" ? key : item;
    if (wanted.is_string()) SLUICE_RETURN_IF_ERROR(rt.charge_scan(wanted.text().size()));
    keys.push_back(flag(bound[0]) ? wanted : ignore_case(rt, wanted));
  }
  SLUICE_ASSIGN_OR_RETURN(items, sort_by_keys(rt, std::move(items), keys, flag(bound[2])));
  return rt.make_list(std::move(items));
}

template <bool want_max>
Result<Value> extreme(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args(want_max ? "max" : "min", args,
                                                      {"case_sensitive", "attribute"}, 0));
  const AttributePath path(rt, bound[1]);
  SLUICE_ASSIGN_OR_RETURN(const auto iterator, iterate(rt, value));
  Value best, best_key, item;
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &item));
    if (!more) break;
    SLUICE_ASSIGN_OR_RETURN(Value key, path.get(rt, item));
    if (key.is_string()) SLUICE_RETURN_IF_ERROR(rt.charge_scan(key.text().size()));
    if (!flag(bound[0])) key = ignore_case(rt, key);
    bool better = best.missing();
    if (!better) {
      SLUICE_ASSIGN_OR_RETURN(
          better, compare(rt, want_max ? Order::kGreater : Order::kLess, key, best_key));
    }
    if (!better) continue;
    best = item;
    best_key = std::move(key);
  }
  return best.missing() ? rt.make_undefined("No aggregated item, sequence was empty.") : best;
}

Result<Value> sum(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("sum", args, {"attribute", "start"}, 0));
  const AttributePath path(rt, bound[0]);
  SLUICE_ASSIGN_OR_RETURN(const auto iterator, iterate(rt, value));
  Value total = bound[1].missing() ? Value::integer(0) : bound[1];
  if (total.is_string()) return bad_input("sum() can't sum strings [use join instead]");
  for (Value item;;) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &item));
    if (!more) return total;
    SLUICE_ASSIGN_OR_RETURN(item, path.get(rt, std::move(item)));
    SLUICE_ASSIGN_OR_RETURN(total, binary(rt, BinaryOp::kAdd, total, item));
  }
}

Result<Value> groupby(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(
      const auto bound, bind_args("groupby", args, {"attribute", "default", "case_sensitive"}, 1));
  const AttributePath path(rt, bound[0]);
  SLUICE_ASSIGN_OR_RETURN(std::vector<Value> items, to_vector(rt, value));
  const auto key_of = [&](const Value& item, bool fold) -> Result<Value> {
    SLUICE_ASSIGN_OR_RETURN(Value key, path.get(rt, item, bound[1]));
    if (key.is_string()) SLUICE_RETURN_IF_ERROR(rt.charge_scan(key.text().size()));
    return fold ? ignore_case(rt, key) : key;
  };
  const bool fold = !flag(bound[2]);
  std::vector<Value> keys;
  for (const Value& item : items) {
    SLUICE_ASSIGN_OR_RETURN(Value key, key_of(item, fold));
    keys.push_back(std::move(key));
  }
  SLUICE_ASSIGN_OR_RETURN(items, sort_by_keys(rt, std::move(items), keys, false));
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < items.size();) {
    SLUICE_ASSIGN_OR_RETURN(const Value key, key_of(items[begin], fold));
    std::size_t end = begin + 1;
    for (; end < items.size(); ++end) {
      SLUICE_ASSIGN_OR_RETURN(const Value next, key_of(items[end], fold));
      SLUICE_ASSIGN_OR_RETURN(const bool same, equals(rt, key, next));
      if (!same) break;
    }
    SLUICE_ASSIGN_OR_RETURN(Value shown, key_of(items[begin], false));
    const auto from = items.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to = items.begin() + static_cast<std::ptrdiff_t>(end);
    auto group = rt.make<ListNode>(
        std::vector<Value>{std::move(shown), rt.make_list(std::vector<Value>(from, to))});
    group->group = true;
    groups.emplace_back(Kind::kTuple, std::move(group));
    begin = end;
  }
  return rt.make_list(std::move(groups));
}

// --- filters that give generators

class UniqueIterator : public IteratorNode {
 public:
  UniqueIterator(Runtime* runtime, std::shared_ptr<IteratorNode> items, AttributePath path,
                 bool fold)
      : IteratorNode(runtime), items_(std::move(items)), path_(std::move(path)), fold_(fold) {}
  ~UniqueIterator() override { drop_children(); }
  void drop_children() override {
    drop(std::move(items_));
    // The iterator itself can be among the keys, so nothing is freed here and now.
    while (!seen_.empty()) {
      auto key = seen_.extract(seen_.begin());
      drop(key.value());
    }
  }
  Result<bool> next(Runtime& rt, Value* item) override {
    while (true) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, items_->next(rt, item));
      if (!more) return false;
      SLUICE_ASSIGN_OR_RETURN(Value key, path_.get(rt, *item));
      if (fold_) key = ignore_case(rt, key);
      SLUICE_RETURN_IF_ERROR(check_hashable(key));
      SLUICE_RETURN_IF_ERROR(rt.charge(4));
      if (!seen_.insert(std::move(key)).second) continue;
      grow(96);
      return true;
    }
  }

 private:
  struct ByKey {
    bool operator()(const Value& a, const Value& b) const { return compare_keys(a, b) < 0; }
  };
  std::shared_ptr<IteratorNode> items_;
  AttributePath path_;
  bool fold_;
  std::set<Value, ByKey> seen_;
};

// In the begin_ functions args.positional are the bound parameters, some perhaps missing.
Args bound_args(std::vector<Value> bound) { return Args{std::move(bound), {}}; }

Result<IteratorPtr> begin_unique(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(IteratorPtr items, iterate(rt, value));
  return IteratorPtr(rt.make<UniqueIterator>(
      std::move(items), AttributePath(rt, args.positional[1]), !flag(args.positional[0])));
}

Result<Value> unique(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(auto bound,
                          bind_args("unique", args, {"case_sensitive", "attribute"}, 0));
  return rt.make_lazy(begin_unique, value, bound_args(std::move(bound)));
}

Result<IteratorPtr> begin_items(Runtime& rt, const Value& value, Args&) {
  if (value.is(Kind::kUndefined)) return iterate(rt, value);
  if (!value.is(Kind::kDict)) return bad_input("Can only get item pairs from a mapping.");
  return iterate(
      rt, Value(Kind::kDictView, rt.make<DictViewNode>(DictView::kItems, value.ref<DictNode>())));
}

Result<Value> items(Runtime& rt, const Value& value, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("items", args));
  return rt.make_lazy(begin_items, value, Args());
}

class BatchIterator : public IteratorNode {
 public:
  BatchIterator(Runtime* runtime, std::shared_ptr<IteratorNode> items, std::int64_t size,
                Value fill)
      : IteratorNode(runtime), items_(std::move(items)), size_(size), fill_(std::move(fill)) {}
  ~BatchIterator() override { drop_children(); }
  void drop_children() override {
    drop(std::move(items_));
    drop(fill_);
    drop(pending_);
  }
  Result<bool> next(Runtime& rt, Value* out) override {
    Value item;
    while (!ended_) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, items_->next(rt, &item));
      if (!more) break;
      const bool full = static_cast<std::int64_t>(pending_.size()) == size_;
      if (full) *out = rt.make_list(std::move(pending_));
      if (full) pending_ = {};
      pending_.push_back(std::move(item));
      if (full) return true;
    }
    ended_ = true;
    if (pending_.empty()) return false;
    const auto count = static_cast<std::int64_t>(pending_.size());
    if (!fill_.missing() && !fill_.is(Kind::kNone) && count < size_) {
      SLUICE_RETURN_IF_ERROR(rt.check_list_size(static_cast<std::uint64_t>(size_)));
      pending_.resize(static_cast<std::size_t>(size_), fill_);
    }
    *out = rt.make_list(std::move(pending_));
    pending_ = {};
    return true;
  }

 private:
  std::shared_ptr<IteratorNode> items_;
  std::int64_t size_;
  Value fill_;
  std::vector<Value> pending_;
  bool ended_ = false;
};

Result<IteratorPtr> begin_batch(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t size, int_arg("batch", args.positional[0]));
  SLUICE_ASSIGN_OR_RETURN(IteratorPtr items, iterate(rt, value));
  return IteratorPtr(rt.make<BatchIterator>(std::move(items), size, args.positional[1]));
}

Result<Value> batch(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(auto bound, bind_args("batch", args, {"linecount", "fill_with"}, 1));
  return rt.make_lazy(begin_batch, value, bound_args(std::move(bound)));
}

Result<IteratorPtr> begin_slice(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> all, to_vector(rt, value));
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t slices, int_arg("slice", args.positional[0]));
  if (slices == 0) return bad_input("integer division or modulo by zero");
  if (slices > 0) {
    SLUICE_RETURN_IF_ERROR(rt.check_string_list_size(static_cast<std::uint64_t>(slices)));
  }
  const Value& filler = args.positional[1];
  const bool fill = !filler.missing() && !filler.is(Kind::kNone);
  const auto count = static_cast<std::int64_t>(all.size());
  std::vector<Value> out;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    const bool extra = i < count % slices;
    const std::int64_t end = begin + count / slices + (extra ? 1 : 0);
    std::vector<Value> part(all.begin() + begin, all.begin() + end);
    if (fill && !extra) part.push_back(filler);
    out.push_back(rt.make_list(std::move(part)));
    begin = end;
  }
  return iterate(rt, rt.make_list(std::move(out)));
}

Result<Value> slice(Runtime& rt, const Value& value, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(auto bound, bind_args("slice", args, {"slices", "fill_with"}, 1));
  return rt.make_lazy(begin_slice, value, bound_args(std::move(bound)));
}

Result<Value> random(Runtime&, const Value&, Args&) {
  return bad_input("the filter 'random' is not supported: a prompt must be reproducible");
}

constexpr FilterInfo kSequenceFilters[] = {
    {"attr", attr},
    {"batch", batch},
    {"count", length},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"random", random},
    {"reverse", reverse},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

FilterTable sequence_filters() { return {kSequenceFilters, std::size(kSequenceFilters)}; }

}  // namespace sluice::jinja
