#include "src/vgpu/core/launch_numbers.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "gpucast/error.h"
#include "src/kernels/stored_numbers.h"
#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/hashing.h"

namespace gpucast::vgpu {
namespace {

constexpr size_t kMostKeptBytes = 64 << 20;

struct Numbers {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<const PtxModule>> modules;   // by the code's hash; null: no PTX
  std::map<uint64_t, std::shared_ptr<const FoundNumbers>> found;  // by all that they depend on
  std::set<uint64_t> long_launches;                               // by code and sizes
  size_t kept_bytes = 0;
};

Numbers& numbers() {
  static Numbers* const kNumbers = new Numbers;  // never destroyed: libraries call until the very end
  return *kNumbers;
}

thread_local std::shared_ptr<const FoundNumbers> t_last;

std::shared_ptr<const PtxModule> module_of(Numbers& all, const KernelCode& code) {
  const auto [found, added] = all.modules.try_emplace(code.hash);
  if (added) {
    try {
      found->second = parse_ptx_with_stored_numbers(code.ptx);
    } catch (const Error&) {
      found->second = nullptr;
    }
  }
  return found->second;
}

std::optional<uint64_t> value_at(std::span<const LaunchValuesRef> known, uint64_t address, int bytes) {
  for (const LaunchValuesRef& one : known) {
    if (const auto value = integer_in(one->bytes, address - one->address, static_cast<size_t>(bytes))) return value;
  }
  return std::nullopt;
}

std::shared_ptr<const FoundNumbers> find(const char* kernel, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                                         const CompiledLaunch& launch) {
  Numbers& all = numbers();
  const std::lock_guard lock(all.mutex);
  const auto module = module_of(all, *launch.code);
  if (module == nullptr || !may_store_numbers(*module, kernel)) return nullptr;
  const uint64_t sizes = mix_hash(launch_hash(kernel, grid, block), launch.code->hash);
  if (all.long_launches.contains(sizes)) return nullptr;
  const uint64_t key = compiled_hash(launch_hash(kernel, grid, block), dynamic_shared_bytes, launch);
  if (const auto found = all.found.find(key); found != all.found.end()) return found->second;
  KernelLaunch what;
  std::copy_n(grid, 3, what.grid.begin());
  std::copy_n(block, 3, what.block.begin());
  what.dynamic_shared_bytes = static_cast<uint32_t>(dynamic_shared_bytes);
  what.parameters = launch.parameters;
  const KnownValue known = [&](uint64_t address, int bytes) { return value_at(launch.values, address, bytes); };
  auto out = std::make_shared<const FoundNumbers>(find_stored_numbers(*module, kernel, what, known));
  if (out->why_not == WhyNot::too_long) all.long_launches.insert(sizes);
  size_t bytes = sizeof *out;
  for (const StoredNumbers& one : out->stored) bytes += one.bytes.size() + sizeof one;
  if (all.kept_bytes + bytes > kMostKeptBytes) all.found.clear(), all.kept_bytes = 0;
  all.kept_bytes += bytes;
  all.found[key] = out;
  return out;
}

}  // namespace

void note_stored_numbers(const char* kernel, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                         const CompiledLaunch& launch) {
  t_last = nullptr;
  if (launch.code == nullptr) return;
  const int64_t begin_ns = machine_ns(CLOCK_MONOTONIC);
  t_last = find(kernel, grid, block, dynamic_shared_bytes, launch);
  if (t_last != nullptr) {
    for (const StoredNumbers& one : t_last->stored) {
      if (one.known) {
        remember_values(one.address, one.bytes);
      } else {
        forget_values(one.address, one.bytes.size());
      }
    }
  }
  gpucast_vgpu_was_interrupted(machine_ns(CLOCK_MONOTONIC) - begin_ns);
}

void lock_numbers() { numbers().mutex.lock(); }
void unlock_numbers() { numbers().mutex.unlock(); }

}  // namespace gpucast::vgpu

int gpucast_vgpu_stored_numbers(uint64_t address, void* to, uint64_t size_bytes) {
  using namespace gpucast::vgpu;
  if (t_last == nullptr) return -1;
  const auto touches = [&](const gpucast::StoredNumbers& one) {
    return one.address < address + size_bytes && one.address + one.bytes.size() > address;
  };
  if (std::none_of(t_last->stored.begin(), t_last->stored.end(), touches)) return -1;
  return gpucast_vgpu_known_values(address, to, size_bytes) == size_bytes ? 1 : 0;
}
