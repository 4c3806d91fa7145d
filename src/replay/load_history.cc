#include "src/replay/load_history.h"

#include "gpucast/error.h"

namespace gpucast {

LoadedHistory load_history(const std::string& path, std::optional<int> device) {
  LoadedHistory out;
  if (looks_like_events(path)) {
    if (device) throw Error("--device was given, and an event file has one device only", path, "leave --device out");
    out.history = read_events(path);
    return out;
  }
  try {
    out.trace = read_trace(path, device);
  } catch (const Error& error) {
    if (error.where == path || error.hint.find("gpucast run") == std::string::npos) throw;
    throw Error(error.what(), error.where,
                error.hint + "; memory snapshots and event files (docs/reference/event-format.md) can be replayed too");
  }
  out.history = history_from_trace(*out.trace);
  return out;
}

}  // namespace gpucast
