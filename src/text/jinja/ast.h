// The parsed template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/text/jinja/ops.h"
#include "src/text/jinja/value.h"

namespace sluice::jinja {

// Both count from 1; the column counts code points.
struct Position {
  int line = 0;
  int column = 0;
};

enum class CompareOp : std::uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star;         // *expression, or null
  ExprPtr double_star;  // **expression, or null
};

struct FilterInfo;
struct TestInfo;

struct Expr {
  enum class Kind : std::uint8_t {
    kConst,    // value
    kName,     // id
    kTuple,    // kids
    kList,     // kids
    kDict,     // kids: key, value, key, value ...
    kNegate,   // kids[0]
    kPlus,     // kids[0]
    kNot,      // kids[0]
    kAnd,      // kids, two or more
    kOr,       // kids, two or more
    kBinary,   // kids, two or more, joined by binary_ops from left to right
    kConcat,   // kids, two or more
    kCompare,  // kids, two or more, joined by compare_ops as Python chains comparisons
    kCond,     // kids: value, test, and perhaps the value of else
    kGetAttr,  // kids[0], name
    kGetItem,  // kids[0], kids[1]
    kSlice,    // kids: object, start, stop, step; the bounds may be null
    kCall,     // kids[0], arguments
    kFilter,   // kids[0] (null in a filter block), name, filter, arguments
    kTest,     // kids[0], name, test, arguments
    kNsRef,    // only as a target: id, name
  };
  Kind kind;
  Position position;
  int height = 1;  // levels of expressions below and including this one
  int id = -1;     // of a name
  std::string name;
  Value value;
  std::vector<ExprPtr> kids;
  std::vector<BinaryOp> binary_ops;
  int folded_base = -1;  // which of them is ** of a number known in advance and a variable exponent
  std::vector<CompareOp> compare_ops;
  CallArguments arguments;
  const FilterInfo* filter = nullptr;  // null: unknown, an error when it is reached
  const TestInfo* test = nullptr;
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;

struct Body {
  std::vector<StmtPtr> statements;
  // For a body with a scope of its own: names that are unset at its start even if the context has
  // them, because the body assigns them before any use (jinja2 resolves names at compile time).
  std::vector<int> unset;
};

struct Macro {
  std::string name;                                     // "" for the body of a call block
  std::vector<std::pair<std::string, int>> parameters;  // name and id
  std::vector<ExprPtr> defaults;                        // of the last parameters
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  Body body;
};

struct Stmt {
  enum class Kind : std::uint8_t {
    kOutput,       // exprs, each printed
    kIf,           // exprs[i] guards bodies[i]; one more body is the else
    kFor,          // exprs: target, iterable, test or null; bodies: loop, else (may be empty)
    kSet,          // exprs: target, value
    kSetBlock,     // exprs: target, filter or null; bodies[0]
    kMacro,        // id, macro
    kCallBlock,    // exprs[0] is the call, macro the caller
    kGeneration,   // macro is the body
    kFilterBlock,  // exprs[0] is the filter chain, bodies[0]
    kWith,         // exprs: targets, then values; bodies[0]
    kBlock,        // bodies[0]
    kBreak,
    kContinue,
  };
  Kind kind;
  Position position;
  int id = -1;
  bool recursive = false;  // kFor
  bool uses_loop = false;  // kFor: the body mentions loop
  bool scoped = false;     // kBlock: sees the variables around it
  bool has_else = false;   // kFor
  std::vector<ExprPtr> exprs;
  std::vector<Body> bodies;
  std::unique_ptr<Macro> macro;
};

struct Program {
  Body body;
  std::vector<std::string> names;  // by id
  std::unordered_map<std::string, int> ids;
  int loop_id = -1, caller_id = -1, varargs_id = -1, kwargs_id = -1;
};

}  // namespace sluice::jinja
