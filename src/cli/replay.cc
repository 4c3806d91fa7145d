// gpucast replay FILE: replays a history with other allocator settings or smaller cards.

#include "gpucast/replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/ledger.h"
#include "gpucast/profile.h"
#include "gpucast/replay_events.h"
#include "gpucast/replay_report.h"
#include "src/attribution/attribute.h"
#include "src/base/alloc_conf.h"
#include "src/base/bytes.h"
#include "src/base/parse_size.h"
#include "src/cli/load_trace.h"
#include "src/cli/subcommand.h"
#include "src/ledger/device_ledger.h"
#include "src/lifetime/lifetime.h"
#include "src/predict/place.h"
#include "src/replay/check_alloc_conf.h"
#include "src/replay/load_history.h"
#include "src/replay/tune.h"

namespace gpucast::cli {
namespace {

struct ReplayCommand {
  std::string file, format = "text", events, torch_version, addresses, gpu;
  std::vector<std::string> alloc_confs, capacities;
  std::optional<int> device;
  bool tune = false, force = false;
};

struct Capacity {
  std::optional<int64_t> bytes;
  std::string gpu;
  int64_t device_total_bytes = 0;  // the card's memory as CUDA reports it; 0: no card was named
};

int64_t reserved_bytes(const OutOfMemory& details) { return details.allocated_bytes + details.unallocated_bytes; }

std::string torch_message(const OutOfMemory& details) {
  std::string text =
      fmt::format("CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of {} of which {} is free. ",
                  torch_size(details.requested_bytes), torch_size(details.device_total_bytes), torch_size(details.device_free_bytes));
  if (details.allowed_bytes) text += fmt::format("{} allowed; ", torch_size(*details.allowed_bytes));
  text += fmt::format("Of the allocated memory {} is allocated by PyTorch, ", torch_size(details.allocated_bytes));
  if (details.private_pool_bytes > 0) {
    text += fmt::format("with {} allocated in private pools (e.g., CUDA Graphs), ", torch_size(details.private_pool_bytes));
  }
  return text + fmt::format("and {} is reserved by PyTorch but unallocated.", torch_size(details.unallocated_bytes));
}

// Finds an event's place in the program. The attribution is computed at the first use.
class Places {
 public:
  explicit Places(const std::optional<Trace>& trace) : trace_(trace) {}
  Place find_place(int64_t event) {
    Place place;
    place.event = event;
    if (!trace_) return place;
    if (!attribution_ && trace_->header.source == "snapshot") attribution_.emplace();  // a snapshot has only stacks
    if (!attribution_) {
      Problems problems;
      const AllocConf conf = parse_alloc_conf(trace_->process.alloc_conf, trace_->process.torch);
      attribution_ = attribute(*trace_, follow_blocks(trace_->events, conf, &problems), &problems);
    }
    return place_of_event(*trace_, *attribution_, static_cast<uint32_t>(event));
  }

 private:
  const std::optional<Trace>& trace_;
  std::optional<Attribution> attribution_;
};

class Command {
 public:
  explicit Command(ReplayCommand options) : options_(std::move(options)) {}

  int run() {
    const bool to_standard_output = options_.events == "-";
    if (!options_.events.empty() && (options_.alloc_confs.size() > 1 || capacity_count() > 1)) {
      throw Error("--events writes one replay, and these options need several", "--events " + options_.events,
                  "give at most one --alloc-conf and one --capacity (or --gpu)");
    }
    check_torch_version(options_.torch_version);
    std::vector<int64_t> sizes;
    sizes.reserve(options_.capacities.size());
    for (const std::string& text : options_.capacities) sizes.push_back(parse_size(text, "--capacity", "11.5GiB"));
    const std::optional<Gpu> gpu = options_.gpu.empty() ? std::nullopt : std::optional(find_gpu(options_.gpu));

    if (looks_like_profile(options_.file)) {
      OrchestrateOptions profile;
      profile.torch = options_.torch_version;
      loaded_.trace = load_trace(options_.file, options_.device, gpu ? std::optional(gpu->id) : std::nullopt, profile);
      loaded_.history = history_from_trace(*loaded_.trace);
    } else {
      loaded_ = load_history(options_.file, options_.device);
    }
    History& history = loaded_.history;
    report_.source = history.source;
    report_.file = options_.file;
    report_.partial = history.partial();
    report_.events = static_cast<int64_t>(history.actions.empty() ? history.ops.size() : history.actions.size());
    const std::string torch = options_.torch_version.empty() ? history.torch : options_.torch_version;
    for (const std::string& conf : options_.alloc_confs) check_alloc_conf(conf, torch);
    open_events();
    note_problems();

    const bool events_file = !loaded_.trace.has_value();
    const bool asked =
        !options_.alloc_confs.empty() || capacity_count() > 0 || !options_.torch_version.empty() || !options_.addresses.empty();
    if (!events_file) {
      ReplaySettings own;
      own.alloc_conf = history.alloc_conf;
      own.addresses = AddressPolicy::recorded;
      add_row(own, {}, "recorded", !asked);
    }
    history.torch = torch;
    report_.torch = torch;

    const bool ascending = options_.addresses.empty() ? events_file : options_.addresses == "ascending";
    const AddressPolicy addresses = ascending ? AddressPolicy::ascending : AddressPolicy::linux_driver;
    std::vector<Capacity> capacities;
    capacities.reserve(sizes.size() + 1);
    for (const int64_t size : sizes) capacities.push_back({size, "", 0});
    if (gpu) capacities.push_back(capacity_of(*gpu));
    if (capacities.empty()) capacities.emplace_back();
    std::vector<std::string> confs = options_.alloc_confs;
    if (confs.empty()) confs.push_back(history.alloc_conf);
    bool failed = false;
    if (asked || events_file) {
      bool first = true;
      for (const std::string& conf : confs) {
        for (const Capacity& capacity : capacities) {
          ReplaySettings settings;
          settings.alloc_conf = conf;
          settings.capacity_bytes = capacity.bytes;
          settings.device_total_bytes = capacity.device_total_bytes;
          settings.addresses = addresses;
          settings.stop_at_oom = !events_file;
          add_row(settings, capacity, ascending ? "ascending" : "linux", true);
          const std::optional<ReplayOomReport>& oom = report_.rows.back().oom;
          if (first && oom && !oom->recorded) failed = true;
          first = false;
        }
      }
    }
    if (options_.tune) {
      for (const Capacity& capacity : capacities) add_tuning(capacity, addresses);
    }
    const std::string text = options_.format == "json" ? replay_json(report_) : replay_text(report_);
    std::fputs(text.c_str(), to_standard_output ? stderr : stdout);
    return failed ? kExitNo : kExitYes;
  }

 private:
  size_t capacity_count() const { return options_.capacities.size() + (options_.gpu.empty() ? 0 : 1); }

  // Before the long work, so that a path that cannot be written is an error at once.
  void open_events() {
    if (options_.events.empty() || options_.events == "-") return;
    if (std::filesystem::exists(options_.events) && !options_.force) {
      throw Error("the file exists", options_.events, "choose another name, or overwrite it: --force");
    }
    events_file_.open(options_.events, std::ios::binary | std::ios::trunc);
    if (!events_file_) throw Error("the file cannot be written", options_.events, "check the folder and its permissions");
  }

  void note_problems() {
    if (!loaded_.trace) return;
    for (size_t i = 0; i < static_cast<size_t>(Problem::count_); ++i) {
      const auto problem = static_cast<Problem>(i);
      const ProblemCount& count = loaded_.trace->problems[problem];
      const ProblemInfo& info = problem_info(problem);
      if (count.count == 0 || info.severity != Severity::warning) continue;
      report_.warnings.push_back({info.name, fmt::format("{} ({}x, first: {})", info.sentence, count.count, count.first)});
    }
    if (report_.partial) {
      report_.warnings.push_back({"partial_history",
                                  "The history begins in the middle: what was there is reconstructed, what happened before "
                                  "is not known, higher peaks included."});
    }
  }

  Capacity capacity_of(const Gpu& gpu) const {
    Capacity out;
    out.gpu = gpu.id;
    out.device_total_bytes = static_cast<int64_t>(gpu.total_memory_bytes);
    const int cuda = loaded_.trace ? cuda_major_of(loaded_.trace->process.cuda) : 0;
    auto bytes = static_cast<int64_t>(usable_capacity_bytes(gpu, cuda));
    if (loaded_.trace) bytes -= ledger_total(ledger_from_capture(*loaded_.trace)).expected_bytes;
    out.bytes = std::max<int64_t>(bytes, 0);
    return out;
  }

  void add_row(const ReplaySettings& settings, const Capacity& capacity, const char* addresses, bool write_events) {
    const History& history = loaded_.history;
    ReplayResult result;
    if (write_events && !options_.events.empty()) {
      std::ostream& out = options_.events == "-" ? std::cout : events_file_;
      result = replay_with_events(history, settings, out);
      out.flush();
      if (!out) throw Error("the events cannot be written", options_.events, "is the disk full?");
    } else {
      result = replay(history, settings);
    }
    ReplayRow row;
    row.alloc_conf = settings.alloc_conf;
    row.addresses = addresses;
    row.capacity_bytes = settings.capacity_bytes;
    row.gpu = capacity.gpu;
    row.peak_allocated_bytes = result.stats.peak_allocated_bytes;
    row.peak_reserved_bytes = result.stats.peak_reserved_bytes;
    const auto peak_op = static_cast<size_t>(result.peak_reserved_op);
    row.peak_event = history.first_action.empty() ? result.peak_reserved_op : history.first_action[peak_op];
    row.segments = static_cast<int64_t>(result.segments.size());
    row.largest_free_block_bytes = result.largest_free_block_at_peak_bytes;
    row.fragmentation_bytes = result.fragmentation_at_peak_bytes();
    row.rounding_bytes = result.rounding_at_peak_bytes;
    row.alloc_retries = result.stats.alloc_retries;
    row.segment_allocs = result.stats.segment_allocs;
    row.segment_frees = result.stats.segment_frees;
    // A replay at the recorded addresses may differ from the recording. An allocation that fails after that means nothing.
    const bool recorded = settings.addresses == AddressPolicy::recorded;
    row.ooms = result.stats.ooms - (recorded ? result.ooms : 0);
    row.matches_recorded = result.matches_recorded;
    row.first_difference = result.first_difference;
    const bool new_oom = result.first_oom && !recorded;
    if (new_oom || result.first_recorded_oom) {
      row.oom = describe_oom(new_oom ? *result.first_oom : *result.first_recorded_oom, !new_oom, settings);
    }
    if (report_.rows.empty()) {  // the settings of the other rows are checked already
      for (const std::string& unknown : result.unknown_settings) {
        report_.warnings.push_back(
            {"unknown_setting", fmt::format("The recording's setting '{}' is not known: replayed without it.", unknown)});
      }
    }
    report_.rows.push_back(std::move(row));
  }

  // `recorded`: the allocation also failed in the recording.
  ReplayOomReport describe_oom(const ReplayOom& first, bool recorded, const ReplaySettings& settings) {
    const History& history = loaded_.history;
    const OutOfMemory& details = first.details;
    ReplayOomReport out;
    out.recorded = recorded;
    out.stopped = settings.stop_at_oom && !recorded;
    out.place = places_.find_place(first.event);
    out.requested_bytes = history.ops[static_cast<size_t>(first.op)].size_bytes;
    out.segment_bytes = details.requested_bytes;
    out.free_bytes = details.device_free_bytes;
    out.reserved_bytes = reserved_bytes(details);
    out.allocated_bytes = details.allocated_bytes;
    out.largest_free_block_bytes = first.largest_free_block_bytes;
    // The size of a recording's card is unknown. This is PyTorch's memory plus the free memory.
    out.capacity_bytes = settings.capacity_bytes.value_or(out.reserved_bytes + out.free_bytes);
    if (!out.recorded) out.message = torch_message(details);
    if (!settings.capacity_bytes && !out.recorded) return out;  // the limit is a memory fraction without a card, so no setting helps
    ReplaySettings own = settings;
    own.capacity_bytes = out.capacity_bytes;
    if (settings.addresses == AddressPolicy::recorded) {
      own.addresses = AddressPolicy::linux_driver;
      own.device_total_bytes = history.device_total_bytes;
    }
    const Tuning tuning = tune(history, own);
    for (const TriedSetting& tried : tuning.tried) {
      if (tried.survives && tried.alloc_conf != settings.alloc_conf) {
        out.saved_by.push_back({tried.alloc_conf, tried.peak_reserved_bytes, tried.driver_calls, tried.alloc_retries});
      }
    }
    out.settings_tried = static_cast<int64_t>(tuning.tried.size()) - 1;
    if (!out.recorded) {
      out.min_capacity_bytes = min_capacity_bytes(history, settings.alloc_conf);
      if (settings.alloc_conf != kExpandable) out.min_capacity_expandable_bytes = min_capacity_bytes(history, kExpandable);
    }
    return out;
  }

  void add_tuning(const Capacity& capacity, AddressPolicy addresses) {
    ReplaySettings own;
    own.alloc_conf = options_.alloc_confs.empty() ? loaded_.history.alloc_conf : options_.alloc_confs.front();
    own.capacity_bytes = capacity.bytes;
    own.device_total_bytes = capacity.device_total_bytes;
    own.addresses = addresses;
    const Tuning tuning = tune(loaded_.history, own);
    TuneReport out;
    out.capacity_bytes = capacity.bytes;
    out.gpu = capacity.gpu;
    out.own = tuning.own;
    out.best = tuning.best;
    for (const TriedSetting& tried : tuning.tried) {
      TuneRow row;
      row.alloc_conf = tried.alloc_conf;
      row.survives = tried.survives;
      row.peak_reserved_bytes = tried.peak_reserved_bytes;
      row.peak_allocated_bytes = tried.peak_allocated_bytes;
      row.rounding_bytes = tried.rounding_bytes;
      row.driver_calls = tried.driver_calls;
      row.alloc_retries = tried.alloc_retries;
      out.rows.push_back(std::move(row));
    }
    report_.tuned.push_back(std::move(out));
  }

  static constexpr const char* kExpandable = "expandable_segments:True";
  ReplayCommand options_;
  LoadedHistory loaded_;
  Places places_{loaded_.trace};
  ReplayReport report_;
  std::ofstream events_file_;
};

}  // namespace

void declare_replay(Arguments& arguments) {
  auto options = std::make_shared<ReplayCommand>();
  arguments.option("FILE", &options->file, "a capture (*.gpucast), a memory snapshot of PyTorch, or an event file").required();
  arguments.option("--alloc-conf", &options->alloc_confs, "settings as in PYTORCH_CUDA_ALLOC_CONF (\"\": the defaults); may be given again")
      .one_each_time();
  arguments.option("--capacity", &options->capacities, "what the allocator can have, e.g. 11.5GiB; may be given again").one_each_time();
  arguments.option("--gpu", &options->gpu, "the capacity of this card (see `gpucast gpus`) minus its memory outside PyTorch's allocator");
  arguments.flag("--tune", &options->tune, "try a set of settings and say which is worth a change");
  arguments.option("--events", &options->events, "write what one replay does, one JSON line an event ('-': standard output)");
  arguments.flag("--force", &options->force, "overwrite the events' file");
  arguments.option("--torch-version", &options->torch_version, "follow the rules of this PyTorch release, e.g. 2.6.0");
  arguments.option("--addresses", &options->addresses, "where the driver places segments (default: linux; for event files: ascending)")
      .one_of({"linux", "ascending"});
  arguments.option("--device", &options->device, "which GPU of a snapshot that holds several");
  arguments.option("--format", &options->format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.action([options] { return Command(*options).run(); });
}

}  // namespace gpucast::cli
