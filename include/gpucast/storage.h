// What a batch takes from a disk: data/storage.json, or a bandwidth that the user names.
#pragma once

#include <string>
#include <vector>

namespace gpucast {

struct StorageTier {
  std::string name, what, source;
  double stream_bytes_per_s = 0;  // that one reader gets
  double device_bytes_per_s = 0;  // that all readers share
  double latency_ns = 0;          // of a file that is opened and read
};

const std::vector<StorageTier>& storage_tiers();
// "nvme", or bytes a second: "200MB/s", "1.5GiB/s", "200000000". Throws Error: what would do.
StorageTier find_storage(const std::string& text);

// A reader's wait for one batch, when nobody else reads.
double storage_ns(const StorageTier& tier, double bytes, double files);

}  // namespace gpucast
