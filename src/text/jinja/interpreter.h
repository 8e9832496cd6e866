// Renders a Program.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/jinja/ast.h"
#include "src/text/jinja/interpreter_nodes.h"
#include "src/text/jinja/runtime.h"

namespace sluice::jinja {

// One rendering. The Program must outlive it; values made for it must not outlive it.
class Interpreter : public Runtime {
 public:
  explicit Interpreter(const Program& program, const Limits& limits = {});
  ~Interpreter() override;

  // A variable of the context; names the template does not mention are ignored.
  void set_variable(std::string_view name, Value value);
  // The time that strftime_now sees.
  void set_clock(const std::tm& local_time) { clock_ = local_time; }

  // Call once.
  Result<TaggedText> run();
  // After an error: where it happened (line 0: nowhere in the template), and whether the template
  // itself raised it by raise_exception, in which case the message is the template's own.
  Position error_position() const { return error_position_; }
  bool raised() const { return raised_; }

  Result<Value> call(const Value& callee, Args args) override;
  Result<Value> call_filter(std::string_view name, const Value& value, Args args) override;
  Result<bool> call_test(std::string_view name, const Value& value, Args args) override;

 private:
  friend class LoopFilter;
  enum class Flow { kNext, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  // --- statements (execute.cpp)
  Result<Flow> execute(const Stmt& stmt);
  Result<Flow> execute_kind(const Stmt& stmt);
  Result<Flow> execute_all(const std::vector<StmtPtr>& statements);
  // In a new scope inside `outer`; prepare sets its first variables.
  Result<Flow> execute_scoped(const Body& body, ScopePtr outer,
                              const std::function<Status(Scope&)>& prepare = nullptr);
  Result<Flow> execute_output(const Stmt& stmt);
  Result<Flow> execute_if(const Stmt& stmt);
  Result<Flow> execute_for(const Stmt& stmt);
  Result<Flow> execute_set(const Stmt& stmt);
  Result<Flow> execute_set_block(const Stmt& stmt);
  Result<Flow> execute_call_block(const Stmt& stmt);
  Result<Flow> execute_filter_block(const Stmt& stmt);
  Result<Flow> execute_with(const Stmt& stmt);
  Result<Flow> run_loop(const Stmt& stmt, const Value& iterable, std::int64_t depth0);
  Status assign(const Expr& target, const Value& value, Scope& scope);
  // Runs the body with its output going to *out.
  Result<Flow> capture(const Body& body, TaggedText* out);
  Result<Value> apply_filter_block(const Expr& filter, TaggedText text);

  // --- expressions (evaluate.cpp)
  Result<Value> evaluate(const Expr& expr);
  Result<Value> evaluate_kind(const Expr& expr);
  Result<Value> evaluate_name(const Expr& expr);
  Result<Value> evaluate_items(const Expr& expr);
  Result<Value> evaluate_dict(const Expr& expr);
  Result<Value> evaluate_unary(const Expr& expr);
  Result<Value> evaluate_logic(const Expr& expr);
  Result<Value> evaluate_binary(const Expr& expr);
  Result<Value> evaluate_concat(const Expr& expr);
  Result<Value> evaluate_compare(const Expr& expr);
  Result<Value> evaluate_condition(const Expr& expr);
  Result<Value> evaluate_access(const Expr& expr);
  Result<Value> evaluate_call(const Expr& expr);
  Result<Value> evaluate_call_with(const Expr& expr, const Value& caller);
  Result<Value> evaluate_filter(const Expr& expr);
  Result<Value> evaluate_test(const Expr& expr);
  Result<Args> evaluate_arguments(const CallArguments& arguments);
  Value look_up(int id) const;  // missing if there is no such variable

  // --- calls (call.cpp)
  Result<Value> call_macro(const MacroNode& node, Args args);
  Result<Value> call_loop(const LoopNode& loop, const Args& args);
  Result<Value> raise(const Args& args);
  Result<Value> strftime_now(const Args& args);
  Status bind_macro(const Macro& macro, Args args, Scope& scope);

  const Program& program_;
  std::vector<Value> context_;  // by name id
  ScopePtr root_scope_;
  ScopePtr scope_;
  TaggedText* out_ = nullptr;
  Value filter_input_;  // of the innermost {% filter %} or {% set | filter %}
  int call_depth_ = 0;
  Position error_position_;
  bool raised_ = false;
  std::tm clock_{};
};

}  // namespace sluice::jinja
