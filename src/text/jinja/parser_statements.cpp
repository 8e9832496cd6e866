// Statements and scopes.
#include "src/text/jinja/parser_internal.h"

namespace sluice::jinja {
namespace {

// Sets a variable for the life of this object.
template <class T>
class Temporarily {
 public:
  Temporarily(T* variable, T value) : variable_(variable), old_(std::move(*variable)) {
    *variable = std::move(value);
  }
  ~Temporarily() { *variable_ = std::move(old_); }
  Temporarily(const Temporarily&) = delete;
  Temporarily& operator=(const Temporarily&) = delete;

 private:
  T* variable_;
  T old_;
};

}  // namespace

Parser::Parser(std::vector<Token> tokens, const ParseLimits& limits, Program* program)
    : tokens_(std::move(tokens)), limits_(limits), program_(program) {
  program_->loop_id = id_of("loop");
  program_->caller_id = id_of("caller");
  program_->varargs_id = id_of("varargs");
  program_->kwargs_id = id_of("kwargs");
}

Status Parser::parse() {
  ScopeNames* root = new_scope(nullptr);
  SLUICE_RETURN_IF_ERROR(parse_scoped_body({}, root, &program_->body));
  if (!unknown_.empty()) return unknown_.front();
  finish_scopes();
  return {};
}

// --- names and scopes

int Parser::id_of(std::string_view name) {
  const auto [it, added] =
      program_->ids.emplace(std::string(name), static_cast<int>(program_->names.size()));
  if (added) program_->names.emplace_back(name);
  return it->second;
}

ScopeNames* Parser::new_scope(ScopeNames* parent) {
  scopes_.push_back(std::make_unique<ScopeNames>());
  scopes_.back()->parent = parent;
  return scopes_.back().get();
}

void Parser::load(int id) {
  scope_->known.insert(id);
  if (id == program_->loop_id) {
    for (bool* used : loop_uses_) *used = true;
  }
  const int special[] = {program_->caller_id, program_->varargs_id, program_->kwargs_id};
  for (int i = 0; i < 3; ++i) {
    if (id != special[i]) continue;
    for (MacroUse* use : macro_uses_) use->used[i] = use->used[i] || !use->assigned[i];
  }
}

void Parser::store(int id) {
  if (scope_->known.insert(id).second && scope_->if_depth == 0) {
    scope_->stored_first.push_back(id);
  }
  declare(id);
}

void Parser::declare(int id) {
  scope_->known.insert(id);
  const int special[] = {program_->caller_id, program_->varargs_id, program_->kwargs_id};
  for (int i = 0; i < 3; ++i) {
    if (id != special[i]) continue;
    for (MacroUse* use : macro_uses_) use->assigned[i] = true;
  }
}

void Parser::store_target(const Expr& target) {
  if (target.kind == Expr::Kind::kName) store(target.id);
  if (target.kind == Expr::Kind::kNsRef) load(target.id);
  for (const ExprPtr& item : target.kids) store_target(*item);
}

void Parser::declare_target(const Expr& target) {
  if (target.kind == Expr::Kind::kName) declare(target.id);
  for (const ExprPtr& item : target.kids) declare_target(*item);
}

void Parser::finish_scopes() {
  for (const auto& names : scopes_) {
    if (names->body == nullptr) continue;
    for (const int id : names->stored_first) {
      bool known_outside = false;
      for (const ScopeNames* outer = names->parent; outer != nullptr; outer = outer->parent) {
        known_outside = known_outside || outer->known.contains(id);
      }
      if (!known_outside) names->body->unset.push_back(id);
    }
  }
}

// --- bodies

StmtPtr Parser::make_stmt(Stmt::Kind kind, Position position) const {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->position = position;
  return stmt;
}

// Parses until one of the end tags, whose name is then the current token ({% is read).
Status Parser::parse_until(std::initializer_list<std::string_view> ends,
                           std::vector<StmtPtr>* out) {
  Stmt* output = nullptr;  // collects text and printed expressions
  const auto print = [&](ExprPtr expr) {
    if (output == nullptr) {
      out->push_back(make_stmt(Stmt::Kind::kOutput, expr->position));
      output = out->back().get();
    }
    output->exprs.push_back(std::move(expr));
  };
  while (current().kind != TokenKind::kEnd) {
    if (current().kind == TokenKind::kData) {
      ExprPtr text = make(Expr::Kind::kConst, current().position);
      text->value = Value(Kind::kString, std::make_shared<StringNode>(
                                             nullptr, TaggedText(next().text, false), false));
      print(std::move(text));
    } else if (current().kind == TokenKind::kVariableBegin) {
      next();
      SLUICE_ASSIGN_OR_RETURN(ExprPtr expr, parse_tuple(TupleMode()));
      SLUICE_RETURN_IF_ERROR(expect(TokenKind::kVariableEnd));
      print(std::move(expr));
    } else {
      SLUICE_RETURN_IF_ERROR(expect(TokenKind::kBlockBegin));
      output = nullptr;
      for (const std::string_view end : ends) {
        if (at_name(end)) return {};
      }
      SLUICE_RETURN_IF_ERROR(parse_statement(out));
      SLUICE_RETURN_IF_ERROR(expect(TokenKind::kBlockEnd));
    }
  }
  if (ends.size() == 0) return {};
  std::string wanted;
  for (const std::string_view end : ends)
    wanted += fmt::format("{}'{}'", wanted.empty() ? "" : " or ", end);
  return fail("unexpected end of template, expected " + wanted);
}

// The rest of an opening tag, and the body up to an end tag.
Status Parser::parse_block_body(std::initializer_list<std::string_view> ends,
                                std::vector<StmtPtr>* out) {
  skip_op(":");
  SLUICE_RETURN_IF_ERROR(expect(TokenKind::kBlockEnd));
  return parse_until(ends, out);
}

Status Parser::parse_scoped_body(std::initializer_list<std::string_view> ends, ScopeNames* names,
                                 Body* out) {
  const Temporarily<ScopeNames*> scope(&scope_, names);
  names->body = out;
  return ends.size() == 0 ? parse_until(ends, &out->statements)
                          : parse_block_body(ends, &out->statements);
}

Status Parser::parse_statement(std::vector<StmtPtr>* out) {
  if (current().kind != TokenKind::kName) return fail("tag name expected");
  if (statement_depth_ >= limits_.statement_depth) {
    return fail(fmt::format("blocks nested more than {} deep (limit)", limits_.statement_depth));
  }
  const Temporarily<int> depth(&statement_depth_, statement_depth_ + 1);
  const std::string tag = current().text;
  const Position position = current().position;
  const std::pair<std::string_view, Result<StmtPtr> (Parser::*)()> statements[] = {
      {"for", &Parser::parse_for},
      {"if", &Parser::parse_if},
      {"set", &Parser::parse_set},
      {"with", &Parser::parse_with},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"block", &Parser::parse_block},
      {"print", &Parser::parse_print},
      {"generation", &Parser::parse_generation},
  };
  for (const auto& [name, parse_it] : statements) {
    if (tag != name) continue;
    next();
    SLUICE_ASSIGN_OR_RETURN(StmtPtr stmt, (this->*parse_it)());
    stmt->position = position;
    out->push_back(std::move(stmt));
    return {};
  }
  if (tag == "break" || tag == "continue") {
    if (!can_break_) return fail(fmt::format("'{}' outside of a loop", tag));
    next();
    out->push_back(
        make_stmt(tag == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue, position));
    return {};
  }
  for (const std::string_view unsupported :
       {"include", "import", "from", "extends", "autoescape"}) {
    if (tag == unsupported)
      return fail(fmt::format("the tag '{}' is not supported in chat templates", tag));
  }
  return fail(fmt::format("Encountered unknown tag '{}'", tag));
}

// --- the statements; the name of the tag is already read

Result<StmtPtr> Parser::parse_for() {
  StmtPtr stmt = make_stmt(Stmt::Kind::kFor, current().position);
  stmt->bodies.resize(2);
  const Temporarily<int> in_for(&for_depth_, for_depth_ + 1);
  SLUICE_ASSIGN_OR_RETURN(ExprPtr target, parse_target(false));
  SLUICE_RETURN_IF_ERROR(expect_name("in"));
  TupleMode mode;
  mode.with_condition = false;
  SLUICE_ASSIGN_OR_RETURN(ExprPtr iterable, parse_tuple(mode));
  const Temporarily<bool> hard(&soft_, false);
  ExprPtr test;
  if (skip_name("if")) {
    const Temporarily<ScopeNames*> scope(&scope_, new_scope(scope_));
    declare_target(*target);
    SLUICE_ASSIGN_OR_RETURN(test, parse_expression());
  }
  stmt->recursive = skip_name("recursive");

  ScopeNames* names = new_scope(scope_);
  {
    const Temporarily<ScopeNames*> scope(&scope_, names);
    declare_target(*target);
  }
  loop_uses_.push_back(&stmt->uses_loop);
  {
    const Temporarily<bool> breakable(&can_break_, true);
    SLUICE_RETURN_IF_ERROR(parse_scoped_body({"endfor", "else"}, names, &stmt->bodies[0]));
  }
  loop_uses_.pop_back();
  if (stmt->uses_loop || stmt->recursive) {
    names->known.insert(program_->loop_id);
  }
  if (next().text == "else") {
    stmt->has_else = true;
    const Temporarily<bool> breakable(&can_break_, can_break_ && !stmt->recursive);
    SLUICE_RETURN_IF_ERROR(parse_scoped_body({"endfor"}, new_scope(scope_), &stmt->bodies[1]));
    next();
  }
  stmt->exprs.push_back(std::move(target));
  stmt->exprs.push_back(std::move(iterable));
  stmt->exprs.push_back(std::move(test));
  return stmt;
}

Result<StmtPtr> Parser::parse_if() {
  StmtPtr stmt = make_stmt(Stmt::Kind::kIf, current().position);
  const Temporarily<bool> soft(&soft_, true);
  ++scope_->if_depth;
  while (true) {
    TupleMode mode;
    mode.with_condition = false;
    SLUICE_ASSIGN_OR_RETURN(ExprPtr test, parse_tuple(mode));
    stmt->exprs.push_back(std::move(test));
    stmt->bodies.emplace_back();
    SLUICE_RETURN_IF_ERROR(
        parse_block_body({"elif", "else", "endif"}, &stmt->bodies.back().statements));
    const std::string_view tag = next().text;
    if (tag == "elif") continue;
    if (tag == "else") {
      stmt->bodies.emplace_back();
      SLUICE_RETURN_IF_ERROR(parse_block_body({"endif"}, &stmt->bodies.back().statements));
      next();
    }
    break;
  }
  --scope_->if_depth;
  return stmt;
}

Result<StmtPtr> Parser::parse_set() {
  StmtPtr stmt = make_stmt(Stmt::Kind::kSet, current().position);
  SLUICE_ASSIGN_OR_RETURN(ExprPtr target, parse_target(true));
  if (skip_op("=")) {
    SLUICE_ASSIGN_OR_RETURN(ExprPtr value, parse_tuple(TupleMode()));
    store_target(*target);
    stmt->exprs.push_back(std::move(target));
    stmt->exprs.push_back(std::move(value));
    return stmt;
  }
  stmt->kind = Stmt::Kind::kSetBlock;
  stmt->bodies.resize(1);
  store_target(*target);
  const Temporarily<bool> hard(&soft_, false);
  ExprPtr filter;
  while (at_op("|")) {
    SLUICE_ASSIGN_OR_RETURN(filter, parse_filter(std::move(filter), false));
  }
  SLUICE_RETURN_IF_ERROR(parse_scoped_body({"endset"}, new_scope(scope_), &stmt->bodies[0]));
  next();
  stmt->exprs.push_back(std::move(target));
  stmt->exprs.push_back(std::move(filter));
  return stmt;
}

Result<StmtPtr> Parser::parse_with() {
  StmtPtr stmt = make_stmt(Stmt::Kind::kWith, current().position);
  stmt->bodies.resize(1);
  std::vector<ExprPtr> values;
  while (current().kind != TokenKind::kBlockEnd) {
    if (!values.empty()) SLUICE_RETURN_IF_ERROR(expect_op(","));
    SLUICE_ASSIGN_OR_RETURN(ExprPtr target, parse_target(false));
    stmt->exprs.push_back(std::move(target));
    SLUICE_RETURN_IF_ERROR(expect_op("="));
    SLUICE_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
    values.push_back(std::move(value));
  }
  ScopeNames* names = new_scope(scope_);
  {
    const Temporarily<ScopeNames*> scope(&scope_, names);
    for (const ExprPtr& target : stmt->exprs) declare_target(*target);
  }
  for (ExprPtr& value : values) stmt->exprs.push_back(std::move(value));
  const Temporarily<bool> hard(&soft_, false);
  SLUICE_RETURN_IF_ERROR(parse_scoped_body({"endwith"}, names, &stmt->bodies[0]));
  next();
  return stmt;
}

// (name, name=default, ...)
Status Parser::parse_signature(Macro* macro) {
  SLUICE_RETURN_IF_ERROR(expect_op("("));
  while (!at_op(")")) {
    if (!macro->parameters.empty()) SLUICE_RETURN_IF_ERROR(expect_op(","));
    SLUICE_ASSIGN_OR_RETURN(const Token name, expect_identifier());
    const int id = id_of(name.text);
    for (const auto& given : macro->parameters) {
      if (given.second == id) {
        return error_at(name.position, fmt::format("parameter '{}' is given twice", name.text));
      }
    }
    declare(id);
    macro->parameters.emplace_back(name.text, id);
    if (skip_op("=")) {
      SLUICE_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      macro->defaults.push_back(std::move(value));
    } else if (!macro->defaults.empty()) {
      return error_at(name.position, "non-default argument follows default argument");
    }
  }
  return expect_op(")");
}

Status Parser::parse_macro_body(std::string_view end, ScopeNames* names, Macro* macro) {
  const Temporarily<bool> breakable(&can_break_, false);
  const Temporarily<bool> hard(&soft_, false);
  const Position position = current().position;
  MacroUse use;
  macro_uses_.push_back(&use);
  SLUICE_RETURN_IF_ERROR(parse_scoped_body({end}, names, &macro->body));
  macro_uses_.pop_back();
  next();
  const auto is_parameter = [&](std::string_view name) {
    return std::any_of(macro->parameters.begin(), macro->parameters.end(),
                       [&](const auto& parameter) { return parameter.first == name; });
  };
  macro->uses_caller = use.used[0];
  macro->uses_varargs = use.used[1] && !is_parameter("varargs");
  macro->uses_kwargs = use.used[2] && !is_parameter("kwargs");
  const int special[] = {program_->caller_id, program_->varargs_id, program_->kwargs_id};
  for (int i = 0; i < 3; ++i) {
    if (use.used[i]) names->known.insert(special[i]);
  }
  for (std::size_t i = 0; i + macro->defaults.size() < macro->parameters.size(); ++i) {
    if (macro->uses_caller && macro->parameters[i].first == "caller") {
      return error_at(position, "the special 'caller' argument must be omitted or have a default");
    }
  }
  return {};
}

Result<StmtPtr> Parser::parse_macro() {
  StmtPtr stmt = make_stmt(Stmt::Kind::kMacro, current().position);
  stmt->macro = std::make_unique<Macro>();
  SLUICE_ASSIGN_OR_RETURN(const Token name, expect_identifier());
  stmt->macro->name = name.text;
  stmt->id = id_of(name.text);
  store(stmt->id);
  ScopeNames* names = new_scope(scope_);
  {
    const Temporarily<ScopeNames*> scope(&scope_, names);
    SLUICE_RETURN_IF_ERROR(parse_signature(stmt->macro.get()));
  }
  SLUICE_RETURN_IF_ERROR(parse_macro_body("endmacro", names, stmt->macro.get()));
  return stmt;
}

Result<StmtPtr> Parser::parse_call_block() {
  StmtPtr stmt = make_stmt(Stmt::Kind::kCallBlock, current().position);
  stmt->macro = std::make_unique<Macro>();
  ScopeNames* names = new_scope(scope_);
  if (at_op("(")) {
    const Temporarily<ScopeNames*> scope(&scope_, names);
    SLUICE_RETURN_IF_ERROR(parse_signature(stmt->macro.get()));
  }
  SLUICE_ASSIGN_OR_RETURN(ExprPtr call, parse_expression());
  if (call->kind != Expr::Kind::kCall) return error_at(call->position, "expected call");
  stmt->exprs.push_back(std::move(call));
  SLUICE_RETURN_IF_ERROR(parse_macro_body("endcall", names, stmt->macro.get()));
  return stmt;
}

Result<StmtPtr> Parser::parse_generation() {
  StmtPtr stmt = make_stmt(Stmt::Kind::kGeneration, current().position);
  stmt->macro = std::make_unique<Macro>();
  SLUICE_RETURN_IF_ERROR(parse_macro_body("endgeneration", new_scope(scope_), stmt->macro.get()));
  return stmt;
}

Result<StmtPtr> Parser::parse_filter_block() {
  StmtPtr stmt = make_stmt(Stmt::Kind::kFilterBlock, current().position);
  stmt->bodies.resize(1);
  const Temporarily<bool> hard(&soft_, false);
  SLUICE_ASSIGN_OR_RETURN(ExprPtr filter, parse_filter(nullptr, true));
  while (at_op("|")) {
    SLUICE_ASSIGN_OR_RETURN(filter, parse_filter(std::move(filter), false));
  }
  stmt->exprs.push_back(std::move(filter));
  SLUICE_RETURN_IF_ERROR(parse_scoped_body({"endfilter"}, new_scope(scope_), &stmt->bodies[0]));
  next();
  return stmt;
}

Result<StmtPtr> Parser::parse_block() {
  StmtPtr stmt = make_stmt(Stmt::Kind::kBlock, current().position);
  stmt->bodies.resize(1);
  SLUICE_ASSIGN_OR_RETURN(const Token name, expect_identifier());
  if (std::find(block_names_.begin(), block_names_.end(), name.text) != block_names_.end()) {
    return error_at(name.position, fmt::format("block '{}' defined twice", name.text));
  }
  block_names_.push_back(name.text);
  stmt->scoped = skip_name("scoped");
  if (at_name("required")) return fail("required blocks are not supported in chat templates");
  // A block is a world of its own: what it mentions is no use of the macro or loop around it.
  const Temporarily<std::vector<MacroUse*>> uses(&macro_uses_, {});
  const Temporarily<std::vector<bool*>> loops(&loop_uses_, {});
  const Temporarily<bool> breakable(&can_break_, false);
  const Temporarily<bool> hard(&soft_, false);
  SLUICE_RETURN_IF_ERROR(parse_scoped_body({"endblock"}, new_scope(nullptr), &stmt->bodies[0]));
  next();
  if (at_name(name.text)) next();
  return stmt;
}

Result<StmtPtr> Parser::parse_print() {
  StmtPtr stmt = make_stmt(Stmt::Kind::kOutput, current().position);
  while (current().kind != TokenKind::kBlockEnd) {
    if (!stmt->exprs.empty()) SLUICE_RETURN_IF_ERROR(expect_op(","));
    SLUICE_ASSIGN_OR_RETURN(ExprPtr expr, parse_expression());
    stmt->exprs.push_back(std::move(expr));
  }
  return stmt;
}

Result<std::shared_ptr<const Program>> parse_template(std::string_view source,
                                                      const ParseLimits& limits) {
  if (source.size() > limits.source_bytes) {
    return bad_input("a template of {} bytes, more than {} MiB (limit)", source.size(),
                     limits.source_bytes >> 20);
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize(source));
  auto program = std::make_shared<Program>();
  Parser parser(std::move(tokens), limits, program.get());
  SLUICE_RETURN_IF_ERROR(parser.parse());
  return std::shared_ptr<const Program>(std::move(program));
}

}  // namespace sluice::jinja
