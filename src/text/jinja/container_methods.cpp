// Methods of dict, list, tuple, range, the loop variable and cycler, and the global functions.
#include <algorithm>

#include "src/text/jinja/args.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/interpreter_nodes.h"
#include "src/text/jinja/ops.h"

namespace sluice::jinja {
namespace {

Result<Value> dict_get(Runtime&, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("get", args, {"key", "default"}, 1, 2));
  SLUICE_RETURN_IF_ERROR(check_hashable(bound[0]));
  const Value* found = self.as<DictNode>().find(bound[0]);
  if (found != nullptr) return *found;
  return bound[1].missing() ? Value::none() : bound[1];
}

template <DictView which>
Result<Value> dict_view(Runtime& rt, const Value& self, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("dict method", args));
  return Value(Kind::kDictView, rt.make<DictViewNode>(which, self.ref<DictNode>()));
}

// Containers never change, so a copy is the same object.
Result<Value> copy(Runtime&, const Value& self, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("copy", args));
  return self;
}

Result<Value> sequence_count(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("count", args, {"value"}, 1, 1));
  SLUICE_ASSIGN_OR_RETURN(const auto iterator, iterate(rt, self));
  std::int64_t count = 0;
  for (Value item;;) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &item));
    if (!more) return Value::integer(count);
    SLUICE_ASSIGN_OR_RETURN(const bool equal, equals(rt, item, bound[0]));
    if (equal) ++count;
  }
}

Result<Value> sequence_index(Runtime& rt, const Value& self, Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound,
                          bind_args("index", args, {"value", "start", "stop"}, 1, 3));
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, length_of(rt, self));
  SLUICE_ASSIGN_OR_RETURN(std::int64_t start, int_arg("index", bound[1], 0));
  SLUICE_ASSIGN_OR_RETURN(std::int64_t stop, int_arg("index", bound[2], length));
  if (start < 0) start = std::max<std::int64_t>(0, start < -length ? 0 : start + length);
  if (stop < 0) stop = std::max<std::int64_t>(0, stop < -length ? 0 : stop + length);
  SLUICE_ASSIGN_OR_RETURN(const auto iterator, iterate(rt, self));
  Value item;
  for (std::int64_t i = 0; i < stop; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &item));
    if (!more) break;
    if (i < start) continue;
    SLUICE_ASSIGN_OR_RETURN(const bool equal, equals(rt, item, bound[0]));
    if (equal) return Value::integer(i);
  }
  return bad_input("the value is not in the {}", type_name(self));
}

Result<Value> loop_cycle(Runtime&, const Value& self, Args& args) {
  if (!args.keyword.empty()) return bad_input("cycle() takes no keyword arguments");
  if (args.positional.empty()) return bad_input("no items for cycling given");
  const auto index = static_cast<std::size_t>(self.as<LoopNode>().index0);
  return args.positional[index % args.positional.size()];
}

Result<Value> loop_changed(Runtime& rt, const Value& self, Args& args) {
  if (!args.keyword.empty()) return bad_input("changed() takes no keyword arguments");
  LoopNode& loop = self.as<LoopNode>();
  bool same = loop.changed_called && loop.last_changed.size() == args.positional.size();
  for (std::size_t i = 0; same && i < args.positional.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(same, equals(rt, loop.last_changed[i], args.positional[i]));
  }
  if (same) return Value::boolean(false);
  loop.changed_called = true;
  loop.last_changed = args.positional;
  return Value::boolean(true);
}

Result<Value> cycler_next(Runtime&, const Value& self, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("next", args));
  CyclerNode& cycler = self.as<CyclerNode>();
  const Value item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return item;
}

Result<Value> cycler_reset(Runtime&, const Value& self, Args& args) {
  SLUICE_RETURN_IF_ERROR(check_no_args("reset", args));
  self.as<CyclerNode>().position = 0;
  return Value::none();
}

constexpr MethodInfo kContainerMethods[] = {
    {Kind::kDict, "clear", MethodAccess::kMutates, nullptr},
    {Kind::kDict, "copy", MethodAccess::kSafe, copy},
    {Kind::kDict, "fromkeys", MethodAccess::kUnsupported, nullptr},
    {Kind::kDict, "get", MethodAccess::kSafe, dict_get},
    {Kind::kDict, "items", MethodAccess::kSafe, dict_view<DictView::kItems>},
    {Kind::kDict, "keys", MethodAccess::kSafe, dict_view<DictView::kKeys>},
    {Kind::kDict, "pop", MethodAccess::kMutates, nullptr},
    {Kind::kDict, "popitem", MethodAccess::kMutates, nullptr},
    {Kind::kDict, "setdefault", MethodAccess::kMutates, nullptr},
    {Kind::kDict, "update", MethodAccess::kMutates, nullptr},
    {Kind::kDict, "values", MethodAccess::kSafe, dict_view<DictView::kValues>},
    {Kind::kDictView, "isdisjoint", MethodAccess::kUnsupported, nullptr},
    {Kind::kDictView, "mapping", MethodAccess::kUnsupported, nullptr},
    {Kind::kList, "append", MethodAccess::kMutates, nullptr},
    {Kind::kList, "clear", MethodAccess::kMutates, nullptr},
    {Kind::kList, "copy", MethodAccess::kSafe, copy},
    {Kind::kList, "count", MethodAccess::kSafe, sequence_count},
    {Kind::kList, "extend", MethodAccess::kMutates, nullptr},
    {Kind::kList, "index", MethodAccess::kSafe, sequence_index},
    {Kind::kList, "insert", MethodAccess::kMutates, nullptr},
    {Kind::kList, "pop", MethodAccess::kMutates, nullptr},
    {Kind::kList, "remove", MethodAccess::kMutates, nullptr},
    {Kind::kList, "reverse", MethodAccess::kMutates, nullptr},
    {Kind::kList, "sort", MethodAccess::kMutates, nullptr},
    {Kind::kTuple, "count", MethodAccess::kSafe, sequence_count},
    {Kind::kTuple, "index", MethodAccess::kSafe, sequence_index},
    {Kind::kRange, "count", MethodAccess::kSafe, sequence_count},
    {Kind::kRange, "index", MethodAccess::kSafe, sequence_index},
    {Kind::kLoop, "cycle", MethodAccess::kSafe, loop_cycle},
    {Kind::kLoop, "changed", MethodAccess::kSafe, loop_changed},
    {Kind::kCycler, "next", MethodAccess::kSafe, cycler_next},
    {Kind::kCycler, "reset", MethodAccess::kSafe, cycler_reset},
};

// --- global functions

Result<Value> make_range(Runtime& rt, const Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound,
                          bind_args("range", args, {"start", "stop", "step"}, 1, 3));
  SLUICE_ASSIGN_OR_RETURN(std::int64_t start, int_arg("range", bound[0]));
  SLUICE_ASSIGN_OR_RETURN(std::int64_t stop, int_arg("range", bound[1], start));
  if (bound[1].missing()) start = 0;
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t step, int_arg("range", bound[2], 1));
  if (step == 0) return bad_input("range() arg 3 must not be zero");
  auto range = rt.make<RangeNode>(start, stop, step);
  if (range->length > rt.limits().range_length) {
    return bad_input("Range too big. The sandbox blocks ranges larger than {}",
                     rt.limits().range_length);
  }
  return Value(Kind::kRange, std::move(range));
}

// dict(mapping or pairs, **more), also for namespace().
Result<std::vector<DictNode::Item>> dict_items(Runtime& rt, std::string_view name,
                                               const Args& args) {
  std::vector<DictNode::Item> items;
  if (args.positional.size() > 1) return bad_input("{}() takes at most 1 argument", name);
  if (args.positional.size() == 1) {
    const Value& from = args.positional[0];
    if (from.is(Kind::kUndefined)) return undefined_error(from);
    if (from.is(Kind::kDict)) {
      SLUICE_RETURN_IF_ERROR(rt.check_list_size(from.as<DictNode>().items.size()));
      items = from.as<DictNode>().items;
    } else {
      SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> pairs, to_vector(rt, from));
      for (const Value& pair : pairs) {
        SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> two, to_vector(rt, pair));
        if (two.size() != 2) {
          return bad_input("dictionary update sequence element has length {}; 2 is required",
                           two.size());
        }
        SLUICE_RETURN_IF_ERROR(check_hashable(two[0]));
        items.emplace_back(two[0], two[1]);
      }
    }
  }
  for (const auto& [key, value] : args.keyword) items.emplace_back(rt.make_string(key), value);
  return items;
}

Result<Value> make_namespace(Runtime& rt, const Args& args) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<DictNode::Item> items, dict_items(rt, "namespace", args));
  const auto unique = rt.make<DictNode>(std::move(items));
  SLUICE_RETURN_IF_ERROR(rt.charge(unique->items.size()));
  auto space = rt.make<NamespaceNode>();
  for (const auto& [key, value] : unique->items) {
    if (!key.is_string())
      return bad_input("a namespace with keys that are no text is not supported");
    space->add(key.str(), value);
  }
  return Value(Kind::kNamespace, std::move(space));
}

}  // namespace

MethodTable container_methods() { return {kContainerMethods, std::size(kContainerMethods)}; }

int find_function(std::string_view name) {
  constexpr std::string_view kNames[] = {"range",        "dict",   "namespace",
                                         "cycler",       "joiner", "raise_exception",
                                         "strftime_now", "lipsum"};
  const auto it = std::find(std::begin(kNames), std::end(kNames), name);
  return it == std::end(kNames) ? -1 : static_cast<int>(it - std::begin(kNames));
}

Result<Value> call_function(Runtime& rt, Function function, Args& args) {
  switch (function) {
    case Function::kRange:
      return make_range(rt, args);
    case Function::kDict: {
      SLUICE_ASSIGN_OR_RETURN(std::vector<DictNode::Item> items, dict_items(rt, "dict", args));
      SLUICE_RETURN_IF_ERROR(rt.charge(items.size()));
      return Value(Kind::kDict, rt.make<DictNode>(std::move(items)));
    }
    case Function::kNamespace:
      return make_namespace(rt, args);
    case Function::kCycler:
      if (!args.keyword.empty()) return bad_input("cycler() takes no keyword arguments");
      if (args.positional.empty()) return bad_input("at least one item has to be provided");
      return Value(Kind::kCycler, rt.make<CyclerNode>(args.positional));
    case Function::kJoiner: {
      SLUICE_ASSIGN_OR_RETURN(auto bound, bind_args("joiner", args, {"sep"}, 0));
      if (bound[0].missing()) bound[0] = rt.make_string(", ");
      return Value(Kind::kJoiner, rt.make<JoinerNode>(bound[0]));
    }
    default:
      return bad_input("lipsum() is not supported: it makes random text");
  }
}

}  // namespace sluice::jinja
