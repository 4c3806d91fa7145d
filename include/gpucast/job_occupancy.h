// How full a step makes cards: of a capture whose step was observed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/trace.h"

namespace gpucast {

struct Facts;  // src/predict/facts.h

// Where a kernel's registers and shared memory come from.
enum class ResourceSource : uint8_t {
  wheel,     // its machine code in the installed PyTorch
  compiled,  // its machine code, compiled while the script ran (Triton)
  typical,   // a library that chooses among its kernels on the card: one that does the same, measured elsewhere
  assumed,   // not known: 32 registers, no shared memory of its own
  count_
};
const char* resource_source_name(ResourceSource source);  // as in JSON

// Achieved occupancy: active warps over the most that the card holds, over all multiprocessors and the kernels' time. From 0 to 1.
struct OccupancyFigures {
  double mean_of_kernels = 0;  // each launch counts once (DNN-occu, section III.A)
  double time_weighted = 0;    // by the kernels' durations
  double min = 0, max = 0;
};

// Of a phase or a module.
struct OccupancyPart {
  std::string name;
  OccupancyFigures occupancy;
  double sm_active = 0;  // share of multiprocessors that have a block, over the kernels' time
  double gpu_ns = 0, share = 0;
  int64_t launches = 0;
};

// All launches of one kernel with the same sizes.
struct KernelOccupancy {
  std::string name;    // the operator's: "aten::addmm"
  std::string kernel;  // mangled, or the library's function
  std::string like;    // source typical: the kernel that stands for it
  ResourceSource source = ResourceSource::assumed;
  int64_t blocks = 0;
  int block_threads = 0, registers = 0;
  int64_t shared_bytes = 0;  // of a block, static and dynamic
  int blocks_per_sm = 0, warps_per_sm = 0;
  std::string limit;  // "registers", ...; "grid": too few blocks to reach any other
  double theoretical = 0, achieved = 0, sm_active = 0;
  int64_t waves = 0;
  double tail = 0;     // how full the last wave is
  std::string remedy;  // what would lift the limit; "" for nothing
  double remedy_achieved = 0;
  double gpu_ns = 0, share = 0;
  int64_t launches = 0;
};

struct CardOccupancy {
  std::string gpu_id, gpu_name;
  OccupancyFigures occupancy;
  std::optional<double> dnn_occu;  // mean_of_kernels as DNN-occu's network guesses it, where it was asked
  double of_step = 0;              // achieved occupancy with the gaps between kernels counted as empty
  double nvml_utilization = 0;     // share of the step in which a kernel runs: what nvidia-smi shows
  double sm_active = 0;            // of the step, gaps counted
  double bandwidth = 0;            // of device memory, as a share of the datasheet's, over the step
  double tensor_cores = 0;         // FLOPs on tensor cores over what they could do in the step
  double step_ns = 0, gpu_ns = 0;
  int64_t launches = 0;
  double source_share[static_cast<int>(ResourceSource::count_)] = {};  // of the kernels' time
  std::vector<OccupancyPart> by_phase, by_module;
  std::vector<KernelOccupancy> kernels;  // by time, largest first
  std::vector<std::string> notes;        // what is not known, and what to do
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
  double cpu_speed = 1;        // of the training machine's host against this one
  std::string wheel;           // the folder of an installed PyTorch; "": the capture's
  std::string cache;           // a folder for what was read of it; "": none is kept
};

// Throws Error: the capture has no observed step, a card has no rates or no occupancy rules, `wheel` is none.
JobOccupancy job_occupancy(const Facts& facts, const JobOccupancyOptions& options);

// Achieved occupancy of each operation of the observed step, in the order in which the program asked for them (GpuSlice::asked), weighted
// by time where it has several kernels. Below 0: it has none, or nothing is known of them. Empty where gpu_slices() is.
std::vector<double> operation_occupancies(const Facts& facts, const Gpu& gpu);

std::string job_occupancy_json(const JobOccupancy& job);
std::string job_occupancy_text(const JobOccupancy& job, bool colour);

}  // namespace gpucast
