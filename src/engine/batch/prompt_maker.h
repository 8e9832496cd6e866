// From an item to the tokens of its prompt.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/engine/batch/item.h"
#include "src/engine/chat/chat_format.h"

namespace sluice {

// The same for all items of a batch.
struct PromptOptions {
  std::optional<std::string> system;  // for conversations without a system message of their own
  std::string prefix;                 // in front of each prompt, or of the first user's message
  bool raw = false;                   // no chat template, and control tokens in the text count
  std::tm now = {};                   // what templates see as the current time
  std::size_t context = 0;            // as RenderOptions has it
};

class PromptMaker {
 public:
  // `tokenizer` must outlive it. kUsage for options that the format can't do.
  static Result<PromptMaker> create(const Tokenizer& tokenizer, ChatFormat format,
                                    PromptOptions options);

  struct Prompt {
    std::vector<std::int32_t> ids;   // not empty
    std::vector<std::string> stops;  // where a reply ends, beside the item's
    bool double_bos = false;         // one was added in front of one in the text
    bool plain = false;              // messages went into lines, for lack of a chat template
    bool no_prefix = false;          // the prefix was left out, in front of token ids
  };
  // A prompt is put into a user's message where there is a chat template, and continued as text
  // where there is none, with --raw, and in a completion. Content never becomes a control token,
  // except by --raw. Errors are the item's.
  Result<Prompt> make(const BatchItem& item) const;

 private:
  PromptMaker(const Tokenizer& tokenizer, ChatFormat format, PromptOptions options)
      : tokenizer_(&tokenizer), format_(std::move(format)), options_(std::move(options)) {}
  Result<Prompt> make_text(const BatchItem& item) const;
  Result<Prompt> make_chat(const BatchItem& item, BatchJson messages) const;

  const Tokenizer* tokenizer_;
  ChatFormat format_;
  PromptOptions options_;
};

}  // namespace sluice
