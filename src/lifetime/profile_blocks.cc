#include "src/lifetime/profile_blocks.h"

#include <optional>
#include <unordered_map>

namespace gpucast {

ProfileBlocks pair_blocks(const std::vector<ProfileMemory>& memory, int device_type) {
  ProfileBlocks out;
  std::vector<ProfileBlock> before;
  std::unordered_map<uint64_t, uint32_t> live;  // address -> block
  std::optional<int16_t> device;
  for (uint32_t i = 0; i < memory.size(); ++i) {
    const ProfileMemory& event = memory[i];
    if (event.device_type != device_type || event.bytes == 0) continue;
    if (!device) device = event.device_id;
    if (event.device_id != *device) continue;
    if (event.bytes > 0) {
      const auto [at, fresh] = live.try_emplace(event.address, static_cast<uint32_t>(out.blocks.size()));
      if (!fresh) {
        ++out.frees_missing;
        out.blocks[at->second].free_event = i;
        at->second = static_cast<uint32_t>(out.blocks.size());
      }
      out.blocks.push_back({event.address, event.bytes, i, ProfileBlock::kNever});
      out.allocated_bytes += event.bytes;
      continue;
    }
    const auto found = live.find(event.address);
    if (found == live.end()) {
      before.push_back({event.address, -event.bytes, ProfileBlock::kNever, i});
      continue;
    }
    out.blocks[found->second].free_event = i;
    live.erase(found);
  }
  out.blocks.insert(out.blocks.end(), before.begin(), before.end());
  return out;
}

}  // namespace gpucast
