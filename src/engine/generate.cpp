#include "src/engine/generate.h"

#include <algorithm>
#include <chrono>

#include "src/engine/generation.h"

namespace sluice {
namespace {

// What a request's passes write to.
struct PassBuffers {
  LogitRows logits;           // of most_rows rows
  std::vector<float> hidden;  // [rows of the last pass, embedding] where drafters want it
  std::size_t most_rows = 1;
};

// Runs the next pass and draws from it. kInterrupted: the user stopped it.
Status next_pass(CachedSequence& sequence, Generation& generation, PassBuffers& buffers) {
  const ModelSpec& spec = sequence.engine().spec();
  SLUICE_ASSIGN_OR_RETURN(TokenTree tree, generation.plan(buffers.most_rows));
  if (!sequence.has_room(tree)) tree = generation.plan_first_path();
  std::size_t top = generation.top_needed();
  if (top > sequence.engine().backend().most_top_logits()) top = 0;
  if (generation.wants_hidden()) buffers.hidden.resize(tree.size() * spec.embedding);
  const auto start = std::chrono::steady_clock::now();
  SLUICE_ASSIGN_OR_RETURN(const PassTraffic traffic,
                          sequence.append(tree, buffers.logits.out(tree.size(), top),
                                          generation.request().cancel, buffers.hidden));
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  generation.pass_done(ms.count(), traffic);
  SLUICE_RETURN_IF_ERROR(generation.advance(buffers.logits, 0, buffers.hidden));
  return sequence.keep(tree, generation.path());  // guesses that came true, and no others
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kInterrupted:
      return "interrupted";
  }
  return "";
}

Result<GenerateResult> generate(Engine& engine, const GenerateRequest& request) {
  CachedSequence sequence(engine);
  return generate(sequence, request);
}

Result<GenerateResult> generate(CachedSequence& sequence, const GenerateRequest& request) {
  Engine& engine = sequence.engine();
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Generation> generation,
                          Generation::create(engine, request));
  std::size_t most_rows = 1;
  if (request.speculator != nullptr) {
    most_rows =
        std::min<std::size_t>(engine.backend().max_logits(), DraftController::kMostDrafted + 1);
  }
  PassBuffers buffers{{most_rows, engine.spec().vocabulary,
                       static_cast<std::size_t>(engine.tokenizer().vocab_size())},
                      {},
                      most_rows};

  const auto run = [&]() -> Status {
    SLUICE_ASSIGN_OR_RETURN(const CachedSequence::Prefill prefill,
                            sequence.assign(request.prompt, buffers.logits.out(1, 0).whole,
                                            request.cancel, [&](std::size_t held) {
                                              if (request.on_prefill)
                                                request.on_prefill(held, request.prompt.size());
                                            }));
    SLUICE_RETURN_IF_ERROR(generation->prompt_done(prefill.reused));
    if (!generation->ended()) SLUICE_RETURN_IF_ERROR(generation->advance(buffers.logits, 0, {}));
    while (!generation->ended()) {
      SLUICE_RETURN_IF_ERROR(next_pass(sequence, *generation, buffers));
    }
    return {};
  };
  const Status status = run();
  if (!status.ok()) {
    if (status.error().code != ErrorCode::kInterrupted) return status.error();
    generation->interrupt();
  }
  return generation->finish();
}

}  // namespace sluice
