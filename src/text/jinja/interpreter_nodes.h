// Values that only the interpreter makes: scopes, macros and the loop variable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/text/jinja/ast.h"
#include "src/text/jinja/runtime.h"
#include "src/text/jinja/value.h"

namespace sluice::jinja {

// Variables by name id. A missing value hides what lies outside: the name is unset here.
struct Scope : Node {
  Scope(Runtime* rt, std::shared_ptr<Scope> outer) : Node(rt, 64), parent(std::move(outer)) {}
  ~Scope() override { drop_children(); }
  void drop_children() override {
    for (auto& variable : variables) drop(variable.second);
    variables.clear();
    drop(std::move(parent));
  }
  void set(int id, Value value) {
    for (auto& variable : variables) {
      if (variable.first != id) continue;
      std::swap(variable.second, value);
      drop(value);
      return;
    }
    grow(sizeof(variables[0]));
    variables.emplace_back(id, std::move(value));
  }

  std::vector<std::pair<int, Value>> variables;
  std::shared_ptr<Scope> parent;
};

struct MacroNode : Node {
  MacroNode(Runtime* rt, const Macro* definition, std::shared_ptr<Scope> outer)
      : Node(rt, 0), macro(definition), closure(std::move(outer)) {}
  ~MacroNode() override { drop_children(); }
  void drop_children() override { drop(std::move(closure)); }
  const Macro* macro;  // owned by the Program
  std::shared_ptr<Scope> closure;
};

// The loop variable. It reads ahead by one item for .last and .nextitem, and to the end for .length
// of something without a length, as jinja2 does.
struct LoopNode : Node {
  LoopNode(Runtime* rt, std::shared_ptr<IteratorNode> items, std::optional<std::int64_t> known,
           std::int64_t level)
      : Node(rt, 256), iterator(std::move(items)), known_length(known), depth0(level) {}
  ~LoopNode() override { drop_children(); }
  void drop_children() override;

  // Goes to the next item; false at the end.
  Result<bool> advance(Runtime& rt, Value* item);
  // An item ahead, or a missing value.
  Result<Value> peek(Runtime& rt);
  Result<std::int64_t> length(Runtime& rt);
  // The attribute, or a missing value if there is none of that name.
  Result<Value> attribute(Runtime& rt, std::string_view name);

  std::shared_ptr<IteratorNode> iterator;
  std::optional<std::int64_t> known_length;
  std::int64_t depth0;
  std::int64_t index0 = -1;
  Value current, before, after;     // after: read ahead, or missing
  std::vector<Value> last_changed;  // arguments of the last .changed()
  bool changed_called = false;
  const Stmt* statement = nullptr;  // of a recursive loop, to be called again
  std::shared_ptr<Scope> closure;   // around a recursive loop
};

std::string macro_repr(const Value& macro);

}  // namespace sluice::jinja
