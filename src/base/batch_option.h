// The names that training scripts give to the batch size of one card.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpucast {

// "batch_size", "per_device_train_batch_size", ...: lower case, with "_".
const std::vector<std::string>& batch_names();

// Whether the word names the batch: "--batch-size", "-b", "train.batch_size", "+data.batch", "SOLVER.IMS_PER_BATCH". Without a value.
bool is_batch_word(std::string_view word);

// Whether a batch word says that it is the batch of one card, where another may be the one of all: "--micro-batch-size".
bool is_card_batch_word(std::string_view word);

// Whether the word names the number of batches between two optimizer steps: "--gradient-accumulation-steps".
bool is_accumulation_word(std::string_view word);

}  // namespace gpucast
