// A request on its way through the scheduler.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include "src/engine/generation.h"
#include "src/engine/scheduler/scheduler.h"

namespace sluice {

// A request that has a sequence, or had one and was put back.
struct Slot {
  static constexpr std::size_t kNoLogits = static_cast<std::size_t>(-1);

  Ticket ticket = 0;
  double queue_ms = 0;
  std::unique_ptr<Speculator> speculator;
  std::unique_ptr<Generation> generation;
  SequenceId sequence = 0;
  bool prefilling = true;  // the cache lacks tokens that the next draw depends on
  bool drew = false;       // its prompt was run before: what is missing is run again
  std::size_t shared = 0;  // tokens of the prompt found in the cache
  std::size_t reach = 0;   // tokens that it ever had there: what is run below is run again
  // Another slot runs the beginning of this one's prompt now; it waits until that one has so many
  // tokens. donor == 0: none.
  Ticket donor = 0;
  std::size_t donor_tokens = 0;

  // Of the pass that is made.
  TokenTree tree;  // decoding
  std::size_t rows = 0;
  std::size_t logits = kNoLogits;  // index of its first row of logits

  // Tokens that must be in the cache, and those of them that must be run for their logits.
  std::span<const std::int32_t> needed() const {
    return generation->text().first(generation->held());
  }
  std::size_t shareable() const { return needed().size() - (drew ? 0 : 1); }
};

struct Waiting {
  Ticket ticket = 0;
  std::chrono::steady_clock::time_point since;
  GenerateRequest request;
  std::unique_ptr<Slot> slot;  // of one that was put back

  std::size_t tokens() const { return slot ? slot->needed().size() : request.prompt.size(); }
};

}  // namespace sluice
