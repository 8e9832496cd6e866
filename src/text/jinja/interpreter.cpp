// Setting up, and calls.
#include "src/text/jinja/interpreter.h"

#include <algorithm>

#include "src/text/jinja/args.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/ops.h"
#include "src/text/jinja/strftime.h"

namespace sluice::jinja {

Interpreter::Interpreter(const Program& program, const Limits& limits)
    : Runtime(limits), program_(program), context_(program.names.size()) {}

Interpreter::~Interpreter() = default;

void Interpreter::set_variable(std::string_view name, Value value) {
  const auto it = program_.ids.find(std::string(name));
  if (it != program_.ids.end()) context_[static_cast<std::size_t>(it->second)] = std::move(value);
}

Result<TaggedText> Interpreter::run() {
  TaggedText text;
  out_ = &text;
  root_scope_ = make<Scope>(nullptr);
  for (const int id : program_.body.unset) root_scope_->set(id, Value());
  scope_ = root_scope_;
  const auto flow = execute_all(program_.body.statements);
  scope_ = nullptr;
  out_ = nullptr;
  if (!flow.ok()) return flow.error();
  return text;
}

Result<Value> Interpreter::call(const Value& callee, Args args) {
  SLUICE_RETURN_IF_ERROR(charge(1));
  switch (callee.kind()) {
    case Kind::kMacro:
      return call_macro(callee.as<MacroNode>(), std::move(args));
    case Kind::kMethod: {
      const MethodNode& bound = callee.as<MethodNode>();
      if (bound.info->access != MethodAccess::kSafe) {
        return bad_input("the method '{}' of '{}' is not supported in chat templates",
                         bound.info->name, type_name(bound.self));
      }
      return bound.info->call(*this, bound.self, args);
    }
    case Kind::kFunction:
      switch (static_cast<Function>(callee.as_int())) {
        case Function::kRaiseException:
          return raise(args);
        case Function::kStrftimeNow:
          return strftime_now(args);
        default:
          return call_function(*this, static_cast<Function>(callee.as_int()), args);
      }
    case Kind::kLoop:
      return call_loop(callee.as<LoopNode>(), args);
    case Kind::kJoiner: {
      SLUICE_RETURN_IF_ERROR(check_no_args("joiner", args));
      JoinerNode& joiner = callee.as<JoinerNode>();
      if (joiner.used) return joiner.separator;
      joiner.used = true;
      return make_string("");
    }
    case Kind::kUndefined:
      return undefined_error(callee);
    default:
      return bad_input("'{}' object is not callable", type_name(callee));
  }
}

Result<Value> Interpreter::call_filter(std::string_view name, const Value& value, Args args) {
  SLUICE_RETURN_IF_ERROR(charge(1));
  const FilterInfo* filter = find_filter(name);
  if (filter == nullptr) return bad_input("No filter named '{}'", name);
  return filter->apply(*this, value, args);
}

Result<bool> Interpreter::call_test(std::string_view name, const Value& value, Args args) {
  SLUICE_RETURN_IF_ERROR(charge(1));
  const TestInfo* test = find_test(name);
  if (test == nullptr) return bad_input("No test named '{}'", name);
  return test->apply(*this, value, args);
}

// Arguments by position, then by keyword, then defaults; what is left over goes to varargs and
// kwargs if the body mentions them.
Status Interpreter::bind_macro(const Macro& macro, Args args, Scope& scope) {
  const auto take = [&](std::string_view name) {
    const auto it = std::find_if(args.keyword.begin(), args.keyword.end(),
                                 [&](const auto& argument) { return argument.first == name; });
    if (it == args.keyword.end()) return Value();
    Value v = std::move(it->second);
    args.keyword.erase(it);
    return v;
  };
  const std::size_t count = macro.parameters.size();
  const std::size_t given = std::min(count, args.positional.size());
  bool has_caller = false;  // as a parameter
  for (std::size_t i = 0; i < count; ++i) {
    has_caller = has_caller || macro.parameters[i].first == "caller";
    scope.set(macro.parameters[i].second,
              i < given ? args.positional[i] : take(macro.parameters[i].first));
  }
  if (macro.uses_caller && !has_caller) {
    Value caller = take("caller");
    if (caller.missing() || caller.is(Kind::kNone)) caller = make_undefined("No caller defined");
    scope.set(program_.caller_id, std::move(caller));
  }
  if (macro.uses_kwargs) {
    std::vector<DictNode::Item> items;
    for (auto& [name, value] : args.keyword) items.emplace_back(make_string(name), value);
    scope.set(program_.kwargs_id, Value(Kind::kDict, make<DictNode>(std::move(items))));
  } else if (!args.keyword.empty()) {
    const std::string& name = args.keyword.front().first;
    if (name == "caller") {
      return bad_input("macro '{}' is used in a call block but does not call caller()", macro.name);
    }
    return bad_input("macro '{}' takes no keyword argument '{}'", macro.name, name);
  }
  if (macro.uses_varargs) {
    const auto rest = args.positional.begin() + static_cast<std::ptrdiff_t>(given);
    scope.set(program_.varargs_id, make_tuple(std::vector<Value>(rest, args.positional.end())));
  } else if (args.positional.size() > count) {
    return bad_input("macro '{}' takes not more than {} argument(s)", macro.name, count);
  }
  return {};
}

Result<Value> Interpreter::call_macro(const MacroNode& node, Args args) {
  if (call_depth_ >= limits().call_depth) {
    return bad_input("macros call each other more than {} deep (limit)", limits().call_depth);
  }
  const Macro& macro = *node.macro;
  auto scope = make<Scope>(node.closure);
  for (const int id : macro.body.unset) scope->set(id, Value());
  SLUICE_RETURN_IF_ERROR(bind_macro(macro, std::move(args), *scope));

  ++call_depth_;
  TaggedText text;
  TaggedText* const out_before = std::exchange(out_, &text);
  const ScopePtr scope_before = std::exchange(scope_, scope);
  const auto flow = [&]() -> Result<Flow> {
    const std::size_t first_default = macro.parameters.size() - macro.defaults.size();
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
      const auto& [name, id] = macro.parameters[i];
      if (!look_up(id).missing()) continue;
      if (i < first_default) {
        scope->set(id, make_undefined(fmt::format("parameter '{}' was not provided", name)));
        continue;
      }
      SLUICE_ASSIGN_OR_RETURN(Value v, evaluate(*macro.defaults[i - first_default]));
      scope->set(id, std::move(v));
    }
    return execute_all(macro.body.statements);
  }();
  scope_ = scope_before;
  out_ = out_before;
  --call_depth_;
  if (!flow.ok()) return flow.error();
  return make_string(std::move(text));
}

// loop(items) inside of a recursive loop renders the loop again, one level deeper.
Result<Value> Interpreter::call_loop(const LoopNode& loop, const Args& args) {
  if (loop.statement == nullptr) {
    return bad_input("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (call_depth_ >= limits().call_depth) {
    return bad_input("recursive loops more than {} deep (limit)", limits().call_depth);
  }
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("loop", args, {"iterable"}, 1));
  ++call_depth_;
  TaggedText text;
  TaggedText* const out_before = std::exchange(out_, &text);
  const ScopePtr scope_before = std::exchange(scope_, loop.closure);
  const auto flow = run_loop(*loop.statement, bound[0], loop.depth0 + 1);
  scope_ = scope_before;
  out_ = out_before;
  --call_depth_;
  if (!flow.ok()) return flow.error();
  return make_string(std::move(text));
}

Result<Value> Interpreter::raise(const Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("raise_exception", args, {"message"}, 1));
  SLUICE_ASSIGN_OR_RETURN(const TaggedText message, to_str(*this, bound[0]));
  raised_ = true;
  return Error{ErrorCode::kFailed, message.str()};
}

Result<Value> Interpreter::strftime_now(const Args& args) {
  SLUICE_ASSIGN_OR_RETURN(const auto bound, bind_args("strftime_now", args, {"format"}, 1));
  SLUICE_RETURN_IF_ERROR(check_string_arg("strftime_now", bound[0]));
  SLUICE_ASSIGN_OR_RETURN(std::string text, format_time(bound[0].str(), clock_));
  return make_string(TaggedText(std::move(text), bound[0].text().any_content()));
}

}  // namespace sluice::jinja
