#include "src/kernels/stored_numbers.h"

#include <algorithm>
#include <memory>

#include "src/kernels/launch_memory.h"
#include "src/kernels/ptx_code.h"
#include "src/kernels/warp.h"

namespace gpucast {
namespace ptx {
namespace {

constexpr uint64_t kMostStoredBytes = 4 << 20;
// The most steps of a launch, and more for each byte that it stores. A kernel that sorts takes few; a loss that stores a zero for a label
// takes many.
constexpr uint64_t kFirstSteps = 200'000, kStepsOfByte = 64;

// One parameter of each load must lead to known values.
bool is_known(const std::vector<uint64_t>& loads, const Kernel& kernel, const KernelLaunch& launch, const KnownValue& known) {
  const auto leads = [&](size_t p) {
    const uint64_t pointer = integer_in(launch.parameters, kernel.parameters[p].offset, 8).value_or(0);
    return pointer != 0 && known && known(pointer, 1).has_value();
  };
  return std::all_of(loads.begin(), loads.end(), [&](uint64_t load) {
    for (size_t p = 0; p < std::min<size_t>(kernel.parameters.size(), 64); ++p) {
      if ((load >> p & 1) != 0 && leads(p)) return true;
    }
    return false;
  });
}

// The warps of a block take turns, one request for memory each, as they do on a card.
class Runner {
 public:
  Runner(const PtxModule& module, const Kernel& kernel, const KernelLaunch& launch, const KnownValue& known)
      : launch_(launch), memory_(known, shared_bytes_of(kernel, launch)) {
    const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
    for (uint32_t first = 0; first < threads; first += kLanes)
      warps_.push_back(std::make_unique<Warp>(module, kernel, launch, known, &memory_));
  }
  FoundNumbers run() {
    for (uint32_t z = 0; z < launch_.grid[2]; ++z) {
      for (uint32_t y = 0; y < launch_.grid[1]; ++y) {
        for (uint32_t x = 0; x < launch_.grid[0]; ++x) {
          if (const WhyNot why_not = run_block({x, y, z}); why_not != WhyNot::none) return {why_not, {}};
        }
      }
    }
    return {WhyNot::none, memory_.stored()};
  }

 private:
  WhyNot run_block(const std::array<uint32_t, 3>& block) {
    memory_.begin_block();
    for (uint32_t w = 0; w < warps_.size(); ++w) warps_[w]->begin(block, w);
    uint64_t steps_before = 0;
    for (;;) {
      bool any = false, all_wait = true;
      uint64_t steps = 0;
      for (auto& warp : warps_) {
        if (!warp->waits()) any = warp->take_turn() || any;
        all_wait = all_wait && (warp->waits() || warp->has_ended());
        steps += warp->steps();
        if (memory_.failed) return WhyNot::unknown;
      }
      steps_ += steps - steps_before;
      steps_before = steps;
      if (steps_ > kFirstSteps + kStepsOfByte * memory_.known_bytes() || memory_.known_bytes() > kMostStoredBytes) return WhyNot::too_long;
      if (any && !all_wait) continue;
      bool ended = true;
      for (auto& warp : warps_) ended = ended && warp->has_ended();
      if (ended) return WhyNot::none;
      for (auto& warp : warps_) warp->pass_barrier();
    }
  }

  const KernelLaunch& launch_;
  LaunchMemory memory_;
  std::vector<std::unique_ptr<Warp>> warps_;
  uint64_t steps_ = 0;
};

}  // namespace
}  // namespace ptx

bool may_store_numbers(const PtxModule& module, std::string_view name) {
  const auto found = module.kernels.find(name);
  return found != module.kernels.end() && !found->second.stored_numbers.empty();
}

FoundNumbers find_stored_numbers(const PtxModule& module, std::string_view name, const KernelLaunch& launch, const KnownValue& known) {
  const auto found = module.kernels.find(name);
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (found == module.kernels.end() || !module.follows_numbers || threads == 0 || threads > 1024 || launch.block[0] > 1024 ||
      launch.block[1] > 1024)
    return {WhyNot::no_numbers, {}};
  const ptx::Kernel& kernel = found->second;
  const bool stores = std::any_of(kernel.stored_numbers.begin(), kernel.stored_numbers.end(),
                                  [&](const auto& loads) { return ptx::is_known(loads, kernel, launch, known); });
  if (!stores) return {WhyNot::no_numbers, {}};
  return ptx::Runner(module, kernel, launch, known).run();
}

}  // namespace gpucast
