// What a user writes for each change that `gpucast advise` found.

#include <fmt/core.h>

#include "gpucast/advise.h"
#include "src/explain/what_if.h"

namespace gpucast {
namespace {

std::string in_parts(const std::string& parts, const std::string& did) {
  const std::string batch = did.substr(0, did.find(", and "));  // "--batch-size 16 became 8", "batch_size 16 of a DataLoader became 8"
  return fmt::format(
      "{}; (loss / {}).backward(), and optimizer.step() and zero_grad() after each {} of them (a Trainer: --gradient_accumulation_steps "
      "{})",
      batch.empty() ? "a batch of one part" : batch, parts, parts, parts);
}

std::string recomputed(const std::string& modules) {
  const size_t equals = modules.find('=');
  const std::string type = modules.substr(0, equals);
  const std::string which =
      equals == std::string::npos ? "" : fmt::format(", for numbers {} of them only, from 0", modules.substr(equals + 1));
  return fmt::format("torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False) where each {} is called{}", type, which);
}

std::string sharded(const std::string& degree, const std::string& did) {
  const std::string parts = did.substr(0, did.find(" sharded over"));  // "12 Block, GPT"
  const std::string mesh =
      degree.empty()
          ? ""
          : fmt::format("; each with mesh=init_device_mesh(\"cuda\", (ranks // {0}, {0}), mesh_dim_names=(\"replicate\", \"shard\"))",
                        degree);
  return fmt::format(
      "torch.distributed.fsdp.fully_shard(block) for each block, then fully_shard(model), instead of DistributedDataParallel(model) ({}), "
      "before the optimizer is made{}; model.module is the model, and no_sync() is model.set_requires_gradient_sync(False)",
      parts, mesh);
}

std::string kernel_name(const std::string& kernel) {
  if (kernel == "flash") return "FLASH_ATTENTION";
  if (kernel == "efficient") return "EFFICIENT_ATTENTION";
  return kernel == "cudnn" ? "CUDNN_ATTENTION" : "MATH";
}

}  // namespace

std::string settings_to_write(const std::string& settings) { return "PYTORCH_CUDA_ALLOC_CONF=" + settings + " in the environment"; }

std::string change_to_write(const std::string& what_if, const std::string& did) {
  const std::string kind = what_if_kind(what_if), argument = what_if_argument(what_if);
  if (kind == kMicroBatch) return in_parts(argument, did);
  if (kind == kHalfBatch) return did;
  if (kind == kFsdp) return sharded(argument, did);
  if (kind == "checkpoint") return recomputed(argument);
  if (kind == "attention")
    return fmt::format("with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.{}): around the training", kernel_name(argument));
  if (kind == "set-to-none") return "optimizer.zero_grad(), without set_to_none=False";
  if (kind == "no-foreach") return "foreach=False in the optimizer's constructor";
  if (kind == "foreach") return "foreach=True in the optimizer's constructor";
  if (kind == "fused") return "fused=True in the optimizer's constructor";
  if (kind == kCompile) return "model.compile() after the model is made, or model = torch.compile(model)";
  if (kind == "bf16") return "with torch.autocast(\"cuda\", dtype=torch.bfloat16): around the model and its loss";
  if (kind == "bf16-weights")
    return "model.to(torch.bfloat16) before the optimizer is made, and model(x.to(torch.bfloat16)) for inputs of float32";
  if (kind == "chunked-loss")
    return fmt::format(
        "the logits and their cross entropy under torch.utils.checkpoint for each of {} chunks of tokens (docs/howto/make-it-fit.md)",
        argument);
  if (kind == "8bit-optimizer") return "bitsandbytes.optim.AdamW8bit instead of Adam or AdamW";
  if (kind == "factored-optimizer") return "torch.optim.Adafactor instead of Adam or AdamW";
  if (kind == "optimizer-in-backward")
    return "one optimizer for each parameter, stepped by parameter.register_post_accumulate_grad_hook (docs/howto/make-it-fit.md)";
  if (kind == "offload-optimizer")
    return "one optimizer for each parameter, its state in pinned memory between steps (docs/howto/make-it-fit.md)";
  return what_if;
}

}  // namespace gpucast
