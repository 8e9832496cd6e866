// Conversations with the bundled model: reuse of the cache, sessions, autosave, overflow,
// reasoning.
#include <doctest/doctest.h>

#include <fstream>
#include <random>
#include <string>

#include "src/engine/chat/chat_session.h"
#include "src/engine/chat/journal.h"
#include "src/engine/chat/reasoning.h"
#include "src/engine/chat/session_file.h"
#include "src/engine/model_fingerprint.h"
#include "tests/conformance.h"
#include "tests/temporary_folder.h"

using namespace sluice;
using sluice::test::TemporaryFolder;

namespace {

const std::string kModel = std::string(SLUICE_SOURCE_DIR) + "/models/storyteller-q4_0.gguf";

// A chat with everything it needs.
struct Chat {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<ChatFormat> format;
  std::unique_ptr<ChatSession> session;

  explicit Chat(const EngineOptions& options = {.context = 512},
                ChatOptions chat = {.max_tokens = 24}, ChatState state = fresh()) {
    auto loaded = Engine::load(kModel, options);
    REQUIRE(loaded.ok());
    engine = std::move(loaded).value();
    auto read = ChatFormat::load(engine->file(), engine->tokenizer());
    REQUIRE(read.ok());
    format = std::make_unique<ChatFormat>(std::move(read).value());
    session = std::make_unique<ChatSession>(*engine, *format, std::move(state), chat);
  }
  static ChatState fresh() {
    ChatState state;
    state.now = local_time_now();
    state.sampling.seed = 11;
    return state;
  }
  GenerateResult say(const std::string& text, const ReplyEvents& events = {}) {
    auto result = session->say(text, events);
    REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
    return std::move(result).value();
  }
};

std::string read_all(const std::string& path) { return TemporaryFolder::read(path); }
void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("a follow-up runs only the new text, and gives the tokens of a fresh cache") {
  Chat chat;
  const GenerateResult first = chat.say("Tell me a story about a fox and a lantern.");
  CHECK(first.reused_tokens == 0);
  const std::size_t held = chat.session->sequence().tokens().size();
  const GenerateResult second = chat.say("What happened next?");
  // All but what the template writes between the turns, and at most the last token of the reply.
  CHECK(second.reused_tokens + 2 >= held);
  CHECK(second.prompt_tokens > second.reused_tokens);

  ChatState same = chat.session->state();
  same.messages.resize(2);
  Chat fresh({.context = 512, .prefill_chunk = 7}, {.max_tokens = 24}, same);
  const GenerateResult again = fresh.say("What happened next?");
  CHECK(again.reused_tokens == 0);
  CHECK(again.tokens == second.tokens);
}

TEST_CASE("retry draws anew, undo and retry keep the conversation whole") {
  Chat chat;
  const GenerateResult first = chat.say("Tell me a story about a bear.");
  const auto retried = chat.session->retry({});
  REQUIRE(retried.ok());
  CHECK(retried->tokens != first.tokens);
  CHECK(retried->reused_tokens + 1 == retried->prompt_tokens);
  CHECK(chat.session->state().messages.size() == 2);
  CHECK(chat.session->state().messages[1].content == retried->text);
  chat.say("And then?");
  CHECK(chat.session->undo() == "And then?");
  CHECK(chat.session->undo() == "Tell me a story about a bear.");
  CHECK_FALSE(chat.session->undo().has_value());
  CHECK_FALSE(chat.session->retry({}).ok());
}

TEST_CASE("a stopped reply stays, one stopped before any text leaves the message unanswered") {
  Chat chat;
  std::atomic<bool> cancel = false;
  ReplyEvents events;
  events.cancel = &cancel;
  int pieces = 0;
  events.on_answer = [&](std::string_view) {
    if (++pieces == 3) cancel = true;
    return true;
  };
  CHECK(chat.say("Tell me a story about a crow.", events).finish == FinishReason::kInterrupted);
  REQUIRE(chat.session->state().messages.size() == 2);
  CHECK(chat.session->state().messages[1].interrupted);
  CHECK_FALSE(chat.session->state().messages[1].content.empty());
  const std::string kept = chat.session->state().messages[1].content;

  // cancel is still true: the next one stops at once.
  CHECK(chat.say("Go on.", events).finish == FinishReason::kInterrupted);
  CHECK(chat.session->state().messages.size() == 2);
  CHECK(chat.session->unanswered() == "Go on.");
  cancel = false;
  REQUIRE(chat.session->retry({}).ok());
  CHECK(chat.session->state().messages.size() == 4);
  // A retry that is stopped before any text leaves the old reply.
  const std::string reply = chat.session->state().messages[3].content;
  cancel = true;
  REQUIRE(chat.session->retry(events).ok());
  REQUIRE(chat.session->state().messages.size() == 4);
  CHECK(chat.session->state().messages[3].content == reply);
  CHECK(chat.session->state().messages[1].content == kept);
}

TEST_CASE("a reply whose reader is gone stays") {
  Chat chat;
  ReplyEvents events;
  std::string given;
  events.on_answer = [&](std::string_view text) {
    given += text;
    return given.size() < 20;
  };
  const auto result = chat.session->say("Tell me a story about a crow.", events);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == ErrorCode::kFailed);
  REQUIRE(chat.session->state().messages.size() == 2);
  CHECK(chat.session->state().messages[1].interrupted);
  CHECK(chat.session->state().messages[1].content.starts_with(given));
  CHECK_FALSE(chat.session->unanswered().has_value());
}

TEST_CASE("an unanswered message is part of the whole state, and survives a setting") {
  Chat chat;
  std::atomic<bool> cancel = true;
  ReplyEvents events;
  events.cancel = &cancel;
  CHECK(chat.say("Hello.", events).finish == FinishReason::kInterrupted);
  CHECK(chat.session->state().messages.empty());
  chat.session->set_thinking(false);
  const ChatState whole = chat.session->whole_state();
  REQUIRE(whole.messages.size() == 1);
  CHECK(whole.thinking == false);
  Chat other({.context = 512}, {.max_tokens = 24}, whole);
  CHECK(other.session->unanswered() == "Hello.");
  CHECK(other.session->state().messages.empty());
}

TEST_CASE("whether a template has a switch for thinking") {
  const Chat chat;
  CHECK_FALSE(chat.format->has_thinking_switch());
  const auto has_switch = [&](std::string_view source) {
    const auto format = ChatFormat::from_source(source, chat.engine->tokenizer());
    REQUIRE(format.ok());
    return format->has_thinking_switch();
  };
  CHECK(has_switch("{% if enable_thinking is false %}<think></think>{% endif %}"));
  CHECK(has_switch("{{ 'a' if thinking else 'b' }}"));
  // Only where there is a system message; only without one, which is refused with one.
  CHECK(has_switch("{% if messages[0].role == 'system' %}{{ enable_thinking }}{% endif %}"));
  CHECK(
      has_switch("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
                 "{{ enable_thinking }}"));
  CHECK_FALSE(has_switch("You are thinking. {# enable_thinking #}{{ messages[0].content }}"));
  CHECK_FALSE(has_switch("{{ strftime_now('%H:%M:%S') }}"));
  CHECK_FALSE(has_switch("{{ raise_exception('never') }}"));
}

TEST_CASE("a loaded session goes on with the same bits") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.chat";
  for (const KvCacheType kv :
       {KvCacheType::kInt8, KvCacheType::kF16, KvCacheType::kF32, KvCacheType::kInt4}) {
    Chat chat({.context = 512, .kv = kv});
    chat.say("Tell me a story about a fox and a lantern.");
    chat.say("What happened next?");
    REQUIRE(write_session(path, chat.session->state(), chat.session->sequence()).ok());
    const GenerateResult third = chat.say("And then?");

    auto file = read_session(path);
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().message));
    CHECK(file->state.messages.size() == 4);
    Chat loaded({.context = 512, .kv = kv, .threads = 1}, {.max_tokens = 24}, file->state);
    CHECK(restore_cache(*file, loaded.session->sequence()) == "");
    const GenerateResult again = loaded.say("And then?");
    CHECK(again.tokens == third.tokens);
    // An int4 cache goes on from the beginning of a block.
    const std::uint32_t step = kv == KvCacheType::kInt4 ? 32 : 1;
    CHECK(again.reused_tokens == third.reused_tokens / step * step);
    // And so on, the cache's bytes included.
    CHECK(loaded.say("More.").tokens == chat.say("More.").tokens);
    CHECK(loaded.session->sequence().tokens() == chat.session->sequence().tokens());
  }
}

TEST_CASE("a session of another cache type or model is read anew, with the same result") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.chat";
  Chat chat({.context = 512, .kv = KvCacheType::kF16});
  chat.say("Tell me a story about a fox and a lantern.");
  REQUIRE(write_session(path, chat.session->state(), chat.session->sequence()).ok());
  auto file = read_session(path);
  REQUIRE(file.ok());

  Chat other({.context = 512}, {.max_tokens = 24}, file->state);
  CHECK(restore_cache(*file, other.session->sequence()).find("cache is") != std::string::npos);
  CHECK(other.session->sequence().tokens().empty());

  Chat same({.context = 512, .kv = KvCacheType::kF16}, {.max_tokens = 24}, file->state);
  SessionFile changed = *file;
  ++changed.fingerprint;
  CHECK(restore_cache(changed, same.session->sequence()).find("another model") !=
        std::string::npos);
  changed = *file;
  changed.kv.pop_back();
  CHECK(restore_cache(changed, same.session->sequence()) != "");
  changed = *file;
  changed.tokens[0] = 1 << 30;
  CHECK(restore_cache(changed, same.session->sequence()) != "");
  CHECK(same.session->sequence().tokens().empty());
  CHECK(same.say("And then?").tokens == chat.say("And then?").tokens);
}

TEST_CASE("damaged session files are refused at every byte") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.chat";
  Chat chat({.context = 256}, {.max_tokens = 4});
  chat.say("Hi.");
  REQUIRE(write_session(path, chat.session->state(), chat.session->sequence()).ok());
  const std::string good = read_all(path);
  REQUIRE(read_session(path).ok());
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    // The head closely, the rest here and there.
    const std::size_t at = i < 48 ? static_cast<std::size_t>(i) : random() % bad.size();
    // Bytes 32 to 39 are the model's fingerprint: another model is no damage.
    if (at >= 32 && at < 40) continue;
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    write_all(path, bad);
    const auto result = read_session(path);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == ErrorCode::kBadInput);
  }
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{47}, good.size() - 1}) {
    write_all(path, good.substr(0, size));
    CHECK_FALSE(read_session(path).ok());
  }
  write_all(path, good + "x");
  CHECK_FALSE(read_session(path).ok());
}

TEST_CASE("an autosave cut at any byte is read up to its last whole line") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.jsonl";
  Chat chat({.context = 256}, {.max_tokens = 12});
  {
    auto journal = ChatJournal::create(path, kModel, chat.session->state());
    REQUIRE(journal.ok());
    CHECK_FALSE(ChatJournal::create(path, kModel, chat.session->state()).ok());
    for (const char* text : {"Tell me a story.", "Say \"hi\" \xf0\x9f\xa6\x8a\nand more."}) {
      REQUIRE(journal->message(text).ok());
      ReplyEvents events;
      events.on_answer = [&](std::string_view piece) { return journal->answer(piece).ok(); };
      chat.say(text, events);
      REQUIRE(journal->reply(chat.session->state()).ok());
    }
    REQUIRE(journal->message("one more").ok());
    REQUIRE(journal->answer("A whole sentence. And a beg").ok());
  }
  const std::string good = read_all(path);
  const auto whole = read_journal(path);
  REQUIRE(whole.ok());
  CHECK(whole->model == kModel);
  REQUIRE(whole->state.messages.size() == 6);
  CHECK(whole->state.messages[5].content == "A whole sentence.");
  CHECK(whole->state.messages[5].interrupted);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(whole->state.messages[i] == chat.session->state().messages[i]);
  }
  const std::size_t first_line = good.find('\n') + 1;
  for (std::size_t size = 0; size < good.size(); ++size) {
    write_all(path, good.substr(0, size));
    const auto result = read_journal(path);
    REQUIRE(result.ok() == (size >= first_line));
    if (result.ok()) CHECK(result->state.messages.size() <= 6);
  }
  for (const char* bad : {"", "{}\n", "[1]\n", "{\"sluice_chat\":2,\"model\":\"x\"}\n", "\n",
                          "{\"sluice_chat\":1,\"model\":\"x\"}\n{\"answer\":\"y\"}\n"}) {
    write_all(path, bad);
    CHECK_FALSE(read_journal(path).ok());
  }
}

TEST_CASE(
    "a retry or an edit that is killed: the old turn until there is new text, never both in one") {
  const TemporaryFolder folder;
  ChatState state = Chat::fresh();
  state.messages = {{"user", "a", "", false}, {"assistant", "old.", "", false}};
  const auto after = [&](const char* name, const auto& events) {
    const std::string path = folder / name;
    auto journal = ChatJournal::create(path, "m", state);
    REQUIRE(journal.ok());
    events(*journal);
    auto content = read_journal(path);
    REQUIRE_MESSAGE(content.ok(), (content.ok() ? "" : content.error().message));
    return content->state.messages;
  };
  using Messages = std::vector<ChatMessage>;
  CHECK(after("retry", [](ChatJournal& j) { REQUIRE(j.message("a", true).ok()); }) ==
        state.messages);
  CHECK(after("retried", [](ChatJournal& j) {
          REQUIRE(j.message("a", true).ok());
          REQUIRE(j.answer("New one. And").ok());
        }) == Messages{{"user", "a", "", false}, {"assistant", "New one.", "", true}});
  CHECK(after("edit", [](ChatJournal& j) { REQUIRE(j.message("b", true).ok()); }) ==
        Messages{{"user", "b", "", false}});
  CHECK(after("two",
              [](ChatJournal& j) {
                REQUIRE(j.message("b").ok());
                REQUIRE(j.answer("c.\n").ok());
              }) == Messages{state.messages[0],
                             state.messages[1],
                             {"user", "b", "", false},
                             {"assistant", "c.\n", "", true}});
}

TEST_CASE("what is saved is what is read, in every field") {
  ChatState state = Chat::fresh();
  state.system = "Be brief.";
  state.messages = {{"user", "a\nb", "", false}, {"assistant", "c", "why", true}};
  state.first_sent = 2;
  state.stream = 4294967295U;
  state.thinking = false;
  state.sampling.seed = 18446744073709551615U;
  state.sampling.temperature = 0.1;
  state.sampling.top_k = 7;
  state.sampling.dry_sequence_breakers = {"\n", "x"};
  state.sampling.logit_bias = {{5, 1.5}, {6, -std::numeric_limits<double>::infinity()}};
  const auto again = chat_state_from_json(nlohmann::ordered_json::parse(to_json(state).dump()));
  REQUIRE_MESSAGE(again.ok(), (again.ok() ? "" : again.error().message));
  CHECK(to_json(*again) == to_json(state));
  CHECK(again->sampling.logit_bias[1].bias == -std::numeric_limits<double>::infinity());

  const auto refused = [&](const char* key, nlohmann::ordered_json value) {
    nlohmann::ordered_json json = to_json(state);
    json[key] = std::move(value);
    return !chat_state_from_json(json).ok();
  };
  CHECK(refused("system", 1));
  CHECK(refused("messages", "x"));
  CHECK(refused("messages", {{{"role", "system"}, {"content", "x"}}}));
  CHECK(refused("messages", {{{"role", "assistant"}, {"content", "x"}}}));
  CHECK(refused("first_sent", 3));
  CHECK(refused("first_sent", -1));
  CHECK(refused("stream", 4294967296U));
  CHECK(refused("thinking", "yes"));
  CHECK(refused("began", "yesterday"));
  CHECK(refused("sampling", {{"seed", 1}, {"temp", -1}}));
  CHECK(refused("sampling", {{"temp", 1}}));
  for (const auto& id : {nlohmann::ordered_json(-1), nlohmann::ordered_json(4294967297U),
                         nlohmann::ordered_json(18446744073709551615U)}) {
    nlohmann::ordered_json sampling = to_json(state)["sampling"];
    sampling["logit-bias"] = {{id, 1.0}};
    CHECK(refused("sampling", sampling));
  }
  CHECK(chat_state_from_json(to_json(state)).ok());  // also without a way through text
}

TEST_CASE("a full context drops whole oldest turns and keeps the system message") {
  ChatState state = Chat::fresh();
  state.system = "You are a storyteller.";
  Chat chat({.context = 200}, {.max_tokens = 30}, state);
  std::vector<DroppedTurns> all;
  ReplyEvents events;
  events.on_dropped = [&](const DroppedTurns& dropped) { all.push_back(dropped); };
  for (int i = 0; i < 8; ++i) {
    chat.say(fmt::format("Tell me more of part {} of the story.", i), events);
    CHECK(chat.session->sequence().tokens().size() < 200);
  }
  REQUIRE_FALSE(all.empty());
  for (const DroppedTurns& dropped : all) {
    CHECK(dropped.turns > 0);
    CHECK(dropped.tokens_after < dropped.tokens_before);
    CHECK(dropped.tokens_to_run <= dropped.tokens_after);
  }
  const ChatState& now = chat.session->state();
  CHECK(now.messages.size() == 16);  // nothing is lost
  CHECK(now.first_sent % 2 == 0);
  CHECK(now.sent_messages()[0]["role"] == "system");
  CHECK(now.sent_messages()[1]["role"] == "user");
  const auto costs = chat.session->costs();
  REQUIRE(costs.ok());
  std::size_t sum = 0;
  for (const TurnCost& cost : *costs) sum += cost.tokens;
  CHECK(sum == *chat.session->prompt_tokens());
}

TEST_CASE(
    "--overflow stop refuses the message and keeps everything; one that can never fit is told") {
  Chat chat({.context = 120}, {.max_tokens = 30, .overflow = OverflowPolicy::kStop});
  Result<GenerateResult> result = chat.session->say("Tell me a story.", {});
  for (int i = 0; i < 6 && result.ok(); ++i) result = chat.session->say("Go on, please.", {});
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().message.find("context is full") != std::string::npos);
  CHECK(chat.session->unanswered() == "Go on, please.");
  CHECK(chat.session->state().first_sent == 0);

  std::string long_text;
  for (int i = 0; i < 300; ++i) long_text += "word ";
  Chat second({.context = 120});
  const auto refused = second.session->say(long_text, {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("too long") != std::string::npos);
  CHECK(second.session->unanswered() == long_text);
  CHECK(second.session->state().messages.empty());
}

TEST_CASE("reasoning is told from the answer, however the text is cut") {
  struct Case {
    const char* prompt_end;
    const char* text;
    const char* reasoning;
    const char* answer;
  };
  const Case cases[] = {
      {"x", "plain", "", "plain"},
      {"x", "", "", ""},
      {"x", "<think>", "", ""},
      {"x", "<thin", "", "<thin"},
      {"x", "<think>why</think>\n\nbecause", "why", "because"},
      {"x", "\n<think>\nwhy\n</think>because", "\nwhy\n", "because"},
      {"x", "a <think> in the middle", "", "a <think> in the middle"},
      {"x", "<think>cut </thi", "cut </thi", ""},
      {"x", "<think></think>a</think>b", "", "a</think>b"},
      {"<think>\n", "why</think>because", "why", "because"},
      {"<think>", "never ends", "never ends", ""},
      {"x", "<think>a < b </ c</think> d", "a < b </ c", "d"},
  };
  std::mt19937 random(5);
  for (const Case& each : cases) {
    for (int round = 0; round < 50; ++round) {
      ReasoningSplitter splitter(each.prompt_end);
      std::string_view rest = each.text;
      std::string reasoning;
      std::string answer;
      const auto take = [&](const ReasoningSplitter::Piece& piece) {
        reasoning += piece.reasoning;
        answer += piece.answer;
      };
      while (!rest.empty()) {
        const std::size_t n =
            round == 0 ? rest.size() : 1 + random() % std::min<std::size_t>(4, rest.size());
        take(splitter.push(rest.substr(0, n)));
        rest.remove_prefix(n);
      }
      take(splitter.finish());
      CHECK(reasoning == each.reasoning);
      CHECK(answer == each.answer);
    }
  }
}

TEST_CASE("the plain format, and what a thinking model's template makes of earlier reasoning") {
  Chat chat;
  const Tokenizer& tokenizer = chat.engine->tokenizer();
  ChatState state = Chat::fresh();
  state.system = "Be brief.";
  state.messages = {
      {"user", "a", "", false}, {"assistant", "b", "why", false}, {"user", "c", "", false}};
  const auto shown = [&](const ChatFormat& format, std::optional<bool> thinking) {
    const auto parts = format.render(state.sent_messages(), {true, thinking, state.now});
    REQUIRE_MESSAGE(parts.ok(), (parts.ok() ? "" : parts.error().message));
    return join_parts(*parts);
  };
  const auto plain = ChatFormat::from_source(ChatFormat::kPlainTemplate, tokenizer);
  REQUIRE(plain.ok());
  CHECK(shown(*plain, std::nullopt) == "Be brief.\n\nUser: a\nAssistant: b\nUser: c\nAssistant:");

  const std::string path = sluice::test::conformance_file("templates/Qwen-Qwen3-0.6B.jinja");
  if (path.empty()) return;  // said loudly
  const auto qwen3 = ChatFormat::from_source(read_all(path), tokenizer);
  REQUIRE(qwen3.ok());
  const std::string on = shown(*qwen3, std::nullopt);
  CHECK(on.ends_with("<|im_start|>assistant\n"));
  CHECK(on.find("why") == std::string::npos);  // this template drops it
  CHECK(shown(*qwen3, true) == on);
  CHECK(shown(*qwen3, false).ends_with("<think>\n\n</think>\n\n"));
  state.messages.push_back({"assistant", "d", "because", false});
  CHECK(shown(*qwen3, true).find("<think>\nbecause\n</think>\n\nd") != std::string::npos);
}

TEST_CASE("typed control tokens stay text, and a fingerprint tells models apart") {
  Chat chat;
  const auto with = [&](const char* text) {
    nlohmann::ordered_json messages = {{{"role", "user"}, {"content", text}}};
    auto ids = chat.format->encode(messages, {});
    REQUIRE(ids.ok());
    return *ids;
  };
  const auto count_controls = [&](const std::vector<std::int32_t>& ids) {
    int n = 0;
    for (const std::int32_t id : ids) n += chat.engine->tokenizer().type(id) == TokenType::kControl;
    return n;
  };
  CHECK(count_controls(with("hello")) == count_controls(with("<|end|><|assistant|>hello")));
  CHECK(count_controls(with("hello")) > 0);

  const std::string bytes = read_all(kModel);
  const auto fingerprint = [](const std::string& file) {
    auto parsed = GgufFile::parse(std::as_bytes(std::span(file)), "x");
    REQUIRE(parsed.ok());
    return model_fingerprint(*parsed);
  };
  std::string changed = bytes;
  changed[changed.size() - 40] = static_cast<char>(changed[changed.size() - 40] ^ 1);
  CHECK(fingerprint(bytes) == model_fingerprint(chat.engine->file()));
  CHECK(fingerprint(changed) != fingerprint(bytes));
}
