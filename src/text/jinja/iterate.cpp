// len(), iter() and reversed().
#include "src/text/jinja/interpreter_nodes.h"
#include "src/text/jinja/ops.h"
#include "src/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

// Walks a list, tuple, range, dict (its keys) or dict view, from either end.
class SequenceIterator : public IteratorNode {
 public:
  SequenceIterator(Runtime* runtime, Value sequence, std::int64_t length, bool reversed)
      : IteratorNode(runtime),
        sequence_(std::move(sequence)),
        length_(length),
        reversed_(reversed) {}
  ~SequenceIterator() override { drop_children(); }
  void drop_children() override { drop(sequence_); }

  Result<bool> next(Runtime& rt, Value* item) override {
    SLUICE_RETURN_IF_ERROR(rt.charge(1));
    if (position_ >= length_) return false;
    const std::int64_t i = reversed_ ? length_ - 1 - position_ : position_;
    ++position_;
    const auto index = static_cast<std::size_t>(i);
    switch (sequence_.kind()) {
      case Kind::kRange:
        *item = sequence_.as<RangeNode>().at(i);
        return true;
      case Kind::kDict:
        *item = sequence_.as<DictNode>().items[index].first;
        return true;
      case Kind::kDictView: {
        const auto& view = sequence_.as<DictViewNode>();
        const auto& [key, value] = view.dict->items[index];
        *item = view.which == DictView::kKeys     ? key
                : view.which == DictView::kValues ? value
                                                  : rt.make_tuple({key, value});
        return true;
      }
      default:
        *item = sequence_.items()[index];
        return true;
    }
  }

 private:
  Value sequence_;
  std::int64_t length_;
  std::int64_t position_ = 0;
  bool reversed_;
};

class CharacterIterator : public IteratorNode {
 public:
  CharacterIterator(Runtime* runtime, Value text) : IteratorNode(runtime), text_(std::move(text)) {}
  ~CharacterIterator() override { drop_children(); }
  void drop_children() override {
    done_ = true;
    drop(text_);
  }

  Result<bool> next(Runtime& rt, Value* item) override {
    SLUICE_RETURN_IF_ERROR(rt.charge(1));
    if (done_ || position_ >= text_.text().size()) return false;
    char32_t cp = 0;
    const std::size_t length = decode_utf8(text_.str(), position_, &cp);
    *item = rt.make_string(text_.text().slice(position_, position_ + length));
    position_ += length;
    return true;
  }

 private:
  Value text_;
  std::size_t position_ = 0;
  bool done_ = false;
};

class EmptyIterator : public IteratorNode {
 public:
  explicit EmptyIterator(Runtime* runtime) : IteratorNode(runtime) {}
  Result<bool> next(Runtime&, Value*) override { return false; }
};

}  // namespace

Result<std::int64_t> length_of(Runtime& rt, const Value& v) {
  const auto as_length = [](std::size_t size) { return static_cast<std::int64_t>(size); };
  switch (v.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      SLUICE_RETURN_IF_ERROR(rt.charge_scan(v.text().size()));
      return as_length(count_code_points(v.str()));
    case Kind::kList:
    case Kind::kTuple:
      return as_length(v.items().size());
    case Kind::kDict:
      return as_length(v.as<DictNode>().items.size());
    case Kind::kRange:
      return v.as<RangeNode>().length;
    case Kind::kDictView:
      return as_length(v.as<DictViewNode>().dict->items.size());
    case Kind::kLoop:
      return v.as<LoopNode>().length(rt);
    default:
      return bad_input("object of type '{}' has no len()", type_name(v));
  }
}

bool is_iterable(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kDictView:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

Result<std::shared_ptr<IteratorNode>> iterate(Runtime& rt, const Value& v) {
  using Out = std::shared_ptr<IteratorNode>;
  switch (v.kind()) {
    case Kind::kIterator:
      return v.ref<IteratorNode>();
    case Kind::kUndefined:
      return Out(rt.make<EmptyIterator>());
    case Kind::kString:
      return Out(rt.make<CharacterIterator>(v));
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kDictView: {
      SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, length_of(rt, v));
      return Out(rt.make<SequenceIterator>(v, length, false));
    }
    case Kind::kNone:
      if (v.is_absent()) return Out(rt.make<EmptyIterator>());
      return bad_input("'NoneType' object is not iterable");
    case Kind::kLoop:
      return bad_input("walking the loop variable itself is not supported; use its attributes");
    default:
      return bad_input("'{}' object is not iterable", type_name(v));
  }
}

bool is_reversible(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kDictView:
      return true;
    default:
      return false;
  }
}

Result<std::shared_ptr<IteratorNode>> reversed_iterator(Runtime& rt, const Value& v) {
  using Out = std::shared_ptr<IteratorNode>;
  if (!is_reversible(v)) return bad_input("'{}' object is not reversible", type_name(v));
  if (v.is(Kind::kUndefined)) return Out(rt.make<EmptyIterator>());
  Value sequence = v;
  if (v.is_string()) {
    SLUICE_ASSIGN_OR_RETURN(std::vector<Value> characters, to_vector(rt, v));
    // Backwards, Python goes by index, which keeps Markup; forwards it does not.
    if (v.markup()) {
      for (Value& character : characters) character = rt.make_string(character.text(), true);
    }
    sequence = rt.make_list(std::move(characters));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, length_of(rt, sequence));
  return Out(rt.make<SequenceIterator>(std::move(sequence), length, true));
}

Result<std::vector<Value>> to_vector(Runtime& rt, const Value& v) {
  if (v.is(Kind::kList) || v.is(Kind::kTuple)) {
    SLUICE_RETURN_IF_ERROR(rt.check_list_size(v.items().size()));
    return v.items();
  }
  if (v.is_string()) {
    SLUICE_ASSIGN_OR_RETURN(const std::int64_t length, length_of(rt, v));
    SLUICE_RETURN_IF_ERROR(rt.check_string_list_size(static_cast<std::uint64_t>(length)));
  }
  SLUICE_ASSIGN_OR_RETURN(const auto iterator, iterate(rt, v));
  std::vector<Value> out;
  for (Value item;;) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, iterator->next(rt, &item));
    if (!more) return out;
    if (out.size() == out.capacity()) {
      SLUICE_RETURN_IF_ERROR(rt.check_list_size(2 * out.size() + 1));
    }
    out.push_back(std::move(item));
  }
}

}  // namespace sluice::jinja
