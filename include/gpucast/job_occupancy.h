// How full a step makes cards, for a capture with an observed step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/trace.h"

namespace gpucast {

struct CardRates;  // src/time/card_rates.h
struct Facts;      // src/predict/facts.h

// The source of a kernel's registers and shared memory.
enum class ResourceSource : uint8_t {
  wheel,     // its machine code in the installed PyTorch
  compiled,  // its machine code, compiled while the script ran (Triton)
  typical,   // a library that chooses its kernel on the card: a kernel with the same work, measured elsewhere
  assumed,   // not known: 32 registers and no shared memory of its own
  count_
};
const char* resource_source_name(ResourceSource source);  // as in JSON

// Achieved occupancy: active warps divided by the card's maximum, over all multiprocessors and the kernels' time. From 0 to 1.
struct OccupancyFigures {
  double mean_of_kernels = 0;  // each launch counts once (DNN-occu, section III.A)
  double time_weighted = 0;    // each launch counts by its duration
  double min = 0, max = 0;
};

// For a phase or a module.
struct OccupancyPart {
  std::string name;
  OccupancyFigures occupancy;
  double sm_active = 0;  // share of multiprocessors with a block, over the kernels' time
  double gpu_ns = 0, share = 0;
  int64_t launches = 0;
};

// All launches of one kernel with the same sizes.
struct KernelOccupancy {
  std::string name;    // of the operator: "aten::addmm"
  std::string kernel;  // mangled, or the library's function
  std::string like;    // source typical: the kernel that represents it
  ResourceSource source = ResourceSource::assumed;
  int64_t blocks = 0;
  int block_threads = 0, registers = 0;
  int64_t shared_bytes = 0;  // of each block, static and dynamic
  int blocks_per_sm = 0, warps_per_sm = 0;
  std::string limit;  // "registers", ...; "grid": too few blocks to reach any other
  double theoretical = 0, achieved = 0, sm_active = 0;
  int64_t waves = 0;
  double tail = 0;     // how full the last wave is
  std::string remedy;  // what would raise the limit; "" for nothing
  double remedy_achieved = 0;
  double gpu_ns = 0, share = 0;
  int64_t launches = 0;
};

struct CardOccupancy {
  std::string gpu_id, gpu_name;
  std::shared_ptr<const CardRates> rates;  // of the card, with the constants that the figures below follow from
  OccupancyFigures occupancy;
  std::optional<double> dnn_occu;  // mean_of_kernels as predicted by DNN-occu's network, if requested
  double of_step = 0;              // achieved occupancy, with the gaps between kernels counted as empty
  double nvml_utilization = 0;     // share of the step in which a kernel runs, as nvidia-smi shows it
  double sm_active = 0;            // over the step, with gaps
  double bandwidth = 0;            // of device memory, as a share of the datasheet's, over the step
  double tensor_cores = 0;         // FLOPs on tensor cores divided by the most that they could do in the step
  double step_ns = 0, gpu_ns = 0;
  int64_t launches = 0;
  double source_share[static_cast<int>(ResourceSource::count_)] = {};  // of the kernels' time
  std::vector<OccupancyPart> by_phase, by_module;
  std::vector<KernelOccupancy> kernels;  // by time, largest first
  std::vector<std::string> notes;        // what is not known, and what the user can do
};

struct JobOccupancy {
  std::vector<std::string> command;
  std::string torch;
  int64_t step = 0, samples = 0;
  std::vector<CardOccupancy> cards;
};

struct JobOccupancyOptions {
  std::vector<Gpu> gpus;
  std::string constants_json;  // of src/time; "": the built-in ones
  double cpu_speed = 1;        // the host speed of the training machine, relative to this one
  std::string wheel;           // the folder of an installed PyTorch; "": the capture's
  std::string cache;           // the folder that caches the wheel's data; "": no cache
};

// Throws Error: the capture has no observed step, a card has no rates or no occupancy rules, `wheel` is not a PyTorch.
JobOccupancy job_occupancy(const Facts& facts, const JobOccupancyOptions& options);

// Achieved occupancy of each operation of the observed step, in the program's order (GpuSlice::asked), weighted by time if it has several
// kernels. Below 0: it has no kernels, or nothing is known about them. Empty if gpu_slices() is empty.
std::vector<double> operation_occupancies(const Facts& facts, const Gpu& gpu);

std::string job_occupancy_json(const JobOccupancy& job);
std::string job_occupancy_text(const JobOccupancy& job, bool colour);

}  // namespace gpucast
