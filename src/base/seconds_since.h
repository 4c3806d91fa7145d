// Elapsed time, by a clock that is never set back.
#pragma once

#include <chrono>

namespace gpucast {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace gpucast
