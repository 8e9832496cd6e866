// make_model OUT [--preset NAME] [sizes and types]: a synthetic model with random weights.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "tools/model_maker/maker.h"

namespace {

using sluice::BlockType;
using sluice::ModelShape;

struct Options {
  std::string out;
  ModelShape shape;
  int threads = 0;
};

// Type flags take names of any case.
CLI::Option* add_type(CLI::App& app, const std::string& flag, const std::string& help,
                      std::function<void(BlockType)> set) {
  return app
      .add_option_function<std::string>(
          flag,
          [set = std::move(set)](const std::string& name) {
            set(sluice::block_type_from_name(name).value());
          },
          help)
      ->check([](const std::string& name) -> std::string {
        if (sluice::block_type_from_name(name)) return {};
        return fmt::format("'{}' is no block type", name);
      })
      ->type_name("TYPE");
}

std::string names_of_presets() {
  std::string names;
  for (const auto& preset : sluice::model_presets()) {
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  }
  return names;
}

std::string names_of_architectures() {
  std::string names;
  for (const auto& facts : sluice::model_architectures()) {
    names += (names.empty() ? "" : "|") + std::string(facts.name);
  }
  return names;
}

// Presets are applied at once, so that flags given after --preset change its values.
void declare(CLI::App& app, Options& options) {
  ModelShape& shape = options.shape;
  app.add_option("out", options.out, "File to write")->required()->type_name("OUT");
  app.add_option_function<std::string>(
         "--preset",
         [&shape](const std::string& name) {
           for (const auto& preset : sluice::model_presets()) {
             if (preset.name == name) shape = preset.shape;
           }
         },
         "Shape of a known model: " + names_of_presets() + "; other flags change it")
      ->trigger_on_parse()
      ->check([](const std::string& name) -> std::string {
        for (const auto& preset : sluice::model_presets()) {
          if (preset.name == name) return {};
        }
        return fmt::format("'{}' is no preset", name);
      })
      ->type_name("NAME");
  app.add_option("--arch", shape.arch, names_of_architectures())->type_name("NAME");
  app.add_option("--layers", shape.layers, "Layers");
  app.add_option("--embd", shape.embd, "Size of an embedding");
  app.add_option("--heads", shape.heads, "Attention heads");
  app.add_option("--kv-heads", shape.kv_heads, "Key and value heads");
  app.add_option("--head-dim", shape.head_dim, "Size of a head");
  app.add_option("--ffn", shape.ffn, "Size of the feed-forward layer (of one expert)");
  app.add_option("--vocab", shape.vocab, "Tokens in the vocabulary");
  app.add_option("--ctx", shape.ctx, "Context length that the file states");
  app.add_option("--experts", shape.experts, "Experts, for mixtral and qwen3moe");
  app.add_option("--experts-used", shape.experts_used, "Experts that a token uses");
  app.add_option("--window", shape.window, "Sliding window, for gemma2 and gemma3");
  app.add_option("--rope-base", shape.rope_base, "Base of the rotation; 0 is the usual one");
  app.add_flag("--rope-factors", shape.rope_factors, "Frequency factors as in Llama 3.1 and later");
  app.add_flag("--untied", shape.untied, "An output matrix of its own");
  app.add_option("--key-bias-outliers", shape.key_bias_outliers,
                 "Size of two large key biases in each head, for qwen2");
  add_type(app, "--type", "Type of matrices, for instance q4_0 (default f32)",
           [&shape](BlockType type) { shape.type = type; });
  add_type(app, "--embd-type", "Type of the token embedding, if not that of --type",
           [&shape](BlockType type) { shape.embd_type = type; });
  add_type(app, "--output-type", "Type of the output matrix, if not that of the embedding",
           [&shape](BlockType type) { shape.output_type = type; });
  app.add_option("--seed", shape.seed, "Seed of the weights");
  app.add_option("--threads", options.threads, "Threads; 0 is one a processor");
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app{"Writes a synthetic model with random weights and a made-up vocabulary."};
  app.option_defaults()->always_capture_default(true);
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(sluice::ErrorCode::kUsage);
  }
  const auto start = std::chrono::steady_clock::now();
  const int threads = options.threads > 0
                          ? options.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto made = sluice::make_model(options.shape, options.out, threads);
  if (!made.ok()) {
    std::fputs(fmt::format("make_model: {}\n", made.error().message).c_str(), stderr);
    return static_cast<int>(made.error().code);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::fputs(fmt::format("wrote '{}': {:.1f} million parameters, {:.1f} MiB, {:.1f} s\n",
                         options.out, static_cast<double>(made->parameters) * 1e-6,
                         static_cast<double>(made->bytes) / 1048576, seconds.count())
                 .c_str(),
             stderr);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fputs(fmt::format("make_model: {}\n", error.what()).c_str(), stderr);
    return 1;
  }
}
