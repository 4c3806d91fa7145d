#include "src/ranks/critical_path.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace gpucast {
namespace {

class PathFinder {
 public:
  PathFinder(const PlayedJob& job, const Meetings& meetings, const std::vector<RankTime>& ranks, double zero_ns)
      : job_(job), meetings_(meetings), ranks_(ranks), zero_ns_(zero_ns), by_end_(ranks.size()) {}

  std::vector<PlayedOperation> find() {
    std::vector<PlayedOperation> path;
    size_t last = 0;
    for (size_t r = 1; r < ranks_.size(); ++r) {
      if (ranks_[r].end_ns > ranks_[last].end_ns) last = r;
    }
    const double host_end_ns = job_.players[last]->host_end_ns() - zero_ns_;
    const bool host_is_last = host_end_ns >= ranks_[last].end_ns - kSameNs;
    const double end_ns = host_is_last ? job_.players[last]->freed_ns() - zero_ns_ : ranks_[last].end_ns;
    size_t most = 0;  // operations without length could follow each other in a circle
    for (const RankTime& rank : ranks_) most += rank.spans.size();
    for (auto at = ending_at(last, end_ns, ranks_[last].spans.size()); at && path.size() < most; at = before(*at)) path.push_back(*at);
    return path;
  }

 private:
  // What the operation waited for.
  std::optional<PlayedOperation> before(PlayedOperation at) {
    at = last_to_come(at);
    const OperationSpan& span = ranks_[at.rank].spans[at.operation];
    const StepPlayer::Asked& asked = job_.players[at.rank]->asked(at.operation);
    const bool host_is_late = asked.ready_ns - zero_ns_ >= span.start_ns - kSameNs;
    return ending_at(at.rank, host_is_late ? asked.freed_ns - zero_ns_ : span.start_ns, at.operation);
  }

  // Of a communication that waited: the operation of the rank that came last.
  PlayedOperation last_to_come(const PlayedOperation& at) const {
    PlayedOperation out = at;
    double opened_ns = ranks_[at.rank].spans[at.operation].start_ns + zero_ns_ + kSameNs;
    for (const auto& [index, waits] : meetings_.of_operation(at.rank, at.operation)) {
      if (!waits || job_.opened_ns[index] <= opened_ns) continue;
      opened_ns = job_.opened_ns[index];
      const Attendance& last = meetings_.attendances[job_.last[index]];
      out = {last.rank, last.operation};
    }
    return out;
  }

  // An operation of the rank that ended at this time, earlier in its requests than `below`, best on the same stream.
  std::optional<PlayedOperation> ending_at(size_t r, double ns, size_t below) {
    const std::vector<OperationSpan>& spans = ranks_[r].spans;
    const auto& operations = job_.players[r]->step().operations;
    std::vector<uint32_t>& order = ordered(r);
    auto at = std::ranges::lower_bound(order, ns - kSameNs, {}, [&](uint32_t i) { return spans[i].end_ns; });
    std::optional<PlayedOperation> out;
    for (; at != order.end() && spans[*at].end_ns <= ns + kSameNs; ++at) {
      if (*at >= below) continue;
      const bool same_stream = below < operations.size() && operations[*at].stream == operations[below].stream;
      if (!out || same_stream || *at > out->operation) out = {r, *at};
      if (same_stream) break;
    }
    return out;
  }

  std::vector<uint32_t>& ordered(size_t r) {
    std::vector<uint32_t>& out = by_end_[r];
    if (!out.empty()) return out;
    for (uint32_t i = 0; i < ranks_[r].spans.size(); ++i) out.push_back(i);
    std::ranges::sort(out, {}, [&](uint32_t i) { return ranks_[r].spans[i].end_ns; });
    return out;
  }

  const PlayedJob& job_;
  const Meetings& meetings_;
  const std::vector<RankTime>& ranks_;
  const double zero_ns_;
  std::vector<std::vector<uint32_t>> by_end_;  // by rank: operations
};

}  // namespace

std::vector<PlayedOperation> find_critical_path(const PlayedJob& job, const Meetings& meetings, const std::vector<RankTime>& ranks,
                                                double zero_ns) {
  return PathFinder(job, meetings, ranks, zero_ns).find();
}

}  // namespace gpucast
