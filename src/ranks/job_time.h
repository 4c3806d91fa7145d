// The ranks of a job that are played together, and their times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/schedule/step_schedule.h"
#include "src/time/duration.h"
#include "src/work/step_operations.h"

namespace gpucast {

inline constexpr double kSameNs = 0.05;  // sums of floating point times that should be equal differ by less

// What a collective operation needs in addition to its time.
struct CollectiveUse {
  double multiprocessors = 0;  // the part of the card's that its kernel holds, waiting or not; below 1
  double memory = 0;           // the part of its bandwidth that it uses while it moves bytes
  double moving = 0;           // the part of the card's multiprocessors that it leaves no other kernel while it moves bytes
  double link = 1;             // the part of its link's bandwidth that it needs when alone
  // Of messages: NCCL's buffers hold this much between two ranks. A send that fits does not wait for its receive.
  int64_t buffered_bytes = 0;
  bool operator==(const CollectiveUse&) const = default;
};

struct PlayedRank {
  int64_t rank = 0;  // of the job
  const StepOperations* step = nullptr;
  std::vector<Duration> durations;  // by shape
  std::vector<CollectiveUse> uses;  // by shape; empty: as CollectiveUse says
  double host_scale = 1;
  double batch_ns = 0;  // the host's work for each batch that it gets from its loader
};

// Times in ns from the moment at which the last rank of the job ended the step before.
struct OperationSpan {
  double launched_ns = 0;  // by the host
  double start_ns = 0;
  double moves_ns = 0;  // from here on no other rank is missing; of all but communication: its start
  double end_ns = 0;
  int32_t last_rank = -1;  // index of the played rank that it waited for; below 0: it did not wait
};

// Communication of one group and kind, in a step of one rank.
struct CommunicationTime {
  int32_t group = -1;  // index in StepOperations::groups; below 0: not known
  CollectiveKind kind = CollectiveKind::all_reduce;
  double hidden_ns = 0;   // it moves bytes while the card computes, or while the host launches too late anyway
  double exposed_ns = 0;  // it moves bytes, and the card waits for it
  double waiting_ns = 0;  // it waits for other ranks, and the card for it
};

struct RankTime {
  int64_t rank = 0;
  Schedule schedule;
  double begin_ns = 0, end_ns = 0;  // of its step
  // Their sum is schedule.step_ns.
  double compute_ns = 0;  // kernels and copies
  double exposed_ns = 0, waiting_ns = 0;
  double idle_ns = 0;  // the host launches too late
  double hidden_ns = 0;
  std::vector<CommunicationTime> communication;
  std::vector<OperationSpan> spans;  // in the order of StepOperations::operations
  int64_t imagined_messages = 0;     // no played rank is or stands for their other end: they did not wait
};

struct PlayedOperation {
  size_t rank = 0;  // index among the played ranks
  size_t operation = 0;
  bool operator==(const PlayedOperation&) const = default;
};

// Between two played ranks.
struct PlayedMessage {
  PlayedOperation from, to;
};

struct JobTime {
  double step_ns = 0;
  double gpu_ns = 0;  // if the hosts launched everything at once
  std::vector<RankTime> ranks;
  std::vector<PlayedMessage> messages;
  // What the end of the step waited for, the last operation first. Where the host launched an operation too late, the operation that the
  // host waited for follows, or the path ends.
  std::vector<PlayedOperation> critical_path;
};

}  // namespace gpucast
