// The time of a step on cards, for a capture with an observed step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/job_step.h"
#include "gpucast/loader.h"
#include "gpucast/machine.h"
#include "gpucast/power.h"
#include "gpucast/storage.h"
#include "gpucast/time_range.h"
#include "gpucast/trace.h"
#include "gpucast/whole_run.h"

namespace gpucast {

struct Facts;  // src/predict/facts.h

// What limits a step.
enum class StepBound : uint8_t { gpu, host, loader, communication };
const char* step_bound_name(StepBound bound);  // as in JSON

// A part of the GPU's time, for a phase, a kind or a module.
struct TimePart {
  std::string name;
  double gpu_ns = 0, ideal_ns = 0;  // ideal: at the datasheet's rates, with no other limit
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

// An unknown operator, estimated as an elementwise one.
struct UnknownOperator {
  std::string name;
  int64_t launches = 0;
  double share = 0;  // of the GPU's time
};

// A step with this number of workers in its loader.
struct LoaderChoice {
  int64_t workers = 0;
  TimeRange batch, step;
  StepBound bound = StepBound::gpu;
  std::string limit;      // what limits the loader: workers, cores, storage, pinning
  double wait_share = 0;  // of the step: time that is only there because of the loader
};

struct CardLoader {
  TimeRange step_without;             // the step if every batch is ready in time
  LoaderChoice now;                   // with the requested workers; its step is CardTime::step
  std::vector<LoaderChoice> choices;  // ordered by workers
  std::optional<int64_t> enough;      // the fewest workers that keep the card as busy as possible; unset: no number does, ...
  double cores_needed = 0;            // ... because it would need this many cores
};

// The figures that do not depend on a card.
struct LoaderFigures {
  LoaderKind kind = LoaderKind::unknown;
  std::string dataset;
  std::string source;  // of its speed: measured, loop, ""
  int64_t workers = 0, script_workers = 0, prefetch_factor = 0, batch_size = 0;
  int64_t batches = 0;  // for each step
  bool pin_memory = false;
  double cores = 0;
  double batch_ns = 0;                                    // in one process
  double waits_share = 0;                                 // share of that time spent waiting for a disk, a network, a clock
  std::vector<std::pair<std::string, double>> stages_ns;  // parts of that time, the largest first
  double read_bytes = 0, files = 0, cached_share = 0;     // for each batch
  std::string storage;                                    // "": the measured one
  double storage_ns = 0;                                  // for each batch
  std::vector<std::string> notes;                         // whole sentences
};

// CPU time of this machine's host in the steps that ran unobserved. The quickest parts count.
struct HostSteps {
  int64_t count = 0;
  double least_ns = 0, middle_ns = 0;  // the quickest parts of all steps, and the median step
};

// A measured step, and the prediction for it.
struct KnownStep {
  std::string gpu_id;
  double step_ns = 0, expected_ns = 0;
};

struct CardTime {
  std::string gpu_id, gpu_name;
  bool measured_card = false;          // its constants come from measurements of this card
  std::vector<std::string> estimated;  // figures of the card that are estimates; they widen the interval
  TimeRange step;
  double host_widens = 1;      // the step's interval is this many times as wide, in logarithms, as with a known host
  bool step_measured = false;  // the user measured this step
  StepBound bound = StepBound::gpu;
  double gpu_ns = 0;                                                   // the GPU's busy time
  double host_ns = 0;                                                  // the host's busy time, without waits
  double model_flops_utilisation = 0, hardware_flops_utilisation = 0;  // of the datasheet's peak, from 0 to 1
  std::string peak_precision;                                          // the precision of that peak
  double samples_per_s = 0, tokens_per_s = 0;                          // 0: unknown
  double unknown_share = 0;                                            // share of the GPU's time in work of unknown kind
  std::vector<TimePart> by_phase, by_kind, by_module;                  // largest first; phases in their order
  std::vector<KernelTime> kernels;                                     // largest first
  std::vector<UnknownOperator> unknown_operators;                      // largest first
  std::optional<CardLoader> loader;                                    // if the step takes batches with a known time
  double epoch_ns = 0;                                                 // 0: the number of steps in an epoch is not known
  int64_t count = 1;                                                   // of these cards, in the job
  double price_per_hour = 0;                                           // of one; 0: not given
  std::optional<CardPower> power;                                      // unset: the card's power limit is not known
  std::optional<JobStep> job;                                          // if several ranks train; `step` is the job's
};

struct StepTimes {
  std::vector<std::string> command;
  std::string torch;
  int64_t step = 0;                 // the observed step
  int64_t samples = 0, tokens = 0;  // of each step; 0: unknown
  double coverage = 0;              // share of launches with a known operator or call
  double model_flops = 0, hardware_flops = 0;
  double server_speed = 0;              // the host of an A100, relative to this machine; 0: unknown
  std::optional<HostSteps> host_steps;  // unset: no step ran unobserved
  std::vector<CardTime> cards;
  std::optional<LoaderFigures> loader;  // unset: the capture does not have it (older ones)
  double epoch_steps = 0;               // the user's number, or the batches of the script's DataLoader; 0: unknown
  std::optional<KnownStep> known;       // the measured step that all times are scaled to
  std::optional<WholeRun> run;          // of the whole training on the first card; unset: not asked for
  std::vector<ScalePoint> scale;        // on the first card, by ranks; empty: not asked for
};

struct StepTimeOptions {
  std::vector<Gpu> gpus;
  std::string constants_json;                    // "": only the built-in ones
  double cpu_speed = 1;                          // the host speed of the training machine, relative to this one
  std::string known_gpu;                         // a card with a measured step, ...
  double known_step_ns = 0;                      // ... and its time: other cards are scaled by the same ratio
  std::map<std::string, double> price_per_hour;  // by card, in any currency
  double epoch_steps = 0;                        // 0: from the script's DataLoader
  std::vector<int64_t> workers;                  // of the loader: the first is for the reported step; empty: the script's
  double cores = 0;                              // of the training machine; 0: the same as this machine
  std::optional<StorageTier> storage;            // of the training machine
  std::optional<Machine> machine;                // unset: each card's usual one
  bool job_slices = false;                       // fill JobStep's slices and messages
  int64_t ranks = 0;                             // of the job, with more or fewer replicas of its model; 0: as captured
};

// The price of this time on all cards of the job.
double cost(double ns, const CardTime& card);

// `ranks`: the captured ranks of one job; the parts of the result are of the first. Throws Error: a capture has no observed step, a card
// has no rates, a price names another card, the captures are not of one job, the job does not fit on the machine.
StepTimes step_times(const std::vector<const Facts*>& ranks, const StepTimeOptions& options);
StepTimes step_times(const Facts& facts, const StepTimeOptions& options);  // of one rank

// One operation on the GPU's time axis. The axis begins with the observed step.
struct GpuSlice {
  std::string name, kernel, kind, bound, sizes, phase;
  ModuleId module;
  uint64_t stream = 0;
  uint32_t asked = 0;                    // its number in the program's order of operations
  uint32_t position = 0;                 // its position between two events of the allocator's history
  double start_ns = 0, duration_ns = 0;  // longer if another stream's work shares the card
  int64_t launches = 0;
};
// Ordered by stream, then by start. Empty if no step was observed or the card has no rates. This machine's host speed is assumed.
std::vector<GpuSlice> gpu_slices(const Facts& facts, const Gpu& gpu);

std::string step_times_json(const StepTimes& times);
std::string step_times_text(const StepTimes& times, bool colour);

}  // namespace gpucast
