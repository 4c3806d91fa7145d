// The time to read a batch from a disk: data/storage.json, or a bandwidth given by the user.
#pragma once

#include <string>
#include <vector>

namespace gpucast {

struct StorageTier {
  std::string name, what, source;
  double stream_bytes_per_s = 0;  // for one reader
  double device_bytes_per_s = 0;  // shared by all readers
  double latency_ns = 0;          // to open and read a file
};

const std::vector<StorageTier>& storage_tiers();
// "nvme", or bytes a second: "200MB/s", "1.5GiB/s", "200000000". Throws Error with the valid forms.
StorageTier find_storage(const std::string& text);

// A reader's wait for one batch, without other readers.
double storage_ns(const StorageTier& tier, double bytes, double files);

}  // namespace gpucast
