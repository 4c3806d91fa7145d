// The DataLoader of a captured run: its record (docs/reference/capture-format.md), and how fast it feeds training.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gpucast {

// none: the script has no DataLoader. unused: its steps used no batch from one. dali: NVIDIA's pipeline feeds it.
enum class LoaderKind : uint8_t { unknown, none, unused, dali, dataloader };

// A few batches from a new iterator over the script's own dataset. All times are for one batch.
struct LoaderRun {
  int64_t workers = 0, batches = 0;
  double start_ns = 0;                                    // until the first batch was ready
  double period_ns = 0;                                   // from one batch to the next, in a loop that does nothing else
  double fetch_ns = 0;                                    // dataset and collate, in the process that fetches
  double cpu_ns = 0;                                      // CPU time of that process
  double main_cpu_ns = 0;                                 // CPU time of the thread that receives batches
  double queue_ns = 0;                                    // the fetching thread was ready but had no CPU
  double others_cores = 0;                                // cores that other programs used meanwhile
  int64_t batch_bytes = 0;                                // of its tensors
  bool read_known = false;                                // whether the next three are known
  double read_bytes = 0;                                  // returned by read()
  double device_bytes = 0;                                // read from a disk; the other bytes were in memory
  double files = 0;                                       // opened
  bool mapped = false;                                    // data files are mapped to memory, and reads of these do not count
  std::vector<double> fetches_ns;                         // of single batches
  std::vector<std::pair<std::string, double>> stages_ns;  // decode, transform, ...: each with its name
};

// A batch that the script's own loop received.
struct TakenBatch {
  int64_t unix_us = 0, wall_us = 0, cpu_us = 0;
  int64_t issuing_cpu_us = 0;  // of the threads that submit work to the card
};

struct LoaderRecord {
  LoaderKind kind = LoaderKind::unknown;
  std::string dataset;
  bool iterable = false, pin_memory = false;
  int64_t workers = 0, prefetch_factor = 0, batch_size = 0;
  int64_t epoch_batches = 0;  // batches of a whole epoch; 0: unknown
  int64_t others = 0;         // other loaders whose batches were used in steps
  double cores = 0;           // of the measuring machine, available to this process
  int64_t threads_per_core = 1, ranks = 1;
  double pin_ns = 0;
  std::vector<TakenBatch> taken;  // in the order of time
  std::vector<LoaderRun> runs;    // ordered by workers, one for each number
  std::vector<std::string> said;
};

}  // namespace gpucast
