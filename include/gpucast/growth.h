// Memory that grows from step to step, as plain structs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpucast {

// A place of the script that made kept tensors: the stack of their allocation, innermost first, and the module.
struct GrowthPlace {
  int64_t bytes_per_step = 0, tensors = 0;  // tensors: all that are kept
  std::string phase, module;
  std::vector<std::string> stack;  // "train.py:17 main"
};

// A collection or variable that keeps tensors of past steps.
struct GrowthHolder {
  int64_t bytes_per_step = 0;
  std::string name;                  // "losses", "trainer.outputs"; "": nothing in Python was found that holds them
  std::string what;                  // "a variable of main()"
  std::string container;             // list, dict, set, deque, hooks, variable; "": unknown
  int64_t length = 0;                // of the collection
  int64_t bound = 0;                 // its own greatest length; 0: none
  bool removes = false;              // the script also takes entries out
  bool graph = false;                // through autograd's graph of a tensor
  std::string node;                  // that tensor's own node: "AddBackward0"
  bool replaced = false;             // one tensor, replaced by a larger one each step
  std::vector<std::string> kept_at;  // lines of the script that add to it: "train.py:31"
  std::vector<GrowthPlace> made;     // the largest first
  std::string remedy;                // a sentence
};

struct Growth {
  std::string kind = "allocated";  // or "reserved": segments that grow while tensors do not (fragmentation)
  int64_t bytes_per_step = 0;
  int64_t rise_per_step = 0;  // if each step adds more than the one before: by this much more
  int64_t every_steps = 1;    // it grows once in this number of steps
  int64_t steps = 0;          // captured
  int64_t fills_bytes = 0;    // it ends after this much more, at a bound of the collection; 0: no bound is known
  std::optional<int64_t> oom_step;
  bool oom_step_exact = false;  // from a replay of its steps; else from the pace
  std::vector<GrowthHolder> holders;
};

}  // namespace gpucast
