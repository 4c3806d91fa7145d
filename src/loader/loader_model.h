// A DataLoader's time for a batch with any number of workers, from its record and the training machine.
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
  double cores = 0;      // of the training machine; 0: the same as on the measured machine
  int64_t ranks = 1;     // of the training machine, each with its own loader
  double cpu_speed = 1;  // a training machine's core over a measured machine's core
  std::optional<StorageTier> storage;
};

// The time of a batch in the script's own loop.
struct LoopBatch {
  double ns = 0;  // 0: unknown
  double cpu_ns = 0;
};

// What limits the rate of the workers.
enum class LoaderLimit : uint8_t { workers, cores, storage, pinning };
const char* loader_limit_name(LoaderLimit limit);

struct BatchTime {
  TimeRange time;
  LoaderLimit limit = LoaderLimit::workers;
};

struct LoaderModel {
  TimeRange inline_batch;            // in the training process itself: 0 workers
  std::vector<Scalability> laws;     // of the workers; rates are in batches a second
  double worker_cpu_ns = 0;          // of one batch, in its worker
  double worker_cpu_share = 1;       // of a worker's time for a batch; in the rest of it the worker waits for a disk, a network or a clock
  double take_ns = 0;                // the training process's time to get a batch that is ready
  double pin_ns = 0;                 // the time of its pinning thread, which gets the batch and copies it to pinned memory
  double read_bytes = 0, files = 0;  // of a batch
  double cached_share = 0;           // the share of the bytes that came from memory
  double cores = 1;                  // of the workers and the training process, as a number of cores at full speed
  std::vector<double> variation;     // of single batches, mean 1
  bool measured = false;             // else estimated from the script's own loop and from typical loaders
  LoaderHost host;
  LoaderConstants constants;

  // The time from one batch to the next. `busy_ns`: the training process's other CPU time for each batch.
  BatchTime batch(int64_t workers, double busy_ns) const;
  // The time on the training machine (`host`) of a batch for which one process needs `ns` on the measured machine.
  double moved_ns(double ns, double cpu_share) const;
  double storage_wait_ns() const;

  mutable std::map<int64_t, Rate> rates;  // cache by workers: a table of cards uses the laws' rates again and again
};

// `loop`: a batch without workers. Unset: nothing is known about the loader's speed.
std::optional<LoaderModel> loader_model(const LoaderRecord& loader, const LoopBatch& loop, const LoaderHost& host,
                                        const LoaderConstants& constants);

// The measured time from one batch of the script's DataLoader to the next, with the script's number of workers. Unset: it was not measured,
// or the script has no DataLoader.
std::optional<TimeRange> loader_batch_time(const LoaderRecord& loader);

}  // namespace gpucast
