// Fitted and chosen numbers of the loader's model: data/loader.json, which says where each comes from.
#pragma once

#include <string>

namespace gpucast {

// Noises are standard deviations of logarithms.
struct LoaderConstants {
  double worker_over_inline = 0, worker_noise = 0;  // a worker's time for a batch over the training process's
  double take_ns = 0;                               // the training process takes a batch from a worker or a queue
  double second_thread = 0;                         // what a core's second thread adds
  double cores_noise = 0;                           // of CPU times, on a machine that is full
  double least_free_cores = 0;                      // that other programs leave
  // Of a measured mean: always; with a core that other programs use; of a run with hardly any batches.
  double least_noise = 0, others_noise = 0, few_noise = 0;
  double undisturbed_share = 0;  // of a batch's time, that stays whatever it waited for a CPU
  double most_variation = 0;     // of a batch against the mean: beyond, another program was in the way
  double cached = 0;             // where more of the bytes came from memory, waiting was not for the disk
  double sigma = 0, kappa = 0;   // of the scalability law: means of what is believed before anything is measured
  double least_rate_noise = 0;   // of each rate that laws are fitted to
  double busy = 0;               // a step that takes at most this many times the step without a loader keeps the card busy
};

// `file`: the text of a user's file of constants, over the built-in ones; "" for none. Throws Error for what is no finite positive number.
LoaderConstants read_loader_constants(const std::string& file);
const LoaderConstants& loader_constants();  // the built-in ones

}  // namespace gpucast
