// What NCCL's environment variables allow it to choose.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/time/operation.h"

namespace gpucast {

enum class NcclAlgorithm : uint8_t { tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat, count_ };
enum class NcclProtocol : uint8_t { ll, ll128, simple, count_ };
const char* nccl_algorithm_name(NcclAlgorithm algorithm);  // as in NCCL_ALGO: "Ring"
const char* nccl_protocol_name(NcclProtocol protocol);

struct NcclSettings {
  static constexpr size_t kKinds = static_cast<size_t>(CollectiveKind::count_);
  static constexpr uint32_t kAll = ~uint32_t{0};
  uint32_t algorithms[kKinds], protocols[kKinds];  // bits by kind of collective
  bool forces_ll128[kKinds] = {};                  // named by NCCL_PROTO: used on any link
  int64_t most_channels = 0, least_channels = 0;   // 0: NCCL's own
  bool peer = true;                                // cards of a node address each other
  bool peer_through_processor = false;             // also where only a processor connects them
  bool multicast = true;                           // NVLS

  NcclSettings();
  bool allows(CollectiveKind kind, NcclAlgorithm algorithm) const {
    return (algorithms[static_cast<size_t>(kind)] >> static_cast<int>(algorithm) & 1) != 0;
  }
  bool allows(CollectiveKind kind, NcclProtocol protocol) const {
    return (protocols[static_cast<size_t>(kind)] >> static_cast<int>(protocol) & 1) != 0;
  }
};

// Reads NCCL_ALGO, NCCL_PROTO, NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, NCCL_NVLS_ENABLE, NCCL_MAX_NCHANNELS (or _CTAS) and NCCL_MIN_NCHANNELS.
// Ignores other variables. Throws Error for a value that NCCL refuses.
NcclSettings read_nccl_settings(const std::map<std::string, std::string>& environment);

}  // namespace gpucast
