// sluice tokenize: the token ids of a text.
#include <unistd.h>

#include <optional>

#include "src/cli/command.h"
#include "src/cli/flags.h"
#include "src/cli/input.h"
#include "src/cli/interrupt.h"
#include "src/cli/json.h"
#include "src/cli/model_flags.h"
#include "src/gguf/describe.h"
#include "src/gguf/gguf.h"
#include "src/text/tokenizer.h"

namespace sluice::cli {
namespace {

struct TokenizeFlags {
  ModelFlags model;
  std::vector<std::string> text;
  bool special = false;
  bool bos = false;
  bool json = false;
};

std::string describe_tokens(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string bytes = tokenizer.bytes_of(id, true);
    text += fmt::format("{:>8}  \"{}\"\n", id, printable(bytes));
  }
  return text;
}

// `input` is a JSON array of strings: a list with the ids of each.
Result<Json> encode_list(const Tokenizer& tokenizer, const Json& input, TokenizeOptions options) {
  Json list = Json::array();
  for (const Json& text : input) {
    if (!text.is_string()) {
      return bad_input("element {} of the JSON array on stdin is not a string", list.size());
    }
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids,
                            tokenizer.encode(text.get_ref<const std::string&>(), options));
    Json entry;
    entry["ids"] = ids;
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

Status tokenize_command(std::span<const std::string> args, Console& console) {
  TokenizeFlags options;
  Flags flags(
      "tokenize", "tokenize [-m MODEL] [TEXT] [--special] [--bos] [--json]",
      "Prints the ids of a text's tokens and what each stands for. Without TEXT the text is "
      "read from stdin to its end, as it is.");
  flags.positional("TEXT", "the text (quote it); - or none: stdin", 1, &options.text);
  options.model.declare_model(flags);
  flags.toggle("--special", "control tokens written in the text count as such", &options.special);
  flags.toggle("--bos", "add the tokens that the model wants around a text (BOS, EOS)",
               &options.bos);
  flags.toggle("--json",
               "print {\"ids\": [...]}; where stdin is a JSON array of strings, a list of these",
               &options.json);
  SLUICE_ASSIGN_OR_RETURN(const Flags::Outcome outcome, flags.parse(args));
  if (!outcome.help.empty()) return console.print(outcome.help);

  const bool from_stdin = options.text.empty() || options.text[0] == "-";
  std::string text = from_stdin ? "" : options.text[0];
  SLUICE_ASSIGN_OR_RETURN(const std::string path, options.model.path(console));
  if (from_stdin) {
    if (isatty(STDIN_FILENO)) console.info("type the text; Ctrl-D on a line of its own ends it");
    SLUICE_ASSIGN_OR_RETURN(text, read_stdin(console.cancel()));
  }
  const ExitOnInterrupt nothing_to_lose;
  SLUICE_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::load(file));
  for (const std::string& line : tokenizer->warnings()) console.warning(line);

  warn_of_invalid_utf8(text, "the text", console);
  const TokenizeOptions how = {options.bos, options.special};
  if (options.json && from_stdin) {
    const Json input = Json::parse(text, nullptr, false);
    if (input.is_array()) {
      SLUICE_ASSIGN_OR_RETURN(const Json list, encode_list(*tokenizer, input, how));
      return console.print(json_line(list));
    }
    const std::size_t start = text.find_first_not_of(" \t\r\n");
    if (input.is_discarded() && start != std::string::npos && text[start] == '[') {
      return bad_input(
          "with --json, a text on stdin that begins with '[' is a JSON array of strings, and this "
          "is no valid JSON; a plain text that begins so can be given as an argument");
    }
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids, tokenizer->encode(text, how));
  if (tokenizer->has_double_bos(ids)) {
    console.warning("the text begins with BOS and --bos adds another one");
  }
  if (!options.json) return console.print(describe_tokens(*tokenizer, ids));
  Json result;
  result["ids"] = ids;
  return console.print(json_line(result));
}

}  // namespace sluice::cli
