// What a script's source declares: options, and numbers of the batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpucast::search {

// "--batch-size", ... : texts in quotes that begin with two dashes, in the script that the command runs and then in the files that it
// imports from its own folder. Nothing of them is executed.
std::vector<std::string> declared_options(const std::vector<std::string>& command, const std::string& folder);

// "--batch_size", ... : names of a batch that have a number in the script, where a library makes options of parameters, fields or
// globals (fire, tyro, HfArgumentParser, ...).
std::vector<std::string> named_batches(const std::vector<std::string>& command, const std::string& folder);

struct OptionNumber {
  std::string option;
  int64_t number = 0;  // as the source has it
};

// "--training.tokens_per_microbatch", ... : other numbers with "batch" in their names, in classes of settings that a library makes options
// of. An option begins with the names of the fields that hold its class.
std::vector<OptionNumber> batch_fields(const std::vector<std::string>& command, const std::string& folder);

// "train.py:8: batch_size = 64", ... : where the same files give a number to a name of the batch.
std::vector<std::string> batch_numbers(const std::vector<std::string>& command, const std::string& folder);

}  // namespace gpucast::search
