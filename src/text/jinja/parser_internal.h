// The recursive descent parser; expressions and statements are in one file each.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/jinja/lexer.h"
#include "src/text/jinja/parser.h"

namespace sluice::jinja {

// Names used at one level of scope, to find those that jinja2 treats as unset at its start.
struct ScopeNames {
  ScopeNames* parent = nullptr;
  std::set<int> known;            // loaded or stored
  std::vector<int> stored_first;  // stored before any other use, not only in a branch of an if
  int if_depth = 0;
  Body* body = nullptr;  // whose `unset` is the result; its address must stay
};

class Parser {
 public:
  Parser(std::vector<Token> tokens, const ParseLimits& limits, Program* program);
  Status parse();

 private:
  // --- tokens
  const Token& current() const { return tokens_[index_]; }
  const Token& look() const { return tokens_[std::min(index_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[index_ + 1 < tokens_.size() ? index_++ : index_]; }
  bool at_op(std::string_view op) const;
  bool at_name(std::string_view name) const;
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  Status expect_op(std::string_view op);
  Status expect_name(std::string_view name);
  Status expect(TokenKind kind);
  Result<Token> expect_identifier();
  Error fail(std::string_view message) const { return error_at(current().position, message); }
  static std::string describe(const Token& token);

  // --- names and scopes
  int id_of(std::string_view name);
  void load(int id);
  void store(int id);
  void declare(int id);  // a parameter or loop target
  void store_target(const Expr& target);
  void declare_target(const Expr& target);
  ScopeNames* new_scope(ScopeNames* parent);

  // --- expressions (parser_expressions.cpp)
  ExprPtr make(Expr::Kind kind, Position position) const;
  Result<ExprPtr> finish(ExprPtr expr) const;  // sets and checks the height
  Result<ExprPtr> parse_expression(bool with_condition = true);
  Result<ExprPtr> parse_or();
  Result<ExprPtr> parse_and();
  Result<ExprPtr> parse_not();
  Result<ExprPtr> parse_compare();
  Result<ExprPtr> parse_sum();
  Result<ExprPtr> parse_concat();
  Result<ExprPtr> parse_product();
  Result<ExprPtr> parse_power();
  Result<ExprPtr> parse_unary(bool with_filter = true);
  Result<ExprPtr> parse_primary(bool with_namespace = false);
  struct TupleMode {
    bool simplified = false;
    bool with_condition = true;
    bool parentheses = false;
    bool with_namespace = false;
  };
  Result<ExprPtr> parse_tuple(const TupleMode& mode);
  bool at_tuple_end() const;
  Result<ExprPtr> parse_list();
  Result<ExprPtr> parse_dict();
  Result<ExprPtr> parse_postfix(ExprPtr expr);
  Result<ExprPtr> parse_filters_and_tests(ExprPtr expr);
  Result<ExprPtr> parse_subscript(ExprPtr expr);
  Result<ExprPtr> parse_call(ExprPtr expr);
  Result<ExprPtr> parse_filter(ExprPtr expr, bool start_inline);
  Result<ExprPtr> parse_test(ExprPtr expr);
  Result<CallArguments> parse_arguments();
  Result<ExprPtr> parse_target(bool with_namespace);
  Status check_assignable(const Expr& target) const;

  // --- statements (parser_statements.cpp)
  Status parse_until(std::initializer_list<std::string_view> ends, std::vector<StmtPtr>* out);
  Status parse_block_body(std::initializer_list<std::string_view> ends, std::vector<StmtPtr>* out);
  // A body with a scope of its own; names are those declared so far.
  Status parse_scoped_body(std::initializer_list<std::string_view> ends, ScopeNames* names,
                           Body* out);
  Status parse_statement(std::vector<StmtPtr>* out);
  Result<StmtPtr> parse_for();
  Result<StmtPtr> parse_if();
  Result<StmtPtr> parse_set();
  Result<StmtPtr> parse_with();
  Result<StmtPtr> parse_macro();
  Result<StmtPtr> parse_call_block();
  Result<StmtPtr> parse_generation();
  Result<StmtPtr> parse_filter_block();
  Result<StmtPtr> parse_block();
  Result<StmtPtr> parse_print();
  Status parse_signature(Macro* macro);
  Status parse_macro_body(std::string_view end, ScopeNames* names, Macro* macro);
  StmtPtr make_stmt(Stmt::Kind kind, Position position) const;
  void finish_scopes();

  struct MacroUse {  // which of caller, varargs, kwargs the body mentions before assigning them
    bool used[3] = {false, false, false};
    bool assigned[3] = {false, false, false};
  };

  std::vector<Token> tokens_;
  std::size_t index_ = 0;
  const ParseLimits limits_;
  Program* program_;
  int depth_ = 0;  // of expressions
  int statement_depth_ = 0;
  bool in_target_ = false;  // names are not loaded
  bool soft_ = false;       // inside if: unknown filters are errors only when reached
  bool can_break_ = false;
  int for_depth_ = 0;
  ScopeNames* scope_ = nullptr;
  std::vector<std::unique_ptr<ScopeNames>> scopes_;
  std::vector<MacroUse*> macro_uses_;
  std::vector<bool*> loop_uses_;
  std::vector<std::string> block_names_;
  std::vector<Error> unknown_;  // filters and tests that do not exist and are surely reached
};

}  // namespace sluice::jinja
