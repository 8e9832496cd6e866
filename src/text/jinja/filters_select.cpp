// map, select, reject, selectattr, rejectattr: generators that apply filters and tests by name.
#include "src/text/jinja/attribute_path.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/ops.h"

namespace sluice::jinja {
namespace {

using IteratorPtr = std::shared_ptr<IteratorNode>;

Value take_keyword(Args* args, std::string_view name) {
  for (auto it = args->keyword.begin(); it != args->keyword.end(); ++it) {
    if (it->first != name) continue;
    Value v = std::move(it->second);
    args->keyword.erase(it);
    return v;
  }
  return Value();
}

class ApplyIterator : public IteratorNode {
 public:
  ApplyIterator(Runtime* runtime, IteratorPtr items, Args args)
      : IteratorNode(runtime), items_(std::move(items)), args_(std::move(args)) {}
  ~ApplyIterator() override { drop_children(); }
  void drop_children() override {
    drop(std::move(items_));
    drop(args_.positional);
    for (auto& argument : args_.keyword) drop(argument.second);
    args_.keyword.clear();
  }

 protected:
  IteratorPtr items_;
  Args args_;  // for the filter or test
};

// Applies a filter to each item.
class MapIterator : public ApplyIterator {
 public:
  MapIterator(Runtime* runtime, IteratorPtr items, Args args, std::string filter)
      : ApplyIterator(runtime, std::move(items), std::move(args)), filter_(std::move(filter)) {}
  Result<bool> next(Runtime& rt, Value* out) override {
    Value item;
    SLUICE_ASSIGN_OR_RETURN(const bool more, items_->next(rt, &item));
    if (!more) return false;
    SLUICE_ASSIGN_OR_RETURN(*out, rt.call_filter(filter_, item, args_));
    return true;
  }

 private:
  std::string filter_;
};

// Looks up an attribute of each item.
class AttributeIterator : public IteratorNode {
 public:
  AttributeIterator(Runtime* runtime, IteratorPtr items, AttributePath path, Value fallback)
      : IteratorNode(runtime),
        items_(std::move(items)),
        path_(std::move(path)),
        fallback_(std::move(fallback)) {}
  ~AttributeIterator() override { drop_children(); }
  void drop_children() override {
    drop(std::move(items_));
    drop(fallback_);
  }
  Result<bool> next(Runtime& rt, Value* out) override {
    Value item;
    SLUICE_ASSIGN_OR_RETURN(const bool more, items_->next(rt, &item));
    if (!more) return false;
    SLUICE_ASSIGN_OR_RETURN(*out, path_.get(rt, std::move(item), fallback_));
    return true;
  }

 private:
  IteratorPtr items_;
  AttributePath path_;
  Value fallback_;
};

// The items for which a test (or truth, with an empty name) has the wanted result.
class SelectIterator : public ApplyIterator {
 public:
  SelectIterator(Runtime* runtime, IteratorPtr items, Args args, AttributePath path,
                 std::string test, bool wanted)
      : ApplyIterator(runtime, std::move(items), std::move(args)),
        path_(std::move(path)),
        test_(std::move(test)),
        wanted_(wanted) {}
  Result<bool> next(Runtime& rt, Value* out) override {
    while (true) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, items_->next(rt, out));
      if (!more) return false;
      SLUICE_ASSIGN_OR_RETURN(const Value tested, path_.get(rt, *out));
      bool result = truth(tested);
      if (!test_.empty()) {
        SLUICE_ASSIGN_OR_RETURN(result, rt.call_test(test_, tested, args_));
      }
      if (result == wanted_) return true;
    }
  }

 private:
  AttributePath path_;
  std::string test_;
  bool wanted_;
};

Result<IteratorPtr> begin_map(Runtime& rt, const Value& value, Args& args) {
  if (!truth(value)) return iterate(rt, rt.make_list({}));
  SLUICE_ASSIGN_OR_RETURN(IteratorPtr items, iterate(rt, value));
  if (args.positional.empty()) {
    Value attribute = take_keyword(&args, "attribute");
    if (attribute.missing()) return bad_input("map requires a filter argument");
    Value fallback = take_keyword(&args, "default");
    if (!args.keyword.empty()) {
      return bad_input("Unexpected keyword argument '{}'", args.keyword[0].first);
    }
    return IteratorPtr(rt.make<AttributeIterator>(std::move(items), AttributePath(rt, attribute),
                                                  std::move(fallback)));
  }
  if (!args.positional[0].is_string()) return bad_input("the name of a filter must be a text");
  std::string filter(args.positional[0].str());
  args.positional.erase(args.positional.begin());
  return IteratorPtr(rt.make<MapIterator>(std::move(items), args, std::move(filter)));
}

Result<Value> map(Runtime& rt, const Value& value, Args& args) {
  return rt.make_lazy(begin_map, value, args);
}

template <bool wanted, bool by_attribute>
Result<IteratorPtr> begin_select(Runtime& rt, const Value& value, Args& args) {
  if (!truth(value)) return iterate(rt, rt.make_list({}));
  Value attribute;
  if (by_attribute) {
    if (args.positional.empty()) return bad_input("Missing parameter for attribute name");
    attribute = args.positional[0];
    args.positional.erase(args.positional.begin());
  }
  std::string test;
  if (!args.positional.empty()) {
    if (!args.positional[0].is_string() || args.positional[0].text().empty()) {
      return bad_input("the name of a test must be a text");
    }
    test = args.positional[0].str();
    args.positional.erase(args.positional.begin());
  }
  SLUICE_ASSIGN_OR_RETURN(IteratorPtr items, iterate(rt, value));
  return IteratorPtr(rt.make<SelectIterator>(std::move(items), args, AttributePath(rt, attribute),
                                             std::move(test), wanted));
}

template <bool wanted, bool by_attribute>
Result<Value> select(Runtime& rt, const Value& value, Args& args) {
  return rt.make_lazy(begin_select<wanted, by_attribute>, value, args);
}

constexpr FilterInfo kSelectFilters[] = {
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
};

}  // namespace

FilterTable select_filters() { return {kSelectFilters, std::size(kSelectFilters)}; }

}  // namespace sluice::jinja
