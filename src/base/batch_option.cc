#include "src/base/batch_option.h"

#include <algorithm>
#include <iterator>

namespace gpucast {
namespace {

// "--Per-Device.Batch-Size" -> "batch_size": the last part, in lower case.
std::string plain_name(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of("-+"), word.size()));
  word.remove_prefix(word.rfind('.') == std::string_view::npos ? 0 : word.rfind('.') + 1);
  std::string name(word);
  std::ranges::transform(name, name.begin(), [](char c) { return c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return name;
}

}  // namespace

const std::vector<std::string>& batch_names() {
  static const std::vector<std::string> kNames = {"batch",
                                                  "batch_size",
                                                  "batchsize",
                                                  "bs",
                                                  "bsz",
                                                  "micro_batch",
                                                  "micro_batch_size",
                                                  "micro_bs",
                                                  "mbs",
                                                  "local_batch_size",
                                                  "device_batch_size",
                                                  "train_batch",
                                                  "train_batch_size",
                                                  "batch_size_train",
                                                  "batch_size_per_gpu",
                                                  "batch_size_per_device",
                                                  "per_device_batch_size",
                                                  "per_device_train_batch_size",
                                                  "per_gpu_train_batch_size",
                                                  "per_gpu_batch_size",
                                                  "train_micro_batch_size_per_gpu",
                                                  "device_train_microbatch_size",
                                                  "samples_per_gpu",
                                                  "images_per_gpu",
                                                  "imgs_per_gpu",
                                                  "ims_per_batch"};
  return kNames;
}

bool is_batch_word(std::string_view word) {
  if (word == "-b") return true;
  const bool one_dash = word.starts_with('-') && !word.starts_with("--");
  if (one_dash && word.size() == 2) return false;  // "-d" and the like
  return std::ranges::find(batch_names(), plain_name(word)) != batch_names().end();
}

bool is_card_batch_word(std::string_view word) {
  static constexpr std::string_view kMarks[] = {"micro", "mbs", "local", "device", "per_gpu"};
  const std::string name = plain_name(word);
  return std::ranges::any_of(kMarks, [&](std::string_view mark) { return name.find(mark) != std::string::npos; });
}

bool is_accumulation_word(std::string_view word) {
  static constexpr std::string_view kNames[] = {"gradient_accumulation_steps",
                                                "grad_accumulation_steps",
                                                "accumulate_grad_batches",
                                                "grad_accum_steps",
                                                "grad_acc_steps",
                                                "accumulation_steps",
                                                "gradient_accumulation",
                                                "grad_accum",
                                                "accum_steps",
                                                "iters_to_accumulate",
                                                "accumulate"};
  return std::ranges::find(kNames, plain_name(word)) != std::end(kNames);
}

}  // namespace gpucast
