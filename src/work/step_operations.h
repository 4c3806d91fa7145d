// The operations of one observed step. observe_step.h makes them.
#pragma once

#include <string>
#include <vector>

#include "gpucast/trace.h"
#include "src/attribution/attribution.h"
#include "src/loader/loader_model.h"
#include "src/time/operation.h"

namespace gpucast {

struct StepOperation {
  uint32_t shape = 0;  // which operation it is: in StepOperations::shapes
  std::string name;    // "aten::addmm", "cublasSgemm_v2" (where no operator is known), "memcpy"
  std::string kernel;  // mangled name of its first kernel, or the library's function
  Phase phase = Phase::other;
  ModuleId module;
  bool known = false;    // its kind and bytes follow from an operator or a library call
  bool guessed = false;  // its operator is not known (operator_is_known()), and is estimated as elementwise
  uint32_t stream = 0;   // in StepOperations::streams
  int64_t asked_ns = 0;  // when its first work was asked for, since the step's begin
  double asked_unix_us = 0;
  int64_t mark = 0;                       // sequence number of the mark before it
  bool waits = false;                     // the host goes on only when it is done (a copy to the host, in captures that do not tell)
  size_t first_work = 0, work_count = 1;  // in ObservedStep::work
};

// As Order, at its place between operations.
struct StepOrder {
  OrderKind kind = OrderKind::event_record;
  uint32_t stream = 0, recorded_on = 0;  // in StepOperations::streams
  uint32_t event = 0;                    // below StepOperations::events
  int64_t asked_ns = 0;
  size_t operations_before = 0;
};

// The program takes a batch from its loader.
struct StepBatch {
  int64_t asked_ns = 0;
  size_t operations_before = 0;
};

// How long the host of the observed step and of others worked, and what the observation did meanwhile.
struct HostObservation {
  double observed_ns = 0;              // as StepOperations::host_ns
  double own_ns = 0;                   // the observed step, less the loader and timed hooks; 0: unknown
  double other_ns = 0;                 // the fastest of the other steps, likewise; 0: there is none
  bool alone = true;                   // no end of a step before it was seen
  bool timed = false;                  // hooks were timed
  int64_t marks = 0, allocations = 0;  // of the observed step
};

struct StepOperations {
  std::vector<Operation> shapes;          // each once
  std::vector<StepOperation> operations;  // in the order in which they were asked for
  std::vector<uint64_t> streams;          // handles
  std::vector<StepOrder> order;           // by operations_before
  size_t events = 0;
  std::vector<StepBatch> batches;    // of the loader that the capture tells of; no time of the step is waiting for it
  int64_t host_ns = 0;               // from the end of the step before to the end of this, on this machine, while being observed
  int64_t work = 0, known_work = 0;  // launches, calls, copies; of these with a known operator or call
  int64_t samples = 0;               // of all its batches; 0: unknown (step_inputs.h)
  int64_t tokens = 0;                // same
  LoopBatch loop_batch;              // of the other steps, without workers
  HostObservation host;              // from which host_scale() (src/schedule) tells how long the host works for a step that is not observed
};

}  // namespace gpucast
