// Collectives and messages on the clocks of several ranks. Each rank has its own clock. NCCL's kernel is a gate of the card's timeline: it
// begins when its stream gets there, moves bytes when the last rank has come, and ends for all at the same time.
//
// A rank posts when its card reaches a gate (board.h). The gate cannot end before the other ranks' positions (rank_positions.h) plus its
// duration. Until their posts are there, the own card is simulated up to that time. Internal to the core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "src/vgpu/core/board.h"

namespace gpucast::vgpu {

struct Clock;

// What NCCL runs as one kernel.
struct RankWork {
  struct Message {
    int peer = 0;
    bool receives = false;
    int64_t size_bytes = 0;
  };
  std::shared_ptr<Board> board;
  double duration_ns = 0;
  double multiprocessors = 0;     // the part of the card's that it holds from its begin
  double moving = 0, memory = 0;  // of multiprocessors and of memory's rate, while bytes move
  int64_t buffered_bytes = 0;     // a message that fits does not wait for its receiver
  std::vector<Message> messages;  // empty: a collective of all ranks
};

// The gates of one process.
struct RankGates {
  struct Awaited {
    int from = 0, whom = 0;
    uint64_t number = 0;
    double position_ns = 0;  // of the other rank: it has not come before
  };
  struct Open {
    uint32_t stream = 0;
    std::shared_ptr<const RankWork> work;
    double came_ns = 0;  // the last rank so far
    std::vector<Awaited> awaited;
    double end_ns = -1;  // below 0: not known
    bool moves = false;
  };
  std::unordered_map<size_t, std::shared_ptr<const RankWork>> entered;  // by number of the timeline's work; not yet reached
  std::vector<Open> open;                                               // reached, and not over
  int64_t looked_ns = 0;                                                // when the others' posts were last read
  bool keeps_going = false;                                             // its thread runs

  bool any() const { return !entered.empty() || !open.empty(); }
};

// With the clock's lock held. Returns the number of the timeline's work.
size_t enter_gate(Clock& clock, uint32_t stream, double ready_ns, size_t card, const std::shared_ptr<const RankWork>& work);
// Simulates the card up to this time, or as far as the other ranks allow.
void advance_clock(Clock& clock, double to_ns);
// The card can be simulated up to this time. kNever: there is no limit.
double advance_limit_ns(const Clock& clock);

// Without the lock: waits a moment for other ranks. The host's time stands still meanwhile, except in real time. `waited_ns`: the sum so
// far; after five minutes the host goes on without the others.
void wait_for_ranks(Clock& clock, int64_t* waited_ns);

}  // namespace gpucast::vgpu
