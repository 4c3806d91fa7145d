#include "src/run/own_ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "gpucast/error.h"

namespace gpucast::run {

std::optional<std::string> launcher_in(const std::vector<std::string>& command) {
  bool is_module = false;  // the word after -m
  for (const std::string& word : command) {
    if (word == "--") break;
    std::string name = word.substr(word.rfind('/') + 1);
    for (const char* launcher :
         {"torchrun", "accelerate", "deepspeed", "mpirun", "srun", "torch.distributed.run", "torch.distributed.launch"})
      if (name == launcher) return name;
    if (is_module || word.ends_with(".py")) break;
    is_module = word == "-m";
  }
  return std::nullopt;
}

std::vector<int64_t> parse_ranks(const char* option, const std::string& text, int64_t world_size) {
  std::vector<int64_t> ranks;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    char* end = nullptr;
    const int64_t rank = std::strtoll(word.c_str(), &end, 10);
    if (word.empty() || *end != '\0' || rank < 0 || rank >= world_size)
      throw Error(fmt::format("{}: '{}' is none of {} ranks", option, word, world_size), "",
                  fmt::format("name some of 0 to {}, such as 0,{}", world_size - 1, world_size - 1));
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void check_starts_no_ranks(const char* option, const std::vector<std::string>& command) {
  if (const auto launcher = launcher_in(command))
    throw Error(fmt::format("{} starts the ranks itself, and {} would, too", option, *launcher), "",
                fmt::format("give the command of one rank, without {}, or leave out the world size", *launcher));
}

void check_own_ranks(const std::vector<std::string>& command, int64_t world_size, const std::string& ranks) {
  if (world_size == 0 && !ranks.empty())
    throw Error("--ranks says which ranks of a larger job run", "", "say how many it has: --world-size N");
  if (world_size == 0) return;
  check_starts_no_ranks("--world-size", command);
  if (!ranks.empty()) (void)parse_ranks("--ranks", ranks, world_size);
}

}  // namespace gpucast::run
