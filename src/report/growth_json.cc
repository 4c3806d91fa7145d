#include "src/report/growth_json.h"

#include "src/report/json_parts.h"
#include "src/report/user_frame.h"

namespace gpucast {
namespace {

Json growth_place_json(const GrowthPlace& made) {
  Place place;
  place.stack = made.stack;
  const std::string frame = user_frame(place);
  return {{"bytes_per_step", made.bytes_per_step},        {"tensors", made.tensors}, {"phase", made.phase}, {"module", made.module},
          {"line", frame.empty() ? Json() : Json(frame)}, {"stack", made.stack}};
}

Json growth_holder_json(const GrowthHolder& holder) {
  return {{"bytes_per_step", holder.bytes_per_step},
          {"name", holder.name},
          {"what", holder.what},
          {"container", holder.container},
          {"length", holder.length},
          {"greatest_length", holder.bound > 0 ? Json(holder.bound) : Json()},
          {"graph", holder.graph},
          {"node", holder.node},
          {"replaced", holder.replaced},
          {"kept_at", holder.kept_at},
          {"made", list_json(holder.made, growth_place_json)},
          {"remedy", holder.remedy}};
}

}  // namespace

Json growth_json(const Growth& growth) {
  return {{"kind", growth.kind},
          {"bytes_per_step", growth.bytes_per_step},
          {"rise_per_step", growth.rise_per_step},
          {"every_steps", growth.every_steps},
          {"steps", growth.steps},
          {"fills_bytes", growth.fills_bytes > 0 ? Json(growth.fills_bytes) : Json()},
          {"oom_step", optional_json(growth.oom_step)},
          {"oom_step_exact", growth.oom_step_exact},
          {"holders", list_json(growth.holders, growth_holder_json)}};
}

}  // namespace gpucast
