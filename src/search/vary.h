// What a search varies: an option of the command, a key of its settings file, or the batch size of its DataLoader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/search/run_spec.h"

namespace gpucast::search {

enum class VaryKind : uint8_t { option, file_key, loader };

struct Vary {
  std::string name;  // for the report: "batch"
  VaryKind kind = VaryKind::option;
  std::string target;  // option: "--batch-size", "train.batch_size"; file_key: "train.batch_size"; loader: ""
  std::string file;    // of a file_key: the word of the command that names it
  int64_t low = 1, high = 1 << 16, step = 1;
  std::optional<int64_t> now;  // the command's own value
};

// "batch=--batch-size:1..512", "size=--img-size:224..1024/32", "batch=config.yaml:train.batch_size:1..64", "batch=loader". Without bounds:
// 1..65536. `command`: to find the present value. Throws Error.
Vary parse_vary(const std::string& text, const std::vector<std::string>& command);

// The batch of this command: an option that it has. Without it, what to try in turn: one key of a settings file that it names, an option
// that the script declares, its DataLoader.
std::vector<Vary> find_batches(const std::vector<std::string>& command, const std::string& folder);

// The command with that value. Edited copies of settings files go to `folder`. Throws Error.
RunSpec with_value(const RunSpec& spec, const Vary& vary, int64_t value, const std::string& folder);

// "--batch-size", "train.batch_size in config.yaml".
std::string target_text(const Vary& vary);

// "--batch-size 32", "batch_size of the DataLoader".
std::string setting_text(const Vary& vary, int64_t value);

}  // namespace gpucast::search
