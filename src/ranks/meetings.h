// Communication of several ranks, matched: collectives by group and their number in the group, messages by group, ends and number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/ranks/job_time.h"

namespace gpucast {

enum class Link : uint8_t { node, network, count_ };  // inside a node; between nodes
enum class Direction : uint8_t { out, in, both };

// A played rank's part in a meeting.
struct Attendance {
  uint32_t rank = 0;  // index among the played ranks
  uint32_t operation = 0;
  Direction direction = Direction::both;
  double duration_ns = 0;
  double link = 1;    // as CollectiveUse::link
  bool waits = true;  // until the meeting ends; false: the meeting only waits for the operation's begin
};

// One collective, or one message.
struct Meeting {
  Link link = Link::node;
  double duration_ns = 0;         // of its slowest rank
  uint32_t first = 0, count = 0;  // range in Meetings::attendances
};

struct Meetings {
  // What an operation has to do with a meeting.
  struct Part {
    uint32_t meeting = 0;
    bool waits = true;  // as Attendance::waits
  };

  std::vector<Meeting> meetings;
  std::vector<Attendance> attendances;
  std::vector<std::vector<uint32_t>> first;  // by rank and operation (and one more): range in `parts`
  std::vector<std::vector<Part>> parts;      // by rank
  std::vector<int64_t> imagined_messages;    // by rank

  std::span<const Attendance> of(const Meeting& meeting) const { return {attendances.data() + meeting.first, meeting.count}; }
  std::span<const Part> of_operation(size_t rank, size_t operation) const {
    return std::span(parts[rank]).subspan(first[rank][operation], first[rank][operation + 1] - first[rank][operation]);
  }
};

Meetings find_meetings(const std::vector<PlayedRank>& ranks);

}  // namespace gpucast
