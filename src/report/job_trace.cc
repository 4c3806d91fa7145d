#include "src/report/job_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/base/json.h"
#include "src/report/trace_events.h"
#include "version.h"

namespace gpucast {
namespace {

class JobTrace {
 public:
  JobTrace(const JobStep& job, std::ostream& out) : job_(job), out_(out) {
    for (const RankStep& rank : job.captured)
      for (const JobSlice& slice : rank.slices) clock_.zero_ns = std::min(clock_.zero_ns, slice.start_ns);
  }

  void write(const Gpu& gpu) {
    out_.name_process(kJob, "job");
    out_.name_thread(kJob, kJob, "step");
    out_.add_event(R"({{"ph":"X","pid":{},"tid":{},"name":"step","cat":"step","ts":{},"dur":{},"args":{{}}}})", kJob, kJob, clock_.time(0),
                   clock_.length(0, job_.played_ns));
    for (size_t r = 0; r < job_.captured.size(); ++r) write_rank(r);
    for (size_t i = 0; i < job_.messages.size(); ++i) write_message(i);
    const Json about = {{"gpucast_version", kGpucastVersion}, {"gpu", gpu.id}, {"machine", job_.machine_id}, {"ranks", job_.ranks}};
    out_.finish(about.dump());
  }

 private:
  // Perfetto needs thread numbers that are unique over all processes; 0 means idle.
  static constexpr int kMostStreams = 1 << 10;
  static constexpr int kJob = 1;
  static int process(size_t rank) { return static_cast<int>(rank) + 2; }
  static int thread(size_t rank, uint32_t stream) {
    return static_cast<int>(rank + 1) * kMostStreams + static_cast<int>(std::min<uint32_t>(stream, kMostStreams - 1));
  }

  void write_rank(size_t r) {
    const RankStep& rank = job_.captured[r];
    out_.name_process(process(r), fmt::format("rank {}", rank.rank));
    std::set<uint32_t> streams, communicating;
    for (const JobSlice& slice : rank.slices) {
      streams.insert(slice.stream);
      if (slice.purpose) communicating.insert(slice.stream);
    }
    for (const uint32_t stream : streams)
      out_.name_thread(process(r), thread(r, stream), fmt::format("stream {}{}", stream, communicating.contains(stream) ? " (NCCL)" : ""));
    for (const JobSlice& slice : rank.slices) write_slice(r, slice);
  }

  void write_slice(size_t r, const JobSlice& slice) {
    std::string waits;
    if (slice.purpose) waits = fmt::format(R"(,"waits_us":{})", clock_.length(slice.start_ns, slice.moves_ns));
    if (slice.waits_for_rank) waits += fmt::format(R"(,"waits_for_rank":{})", *slice.waits_for_rank);
    out_.add_event(R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":"{}","ts":{},"dur":{},"args":{{"critical":{}{}}}}})", process(r),
                   thread(r, slice.stream), json_text(slice.purpose ? slice_words(slice) : slice.name), slice.kind,
                   clock_.time(slice.start_ns), clock_.length(slice.start_ns, slice.end_ns), slice.critical, waits);
  }

  // An arrow from the send to the end of the receive.
  void write_message(size_t i) {
    const JobMessage& message = job_.messages[i];
    const JobSlice& from = job_.captured[message.from_rank].slices[message.from_slice];
    const JobSlice& to = job_.captured[message.to_rank].slices[message.to_slice];
    out_.add_event(R"({{"ph":"s","id":{},"pid":{},"tid":{},"name":"message","cat":"message","ts":{}}})", i, process(message.from_rank),
                   thread(message.from_rank, from.stream), clock_.time(from.start_ns));
    out_.add_event(R"({{"ph":"f","bp":"e","id":{},"pid":{},"tid":{},"name":"message","cat":"message","ts":{}}})", i,
                   process(message.to_rank), thread(message.to_rank, to.stream), clock_.time(std::max(to.start_ns, to.moves_ns)));
  }

  const JobStep& job_;
  TraceEvents out_;
  TraceClock clock_;  // communication of the step may begin while the step before ends
};

}  // namespace

void write_job_trace(const JobStep& job, const Gpu& gpu, std::ostream& out) { JobTrace(job, out).write(gpu); }

}  // namespace gpucast
