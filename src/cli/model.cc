// `gpucast model`: starts the Python package's model (python/api/gpucast/model), for configs are read and scripts written for the
// transformers of that Python.

#include <fmt/core.h>

#include <string>
#include <vector>

#include "gpucast/error.h"
#include "src/cli/start_python.h"
#include "src/cli/subcommand.h"

namespace gpucast::cli {
namespace {

struct ModelOptions {
  std::string model, train = "full", precision = "bf16", optimizer, attention, gpu, write, output, python = "python3", format = "text";
  std::string batches, lengths, precisions;
  int64_t batch = 0, seq = 0, rank = 16, gpus = 1, new_tokens = 16;
  bool checkpointing = false, ddp = false, fsdp = false, zero3 = false;
  bool inference = false, table = false, list = false, trust_remote_code = false, force = false;
};

std::vector<std::string> model_words(const ModelOptions& options) {
  std::vector<std::string> words;
  const auto option = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.push_back(fmt::format("{}={}", name, value));
  };
  const auto number = [&](const char* name, int64_t value) {
    if (value > 0) words.push_back(fmt::format("{}={}", name, value));
  };
  const auto flag = [&](const char* name, bool given) {
    if (given) words.emplace_back(name);
  };
  option("--train", options.train);
  option("--precision", options.precision);
  option("--optimizer", options.optimizer);
  option("--attention", options.attention);
  option("--gpu", options.gpu);
  option("--write", options.write);
  option("--output", options.output);
  option("--format", options.format);
  option("--batches", options.batches);
  option("--lengths", options.lengths);
  option("--precisions", options.precisions);
  number("--batch", options.batch);
  number("--seq", options.seq);
  number("--rank", options.rank);
  number("--gpus", options.gpus);
  number("--new-tokens", options.new_tokens);
  flag("--checkpointing", options.checkpointing);
  flag("--ddp", options.ddp);
  flag("--fsdp", options.fsdp);
  flag("--zero3", options.zero3);
  flag("--inference", options.inference);
  flag("--table", options.table);
  flag("--list", options.list);
  flag("--trust-remote-code", options.trust_remote_code);
  flag("--force", options.force);
  words.emplace_back("--");
  words.push_back(options.model);
  return words;
}

int start_model(const ModelOptions& options) {
  if (options.model.empty() && !options.list)
    throw Error("no model is named", "",
                "gpucast model mistralai/Mistral-7B-v0.1 --gpu a100-80; `gpucast model --list` lists those that come along");
  if (options.ddp + options.fsdp + options.zero3 > 1)
    throw Error("--ddp, --fsdp and --zero3 are ways to divide the same job", "", "choose one of them");
  const bool divided = options.ddp || options.fsdp || options.zero3;
  if (divided != (options.gpus > 1))
    throw Error(divided ? "--ddp, --fsdp and --zero3 need several cards" : "several cards need a way to divide the job", "",
                divided ? "say how many: --gpus 8" : "add one of --ddp, --fsdp, --zero3");
  start_python(options.python, "gpucast_model.py", model_words(options));
}

}  // namespace

void declare_model(Arguments& arguments) {
  static ModelOptions options;
  arguments.option("MODEL", &options.model, "a Hugging Face id, or a folder or file with its config.json");
  arguments.option("--train", &options.train, "what is trained: all weights, or adapters on frozen or on 4-bit weights")
      .one_of({"full", "lora", "qlora"})
      .shows_default();
  arguments.option("--batch", &options.batch, "samples of a step on each card (default 1)").positive();
  arguments.option("--seq", &options.seq, "tokens of each sample (default 2048, or what the model allows)").positive();
  arguments
      .option("--precision", &options.precision,
              "bf16, fp16, fp32: of weights and all else; bf16-mixed, fp16-mixed: weights in fp32, with autocast")
      .one_of({"bf16", "bf16-mixed", "fp16", "fp16-mixed", "fp32"})
      .shows_default();
  arguments.option("--optimizer", &options.optimizer, "as the Trainer's argument optim names it: adamw_torch, adamw_8bit, adafactor, ...");
  arguments.flag("--checkpointing", &options.checkpointing, "recompute activations in backward");
  arguments.option("--attention", &options.attention, "attention kernels (default: the model's)")
      .one_of({"sdpa", "eager", "flash_attention_2"});
  arguments.option("--rank", &options.rank, "rank of the adapters of lora and qlora").positive().shows_default();
  arguments.option("--gpus", &options.gpus, "cards of the job").positive().shows_default();
  arguments.flag("--ddp", &options.ddp, "a replica on each card");
  arguments.flag("--fsdp", &options.fsdp, "fully sharded data parallel");
  arguments.flag("--zero3", &options.zero3, "DeepSpeed's ZeRO, stage 3");
  arguments.flag("--inference", &options.inference, "no training: weights, KV cache, peaks of prefill and decode");
  arguments.option("--new-tokens", &options.new_tokens, "tokens that --inference decodes").positive().shows_default();
  arguments.option("--gpu", &options.gpu, "the card (default: as `gpucast run`); with --table several, with commas, or all");
  arguments.flag("--table", &options.table, "precision by batch by card; with --inference length by batch by card");
  arguments.option("--precisions", &options.precisions, "rows of the table (default bf16,bf16-mixed,fp32)");
  arguments.option("--batches", &options.batches, "rows of the table (default 1,4,16)");
  arguments.option("--lengths", &options.lengths, "rows of the table of --inference (default 1024,4096,16384, as far as the model allows)");
  arguments.option("--write", &options.write, "keep the script in this file");
  arguments.flag("--force", &options.force, "overwrite the files of --write and --output");
  arguments.option("-o,--output", &options.output, "keep the capture in this file");
  arguments.flag("--trust-remote-code", &options.trust_remote_code, "allow Python code that comes with the model's repository to run");
  arguments.flag("--list", &options.list, "list the models that come along");
  arguments.option("--python", &options.python, "the Python with torch and transformers").shows_default();
  arguments.option("--format", &options.format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.action([] { return start_model(options); });
}

}  // namespace gpucast::cli
