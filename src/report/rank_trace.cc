// Tools for traces of PyTorch's profiler, such as Holistic Trace Analysis, read these files.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "src/base/demangled.h"
#include "src/base/json.h"
#include "src/report/job_trace.h"
#include "src/report/trace_events.h"
#include "version.h"

namespace gpucast {
namespace {

constexpr int kHostProcess = 1, kHostThread = 1, kGpuProcess = 2;
constexpr int kFirstStream = 7;  // PyTorch's default stream, in the profiler's traces

// Tools recognize communication by these names.
std::string nccl_kernel(std::string_view kind) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"all_reduce", "AllReduce"},
                                                                             {"all_gather", "AllGather"},
                                                                             {"reduce_scatter", "ReduceScatter"},
                                                                             {"broadcast", "Broadcast"},
                                                                             {"reduce", "Reduce"}};
  const auto* const found = std::ranges::find(kNames, kind, &std::pair<std::string_view, std::string_view>::first);
  return fmt::format("ncclDevKernel_{}", found == std::end(kNames) ? "SendRecv" : found->second);
}

class RankTrace {
 public:
  RankTrace(const JobStep& job, size_t captured, std::ostream& out) : job_(job), rank_(job.captured[captured]), out_(out) {}

  void write(const Gpu& gpu) {
    clock_.zero_ns = rank_.begin_ns;
    for (const JobSlice& slice : rank_.slices) clock_.zero_ns = std::min({clock_.zero_ns, slice.launched_ns, slice.start_ns});
    name_tracks();
    out_.add_event(R"({{"ph":"X","cat":"user_annotation","name":"ProfilerStep#0","pid":{},"tid":{},"ts":{},"dur":{}}})", kHostProcess,
                   kHostThread, microseconds(0), clock_.time(rank_.begin_ns + rank_.step_ns));
    for (size_t i = 0; i < rank_.slices.size(); ++i) {
      write_launch(rank_.slices[i], i + 1);
      write_slice(rank_.slices[i], i + 1);
    }
    // Holistic Trace Analysis looks for "rank": with a space after it.
    const std::string distributed =
        fmt::format(R"("distributedInfo":{{"backend": "nccl", "rank": {}, "world_size": {}}})", rank_.rank, job_.ranks);
    const Json devices = {{{"id", 0}, {"name", gpu.name}, {"computeMajor", gpu.compute_major}, {"computeMinor", gpu.compute_minor}}};
    const Json about = {{"gpucast_version", kGpucastVersion}, {"gpu", gpu.id}, {"machine", job_.machine_id}};
    out_.finish(about.dump(), fmt::format(R"("schemaVersion":1,"deviceProperties":{},{})", devices.dump(), distributed));
  }

 private:
  static int thread(const JobSlice& slice) { return kFirstStream + static_cast<int>(slice.stream); }

  void name_tracks() {
    out_.name_process(kHostProcess, fmt::format("rank {}: host", rank_.rank));
    out_.name_process(kGpuProcess, fmt::format("rank {}: GPU", rank_.rank));
    out_.name_thread(kHostProcess, kHostThread, "launches");
    std::set<int> threads;
    for (const JobSlice& slice : rank_.slices) threads.insert(thread(slice));
    for (const int one : threads) out_.name_thread(kGpuProcess, one, fmt::format("stream {}", one));
  }

  void write_launch(const JobSlice& slice, size_t correlation) {
    const char* name = slice.kernel == "memcpy" ? "cudaMemcpyAsync" : slice.kernel == "memset" ? "cudaMemsetAsync" : "cudaLaunchKernel";
    out_.add_event(R"({{"ph":"X","cat":"cuda_runtime","name":"{}","pid":{},"tid":{},"ts":{},"dur":0,"args":{{"correlation":{}}}}})", name,
                   kHostProcess, kHostThread, clock_.time(slice.launched_ns), correlation);
  }

  void write_slice(const JobSlice& slice, size_t correlation) {
    const char* category = slice.kernel == "memcpy" ? "gpu_memcpy" : slice.kernel == "memset" ? "gpu_memset" : "kernel";
    std::string name = slice.kernel == "memcpy" ? "Memcpy" : slice.kernel == "memset" ? "Memset" : demangled(slice.kernel);
    if (slice.purpose) name = nccl_kernel(slice.collective.kind);
    const std::string collective =
        slice.purpose
            ? fmt::format(R"(,"Collective name":"{}","Group size":{},"Process Group Name":{},"bytes":{},"purpose":"{}","waits_us":{})",
                          slice.collective.kind, slice.collective.ranks, json_text(slice.collective.group), slice.collective.bytes,
                          group_purpose_name(*slice.purpose), clock_.length(slice.start_ns, slice.moves_ns))
            : "";
    out_.add_event(
        R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{"device":0,"stream":{},"correlation":{},"operator":{}{}}}}})",
        category, json_text(name.empty() ? slice.name : name), kGpuProcess, thread(slice), clock_.time(slice.start_ns),
        clock_.length(slice.start_ns, slice.end_ns), thread(slice), correlation, json_text(slice.name), collective);
  }

  const JobStep& job_;
  const RankStep& rank_;
  TraceEvents out_;
  TraceClock clock_;
};

}  // namespace

void write_rank_trace(const JobStep& job, size_t captured, const Gpu& gpu, std::ostream& out) { RankTrace(job, captured, out).write(gpu); }

}  // namespace gpucast
