// Renders a conversation with the chat template of a model, as transformers does: the Jinja
// language with trim_blocks, lstrip_blocks, loop controls and the immutable sandbox; filters and
// functions tojson, raise_exception, strftime_now; {% generation %} blocks are transparent.
//
// What the language has: docs of jinja2 3.1 are the reference, its output is matched byte for byte
// (tests/chat_template_test.cpp and scripts/fuzz_jinja_differential.py compare). Not supported,
// each an error with line and column: include, import, from, extends, autoescape, self, super; the
// filters random, urlize, wordwrap, striptags, pprint; lipsum(); integers beyond 64 bits; half of a
// surrogate pair and \N{name} in a text; in formats of numbers '#' for floats, the type c, and zero
// padding together with grouping; printing of what Python shows as a memory address; and a few
// rarely used methods such as str.encode.
//
// Limits, so that a hostile template ends in an error within about a second: 10 million steps,
// 64 MiB for one text and for the output, 256 MiB for all values, macros 200 deep, data 200 levels
// deep, ranges of 100,000 items, 1 MiB of template source (see jinja/runtime.h and jinja/parser.h).
// Rendering uses up to about 2 MiB of stack.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/text/text_part.h"

namespace sluice {
namespace jinja {
struct Program;
}

struct ChatInput {
  // [{"role": ..., "content": ...}, ...]: objects with whatever fields the template reads.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  // JSON schemas of functions; null: no tools. The template sees None then, as with transformers
  // (and for `documents`), but a loop over it is empty instead of an error.
  nlohmann::ordered_json tools;
  bool add_generation_prompt = false;
  // Text of the control tokens; they are trusted like text of the template. Empty: the model has
  // none, and the variable is undefined.
  std::string bos_token;
  std::string eos_token;
  // The local time that strftime_now sees; nothing: now.
  std::optional<std::tm> now;
  // An object of more variables, for instance {"enable_thinking": false}. They are content;
  // the names of the fields above are refused.
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
};

class ChatTemplate {
 public:
  // Parses Jinja source (UTF-8). Errors: ErrorCode::kBadInput, "line 3, column 7: ..." included.
  static Result<ChatTemplate> parse(std::string_view source);

  // The prompt, cut where its origin changes. Part of it that comes from messages, tools or extra
  // variables (texts, numbers and keys of objects, wherever the template moves them) is content;
  // everything else is the template's own. Where one value is made of both and its parts cannot be
  // told apart (tojson, printing a list), the whole is content. One exception: a message's role is
  // trusted if it is one of the words system, developer, user, assistant, tool, function, ipython,
  // model, since many templates build control tokens such as <|user|> from it.
  //
  // Bytes that are not valid UTF-8 in the input pass through unchanged.
  //
  // Errors: ErrorCode::kFailed is a refusal, the message is what the template itself gave to
  // raise_exception, and nothing else (see is_refusal); ErrorCode::kBadInput is everything else:
  // the template did something wrong or went beyond a limit.
  //
  // Thread safe: one ChatTemplate may render in many threads.
  Result<std::vector<TextPart>> render(const ChatInput& input) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Program> program);
  std::shared_ptr<const jinja::Program> program_;
};

// True if the template refused the conversation in its own words.
inline bool is_refusal(const Error& error) { return error.code == ErrorCode::kFailed; }

// The text of all parts.
std::string join_parts(const std::vector<TextPart>& parts);

}  // namespace sluice
