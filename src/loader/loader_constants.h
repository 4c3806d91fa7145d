// Fitted and chosen numbers of the loader's model, from data/loader.json, with their sources.
#pragma once

#include <string>

namespace gpucast {

// Noises are standard deviations of logarithms.
struct LoaderConstants {
  double worker_over_inline = 0, worker_noise = 0;  // a worker's time for a batch over the training process's
  double take_ns = 0;                               // the training process's time to get a batch from a worker or a queue
  double second_thread = 0;                         // the part of a core that its second thread adds
  double cores_noise = 0;                           // of CPU times on a fully used machine
  double least_free_cores = 0;                      // other programs leave at least this many cores
  // Of a measured mean: at least; if other programs use a core; if a run has very few batches.
  double least_noise = 0, others_noise = 0, few_noise = 0;
  double undisturbed_share = 0;  // at least this part of a batch's time is not waiting for a CPU
  double most_variation = 0;     // of a batch's time over the mean; a larger ratio is due to another program
  double cached = 0;             // if a larger part of the bytes came from memory, the time waited was not for the disk
  double sigma = 0, kappa = 0;   // of the scalability law: means of the prior distributions
  double least_rate_noise = 0;   // at least, of each rate that laws are fitted to
  double busy = 0;               // the card counts as busy if a step lasts at most this many times the step without a loader
};

// `file`: the text of a user's constants file, which replaces built-in values; "" for none. Throws Error for a value that is no finite
// positive number.
LoaderConstants read_loader_constants(const std::string& file);
const LoaderConstants& loader_constants();  // the built-in ones

}  // namespace gpucast
