// Statements.
#include "src/text/jinja/interpreter.h"
#include "src/text/jinja/ops.h"

namespace sluice::jinja {
namespace {

// Puts back the old value of a variable at the end.
template <class T>
class Restore {
 public:
  explicit Restore(T* variable) : variable_(variable), old_(*variable) {}
  ~Restore() { *variable_ = std::move(old_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T* variable_;
  T old_;
};

// What a filter or call block gives is joined with the text around it, so it must be text.
Status check_block_result(const Value& v) {
  if (v.is_string()) return {};
  return bad_input("a filter or call block gave {} where text is expected", type_name(v));
}

bool has_length(const Value& v) { return !v.is(Kind::kIterator) && !v.is_absent(); }

}  // namespace

// The items of a loop for which its if is true.
class LoopFilter : public IteratorNode {
 public:
  LoopFilter(Runtime* runtime, Interpreter& interpreter, std::shared_ptr<IteratorNode> items,
             const Stmt& stmt, std::shared_ptr<Scope> outer)
      : IteratorNode(runtime),
        interpreter_(interpreter),
        items_(std::move(items)),
        stmt_(stmt),
        outer_(std::move(outer)) {}
  ~LoopFilter() override { drop_children(); }
  void drop_children() override {
    drop(std::move(items_));
    drop(std::move(outer_));
  }

  Result<bool> next(Runtime& rt, Value* item) override {
    while (true) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, items_->next(rt, item));
      if (!more) return false;
      auto scope = rt.make<Scope>(outer_);
      SLUICE_RETURN_IF_ERROR(interpreter_.assign(*stmt_.exprs[0], *item, *scope));
      const Restore<std::shared_ptr<Scope>> restore(&interpreter_.scope_);
      interpreter_.scope_ = scope;
      SLUICE_ASSIGN_OR_RETURN(const Value test, interpreter_.evaluate(*stmt_.exprs[2]));
      if (!truth(test)) continue;
      // What goes on is the target, so a list that was taken apart becomes a tuple.
      if (stmt_.exprs[0]->kind == Expr::Kind::kTuple) {
        SLUICE_ASSIGN_OR_RETURN(*item, interpreter_.evaluate(*stmt_.exprs[0]));
      }
      return true;
    }
  }

 private:
  Interpreter& interpreter_;
  std::shared_ptr<IteratorNode> items_;
  const Stmt& stmt_;
  std::shared_ptr<Scope> outer_;
};

Result<Interpreter::Flow> Interpreter::execute(const Stmt& stmt) {
  const Nesting nesting(*this);
  Result<Flow> result = [&]() -> Result<Flow> {
    SLUICE_RETURN_IF_ERROR(nesting.check());
    SLUICE_RETURN_IF_ERROR(charge(1));
    return execute_kind(stmt);
  }();
  if (!result.ok() && error_position_.line == 0) error_position_ = stmt.position;
  return result;
}

Result<Interpreter::Flow> Interpreter::execute_kind(const Stmt& stmt) {
  switch (stmt.kind) {
    case Stmt::Kind::kOutput:
      return execute_output(stmt);
    case Stmt::Kind::kIf:
      return execute_if(stmt);
    case Stmt::Kind::kFor:
      return execute_for(stmt);
    case Stmt::Kind::kSet:
      return execute_set(stmt);
    case Stmt::Kind::kSetBlock:
      return execute_set_block(stmt);
    case Stmt::Kind::kMacro:
      scope_->set(stmt.id, Value(Kind::kMacro, make<MacroNode>(stmt.macro.get(), scope_)));
      return Flow::kNext;
    case Stmt::Kind::kCallBlock:
    case Stmt::Kind::kGeneration:
      return execute_call_block(stmt);
    case Stmt::Kind::kFilterBlock:
      return execute_filter_block(stmt);
    case Stmt::Kind::kWith:
      return execute_with(stmt);
    case Stmt::Kind::kBlock:
      return execute_scoped(stmt.bodies[0], stmt.scoped ? scope_ : root_scope_);
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return bad_input("unknown statement");
}

Result<Interpreter::Flow> Interpreter::execute_all(const std::vector<StmtPtr>& statements) {
  for (const StmtPtr& stmt : statements) {
    SLUICE_ASSIGN_OR_RETURN(const Flow flow, execute(*stmt));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_scoped(
    const Body& body, ScopePtr outer, const std::function<Status(Scope&)>& prepare) {
  SLUICE_RETURN_IF_ERROR(charge(2));
  const Restore<ScopePtr> restore(&scope_);
  auto scope = make<Scope>(std::move(outer));
  for (const int id : body.unset) scope->set(id, Value());
  if (prepare) SLUICE_RETURN_IF_ERROR(prepare(*scope));
  scope_ = std::move(scope);
  return execute_all(body.statements);
}

Result<Interpreter::Flow> Interpreter::execute_output(const Stmt& stmt) {
  for (const ExprPtr& expr : stmt.exprs) {
    SLUICE_ASSIGN_OR_RETURN(const Value v, evaluate(*expr));
    const Status printed = append_str(*this, v, out_);
    if (printed.ok()) continue;
    if (error_position_.line == 0) error_position_ = expr->position;
    return printed.error();
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_if(const Stmt& stmt) {
  for (std::size_t i = 0; i < stmt.exprs.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const Value test, evaluate(*stmt.exprs[i]));
    if (truth(test)) return execute_all(stmt.bodies[i].statements);
  }
  if (stmt.bodies.size() == stmt.exprs.size()) return Flow::kNext;
  return execute_all(stmt.bodies.back().statements);
}

Result<Interpreter::Flow> Interpreter::execute_for(const Stmt& stmt) {
  SLUICE_ASSIGN_OR_RETURN(const Value iterable, evaluate(*stmt.exprs[1]));
  return run_loop(stmt, iterable, 0);
}

Result<Interpreter::Flow> Interpreter::run_loop(const Stmt& stmt, const Value& iterable,
                                                std::int64_t depth0) {
  SLUICE_ASSIGN_OR_RETURN(auto items, iterate(*this, iterable));
  std::optional<std::int64_t> length;
  if (stmt.exprs[2] != nullptr) {
    items = make<LoopFilter>(*this, std::move(items), stmt, scope_);
  } else if (stmt.uses_loop && has_length(iterable)) {
    SLUICE_ASSIGN_OR_RETURN(length, length_of(*this, iterable));
  }
  const auto loop = make<LoopNode>(std::move(items), length, depth0);
  if (stmt.recursive) {
    loop->statement = &stmt;
    loop->closure = scope_;
  }
  const Value loop_value(Kind::kLoop, loop);
  bool completed = false;  // some round ran to the end of the body
  Value item;
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, loop->advance(*this, &item));
    if (!more) break;
    SLUICE_ASSIGN_OR_RETURN(const Flow flow,
                            execute_scoped(stmt.bodies[0], scope_, [&](Scope& scope) -> Status {
                              if (stmt.uses_loop) scope.set(program_.loop_id, loop_value);
                              return assign(*stmt.exprs[0], item, scope);
                            }));
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  // As jinja2 has it: a loop in which every round was left early counts as empty.
  if (!completed && stmt.has_else) return execute_scoped(stmt.bodies[1], scope_);
  return Flow::kNext;
}

Status Interpreter::assign(const Expr& target, const Value& value, Scope& scope) {
  if (target.kind == Expr::Kind::kName) {
    scope.set(target.id, value);
    return {};
  }
  if (target.kind == Expr::Kind::kNsRef) {
    const Value space = look_up(target.id);
    if (!space.is(Kind::kNamespace)) {
      error_position_ = target.position;
      return bad_input("cannot assign attribute on non-namespace object");
    }
    SLUICE_RETURN_IF_ERROR(charge(space.as<NamespaceNode>().attributes.size() / 16));
    space.as<NamespaceNode>().set(target.name, value);
    return {};
  }
  if (!is_iterable(value))
    return bad_input("cannot unpack non-iterable {} object", type_name(value));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Value> items, to_vector(*this, value));
  if (items.size() != target.kids.size()) {
    return bad_input("cannot unpack {} values into {} names", items.size(), target.kids.size());
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(assign(*target.kids[i], items[i], scope));
  }
  return {};
}

Result<Interpreter::Flow> Interpreter::execute_set(const Stmt& stmt) {
  SLUICE_ASSIGN_OR_RETURN(const Value v, evaluate(*stmt.exprs[1]));
  SLUICE_RETURN_IF_ERROR(assign(*stmt.exprs[0], v, *scope_));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::capture(const Body& body, TaggedText* out) {
  const Restore<TaggedText*> restore(&out_);
  out_ = out;
  return execute_scoped(body, scope_);
}

Result<Value> Interpreter::apply_filter_block(const Expr& filter, TaggedText text) {
  const Restore<Value> restore(&filter_input_);
  filter_input_ = make_string(std::move(text));
  return evaluate(filter);
}

Result<Interpreter::Flow> Interpreter::execute_set_block(const Stmt& stmt) {
  TaggedText text;
  SLUICE_ASSIGN_OR_RETURN(const Flow flow, capture(stmt.bodies[0], &text));
  if (flow != Flow::kNext) return flow;
  Value v;
  if (stmt.exprs[1] != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(v, apply_filter_block(*stmt.exprs[1], std::move(text)));
  } else {
    v = make_string(std::move(text));
  }
  SLUICE_RETURN_IF_ERROR(assign(*stmt.exprs[0], v, *scope_));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_filter_block(const Stmt& stmt) {
  TaggedText text;
  SLUICE_ASSIGN_OR_RETURN(const Flow flow, capture(stmt.bodies[0], &text));
  if (flow != Flow::kNext) return flow;
  SLUICE_ASSIGN_OR_RETURN(const Value v, apply_filter_block(*stmt.exprs[0], std::move(text)));
  SLUICE_RETURN_IF_ERROR(check_block_result(v));
  SLUICE_RETURN_IF_ERROR(append_str(*this, v, out_));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_call_block(const Stmt& stmt) {
  const Value caller(Kind::kMacro, make<MacroNode>(stmt.macro.get(), scope_));
  Value v;
  if (stmt.kind == Stmt::Kind::kGeneration) {
    SLUICE_ASSIGN_OR_RETURN(v, call(caller, Args()));
  } else {
    SLUICE_ASSIGN_OR_RETURN(v, evaluate_call_with(*stmt.exprs[0], caller));
  }
  SLUICE_RETURN_IF_ERROR(check_block_result(v));
  SLUICE_RETURN_IF_ERROR(append_str(*this, v, out_));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_with(const Stmt& stmt) {
  const std::size_t count = stmt.exprs.size() / 2;
  std::vector<Value> values;
  for (std::size_t i = 0; i < count; ++i) {
    SLUICE_ASSIGN_OR_RETURN(Value v, evaluate(*stmt.exprs[count + i]));
    values.push_back(std::move(v));
  }
  return execute_scoped(stmt.bodies[0], scope_, [&](Scope& scope) -> Status {
    for (std::size_t i = 0; i < count; ++i) {
      SLUICE_RETURN_IF_ERROR(assign(*stmt.exprs[i], values[i], scope));
    }
    return {};
  });
}

}  // namespace sluice::jinja
