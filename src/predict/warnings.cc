#include "src/predict/warnings.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>

#include "src/base/bytes.h"
#include "src/base/rank_options.h"

namespace gpucast {
namespace {

std::string last_exception(const Trace& trace) {
  std::string text;
  for (const Mark& mark : trace.marks) {
    if (mark.kind == MarkKind::exception) text = trace.strings.text(mark.text);
  }
  return text.substr(0, text.find('\n'));
}

void how_it_ended(const Trace& trace, Prediction* out) {
  const auto warn = [&](const char* code, std::string message) { out->warnings.push_back({code, std::move(message)}); };
  const std::string& reason = trace.end.reason;
  if (out->oom && out->oom->ended_run) {
    warn("out_of_memory",
         fmt::format("The {} ended in an allocation of {} that failed with {} free. The peaks are those reached before it.",
                     out->source == "snapshot" ? "history" : "run", format_bytes(out->oom->requested_bytes),
                     format_bytes(out->oom->free_bytes)));
  } else if (reason == "exception") {
    const std::string what = last_exception(trace);
    warn("script_raised",
         fmt::format("The script raised an exception{}{}. The report covers what ran before it.", what.empty() ? "" : ": ", what));
  }
  if (out->oom && !out->oom->ended_run) {
    std::string text = fmt::format("{} allocations failed for want of memory, and the script went on", out->oom->count);
    if (out->failed_attempts_reserved_bytes > 0)
      text += fmt::format(" with less: the peaks are those after the last failure ({} were reserved before)",
                          format_bytes(out->failed_attempts_reserved_bytes));
    warn("allocations_failed", text + ".");
  }
  if (reason == "timeout")
    warn("timeout",
         fmt::format("The capture ended by its time limit after {} optimizer steps. Allow more: --timeout SECONDS.", out->steps));
  if (reason == "interrupted") warn("interrupted", "The capture was interrupted. The report covers what ran before.");
  if (reason == "killed") {
    warn("killed",
         fmt::format("The script was {} before its capture was written. What is left is the virtual GPU's own log: the memory that "
                     "PyTorch reserved, not what it allocated in it.",
                     trace.end.how));
  }
  if (out->source == "snapshot" || out->partial) return;
  if (out->steps == 0) {
    warn("no_optimizer_step", "No optimizer step was taken: gradients and optimizer state may be missing from the peak.");
  } else if (out->steps_requested > 0 && out->steps < out->steps_requested && reason == "script_end") {
    warn("fewer_steps", fmt::format("The script ended after {} of {} optimizer steps.", out->steps, out->steps_requested));
  }
}

}  // namespace

void describe_run(const Trace& trace, Prediction* out) {
  const Header& header = trace.header;
  out->source = header.source.empty() ? "vgpu" : header.source;
  out->enforced_capacity = header.enforce_capacity;
  out->torch = trace.process.torch;
  out->cuda = trace.process.cuda;
  out->python = trace.process.python;
  out->command = header.command;
  out->what_if = header.what_if;
  out->rank = trace.process.rank;
  out->world_size = trace.process.world_size;
  out->rank_options =
      rank_options(header.gpus > 1 ? header.gpus : 0, header.asked_world_size, fmt::format("{}", fmt::join(header.asked_ranks, ",")));
  out->device_index = trace.process.device;
  out->steps_requested = header.steps_requested;
  out->steps_rule = header.steps_rule;
  out->end_reason = trace.end.reason;
  out->partial = trace.end.reason == "killed";
  out->failed_ranks = trace.command_end.failed_ranks;
  out->events = static_cast<int64_t>(trace.events.size());
  out->kernels = trace.kernels;
  out->library_calls = trace.library_calls;
  out->profile = trace.profile;
}

void describe_card(const Trace& trace, const Gpu& captured, const Gpu& gpu, bool gpu_named, Prediction* out) {
  out->gpu_id = gpu.id;
  out->gpu_name = gpu.name;
  out->gpu_total_bytes = static_cast<int64_t>(gpu.total_memory_bytes);
  out->gpu_total_measured = gpu.total_memory_measured;
  out->gpu_chosen = gpu_named || trace.header.gpu_chosen;
  out->captured_gpu_id = captured.id;
}

std::string nothing_to_judge(const Trace& trace, const Prediction& prediction) {
  const std::string& reason = trace.end.reason;
  const std::string step = "its first optimizer step: a step's memory is not known";
  if (reason == "killed") return fmt::format("the script was {}: its memory need is not known", trace.end.how);
  if (prediction.source == "snapshot" || prediction.steps > 0) return "";
  if (reason.empty() && prediction.source == "vgpu") return "the capture is cut off before " + step;
  if (reason == "exception") return "the script raised an exception before " + step;
  if (reason == "timeout") return "the time limit came before " + step;
  if (reason == "interrupted") return "the run was interrupted before " + step;
  if (trace.command_end.exit_code != 0) return fmt::format("the script failed (exit code {}) before {}", trace.command_end.exit_code, step);
  return "";
}

void add_warnings(const Trace& trace, const AllocConf& conf, const Comparison& comparison, const Gpu& captured, const Gpu& gpu,
                  Prediction* out) {
  const auto warn = [&](const char* code, std::string message) { out->warnings.push_back({code, std::move(message)}); };
  how_it_ended(trace, out);
  for (const WhatIf& what_if : out->what_if) {
    if (!what_if.acted) {
      warn("what_if_without_effect",
           fmt::format("The what-if {} changed nothing{}{}.", what_if.name, what_if.did.empty() ? "" : ": ", what_if.did));
    }
  }
  if (out->varying_input) {
    warn("lengths_vary",
         fmt::format("Input lengths differ from step to step: {} from {} to {}. The memory of a longer one is not known; gpucast run "
                     "--max-length N pads every batch of texts to the longest that may come.",
                     out->varying_input->name.empty() ? "one" : out->varying_input->name, out->varying_input->smallest,
                     out->varying_input->largest));
  }
  if (gpu.compute_major != captured.compute_major) {
    warn("other_capability",
         fmt::format("Captured as {} (capability {}.{}), judged for {} ({}.{}): its libraries choose other kernels and workspaces. Exact: "
                     "gpucast run --gpu {}.",
                     captured.id, captured.compute_major, captured.compute_minor, gpu.id, gpu.compute_major, gpu.compute_minor, gpu.id));
  }
  if (out->enforced_capacity && gpu.id != captured.id) {
    warn("capacity_of_other_card",
         fmt::format("Captured with {}'s capacity enforced: the allocator may have given memory back that {} would keep.", captured.id,
                     gpu.id));
  }
  if (comparison.possible && !comparison.matches_recorded) {
    warn("counters_disagree", fmt::format("The allocator's history and {} disagree ({}).",
                                          out->source == "snapshot" ? "the snapshot's segments" : "PyTorch's own counters",
                                          fmt::join(comparison.differences, "; ")));
  }
  for (size_t i = 0; i < static_cast<size_t>(Problem::count_); ++i) {
    const auto problem = static_cast<Problem>(i);
    const ProblemCount& row = trace.problems[problem];
    const ProblemInfo& info = problem_info(problem);
    if (row.count == 0 || info.severity != Severity::warning) continue;
    const std::string where =
        row.first.empty() ? "" : fmt::format(" ({}{})", row.count > 1 ? fmt::format("{} times; first: ", row.count) : "", row.first);
    warn(info.name, info.sentence + where);
  }
  // Several libraries' defaults, or several parts of the log, may name the same call.
  std::vector<UnsupportedCall> calls = trace.unsupported;
  std::sort(calls.begin(), calls.end(),
            [](const auto& a, const auto& b) { return std::tie(a.library, a.name) < std::tie(b.library, b.name); });
  for (size_t i = 0; i < calls.size();) {
    int64_t count = 0;
    size_t j = i;
    for (; j < calls.size() && calls[j].library == calls[i].library && calls[j].name == calls[i].name; ++j) count += calls[j].count;
    warn("unsupported_call",
         fmt::format("{} ({}) was called {} and answered \"not supported\": what depends on it may differ from a real card.", calls[i].name,
                     calls[i].library, count == 1 ? "once" : fmt::format("{} times", count)));
    i = j;
  }
  if (trace.vgpu_lines_dropped > 0) {
    warn("log_dropped",
         fmt::format("The virtual GPU's log was full and left out {} lines: some inputs and workspaces may be counted as something else.",
                     trace.vgpu_lines_dropped));
  }
  for (const std::string& setting : conf.unknown) {
    warn("alloc_conf", fmt::format("The allocator setting '{}' was not understood; block sizes may be off.", setting));
  }
  for (const CaptureWarning& warning : trace.warnings) warn(warning.code.c_str(), warning.message);
}

}  // namespace gpucast
