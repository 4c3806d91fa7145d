// Jobs that wait for cards, in the order of their arrival, and how often other jobs overtook the oldest one.
#pragma once

#include <cstdint>
#include <vector>

#include "src/pack/cluster_state.h"
#include "src/pack/fit_tree.h"
#include "src/pack/job.h"

namespace gpucast::pack {

inline constexpr int64_t kMostOvertakes = 64;

class WaitingQueue {
 public:
  // For one type of card: the waiting jobs that need the same number of cards.
  struct Line {
    int cards = 1;
    std::vector<uint32_t> jobs;  // every job that may ever wait here, by arrival
    FitTree demands;             // negated, by index in `jobs`, to find the first job that fits; kNothing: the job does not wait
    int64_t waiting = 0;
    int64_t fruitless_ns = -1;  // gangs: the time at which none of them found its cards
  };

  // `types` must outlive the queue. `fair`: count overtakes.
  WaitingQueue(const std::vector<const Job*>& by_arrival, const std::vector<CardType>* types, bool fair);

  // Adds the job for each type that can run it, with its present demand there.
  void add(uint32_t job);
  // A job starts, and leaves the queue if it waited. If it is not the oldest, it overtakes the oldest.
  void count_start(uint32_t job);

  bool empty() const { return waiting_ == 0; }
  bool contains(uint32_t job) const { return waits_[job] != 0; }
  uint32_t oldest_job();  // the queue must not be empty
  // `fair`: other jobs overtook the oldest kMostOvertakes times.
  bool only_oldest_may_start() const { return fair_ && waiting_ > 0 && overtakes_ >= kMostOvertakes; }

  std::vector<Line>& lines_for(const CardType& type) { return lines_[static_cast<size_t>(&type - types_->data())].lines; }

 private:
  struct TypeLines {
    std::vector<Line> lines;
    std::vector<uint32_t> line_index, index_in_line;  // by job
  };

  const std::vector<CardType>* types_;
  std::vector<TypeLines> lines_;  // by type
  std::vector<uint8_t> waits_;    // by job
  bool fair_;
  int64_t waiting_ = 0, overtakes_ = 0;
  uint32_t oldest_ = 0;  // no earlier job waits
};

}  // namespace gpucast::pack
