// What a plan may choose: the number of cards, and values of the script's own flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/search/expression.h"

namespace gpucast::search {

// What a value splits, by which the search knows how memory and ranks depend on it.
enum class PlanRole : uint8_t { other, tensor, pipeline, context, expert, data, micro_batch };

struct PlanParameter {
  std::string name;   // "tp"
  std::string place;  // how the script gets it: "--tp", "train.batch" (train.batch=8), "env:TP"
  std::vector<std::string> values;
  PlanRole role = PlanRole::other;
};

// "tp=--tp:1,2,4" or "tp=--tp:1..8" (1,2,4,8). Without "--tp:" the place is taken from `known`. Throws Error.
PlanParameter parse_parameter(const std::string& text, const std::vector<PlanParameter>& known);

// "8..64": 8, 16, 32, 64. "8,24,64". In this order, each once. Throws Error, with the name of the option.
std::vector<int64_t> parse_counts(const std::string& text, const char* option);

// The parameters of this command's program (data/parallel_flags.json), without values. `varied`: the names to vary if the user names none.
struct KnownParameters {
  std::string program;  // "Megatron-LM"; "": not known
  std::vector<PlanParameter> all;
  std::vector<std::string> varied;
};
KnownParameters known_parameters(const std::vector<std::string>& command);

struct PlanSpace {
  std::vector<std::string> command;
  std::vector<int64_t> gpus;
  std::vector<PlanParameter> parameters;
  std::vector<Expression> constraints;
  int64_t node_cards = 8;
};

struct PlanChoice {
  int64_t gpus = 1;
  std::vector<std::string> values;  // of the parameters, in their order
};

// Adds what always holds, unless a constraint already names `world`: tp*pp*cp(*dp) divides, or is, the number of cards.
void add_usual_constraint(PlanSpace* space);

// All that meet the constraints, few cards first. Names in constraints: the parameters, world (or gpus), nodes, node_cards, and flags of
// the command with a number (--heads 32 is heads). Throws Error for an unknown name.
std::vector<PlanChoice> allowed_choices(const PlanSpace& space);

struct PlanCommand {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::optional<std::string>>> environment;
};
PlanCommand command_of(const PlanSpace& space, const PlanChoice& choice);

// The product of the sizes that split a replica of the model: tensor, pipeline and context parallel.
int64_t replica_cards(const PlanSpace& space, const PlanChoice& choice);
// The number of a role in a choice; 1 if nothing has it.
int64_t size_of(const PlanSpace& space, const PlanChoice& choice, PlanRole role);

}  // namespace gpucast::search
