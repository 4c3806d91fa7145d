#include "src/schedule/step_constants.h"

#include "src/base/constants_file.h"
#include "step_json.h"

namespace gpucast {

StepConstants read_step_constants(const std::string& file) {
  const ConstantSection section("step", kStepJson, file);
  return {.call_ns = section.number("host", "call_ns"),
          .yardstick_ns = section.number("host", "yardstick_ns"),
          .fast_host = section.number("host", "fast"),
          .slow_host = section.number("host", "slow"),
          .latency_ns = section.number("host", "latency_ns"),
          .reached = section.number("streams", "reached"),
          .recorded_ns = section.number("observing", "recorded_ns"),
          .hook_ns = section.number("observing", "hook_ns"),
          .mark_ns = section.number("observing", "mark_ns"),
          .timed_factor = section.number("observing", "timed_factor"),
          .untimed_factor = section.number("observing", "untimed_factor"),
          .least_share = section.number("observing", "least_share"),
          .empty_ns = section.number("counters", "empty_ns"),
          .uneven = section.number("counters", "uneven"),
          .most_empty = section.number("counters", "most_empty"),
          .busy_warps = section.number("counters", "busy_warps"),
          .early_warps = section.number("counters", "early_warps"),
          .known_share = section.number("known", "share"),
          .known_width = section.number("known", "width")};
}

const StepConstants& step_constants() {
  static const StepConstants built_in = read_step_constants("");
  return built_in;
}

}  // namespace gpucast
