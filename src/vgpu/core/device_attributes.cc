#include "src/vgpu/core/device_attributes.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/occupancy/occupancy.h"
#include "src/vgpu/core/devices.h"

namespace gpucast::vgpu {

bool device_attribute(int attribute, int* value) {
  const DeviceProfile& p = profile();
  const bool ampere = p.compute_major >= 8, hopper = p.compute_major >= 9;
  switch (attribute) {
    // clang-format off
    case 1: *value = 1024; return true;                      // threads per block
    case 2: case 3: *value = 1024; return true;              // block x, y
    case 4: *value = 64; return true;                        // block z
    case 5: *value = INT_MAX; return true;                   // grid x
    case 6: case 7: *value = 65535; return true;             // grid y, z
    case 8: *value = p.shared_memory_per_block_bytes; return true;
    case 9: *value = 65536; return true;                     // constant memory
    case 10: *value = 32; return true;                       // warp
    case 11: *value = INT_MAX; return true;                  // pitch
    case 12: *value = 65536; return true;                    // registers per block
    case 13: *value = p.clock_khz; return true;
    case 14: *value = 512; return true;                      // texture alignment
    case 15: *value = 1; return true;                        // copy while a kernel runs
    case 16: *value = p.multiprocessors; return true;
    case 17: *value = 0; return true;                        // run time limit
    case 18: *value = 0; return true;                        // integrated
    case 19: *value = 1; return true;                        // maps host memory
    case 20: *value = 0; return true;                        // compute mode: default
    case 21: case 22: case 42: case 55: *value = attribute == 42 || attribute == 55 ? 32768 : 131072; return true;
    case 23: *value = 65536; return true;
    case 24: case 25: case 26: case 58: case 59: case 60: *value = 16384; return true;
    case 27: case 28: case 45: case 46: case 49: case 52: case 53: *value = 32768; return true;
    case 29: case 43: case 62: case 65: *value = 2048; return true;
    case 30: *value = 512; return true;                      // surface alignment
    case 31: *value = 1; return true;                        // concurrent kernels
    case 32: *value = 0; return true;                        // ECC
    case kPciBusAttribute: *value = pci_bus(0); return true;
    case 34: *value = 0; return true;                        // PCI device
    case 35: *value = 0; return true;                        // TCC
    case 36: *value = p.memory_clock_khz; return true;
    case 37: *value = p.memory_bus_width_bits; return true;
    case 38: *value = static_cast<int>(p.l2_bytes); return true;
    case 39: *value = p.max_threads_per_multiprocessor; return true;
    case 40: *value = 2; return true;                        // copy engines
    case 41: *value = 1; return true;                        // unified addressing
    case 47: case 48: *value = 8192; return true;
    case 50: *value = 0; return true;                        // PCI domain
    case 51: *value = 32; return true;                       // texture pitch alignment
    case 54: case 68: *value = 2046; return true;
    case 56: *value = 131072; return true;
    case 57: *value = 65536; return true;
    case 61: case 63: case 64: case 66: case 67: *value = 32768; return true;
    case 69: *value = 268435456; return true;
    case 70: *value = 131072; return true;
    case 71: *value = 65000; return true;
    case 72: *value = 2097120; return true;
    case 73: case 74: case 77: *value = 32768; return true;
    case 75: *value = p.compute_major; return true;
    case 76: *value = p.compute_minor; return true;
    case 78: case 79: case 80: *value = 1; return true;      // stream priorities, L1 caches
    case 81: *value = p.shared_memory_per_multiprocessor_bytes; return true;
    case 82: *value = p.registers_per_multiprocessor; return true;
    case 83: *value = 1; return true;                        // managed memory
    case 84: case 85: case 86: *value = 0; return true;      // multi-GPU board, native host atomics
    case 87: *value = p.compute_minor == 0 && p.compute_major != 10 ? 2 : 32; return true;
    case 88: *value = 0; return true;                        // pageable memory access
    case 89: case 90: case 91: *value = 1; return true;
    case 92: case 93: case 94: *value = 0; return true;      // stream memory operations
    case 95: case 96: *value = 1; return true;               // cooperative launch
    case 97: *value = p.shared_memory_per_block_optin_bytes; return true;
    case 98: *value = 0; return true;
    case 99: *value = 1; return true;                        // host register
    case 100: case 101: *value = 0; return true;
    case 102: *value = 1; return true;                       // virtual memory management
    case 103: *value = 1; return true;                       // POSIX file descriptors for it
    case 104: case 105: *value = 0; return true;
    case 106: *value = p.max_blocks_per_multiprocessor; return true;
    case 107: *value = 0; return true;
    case 108: *value = ampere ? static_cast<int>(p.l2_bytes / 100 * kPersistingL2Percent) : 0; return true;
    case 109: *value = ampere ? 134213632 : 0; return true;  // access policy window
    case 110: *value = 0; return true;
    case 111: *value = ampere ? kReservedSharedBytes : 0; return true;
    case 112: case 113: case 114: *value = attribute != 113; return true;
    case 115: *value = 1; return true;                       // memory pools
    case 116: case 117: case 118: *value = 0; return true;   // GPUDirect
    case 119: *value = 1; return true;                       // POSIX file descriptors for pools
    case 120: *value = hopper; return true;                  // clusters
    case 121: *value = 1; return true;
    case 122: case 123: case 124: *value = 0; return true;
    case 125: *value = 1; return true;                       // IPC events
    case 126: *value = hopper ? 4 : 1; return true;          // memory synchronization domains
    case 127: *value = hopper; return true;                  // tensor maps
    case 128: case 129: case 130: case 132: case 133: *value = 0; return true;  // fabric handles, NUMA, multicast, MPS
    case 131: case 134: *value = -1; return true;            // NUMA node: none
    // clang-format on
    default:
      *value = 0;
      return attribute > 0 && attribute < 148;
  }
}

void device_uuid(int physical, unsigned char uuid[16]) {
  // Derived from the name and the number: the same card has the same UUID in every run, and two cards differ.
  uint64_t hash = 14695981039346656037u ^ static_cast<uint64_t>(physical);
  for (const char* c = profile().name; *c != '\0'; ++c) hash = (hash ^ static_cast<unsigned char>(*c)) * 1099511628211u;
  std::memcpy(uuid, "gpucast", 8);  // its terminator too: 8 bytes
  std::memcpy(uuid + 8, &hash, 8);
}

void pci_bus_id(int physical, char text[kPciBusIdSize]) {
  std::snprintf(text, kPciBusIdSize, "0000:%02x:00.0", static_cast<unsigned char>(pci_bus(physical)));
}

int physical_by_pci_bus_id(const char* text) {
  // The domain has four or eight digits, or is missing.
  const char* const bus = std::strchr(text, ':') == std::strrchr(text, ':') ? text : std::strchr(text, ':') + 1;
  const int physical = static_cast<int>(std::strtol(bus, nullptr, 16)) - pci_bus(0);
  return physical >= 0 && physical < physical_device_count() ? physical : -1;
}

int occupancy_blocks(const KernelResources& kernel, int block_threads, uint64_t dynamic_shared_bytes) {
  const DeviceProfile& p = profile();
  const CapabilityRules* rules = find_capability_rules(p.compute_major, p.compute_minor);
  if (rules == nullptr) rules = find_capability_rules(8, 0);
  OccupancyCard card;
  card.rules = rules;
  card.multiprocessors = p.multiprocessors;
  card.most_threads = p.max_threads_per_multiprocessor;
  card.most_blocks = p.max_blocks_per_multiprocessor;
  card.registers = p.registers_per_multiprocessor;
  card.shared_bytes = p.shared_memory_per_multiprocessor_bytes;
  card.block_shared_bytes = std::max(p.shared_memory_per_block_optin_bytes, p.shared_memory_per_block_bytes);
  KernelResources resources = kernel;
  if (resources.registers == 0) resources.registers = kAssumedRegisters;
  constexpr uint64_t kMostBytes = INT32_MAX;
  return blocks_per_multiprocessor(card, resources, block_threads, static_cast<int64_t>(std::min(dynamic_shared_bytes, kMostBytes))).blocks;
}

}  // namespace gpucast::vgpu
