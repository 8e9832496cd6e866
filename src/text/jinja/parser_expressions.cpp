// Expressions, with the precedence of jinja2 from weakest to strongest: inline if, or, and, not,
// comparisons, + -, ~, * / // %, ** (from left to right), signs, postfix, filters and tests.
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/parser_internal.h"

namespace sluice::jinja {

bool Parser::at_op(std::string_view op) const {
  return current().kind == TokenKind::kOperator && current().text == op;
}

bool Parser::at_name(std::string_view name) const {
  return current().kind == TokenKind::kName && current().text == name;
}

bool Parser::skip_op(std::string_view op) {
  if (!at_op(op)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

std::string Parser::describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "template text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kName:
    case TokenKind::kOperator:
      return "'" + token.text + "'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kEnd:
      return "the end of the template";
  }
  return "?";
}

Status Parser::expect_op(std::string_view op) {
  if (skip_op(op)) return {};
  return fail(fmt::format("expected '{}', got {}", op, describe(current())));
}

Status Parser::expect_name(std::string_view name) {
  if (skip_name(name)) return {};
  return fail(fmt::format("expected '{}', got {}", name, describe(current())));
}

Status Parser::expect(TokenKind kind) {
  if (current().kind == kind) {
    next();
    return {};
  }
  Token wanted;
  wanted.kind = kind;
  return fail(fmt::format("expected {}, got {}", describe(wanted), describe(current())));
}

Result<Token> Parser::expect_identifier() {
  if (current().kind == TokenKind::kName) return next();
  return fail(fmt::format("expected a name, got {}", describe(current())));
}

ExprPtr Parser::make(Expr::Kind kind, Position position) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->position = position;
  return expr;
}

Result<ExprPtr> Parser::finish(ExprPtr expr) const {
  const auto add = [&](const ExprPtr& kid) {
    if (kid != nullptr) expr->height = std::max(expr->height, kid->height + 1);
  };
  for (const ExprPtr& kid : expr->kids) add(kid);
  for (const ExprPtr& kid : expr->arguments.positional) add(kid);
  for (const auto& [name, kid] : expr->arguments.keyword) add(kid);
  add(expr->arguments.star);
  add(expr->arguments.double_star);
  if (expr->height > limits_.expression_height) {
    return error_at(expr->position, fmt::format("an expression of more than {} levels (limit)",
                                                limits_.expression_height));
  }
  return expr;
}

Result<ExprPtr> Parser::parse_expression(bool with_condition) {
  if (!with_condition) return parse_or();
  if (++depth_ > limits_.expression_depth) {
    return fail(
        fmt::format("expressions nested more than {} deep (limit)", limits_.expression_depth));
  }
  const Position position = current().position;
  const std::size_t unknown_before = unknown_.size();
  SLUICE_ASSIGN_OR_RETURN(ExprPtr value, parse_or());
  while (skip_name("if")) {
    ExprPtr cond = make(Expr::Kind::kCond, position);
    cond->kids.push_back(std::move(value));
    SLUICE_ASSIGN_OR_RETURN(ExprPtr test, parse_or());
    cond->kids.push_back(std::move(test));
    if (skip_name("else")) {
      SLUICE_ASSIGN_OR_RETURN(ExprPtr otherwise, parse_expression());
      cond->kids.push_back(std::move(otherwise));
    }
    SLUICE_ASSIGN_OR_RETURN(value, finish(std::move(cond)));
    unknown_.resize(unknown_before);  // in an inline if they may never be reached
  }
  --depth_;
  return value;
}

Result<ExprPtr> Parser::parse_or() {
  const Position position = current().position;
  SLUICE_ASSIGN_OR_RETURN(ExprPtr left, parse_and());
  if (!at_name("or")) return left;
  ExprPtr expr = make(Expr::Kind::kOr, position);
  expr->kids.push_back(std::move(left));
  while (skip_name("or")) {
    SLUICE_ASSIGN_OR_RETURN(ExprPtr right, parse_and());
    expr->kids.push_back(std::move(right));
  }
  return finish(std::move(expr));
}

Result<ExprPtr> Parser::parse_and() {
  const Position position = current().position;
  SLUICE_ASSIGN_OR_RETURN(ExprPtr left, parse_not());
  if (!at_name("and")) return left;
  ExprPtr expr = make(Expr::Kind::kAnd, position);
  expr->kids.push_back(std::move(left));
  while (skip_name("and")) {
    SLUICE_ASSIGN_OR_RETURN(ExprPtr right, parse_not());
    expr->kids.push_back(std::move(right));
  }
  return finish(std::move(expr));
}

Result<ExprPtr> Parser::parse_not() {
  const Position position = current().position;
  if (!skip_name("not")) return parse_compare();
  if (++depth_ > limits_.expression_depth) {
    return fail(
        fmt::format("expressions nested more than {} deep (limit)", limits_.expression_depth));
  }
  ExprPtr expr = make(Expr::Kind::kNot, position);
  SLUICE_ASSIGN_OR_RETURN(ExprPtr operand, parse_not());
  --depth_;
  expr->kids.push_back(std::move(operand));
  return finish(std::move(expr));
}

Result<ExprPtr> Parser::parse_compare() {
  const Position position = current().position;
  SLUICE_ASSIGN_OR_RETURN(ExprPtr first, parse_sum());
  ExprPtr expr = make(Expr::Kind::kCompare, position);
  expr->kids.push_back(std::move(first));
  const std::pair<std::string_view, CompareOp> operators[] = {
      {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual},
  };
  while (true) {
    const auto* op = std::find_if(std::begin(operators), std::end(operators),
                                  [&](const auto& entry) { return at_op(entry.first); });
    if (op != std::end(operators)) {
      next();
      expr->compare_ops.push_back(op->second);
    } else if (skip_name("in")) {
      expr->compare_ops.push_back(CompareOp::kIn);
    } else if (at_name("not") && look().kind == TokenKind::kName && look().text == "in") {
      next();
      next();
      expr->compare_ops.push_back(CompareOp::kNotIn);
    } else {
      break;
    }
    SLUICE_ASSIGN_OR_RETURN(ExprPtr operand, parse_sum());
    expr->kids.push_back(std::move(operand));
  }
  if (expr->compare_ops.empty()) return std::move(expr->kids[0]);
  return finish(std::move(expr));
}

Result<ExprPtr> Parser::parse_sum() {
  const Position position = current().position;
  SLUICE_ASSIGN_OR_RETURN(ExprPtr left, parse_concat());
  if (!at_op("+") && !at_op("-")) return left;
  ExprPtr expr = make(Expr::Kind::kBinary, position);
  expr->kids.push_back(std::move(left));
  while (at_op("+") || at_op("-")) {
    expr->binary_ops.push_back(next().text == "+" ? BinaryOp::kAdd : BinaryOp::kSub);
    SLUICE_ASSIGN_OR_RETURN(ExprPtr right, parse_concat());
    expr->kids.push_back(std::move(right));
  }
  return finish(std::move(expr));
}

Result<ExprPtr> Parser::parse_concat() {
  const Position position = current().position;
  SLUICE_ASSIGN_OR_RETURN(ExprPtr left, parse_product());
  if (!at_op("~")) return left;
  ExprPtr expr = make(Expr::Kind::kConcat, position);
  expr->kids.push_back(std::move(left));
  while (skip_op("~")) {
    SLUICE_ASSIGN_OR_RETURN(ExprPtr right, parse_product());
    expr->kids.push_back(std::move(right));
  }
  return finish(std::move(expr));
}

Result<ExprPtr> Parser::parse_product() {
  const Position position = current().position;
  SLUICE_ASSIGN_OR_RETURN(ExprPtr left, parse_power());
  ExprPtr expr = make(Expr::Kind::kBinary, position);
  expr->kids.push_back(std::move(left));
  const std::pair<std::string_view, BinaryOp> operators[] = {{"*", BinaryOp::kMul},
                                                             {"/", BinaryOp::kDiv},
                                                             {"//", BinaryOp::kFloorDiv},
                                                             {"%", BinaryOp::kMod}};
  while (true) {
    const auto* op = std::find_if(std::begin(operators), std::end(operators),
                                  [&](const auto& entry) { return at_op(entry.first); });
    if (op == std::end(operators)) break;
    next();
    expr->binary_ops.push_back(op->second);
    SLUICE_ASSIGN_OR_RETURN(ExprPtr right, parse_power());
    expr->kids.push_back(std::move(right));
  }
  if (expr->binary_ops.empty()) return std::move(expr->kids[0]);
  return finish(std::move(expr));
}

namespace {

// Whether jinja2 makes a number of it before it runs: nothing in it depends on variables. The walk
// is as deep as the expression is high, which is bounded.
bool is_folded(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::kConst:
      return true;
    case Expr::Kind::kNegate:
    case Expr::Kind::kPlus:
    case Expr::Kind::kBinary:
      return std::all_of(expr.kids.begin(), expr.kids.end(),
                         [](const ExprPtr& kid) { return is_folded(*kid); });
    default:
      return false;
  }
}

}  // namespace

Result<ExprPtr> Parser::parse_power() {
  const Position position = current().position;
  SLUICE_ASSIGN_OR_RETURN(ExprPtr left, parse_unary());
  if (!at_op("**")) return left;
  ExprPtr expr = make(Expr::Kind::kBinary, position);
  bool all_folded = is_folded(*left);
  expr->kids.push_back(std::move(left));
  while (skip_op("**")) {
    SLUICE_ASSIGN_OR_RETURN(ExprPtr right, parse_unary());
    if (all_folded && !is_folded(*right)) {
      all_folded = false;
      expr->folded_base = static_cast<int>(expr->binary_ops.size());
    }
    expr->binary_ops.push_back(BinaryOp::kPow);
    expr->kids.push_back(std::move(right));
  }
  return finish(std::move(expr));
}

Result<ExprPtr> Parser::parse_unary(bool with_filter) {
  const Position position = current().position;
  ExprPtr expr;
  if (at_op("-") || at_op("+")) {
    if (++depth_ > limits_.expression_depth) {
      return fail(
          fmt::format("expressions nested more than {} deep (limit)", limits_.expression_depth));
    }
    expr = make(next().text == "-" ? Expr::Kind::kNegate : Expr::Kind::kPlus, position);
    SLUICE_ASSIGN_OR_RETURN(ExprPtr operand, parse_unary(false));
    --depth_;
    expr->kids.push_back(std::move(operand));
    SLUICE_ASSIGN_OR_RETURN(expr, finish(std::move(expr)));
  } else {
    SLUICE_ASSIGN_OR_RETURN(expr, parse_primary());
  }
  SLUICE_ASSIGN_OR_RETURN(expr, parse_postfix(std::move(expr)));
  if (!with_filter) return expr;
  return parse_filters_and_tests(std::move(expr));
}

Result<ExprPtr> Parser::parse_primary(bool with_namespace) {
  const Position position = current().position;
  ExprPtr expr = make(Expr::Kind::kConst, position);
  switch (current().kind) {
    case TokenKind::kName: {
      const std::string name = next().text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        expr->value = Value::boolean(name == "true" || name == "True");
        return expr;
      }
      if (name == "none" || name == "None") {
        expr->value = Value::none();
        return expr;
      }
      if (name == "self") return error_at(position, "'self' is not supported in chat templates");
      expr->id = id_of(name);
      if (with_namespace && skip_op(".")) {
        SLUICE_ASSIGN_OR_RETURN(const Token attribute, expect_identifier());
        expr->kind = Expr::Kind::kNsRef;
        expr->name = attribute.text;
        return expr;
      }
      expr->kind = Expr::Kind::kName;
      if (!in_target_) load(expr->id);
      return expr;
    }
    case TokenKind::kString: {
      std::string text;
      while (current().kind == TokenKind::kString) text += next().text;
      expr->value = Value(Kind::kString,
                          std::make_shared<StringNode>(nullptr, TaggedText(text, false), false));
      return expr;
    }
    case TokenKind::kInteger:
      expr->value = Value::integer(next().integer);
      return expr;
    case TokenKind::kFloat:
      expr->value = Value::number(next().number);
      return expr;
    default:
      break;
  }
  if (skip_op("(")) {
    TupleMode mode;
    mode.parentheses = true;
    SLUICE_ASSIGN_OR_RETURN(expr, parse_tuple(mode));
    SLUICE_RETURN_IF_ERROR(expect_op(")"));
    return expr;
  }
  if (at_op("[")) return parse_list();
  if (at_op("{")) return parse_dict();
  return fail(fmt::format("unexpected {}", describe(current())));
}

// No keyword is an end, as in jinja2, whose test for "in" and "recursive" has no effect: a loop may
// be over a variable of either name, and {% for a, in x %} is an error.
bool Parser::at_tuple_end() const {
  return current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd ||
         at_op(")");
}

Result<ExprPtr> Parser::parse_tuple(const TupleMode& mode) {
  ExprPtr tuple = make(Expr::Kind::kTuple, current().position);
  bool is_tuple = false;
  while (true) {
    if (!tuple->kids.empty()) SLUICE_RETURN_IF_ERROR(expect_op(","));
    if (at_tuple_end()) break;
    SLUICE_ASSIGN_OR_RETURN(ExprPtr item, mode.simplified ? parse_primary(mode.with_namespace)
                                                          : parse_expression(mode.with_condition));
    tuple->kids.push_back(std::move(item));
    if (!at_op(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return finish(std::move(tuple));
  if (!tuple->kids.empty()) return std::move(tuple->kids[0]);
  if (!mode.parentheses) {
    return fail(fmt::format("expected an expression, got {}", describe(current())));
  }
  return tuple;
}

Result<ExprPtr> Parser::parse_list() {
  ExprPtr list = make(Expr::Kind::kList, current().position);
  SLUICE_RETURN_IF_ERROR(expect_op("["));
  while (!at_op("]")) {
    if (!list->kids.empty()) {
      SLUICE_RETURN_IF_ERROR(expect_op(","));
      if (at_op("]")) break;
    }
    SLUICE_ASSIGN_OR_RETURN(ExprPtr item, parse_expression());
    list->kids.push_back(std::move(item));
  }
  SLUICE_RETURN_IF_ERROR(expect_op("]"));
  return finish(std::move(list));
}

Result<ExprPtr> Parser::parse_dict() {
  ExprPtr dict = make(Expr::Kind::kDict, current().position);
  SLUICE_RETURN_IF_ERROR(expect_op("{"));
  while (!at_op("}")) {
    if (!dict->kids.empty()) {
      SLUICE_RETURN_IF_ERROR(expect_op(","));
      if (at_op("}")) break;
    }
    SLUICE_ASSIGN_OR_RETURN(ExprPtr key, parse_expression());
    dict->kids.push_back(std::move(key));
    SLUICE_RETURN_IF_ERROR(expect_op(":"));
    SLUICE_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
    dict->kids.push_back(std::move(value));
  }
  SLUICE_RETURN_IF_ERROR(expect_op("}"));
  return finish(std::move(dict));
}

Result<ExprPtr> Parser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (at_op(".") || at_op("[")) {
      SLUICE_ASSIGN_OR_RETURN(expr, parse_subscript(std::move(expr)));
    } else if (at_op("(")) {
      SLUICE_ASSIGN_OR_RETURN(expr, parse_call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> Parser::parse_filters_and_tests(ExprPtr expr) {
  while (true) {
    if (at_op("|")) {
      SLUICE_ASSIGN_OR_RETURN(expr, parse_filter(std::move(expr), false));
    } else if (at_name("is")) {
      SLUICE_ASSIGN_OR_RETURN(expr, parse_test(std::move(expr)));
    } else if (at_op("(")) {
      SLUICE_ASSIGN_OR_RETURN(expr, parse_call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> Parser::parse_subscript(ExprPtr object) {
  const Position position = current().position;
  if (skip_op(".")) {
    if (current().kind == TokenKind::kName) {
      ExprPtr expr = make(Expr::Kind::kGetAttr, position);
      expr->name = next().text;
      expr->kids.push_back(std::move(object));
      return finish(std::move(expr));
    }
    if (current().kind != TokenKind::kInteger) return fail("expected name or number");
    ExprPtr index = make(Expr::Kind::kConst, current().position);
    index->value = Value::integer(next().integer);
    ExprPtr expr = make(Expr::Kind::kGetItem, position);
    expr->kids.push_back(std::move(object));
    expr->kids.push_back(std::move(index));
    return finish(std::move(expr));
  }
  SLUICE_RETURN_IF_ERROR(expect_op("["));
  ExprPtr bounds[3];
  int colons = 0;
  if (!at_op(":")) {
    if (at_op("]")) {
      bounds[0] = make(Expr::Kind::kTuple, position);  // x[] is x[()]
    } else {
      SLUICE_ASSIGN_OR_RETURN(bounds[0], parse_expression());
    }
  }
  while (colons < 2 && skip_op(":")) {
    ++colons;
    if (at_op("]") || at_op(":")) continue;
    SLUICE_ASSIGN_OR_RETURN(bounds[colons], parse_expression());
  }
  ExprPtr expr = make(colons > 0 ? Expr::Kind::kSlice : Expr::Kind::kGetItem, position);
  expr->kids.push_back(std::move(object));
  if (colons > 0) {
    for (ExprPtr& bound : bounds) expr->kids.push_back(std::move(bound));
  } else if (at_op(",")) {  // x[a, b] is x[(a, b)]
    ExprPtr tuple = make(Expr::Kind::kTuple, position);
    tuple->kids.push_back(std::move(bounds[0]));
    while (skip_op(",")) {
      SLUICE_ASSIGN_OR_RETURN(ExprPtr item, parse_expression());
      tuple->kids.push_back(std::move(item));
    }
    SLUICE_ASSIGN_OR_RETURN(tuple, finish(std::move(tuple)));
    expr->kids.push_back(std::move(tuple));
  } else {
    expr->kids.push_back(std::move(bounds[0]));
  }
  SLUICE_RETURN_IF_ERROR(expect_op("]"));
  return finish(std::move(expr));
}

Result<CallArguments> Parser::parse_arguments() {
  CallArguments arguments;
  const Position position = current().position;
  const auto invalid = [&] {
    return error_at(position, "invalid syntax for function call expression");
  };
  SLUICE_RETURN_IF_ERROR(expect_op("("));
  for (bool first = true; !at_op(")"); first = false) {
    if (!first) {
      SLUICE_RETURN_IF_ERROR(expect_op(","));
      if (at_op(")")) break;
    }
    const bool after_stars = arguments.star != nullptr || arguments.double_star != nullptr;
    if (skip_op("*")) {
      if (after_stars) return invalid();
      SLUICE_ASSIGN_OR_RETURN(arguments.star, parse_expression());
    } else if (skip_op("**")) {
      if (arguments.double_star != nullptr) return invalid();
      SLUICE_ASSIGN_OR_RETURN(arguments.double_star, parse_expression());
    } else if (current().kind == TokenKind::kName && look().kind == TokenKind::kOperator &&
               look().text == "=") {
      if (arguments.double_star != nullptr) return invalid();
      const Token name = next();
      next();
      for (const auto& given : arguments.keyword) {
        if (given.first == name.text) {
          return error_at(name.position,
                          fmt::format("keyword argument '{}' is given twice", name.text));
        }
      }
      SLUICE_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      arguments.keyword.emplace_back(name.text, std::move(value));
    } else {
      if (after_stars || !arguments.keyword.empty()) return invalid();
      SLUICE_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      arguments.positional.push_back(std::move(value));
    }
  }
  SLUICE_RETURN_IF_ERROR(expect_op(")"));
  return arguments;
}

Result<ExprPtr> Parser::parse_call(ExprPtr callee) {
  ExprPtr expr = make(Expr::Kind::kCall, current().position);
  expr->kids.push_back(std::move(callee));
  SLUICE_ASSIGN_OR_RETURN(expr->arguments, parse_arguments());
  return finish(std::move(expr));
}

// One filter (a chain in a {% filter %} or {% set %} tag is read by calling this again).
Result<ExprPtr> Parser::parse_filter(ExprPtr value, bool start_inline) {
  if (!start_inline) SLUICE_RETURN_IF_ERROR(expect_op("|"));
  ExprPtr expr = make(Expr::Kind::kFilter, current().position);
  SLUICE_ASSIGN_OR_RETURN(const Token name, expect_identifier());
  expr->name = name.text;
  while (skip_op(".")) {
    SLUICE_ASSIGN_OR_RETURN(const Token more, expect_identifier());
    expr->name += "." + more.text;
  }
  expr->filter = find_filter(expr->name);
  if (expr->filter == nullptr && !soft_) {
    unknown_.push_back(error_at(expr->position, fmt::format("No filter named '{}'", expr->name)));
  }
  expr->kids.push_back(std::move(value));
  if (at_op("(")) {
    SLUICE_ASSIGN_OR_RETURN(expr->arguments, parse_arguments());
  }
  return finish(std::move(expr));
}

Result<ExprPtr> Parser::parse_test(ExprPtr value) {
  ExprPtr expr = make(Expr::Kind::kTest, current().position);
  SLUICE_RETURN_IF_ERROR(expect_name("is"));
  const bool negated = skip_name("not");
  SLUICE_ASSIGN_OR_RETURN(const Token name, expect_identifier());
  expr->name = name.text;
  while (skip_op(".")) {
    SLUICE_ASSIGN_OR_RETURN(const Token more, expect_identifier());
    expr->name += "." + more.text;
  }
  expr->test = find_test(expr->name);
  if (expr->test == nullptr && !soft_) {
    unknown_.push_back(error_at(name.position, fmt::format("No test named '{}'", expr->name)));
  }
  expr->kids.push_back(std::move(value));
  const TokenKind kind = current().kind;
  if (at_op("(")) {
    SLUICE_ASSIGN_OR_RETURN(expr->arguments, parse_arguments());
  } else if ((kind == TokenKind::kName || kind == TokenKind::kString ||
              kind == TokenKind::kInteger || kind == TokenKind::kFloat || at_op("[") ||
              at_op("{")) &&
             !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) return fail("You cannot chain multiple tests with is");
    SLUICE_ASSIGN_OR_RETURN(ExprPtr argument, parse_primary());
    SLUICE_ASSIGN_OR_RETURN(argument, parse_postfix(std::move(argument)));
    expr->arguments.positional.push_back(std::move(argument));
  }
  const Position position = expr->position;
  SLUICE_ASSIGN_OR_RETURN(expr, finish(std::move(expr)));
  if (!negated) return expr;
  ExprPtr inverse = make(Expr::Kind::kNot, position);
  inverse->kids.push_back(std::move(expr));
  return finish(std::move(inverse));
}

Status Parser::check_assignable(const Expr& target) const {
  switch (target.kind) {
    case Expr::Kind::kName:
      if (for_depth_ > 0 && target.id == program_->loop_id) {
        return error_at(target.position, "Can't assign to special loop variable in for-loop");
      }
      return {};
    case Expr::Kind::kNsRef:
      return {};
    case Expr::Kind::kTuple:
      for (const ExprPtr& item : target.kids) SLUICE_RETURN_IF_ERROR(check_assignable(*item));
      return {};
    default:
      return error_at(target.position, "can't assign to this expression, only to names");
  }
}

Result<ExprPtr> Parser::parse_target(bool with_namespace) {
  TupleMode mode;
  mode.simplified = true;
  mode.with_namespace = with_namespace;
  in_target_ = true;
  auto target = parse_tuple(mode);
  in_target_ = false;
  if (!target.ok()) return target;
  SLUICE_RETURN_IF_ERROR(check_assignable(**target));
  return target;
}

}  // namespace sluice::jinja
