#include "src/text/jinja/runtime.h"

namespace sluice::jinja {

Runtime::~Runtime() {
  // Cycles (a namespace that holds itself, a macro in its own scope) are cut open, then all goes.
  emptying_trash_ = true;
  for (Node* node = nodes_; node != nullptr; node = node->next_) node->drop_children();
  while (!trash_.empty()) {
    const std::shared_ptr<Node> node = std::move(trash_.back());
    trash_.pop_back();
  }
}

void Runtime::discard(std::shared_ptr<Node> node) {
  if (node.use_count() > 1) return;  // somebody else frees it
  trash_.push_back(std::move(node));
  if (emptying_trash_) return;
  emptying_trash_ = true;
  while (!trash_.empty()) {
    const std::shared_ptr<Node> next = std::move(trash_.back());
    trash_.pop_back();
  }
  emptying_trash_ = false;
}

Error Runtime::limit_error() const {
  if (steps_ > limits_.steps) {
    return bad_input("the template takes more than {} steps (limit); does it loop too often?",
                     limits_.steps);
  }
  return bad_input("the template's values take more than {} MiB (limit)",
                   limits_.memory_bytes >> 20);
}

Status Runtime::check_text_size(std::uint64_t bytes) {
  if (bytes > limits_.text_bytes) {
    return bad_input("the template makes a text of more than {} MiB (limit)",
                     limits_.text_bytes >> 20);
  }
  if (bytes_ + bytes > limits_.memory_bytes) {
    return bad_input("the template's values take more than {} MiB (limit)",
                     limits_.memory_bytes >> 20);
  }
  return {};
}

Status Runtime::check_list_size(std::uint64_t count, std::size_t bytes_each) {
  constexpr std::uint64_t kMost = 1u << 22;
  if (count > kMost || bytes_ + count * bytes_each > limits_.memory_bytes) {
    return bad_input("the template makes a list of {} items, more than the limits allow", count);
  }
  return charge(count / 4);
}

Value Runtime::make_string(TaggedText text, bool markup) {
  return Value(Kind::kString, make<StringNode>(std::move(text), markup));
}

Value Runtime::make_list(std::vector<Value> items) {
  return Value(Kind::kList, make<ListNode>(std::move(items)));
}

Value Runtime::make_tuple(std::vector<Value> items) {
  return Value(Kind::kTuple, make<ListNode>(std::move(items)));
}

Value Runtime::make_undefined(std::string message) {
  return Value(Kind::kUndefined, make<UndefinedNode>(std::move(message)));
}

}  // namespace sluice::jinja
