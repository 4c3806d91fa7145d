// How long a step takes on cards: of a capture whose step was observed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/loader.h"
#include "gpucast/storage.h"
#include "gpucast/time_range.h"
#include "gpucast/trace.h"

namespace gpucast {

struct Facts;  // src/predict/facts.h

// What a step waits for.
enum class StepBound : uint8_t { gpu, host, loader };
const char* step_bound_name(StepBound bound);  // as in JSON

// A part of the GPU's time: of a phase, a kind, a module.
struct TimePart {
  std::string name;
  double gpu_ns = 0, ideal_ns = 0;  // ideal: at the datasheet's rates, nothing else in the way
  double share = 0;                 // of the GPU's time
  int64_t launches = 0;
  double flops = 0, bytes = 0;
};

// All work of one operator with the same sizes.
struct KernelTime {
  std::string name;    // "aten::addmm"
  std::string kernel;  // the library's function or the mangled kernel
  std::string kind, bound;
  std::string sizes;  // "1024 x 1024 x 4096, fp16"
  double gpu_ns = 0, ideal_ns = 0, share = 0;
  int64_t calls = 0, launches = 0;
  bool known = true;
};

// An operator that is not known, and is estimated as an elementwise one.
struct UnknownOperator {
  std::string name;
  int64_t launches = 0;
  double share = 0;  // of the GPU's time
};

// A step whose loader has so many workers.
struct LoaderChoice {
  int64_t workers = 0;
  TimeRange batch, step;
  StepBound bound = StepBound::gpu;
  std::string limit;      // what holds the loader back: workers, cores, storage, pinning
  double wait_share = 0;  // of the step, that is only there because of the loader
};

struct CardLoader {
  TimeRange step_without;             // every batch is there when it is asked for
  LoaderChoice now;                   // with the workers that were asked for; CardTime::step is its step
  std::vector<LoaderChoice> choices;  // by workers
  std::optional<int64_t> enough;      // the fewest workers that keep the card as busy as it can be; unset: no number does, ...
  double cores_needed = 0;            // ... it would take so many cores
};

// What does not depend on a card.
struct LoaderFigures {
  LoaderKind kind = LoaderKind::unknown;
  std::string dataset;
  std::string source;  // of its speed: measured, loop, ""
  int64_t workers = 0, script_workers = 0, prefetch_factor = 0, batch_size = 0;
  int64_t batches = 0;  // of a step
  bool pin_memory = false;
  double cores = 0;
  double batch_ns = 0;                                    // in one process
  double waits_share = 0;                                 // of that, for a disk, a network, a clock
  std::vector<std::pair<std::string, double>> stages_ns;  // of that, largest first
  double read_bytes = 0, files = 0, cached_share = 0;     // of a batch
  std::string storage;                                    // "": the one that was measured
  double storage_ns = 0;                                  // of a batch
  std::vector<std::string> notes;                         // sentences
};

// A step that was measured, and what would have been said of it.
struct KnownStep {
  std::string gpu_id;
  double step_ns = 0, expected_ns = 0;
};

struct CardTime {
  std::string gpu_id, gpu_name;
  bool measured_card = false;  // its constants rest on measurements of it
  TimeRange step;
  bool step_measured = false;  // the step is the one that the user measured
  StepBound bound = StepBound::gpu;
  double gpu_ns = 0;                                                   // the GPU works
  double host_ns = 0;                                                  // the host works, without waiting
  double model_flops_utilisation = 0, hardware_flops_utilisation = 0;  // of the datasheet's peak, from 0 to 1
  std::string peak_precision;                                          // that this peak is of
  double samples_per_s = 0, tokens_per_s = 0;                          // 0: unknown
  double unknown_share = 0;                                            // of the GPU's time, spent in work of unknown kind
  std::vector<TimePart> by_phase, by_kind, by_module;                  // largest first, phases in their order
  std::vector<KernelTime> kernels;                                     // largest first
  std::vector<UnknownOperator> unknown_operators;                      // largest first
  std::optional<CardLoader> loader;                                    // where the step takes batches whose time is known
  double epoch_ns = 0;                                                 // 0: how many steps an epoch has is not known
  double price_per_hour = 0;                                           // of the card; 0: not given
};

struct StepTimes {
  std::vector<std::string> command;
  std::string torch;
  int64_t step = 0;                 // that was observed
  int64_t samples = 0, tokens = 0;  // of a step; 0: unknown
  double coverage = 0;              // share of launches whose operator or call is known
  double model_flops = 0, hardware_flops = 0;
  std::vector<CardTime> cards;
  std::optional<LoaderFigures> loader;  // unset: the capture does not tell (older ones)
  double epoch_steps = 0;               // as asked for, or as the script's DataLoader has batches; 0: unknown
  std::optional<KnownStep> known;       // the measured step that all times follow
};

struct StepTimeOptions {
  std::vector<Gpu> gpus;
  std::string constants_json;                    // "": the built-in ones alone
  double cpu_speed = 1;                          // of the training machine's host against this one
  std::string known_gpu;                         // a card with a measured step, ...
  double known_step_ns = 0;                      // ... and its time: other cards follow by ratio
  std::map<std::string, double> price_per_hour;  // by card, in any currency
  double epoch_steps = 0;                        // 0: the script's DataLoader says
  std::vector<int64_t> workers;                  // of the loader: the first is what the step is told with; empty: the script's
  double cores = 0;                              // of the training machine; 0: as many as this one has
  std::optional<StorageTier> storage;            // of the training machine
};

// What so long costs on a card.
double cost(double ns, double price_per_hour);

// Throws Error: the capture has no observed step, a card has no rates, a price is of another card.
StepTimes step_times(const Facts& facts, const StepTimeOptions& options);

// One operation on the GPU's time axis, which begins where the observed step does.
struct GpuSlice {
  std::string name, kernel, kind, bound, sizes, phase;
  ModuleId module;
  uint64_t stream = 0;
  uint32_t asked = 0;                    // its place in the order in which the program asked for operations
  uint32_t position = 0;                 // of the allocator's history at that moment, between two events
  double start_ns = 0, duration_ns = 0;  // it lasts longer where another stream's work shares the card
  int64_t launches = 0;
};
// By start, stream by stream; empty where no step was observed or the card has no rates. The GPU is fed as fast as this machine can.
std::vector<GpuSlice> gpu_slices(const Facts& facts, const Gpu& gpu);

std::string step_times_json(const StepTimes& times);
std::string step_times_text(const StepTimes& times, bool colour);

}  // namespace gpucast
