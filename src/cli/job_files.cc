#include "src/cli/job_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/base/say.h"
#include "src/cli/write_output.h"
#include "src/report/job_html.h"
#include "src/report/job_trace.h"

namespace gpucast::cli {
namespace {

namespace fs = std::filesystem;

// The ending that PyTorch's profiler gives its traces.
constexpr const char* kRankTraceEnd = ".pt.trace.json.gz";

std::vector<fs::path> rank_traces(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("rank") && entry.path().string().ends_with(kRankTraceEnd)) out.push_back(entry.path());
  return out;
}

// Tools read all traces of a folder as one job, so traces of another job are removed first.
void make_trace_folder(const std::string& folder, bool force) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw Error("the folder of --trace cannot be made", folder, failed.message());
  const std::vector<fs::path> old = rank_traces(folder);
  if (old.empty()) return;
  if (!force) throw Error("the folder of --trace has traces of ranks", folder, "choose another folder, or replace them with --force");
  for (const fs::path& path : old) fs::remove(path, failed);
}

}  // namespace

JobFiles::JobFiles(std::string trace, std::string html, bool force) : trace_(std::move(trace)), html_(std::move(html)), force_(force) {
  if (!html_.empty()) {
    check_job_page();
    html_file_.emplace(html_, force, "job.html");
  }
  if (trace_.empty()) return;
  std::error_code none;
  by_rank_ = trace_.ends_with('/') || fs::is_directory(trace_, none);
  if (by_rank_) {
    make_trace_folder(trace_, force);
  } else {
    trace_file_.emplace(trace_, force, "job.trace.json.gz");
  }
}

void JobFiles::write_rank_traces(const StepTimes& times) const {
  const CardTime& card = times.cards.front();
  for (size_t i = 0; i < card.job->captured.size(); ++i) {
    const std::string path = (fs::path(trace_) / fmt::format("rank{}{}", card.job->captured[i].rank, kRankTraceEnd)).string();
    run::CaptureFile file(path, force_, "job.trace.json.gz");
    write_output(path, &file, [&](std::ostream& out) { write_rank_trace(*card.job, i, find_gpu(card.gpu_id), out); });
  }
  say("gpucast: {} has a trace of each rank, as PyTorch's profiler writes them\n", trace_);
}

void JobFiles::write(const StepTimes& times) {
  if (!wanted()) return;
  const CardTime& card = times.cards.front();
  if (!card.job)
    throw Error(fmt::format("{} shows how ranks wait for each other, and one process trains alone", html_.empty() ? "--trace" : "--html"),
                html_.empty() ? trace_ : html_, "`gpucast export FILE --to html` or `--to perfetto` shows a step of one rank");
  if (html_file_) {
    const std::string path = write_output(html_, &*html_file_, [&](std::ostream& out) { write_job_html(times, out); });
    say("gpucast: {} is written; open it in a browser\n", path);
  }
  if (by_rank_) {
    write_rank_traces(times);
  } else if (trace_file_) {
    const std::string path =
        write_output(trace_, &*trace_file_, [&](std::ostream& out) { write_job_trace(*card.job, find_gpu(card.gpu_id), out); });
    say("gpucast: {} is written; open it at https://ui.perfetto.dev\n", path);
  }
}

}  // namespace gpucast::cli
