// The step of a job of several ranks on a machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/time_range.h"

namespace gpucast {

// What a group of ranks works together for: as the program describes the group, otherwise as its calls show. Sums of activations in a
// forward split a layer (tensor), messages connect the stages of a pipeline, an exchange of all with all routes tokens to experts.
enum class GroupPurpose : uint8_t { data, tensor, pipeline, expert, context };
const char* group_purpose_name(GroupPurpose purpose);  // as in JSON

// The communication of one kind in one rank's groups of one purpose and size, in a step.
struct CommunicationPart {
  GroupPurpose purpose = GroupPurpose::data;
  std::string kind;              // "all_reduce"
  int64_t ranks = 1, nodes = 1;  // of a group
  int64_t calls = 0;
  double bytes = 0;       // as CollectiveShape::bytes
  double hidden_ns = 0;   // while the card computes
  double exposed_ns = 0;  // the card waits for it
  double waiting_ns = 0;  // it waits for other ranks, and the card for it
};

struct JobCollective {
  std::string kind;              // "all_reduce"
  int64_t ranks = 1, nodes = 1;  // of its group
  int64_t bytes = 0;             // as CollectiveShape::bytes
  std::string group;             // its name
};

// An operation on a rank's time axis, which begins with the job's step.
struct JobSlice {
  std::string name, kind, kernel, phase;
  std::optional<GroupPurpose> purpose;  // of communication
  JobCollective collective;             // same
  uint32_t stream = 0;
  double launched_ns = 0;  // by the host
  double start_ns = 0, end_ns = 0;
  double moves_ns = 0;                    // of communication: from here on no other rank is missing
  std::optional<int64_t> waits_for_rank;  // of communication: the rank that came last, if it was not this one
  bool critical = false;                  // the end of the step waited for it
};

// "tensor: all_reduce of 8"; "" if it is no communication.
std::string slice_words(const JobSlice& slice);

// A message between two captured ranks.
struct JobMessage {
  size_t from_rank = 0, from_slice = 0, to_rank = 0, to_slice = 0;  // indices in JobStep::captured and RankStep::slices
};

// A part of the time until the end of the step, on the way back from it: what it waited for.
struct CriticalPart {
  int64_t rank = 0;
  std::string what;  // "compute"; "host": it launched too late; else the purpose of communication
  double ns = 0;
};

// A rank that was captured. The others do what one of these does.
struct RankStep {
  int64_t rank = 0;
  size_t role = 0;      // ranks with the same number stand for each other
  double begin_ns = 0;  // at most 0: the job's step begins when its last rank has ended the step before
  double step_ns = 0;
  // Their sum is step_ns.
  double compute_ns = 0, exposed_ns = 0, waiting_ns = 0, idle_ns = 0;
  double hidden_ns = 0;
  double host_ns = 0;                            // what its host works
  std::vector<CommunicationPart> communication;  // largest exposed and waiting time first
  std::vector<JobSlice> slices;                  // as StepOperations::operations; empty unless wanted
};

struct JobStep {
  std::string machine_id, machine_name;
  int64_t ranks = 1, nodes = 1;
  int64_t replicas = 1;  // of the model, each with its own samples
  TimeRange step;
  double played_ns = 0;                // the step as the ranks were played: without --known and without waiting for a loader
  int64_t samples = 0, tokens = 0;     // of all replicas, in a step; 0: unknown
  std::vector<RankStep> captured;      // by rank
  std::vector<CriticalPart> critical;  // largest first; their sum is played_ns
  size_t busiest = 0;                  // index in `captured`: the rank that waits least for others
  std::vector<std::string> notes;      // whole sentences
  std::vector<int64_t> missing;        // ranks that captured ones exchange messages with, but that were not captured
  std::vector<JobMessage> messages;    // empty unless slices are wanted
};

// The same program on this many cards.
struct ScalePoint {
  int64_t ranks = 1, nodes = 1;
  TimeRange step;
  double samples_per_s = 0;               // of the job; 0: unknown
  double exposed_ns = 0, waiting_ns = 0;  // of the rank that waits least
  double efficiency = 1;                  // its speed for each card, relative to the first point
  double of_more_cards = 1;               // likewise, of the cards that the point before does not have
};

}  // namespace gpucast
