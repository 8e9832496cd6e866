// Generators whose work, and whose errors, begin when the first item is asked for.
#include "src/text/jinja/runtime.h"

namespace sluice::jinja {
namespace {

class LazyIterator : public IteratorNode {
 public:
  LazyIterator(Runtime* runtime, Runtime::Begin begin, Value value, Args args)
      : IteratorNode(runtime), begin_(begin), value_(std::move(value)), args_(std::move(args)) {}
  ~LazyIterator() override { drop_children(); }
  void drop_children() override {
    drop(value_);
    drop(args_.positional);
    for (auto& argument : args_.keyword) drop(argument.second);
    args_.keyword.clear();
    drop(std::move(items_));
  }

  Result<bool> next(Runtime& rt, Value* item) override {
    const Nesting nesting(rt);
    SLUICE_RETURN_IF_ERROR(nesting.check());
    if (running_) return bad_input("generator already executing");
    running_ = true;
    auto more = advance(rt, item);
    running_ = false;
    return more;
  }

 private:
  Result<bool> advance(Runtime& rt, Value* item) {
    if (!started_) {
      started_ = true;
      SLUICE_ASSIGN_OR_RETURN(items_, begin_(rt, value_, args_));
    }
    if (items_ == nullptr) return false;
    return items_->next(rt, item);
  }

  Runtime::Begin begin_;
  Value value_;
  Args args_;
  std::shared_ptr<IteratorNode> items_;
  bool started_ = false;
  bool running_ = false;  // a generator may ask itself for an item while it makes one
};

}  // namespace

Value Runtime::make_lazy(Begin begin, const Value& value, Args args) {
  return Value(Kind::kIterator, make<LazyIterator>(begin, value, std::move(args)));
}

}  // namespace sluice::jinja
