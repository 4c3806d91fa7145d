// The actions of a replay, one JSON line for each event (docs/reference/event-format.md).
#pragma once

#include <ostream>

#include "gpucast/history.h"
#include "gpucast/replay.h"

namespace gpucast {

// Replays, and writes a line for each event, then the segments at the end and a summary.
ReplayResult replay_with_events(const History& history, const ReplaySettings& settings, std::ostream& out);

}  // namespace gpucast
