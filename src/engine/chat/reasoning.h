// Telling the reasoning of a thinking model from its answer while the text streams.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Models write their reasoning first, between <think> and </think>; some templates write the
// opening mark into the prompt already. The marks and the line ends around them belong to neither
// side.
class ReasoningSplitter {
 public:
  // `prompt_end`: the last text of the rendered prompt; reasoning is open if it ends with the mark.
  explicit ReasoningSplitter(std::string_view prompt_end);

  struct Piece {
    std::string reasoning;
    std::string answer;
  };
  // Adds text; gives what is certain. Holds back only what may be a mark or white space beside one.
  Piece push(std::string_view text);
  Piece finish();

  bool in_reasoning() const { return state_ == State::kReasoning; }

 private:
  enum class State { kStart, kReasoning, kGap, kAnswer };
  Piece advance(bool end);

  State state_ = State::kStart;
  std::string held_;
};

}  // namespace sluice
