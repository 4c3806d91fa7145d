#include "src/predict/place.h"

#include <fmt/core.h>

namespace gpucast {

std::vector<std::string> frames_of(const Trace& trace, StackId id) {
  std::vector<std::string> out;
  if (!id.valid() || id.index() >= trace.stacks.size()) return out;
  const Stack& stack = trace.stacks[id.index()];
  for (uint32_t i = stack.first_frame; i < stack.first_frame + stack.frame_count; ++i) {
    const Frame& frame = trace.frames[trace.stack_frames[i].index()];
    out.push_back(fmt::format("{}:{} {}", trace.strings.text(frame.file), frame.line, trace.strings.text(frame.function)));
  }
  return out;
}

Place place_of_event(const Trace& trace, const Attribution& attribution, uint32_t event) {
  Place place;
  place.event = event;
  if (trace.header.source != "snapshot") {
    const Span& span = span_of_event(attribution, event);
    place.phase = phase_name(span.phase);
    place.step = span.step;
    place.module = module_label(trace, span.module);
  }
  if (event < trace.events.size()) place.stack = frames_of(trace, trace.events[event].stack);
  return place;
}

}  // namespace gpucast
