// Expressions. Each kind has a small function of its own, so that the recursive function evaluate()
// needs little stack.
#include <cmath>

#include "src/text/jinja/builtins.h"
#include "src/text/jinja/interpreter.h"
#include "src/text/jinja/ops.h"

namespace sluice::jinja {

Result<Value> Interpreter::evaluate(const Expr& expr) {
  const Nesting nesting(*this);
  Result<Value> result = [&]() -> Result<Value> {
    SLUICE_RETURN_IF_ERROR(nesting.check());
    SLUICE_RETURN_IF_ERROR(charge(1));
    return evaluate_kind(expr);
  }();
  if (!result.ok() && error_position_.line == 0) error_position_ = expr.position;
  return result;
}

Result<Value> Interpreter::evaluate_kind(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::kConst:
      return expr.value;
    case Expr::Kind::kName:
      return evaluate_name(expr);
    case Expr::Kind::kTuple:
    case Expr::Kind::kList:
      return evaluate_items(expr);
    case Expr::Kind::kDict:
      return evaluate_dict(expr);
    case Expr::Kind::kNegate:
    case Expr::Kind::kPlus:
    case Expr::Kind::kNot:
      return evaluate_unary(expr);
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr:
      return evaluate_logic(expr);
    case Expr::Kind::kBinary:
      return evaluate_binary(expr);
    case Expr::Kind::kConcat:
      return evaluate_concat(expr);
    case Expr::Kind::kCompare:
      return evaluate_compare(expr);
    case Expr::Kind::kCond:
      return evaluate_condition(expr);
    case Expr::Kind::kGetAttr:
    case Expr::Kind::kGetItem:
    case Expr::Kind::kSlice:
      return evaluate_access(expr);
    case Expr::Kind::kCall:
      return evaluate_call(expr);
    case Expr::Kind::kFilter:
      return evaluate_filter(expr);
    case Expr::Kind::kTest:
      return evaluate_test(expr);
    case Expr::Kind::kNsRef:
      break;
  }
  return bad_input("this can only stand to the left of '='");
}

Value Interpreter::look_up(int id) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& variable : scope->variables) {
      if (variable.first == id) return variable.second;  // perhaps missing: unset here
    }
  }
  const Value& in_context = context_[static_cast<std::size_t>(id)];
  if (!in_context.missing()) return in_context;
  const int function = find_function(program_.names[static_cast<std::size_t>(id)]);
  return function < 0 ? Value() : Value::function(function);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_name(const Expr& expr) {
  Value v = look_up(expr.id);
  if (!v.missing()) return v;
  return make_undefined(
      fmt::format("'{}' is undefined", program_.names[static_cast<std::size_t>(expr.id)]));
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_items(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.kids.size());
  for (const ExprPtr& kid : expr.kids) {
    SLUICE_ASSIGN_OR_RETURN(Value item, evaluate(*kid));
    items.push_back(std::move(item));
  }
  return expr.kind == Expr::Kind::kList ? make_list(std::move(items))
                                        : make_tuple(std::move(items));
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_dict(const Expr& expr) {
  std::vector<DictNode::Item> items;
  items.reserve(expr.kids.size() / 2);
  for (std::size_t i = 0; i + 1 < expr.kids.size(); i += 2) {
    SLUICE_ASSIGN_OR_RETURN(Value key, evaluate(*expr.kids[i]));
    SLUICE_ASSIGN_OR_RETURN(Value value, evaluate(*expr.kids[i + 1]));
    SLUICE_RETURN_IF_ERROR(check_hashable(key));
    items.emplace_back(std::move(key), std::move(value));
  }
  return Value(Kind::kDict, make<DictNode>(std::move(items)));
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_unary(const Expr& expr) {
  SLUICE_ASSIGN_OR_RETURN(const Value v, evaluate(*expr.kids[0]));
  if (expr.kind == Expr::Kind::kNot) return Value::boolean(!truth(v));
  return expr.kind == Expr::Kind::kNegate ? negate(*this, v) : unary_plus(*this, v);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_logic(const Expr& expr) {
  const bool stop_at = expr.kind == Expr::Kind::kOr;
  for (std::size_t i = 0; i + 1 < expr.kids.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(Value v, evaluate(*expr.kids[i]));
    if (truth(v) == stop_at) return v;
  }
  return evaluate(*expr.kids.back());
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_binary(const Expr& expr) {
  SLUICE_ASSIGN_OR_RETURN(Value left, evaluate(*expr.kids[0]));
  for (std::size_t i = 0; i < expr.binary_ops.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const Value right, evaluate(*expr.kids[i + 1]));
    // jinja2 writes Python source with the number in it, where -2 ** x is -(2 ** x): so it is even
    // for (-2) ** x in a template.
    const bool minus_outside = static_cast<int>(i) == expr.folded_base && left.is_number() &&
                               std::signbit(left.to_double());
    if (minus_outside) {
      SLUICE_ASSIGN_OR_RETURN(left, negate(*this, left));
    }
    SLUICE_ASSIGN_OR_RETURN(left, binary(*this, expr.binary_ops[i], left, right));
    if (minus_outside) {
      SLUICE_ASSIGN_OR_RETURN(left, negate(*this, left));
    }
  }
  return left;
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_concat(const Expr& expr) {
  std::vector<Value> parts;
  parts.reserve(expr.kids.size());
  for (const ExprPtr& kid : expr.kids) {
    SLUICE_ASSIGN_OR_RETURN(Value part, evaluate(*kid));
    parts.push_back(std::move(part));
  }
  TaggedText out;
  for (const Value& part : parts) SLUICE_RETURN_IF_ERROR(append_str(*this, part, &out));
  return make_string(std::move(out));
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_compare(const Expr& expr) {
  SLUICE_ASSIGN_OR_RETURN(Value left, evaluate(*expr.kids[0]));
  for (std::size_t i = 0; i < expr.compare_ops.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(Value right, evaluate(*expr.kids[i + 1]));
    const auto result = [&]() -> Result<bool> {
      const auto inverse = [](Result<bool> r) -> Result<bool> { return r.ok() ? !*r : r; };
      switch (expr.compare_ops[i]) {
        case CompareOp::kEqual:
          return equals(*this, left, right);
        case CompareOp::kNotEqual:
          return inverse(equals(*this, left, right));
        case CompareOp::kLess:
          return compare(*this, Order::kLess, left, right);
        case CompareOp::kLessEqual:
          return compare(*this, Order::kLessEqual, left, right);
        case CompareOp::kGreater:
          return compare(*this, Order::kGreater, left, right);
        case CompareOp::kGreaterEqual:
          return compare(*this, Order::kGreaterEqual, left, right);
        case CompareOp::kIn:
          return contains(*this, right, left);
        case CompareOp::kNotIn:
          return inverse(contains(*this, right, left));
      }
      return false;
    }();
    if (!result.ok()) return result.error();
    if (!*result) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_condition(const Expr& expr) {
  SLUICE_ASSIGN_OR_RETURN(const Value test, evaluate(*expr.kids[1]));
  if (truth(test)) return evaluate(*expr.kids[0]);
  if (expr.kids.size() > 2) return evaluate(*expr.kids[2]);
  return make_undefined(
      fmt::format("the inline if-expression on line {} evaluated to false and no else section was "
                  "defined.",
                  expr.position.line));
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_access(const Expr& expr) {
  SLUICE_ASSIGN_OR_RETURN(const Value object, evaluate(*expr.kids[0]));
  if (expr.kind == Expr::Kind::kGetAttr) return get_attribute(*this, object, expr.name);
  if (expr.kind == Expr::Kind::kGetItem) {
    SLUICE_ASSIGN_OR_RETURN(const Value key, evaluate(*expr.kids[1]));
    return get_item(*this, object, key);
  }
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (expr.kids[i + 1] == nullptr) continue;
    SLUICE_ASSIGN_OR_RETURN(bounds[i], evaluate(*expr.kids[i + 1]));
  }
  return get_slice(*this, object, bounds[0], bounds[1], bounds[2]);
}

Result<Args> Interpreter::evaluate_arguments(const CallArguments& arguments) {
  Args args;
  args.positional.reserve(arguments.positional.size());
  for (const ExprPtr& argument : arguments.positional) {
    SLUICE_ASSIGN_OR_RETURN(Value v, evaluate(*argument));
    args.positional.push_back(std::move(v));
  }
  for (const auto& [name, argument] : arguments.keyword) {
    SLUICE_ASSIGN_OR_RETURN(Value v, evaluate(*argument));
    args.keyword.emplace_back(name, std::move(v));
  }
  if (arguments.star != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(const Value star, evaluate(*arguments.star));
    SLUICE_ASSIGN_OR_RETURN(std::vector<Value> more, to_vector(*this, star));
    for (Value& v : more) args.positional.push_back(std::move(v));
  }
  if (arguments.double_star != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(const Value mapping, evaluate(*arguments.double_star));
    if (!mapping.is(Kind::kDict)) {
      return bad_input("argument after ** must be a mapping, not {}", type_name(mapping));
    }
    SLUICE_RETURN_IF_ERROR(charge(mapping.as<DictNode>().items.size() * 2));
    for (const auto& [key, value] : mapping.as<DictNode>().items) {
      if (!key.is_string()) return bad_input("keywords must be strings");
      for (const auto& [name, argument] : arguments.keyword) {
        if (name == key.str()) {
          return bad_input("got multiple values for keyword argument '{}'", name);
        }
      }
      args.keyword.emplace_back(std::string(key.str()), value);
    }
  }
  return args;
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_call(const Expr& expr) {
  return evaluate_call_with(expr, Value());
}

// caller, unless missing, is one more keyword argument.
Result<Value> Interpreter::evaluate_call_with(const Expr& expr, const Value& caller) {
  SLUICE_ASSIGN_OR_RETURN(const Value callee, evaluate(*expr.kids[0]));
  SLUICE_ASSIGN_OR_RETURN(Args args, evaluate_arguments(expr.arguments));
  if (!caller.missing()) {
    for (const auto& argument : args.keyword) {
      if (argument.first == "caller") return bad_input("keyword argument 'caller' is given twice");
    }
    args.keyword.emplace_back("caller", caller);
  }
  return call(callee, std::move(args));
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_filter(const Expr& expr) {
  Value v = filter_input_;
  if (expr.kids[0] != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(v, evaluate(*expr.kids[0]));
  }
  if (expr.filter == nullptr) return bad_input("No filter named '{}'", expr.name);
  SLUICE_ASSIGN_OR_RETURN(Args args, evaluate_arguments(expr.arguments));
  return expr.filter->apply(*this, v, args);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_test(const Expr& expr) {
  SLUICE_ASSIGN_OR_RETURN(const Value v, evaluate(*expr.kids[0]));
  if (expr.test == nullptr) return bad_input("No test named '{}'", expr.name);
  SLUICE_ASSIGN_OR_RETURN(Args args, evaluate_arguments(expr.arguments));
  SLUICE_ASSIGN_OR_RETURN(const bool result, expr.test->apply(*this, v, args));
  return Value::boolean(result);
}

}  // namespace sluice::jinja
