// The operations of one observed step. observe_step.h makes them.
#pragma once

#include <string>
#include <vector>

#include "gpucast/trace.h"
#include "src/attribution/attribution.h"
#include "src/loader/loader_model.h"
#include "src/time/operation.h"

namespace gpucast {

// The ranks of a communicator.
struct CommunicationGroup {
  std::string name;                            // the same in the captures of all its ranks
  std::vector<int64_t> ranks;                  // of the job, in the group's order
  bool assumed = false;                        // the capture names no ranks: neighbours of this rank are assumed
  std::vector<std::string> descriptions = {};  // as Communicator::descriptions
  friend auto operator<=>(const CommunicationGroup&, const CommunicationGroup&) = default;
};

struct Message {
  int64_t peer = 0;  // a rank of the job
  int64_t bytes = 0;
  bool receives = false;
  bool routed = false;  // one of an exchange of all with all: its bytes follow from values, which each rank here draws for itself
  friend auto operator<=>(const Message&, const Message&) = default;
};

// What one collective operation does with other ranks: one call of NCCL, or all calls of one ncclGroupStart.
struct Communication {
  uint32_t group = 0;             // index in StepOperations::groups
  std::vector<Message> messages;  // of CollectiveKind::messages; empty: all ranks of the group take part
  friend auto operator<=>(const Communication&, const Communication&) = default;
};

struct StepOperation {
  uint32_t shape = 0;  // index of its operation in StepOperations::shapes
  std::string name;    // "aten::addmm", "cublasSgemm_v2" (where no operator is known), "memcpy"
  std::string kernel;  // the mangled name of its first kernel, or the library's function
  Phase phase = Phase::other;
  ModuleId module;
  bool known = false;    // its kind and bytes follow from an operator or a library call
  bool guessed = false;  // its operator is unknown (operator_is_known()) and estimated as elementwise
  uint32_t stream = 0;   // index in StepOperations::streams
  int64_t asked_ns = 0;  // when the host requested its first work, from the step's begin
  double asked_unix_us = 0;
  int64_t mark = 0;                       // sequence number of the mark before it
  bool waits = false;                     // the host waits until it is done (copies to the host, in captures that do not record waits)
  size_t first_work = 0, work_count = 1;  // range in ObservedStep::work
  int32_t communication = -1;             // index in StepOperations::communications; below 0: none
};

// As Order, with its position between operations.
struct StepOrder {
  OrderKind kind = OrderKind::event_record;
  uint32_t stream = 0, recorded_on = 0;  // indices in StepOperations::streams
  uint32_t event = 0;                    // below StepOperations::events
  int64_t asked_ns = 0;
  size_t operations_before = 0;
};

// The program gets a batch from its loader.
struct StepBatch {
  int64_t asked_ns = 0;
  size_t operations_before = 0;
};

// How long the host worked in the observed step and in others, and how much the observation recorded meanwhile.
struct HostObservation {
  double observed_ns = 0;    // as StepOperations::host_ns
  double own_ns = 0;         // the observed step, less the loader and timed hooks; 0: unknown
  double other_ns = 0;       // the fastest of the other steps, likewise; 0: there is none
  double unobserved_ns = 0;  // CPU time of the quickest parts of steps without hooks; 0: none ran. Then only it and observed_ns count
  double middle_unobserved_ns = 0;     // the median of these steps
  int64_t unobserved_steps = 0;        // their number
  bool alone = true;                   // the capture has no end of an earlier step
  bool timed = false;                  // hooks were timed
  int64_t marks = 0, allocations = 0;  // of the observed step
  int64_t yardstick_ns = 0;            // as ObservedStep::yardstick_ns
  double pace = 1;                     // of a job's host that does almost the same and was faster: its time over this one's
};

struct StepOperations {
  std::vector<Operation> shapes;          // each once
  std::vector<StepOperation> operations;  // in the order of their requests
  std::vector<uint64_t> streams;          // handles
  std::vector<StepOrder> order;           // by operations_before
  size_t events = 0;
  std::vector<CommunicationGroup> groups;
  std::vector<Communication> communications;  // each once
  int64_t rank = 0, ranks = 1;                // of the job: this one, and their number
  int64_t node_ranks = 0;                     // of the job, on each node; 0: not recorded
  std::vector<StepBatch> batches;             // of the loader in the capture's record; the times of the step contain no waiting for it
  int64_t host_ns = 0;               // from the end of the step before to the end of this one, on this machine, while being observed
  int64_t work = 0, known_work = 0;  // launches, calls and copies; those with a known operator or call
  int64_t samples = 0;               // of all its batches; 0: unknown (step_inputs.h)
  int64_t tokens = 0;                // same
  LoopBatch loop_batch;              // of the other steps, if the loader has no workers
  HostObservation host;              // host_scale() (src/schedule) estimates from it the host's time in a step that is not observed
};

}  // namespace gpucast
