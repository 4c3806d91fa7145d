#include "src/predict/place.h"

#include <fmt/core.h>

namespace gpucast {

Place place_of_event(const Trace& trace, const Attribution& attribution, uint32_t event) {
  Place place;
  place.event = event;
  if (trace.header.source != "snapshot") {
    const Span& span = span_of_event(attribution, event);
    place.phase = phase_name(span.phase);
    place.step = span.step;
    place.module = module_label(trace, span.module);
  }
  const StackId id = event < trace.events.size() ? trace.events[event].stack : StackId();
  if (!id.valid() || id.index() >= trace.stacks.size()) return place;
  const Stack& stack = trace.stacks[id.index()];
  for (uint32_t i = stack.first_frame; i < stack.first_frame + stack.frame_count; ++i) {
    const Frame& frame = trace.frames[trace.stack_frames[i].index()];
    place.stack.push_back(fmt::format("{}:{} {}", trace.strings.text(frame.file), frame.line, trace.strings.text(frame.function)));
  }
  return place;
}

}  // namespace gpucast
