// The loop variable.
#include "src/text/jinja/interpreter_nodes.h"
#include "src/text/jinja/ops.h"

namespace sluice::jinja {
namespace {

// What is left of an iterator whose length was asked for.
class RestIterator : public IteratorNode {
 public:
  RestIterator(Runtime* runtime, std::vector<Value> rest)
      : IteratorNode(runtime), rest_(std::move(rest)) {}
  ~RestIterator() override { drop_children(); }
  void drop_children() override { drop(rest_); }
  Result<bool> next(Runtime&, Value* item) override {
    if (position_ >= rest_.size()) return false;
    *item = rest_[position_++];
    return true;
  }

 private:
  std::vector<Value> rest_;
  std::size_t position_ = 0;
};

}  // namespace

void LoopNode::drop_children() {
  drop(std::move(iterator));
  drop(current);
  drop(before);
  drop(after);
  drop(last_changed);
  drop(std::move(closure));
}

Result<bool> LoopNode::advance(Runtime& rt, Value* item) {
  if (!after.missing()) {
    *item = std::move(after);
    after = Value();
  } else {
    SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, item));
    if (!more) return false;
  }
  ++index0;
  before = std::move(current);
  current = *item;
  return true;
}

Result<Value> LoopNode::peek(Runtime& rt) {
  if (after.missing()) {
    Value item;
    SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &item));
    if (more) after = std::move(item);
  }
  return after;
}

Result<std::int64_t> LoopNode::length(Runtime& rt) {
  if (!known_length) {
    SLUICE_ASSIGN_OR_RETURN(std::vector<Value> rest,
                            to_vector(rt, Value(Kind::kIterator, iterator)));
    known_length = static_cast<std::int64_t>(rest.size()) + index0 + 1 + (after.missing() ? 0 : 1);
    iterator = rt.make<RestIterator>(std::move(rest));
  }
  return *known_length;
}

Result<Value> LoopNode::attribute(Runtime& rt, std::string_view name) {
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "depth") return Value::integer(depth0 + 1);
  if (name == "depth0") return Value::integer(depth0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") {
    SLUICE_ASSIGN_OR_RETURN(const Value next, peek(rt));
    return Value::boolean(next.missing());
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    SLUICE_ASSIGN_OR_RETURN(const std::int64_t total, length(rt));
    if (name == "length") return Value::integer(total);
    return Value::integer(total - index0 - (name == "revindex" ? 0 : 1));
  }
  if (name == "previtem") {
    return index0 == 0 ? rt.make_undefined("there is no previous item") : before;
  }
  if (name == "nextitem") {
    SLUICE_ASSIGN_OR_RETURN(const Value next, peek(rt));
    return next.missing() ? rt.make_undefined("there is no next item") : next;
  }
  return Value();
}

std::string macro_repr(const Value& macro) {
  const std::string& name = macro.as<MacroNode>().macro->name;
  return name.empty() ? "<Macro anonymous>" : "<Macro '" + name + "'>";
}

}  // namespace sluice::jinja
