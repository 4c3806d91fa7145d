// The DataLoader that fed a captured run: what its record says (docs/reference/capture-format.md), and how fast it feeds training.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gpucast {

// none: the script has no DataLoader. unused: its steps took no batch from one. dali: NVIDIA's pipeline feeds it.
enum class LoaderKind : uint8_t { unknown, none, unused, dali, dataloader };

// A few batches from a new iterator over the script's own dataset. All times are per batch.
struct LoaderRun {
  int64_t workers = 0, batches = 0;
  double start_ns = 0;                                    // until the first batch was there
  double period_ns = 0;                                   // from one batch to the next in a loop that does nothing else
  double fetch_ns = 0;                                    // dataset and collate, in the process that fetches
  double cpu_ns = 0;                                      // CPU time of that process
  double main_cpu_ns = 0;                                 // CPU time of the thread that takes batches
  double queue_ns = 0;                                    // the fetching thread was ready and had no CPU
  double others_cores = 0;                                // taken by other programs meanwhile
  int64_t batch_bytes = 0;                                // of its tensors
  bool read_known = false;                                // the next three
  double read_bytes = 0;                                  // that read() gave
  double device_bytes = 0;                                // that came from a disk: the others were in memory
  double files = 0;                                       // opened
  bool mapped = false;                                    // data files are mapped to memory: reads of these do not count
  std::vector<double> fetches_ns;                         // of single batches
  std::vector<std::pair<std::string, double>> stages_ns;  // decode, transform, ...: by name
};

// A batch that the script's own loop took.
struct TakenBatch {
  int64_t unix_us = 0, wall_us = 0, cpu_us = 0;
};

struct LoaderRecord {
  LoaderKind kind = LoaderKind::unknown;
  std::string dataset;
  bool iterable = false, pin_memory = false;
  int64_t workers = 0, prefetch_factor = 0, batch_size = 0;
  int64_t epoch_batches = 0;  // that the loader gives before it ends; 0: unknown
  int64_t others = 0;         // other loaders that gave batches in steps
  double cores = 0;           // of the machine that measured, for this process
  int64_t threads_per_core = 1, ranks = 1;
  double pin_ns = 0;
  std::vector<TakenBatch> taken;  // in the order of time
  std::vector<LoaderRun> runs;    // by workers, each once
  std::vector<std::string> said;
};

}  // namespace gpucast
