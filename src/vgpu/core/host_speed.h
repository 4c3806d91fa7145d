// How fast this machine is at what PyTorch's host code does. Internal to the core.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpucast::vgpu {

// Does a fixed amount of work and returns its nanoseconds. Like PyTorch's own code it allocates and frees small blocks and reads memory in
// no order. It is done twice and measured the second time: with cold caches its time says more about memory than about the processor. About
// 5 to 10 us.
int64_t yardstick_ns();

// The machine's speed changes while a script runs, so it is measured again and again.
class HostSpeed {
 public:
  void add(int64_t yardstick_ns);
  // How long the host of a card needs for what takes this machine 1 second. `reference_ns`: its yardstick.
  double share(int64_t reference_ns) const;

 private:
  static constexpr size_t kKept = 5;
  std::array<int64_t, kKept> last_ = {};
  size_t count_ = 0;
};

}  // namespace gpucast::vgpu
