// How long a DataLoader takes for a batch, with any number of workers: from its record and the machine that trains.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "gpucast/loader.h"
#include "gpucast/storage.h"
#include "gpucast/time_range.h"
#include "src/loader/loader_constants.h"
#include "src/loader/scalability.h"

namespace gpucast {

struct LoaderHost {
  double cores = 0;      // of the machine that trains; 0: of the one that measured
  double cpu_speed = 1;  // each of them against one of those
  std::optional<StorageTier> storage;
};

// What a batch took in the script's own loop.
struct LoopBatch {
  double ns = 0;  // 0: unknown
  double cpu_ns = 0;
};

// What holds the workers back.
enum class LoaderLimit : uint8_t { workers, cores, storage, pinning };
const char* loader_limit_name(LoaderLimit limit);

struct BatchTime {
  TimeRange time;
  LoaderLimit limit = LoaderLimit::workers;
};

struct LoaderModel {
  TimeRange inline_batch;            // in the training process itself: 0 workers
  std::vector<Scalability> laws;     // of workers, in batches a second
  double worker_cpu_ns = 0;          // of one batch, in its worker
  double worker_cpu_share = 1;       // of a worker's time for a batch; the rest it waits for a disk, a network, a clock
  double take_ns = 0;                // the training process takes a batch that is there
  double pin_ns = 0;                 // its thread takes it instead, and copies it to pinned memory
  double read_bytes = 0, files = 0;  // of a batch
  double cached_share = 0;           // of the bytes: they came from memory
  double cores = 1;                  // that the workers and the training process share, in cores that work at full speed
  std::vector<double> variation;     // of single batches, mean 1
  bool measured = false;             // else from the script's own loop, and what loaders usually do
  LoaderHost host;
  LoaderConstants constants;

  // From one batch to the next. `busy_ns`: CPU time of the training process for each, beside taking it.
  BatchTime batch(int64_t workers, double busy_ns) const;
  // A batch that one process takes `ns` for here, where the training machine's disk and CPU are those of `host`.
  double moved_ns(double ns, double cpu_share) const;
  double storage_wait_ns() const;

  mutable std::map<int64_t, Rate> rates;  // by workers: the laws', which a table of cards asks for again and again
};

// `loop`: without workers. Unset: nothing is known of its speed.
std::optional<LoaderModel> loader_model(const LoaderRecord& loader, const LoopBatch& loop, const LoaderHost& host,
                                        const LoaderConstants& constants);

// From one batch of the script's DataLoader to the next, as it was measured, with the script's number of workers. Unset: it was not
// measured, or the script has none.
std::optional<TimeRange> loader_batch_time(const LoaderRecord& loader);

}  // namespace gpucast
