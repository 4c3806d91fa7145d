#include "src/trace/capture_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "src/base/hex.h"
#include "src/trace/read_loader.h"

namespace gpucast::capture {
namespace {

constexpr int64_t kSchemaVersion = 1;

// A word of the command, in the format of command_json(). "": neither a text nor bytes.
std::string command_word(simdjson::simdjson_result<od::value> value) {
  od::object bytes;
  if (value.get_object().get(bytes) != simdjson::SUCCESS) return text_of(value);
  std::string_view hex;
  if (bytes["hex"].get_string().get(hex) != simdjson::SUCCESS) return "";
  return bytes_from_hex(hex).value_or("");
}

// Reads a list of what-ifs, first the header's and later the process's. A process's entry that changed nothing keeps the header's entry.
void read_what_ifs(simdjson::simdjson_result<od::value> value, std::vector<WhatIf>* out) {
  od::array entries;
  if (value.get_array().get(entries) != simdjson::SUCCESS) return;
  for (auto entry : entries) {
    od::object object;
    if (entry.get_object().get(object) != simdjson::SUCCESS) return;
    WhatIf read;
    int64_t count = 0;
    each_field(object, [&](std::string_view key, auto field) {
      if (key == "name") read.name = text_of(field);
      if (key == "did") read.did = text_of(field);
      if (key == "count") (void)set_int(field, &count);
    });
    read.acted = count > 0;
    const auto known = std::find_if(out->begin(), out->end(), [&](const WhatIf& other) { return other.name == read.name; });
    if (known == out->end()) {
      out->push_back(std::move(read));
    } else {
      *known = std::move(read);
    }
  }
}

}  // namespace

void read_observed_step(Reading& reading, od::object object) {
  ObservedStep& observed = reading.trace.observed;
  std::vector<int64_t> marks, hooks;
  each_field(object, [&](std::string_view key, auto value) {
    if (key == "step") (void)set_int(value, &observed.step);
    if (key == "hooks_us") hooks = integers_of(value);
    if (key == "unix_ns") (void)set_int(value, &observed.unix_ns);
    if (key == "warm_yardstick_ns") (void)set_int(value, &observed.yardstick_ns);
    if (key == "marks") marks = integers_of(value);
    if (key != "tf32") return;
    od::object flags;
    if (value.get_object().get(flags) != simdjson::SUCCESS) return;
    each_field(flags, [&](std::string_view flag, auto set) {
      if (flag == "cublas") set_bool(set, &observed.tf32_products);
      if (flag == "cudnn") set_bool(set, &observed.tf32_convolutions);
    });
  });
  if (observed.step < 1 || observed.unix_ns <= 0 || observed.unix_ns > kLastNs || marks.size() != 2 || marks[0] < 1 ||
      marks[1] < marks[0]) {
    observed.step = 0;
    return reading.problem(Problem::bad_record, "'operators'");
  }
  for (size_t i = 1; i < hooks.size(); i += 2) observed.hooks_us[hooks[i - 1]] = std::clamp<int64_t>(hooks[i], 0, kLastNs / 1000);
  observed.first_mark = marks[0];
  observed.last_mark = marks[1];
}

void read_header(Reading& reading, od::object object) {
  if (reading.has_header) {
    reading.past_first_process = true;
    return reading.problem(Problem::several_processes, "a second header");
  }
  reading.has_header = true;
  Header& h = reading.trace.header;
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "schema_version") (void)set_int(value, &h.schema_version);
    if (key == "gpucast_version") h.gpucast_version = text_of(value);
    if (key == "source") h.source = text_of(value);
    if (key == "gpu_chosen") set_bool(value, &h.gpu_chosen);
    if (key == "enforce_capacity") set_bool(value, &h.enforce_capacity);
    if (key == "capacity_bytes") (void)set_int(value, &h.capacity_bytes);
    if (key == "steps_rule") h.steps_rule = text_of(value);
    if (key == "steps_requested") (void)set_int(value, &h.steps_requested);
    if (key == "run_s" && value.get_double().get(h.run_s) != simdjson::SUCCESS) h.run_s = 0;
    if (key == "folder") h.folder = text_of(value);
    if (key == "what_if") read_what_ifs(value, &h.what_if);
    if (key == "gpus") (void)set_int(value, &h.gpus);
    if (key == "world_size") (void)set_int(value, &h.asked_world_size);
    if (key == "ranks") h.asked_ranks = integers_of(value);
    if (key == "command") {
      od::array words;
      if (value.get_array().get(words) != simdjson::SUCCESS) return;
      for (auto word : words) h.command.push_back(command_word(word));
    }
    if (key == "gpu") {
      od::object gpu;
      if (value.get_object().get(gpu) != simdjson::SUCCESS) return;
      each_field(gpu, [&](std::string_view field, auto of_gpu) {
        int64_t number = 0;
        if (field == "id") h.gpu.id = text_of(of_gpu);
        if (field == "name") h.gpu.name = text_of(of_gpu);
        if (field == "total_memory_bytes") (void)set_int(of_gpu, &h.gpu.total_memory_bytes);
        if (field == "compute_capability") (void)std::sscanf(text_of(of_gpu).c_str(), "%d.%d", &h.gpu.compute_major, &h.gpu.compute_minor);
        if (field == "compute_major" && set_int(of_gpu, &number)) h.gpu.compute_major = static_cast<int>(number);
        if (field == "compute_minor" && set_int(of_gpu, &number)) h.gpu.compute_minor = static_cast<int>(number);
      });
    }
  });
  if (h.schema_version > kSchemaVersion) {
    throw Error(fmt::format("the capture has schema version {}, this gpucast reads up to {}", h.schema_version, kSchemaVersion),
                fmt::format("{}, line {}", reading.trace.path, reading.lines.line_number()),
                h.gpucast_version.empty() ? "use a newer gpucast" : fmt::format("use gpucast {} or newer", h.gpucast_version));
  }
  if (h.schema_version < 1) {
    throw Error("the capture's header has no schema_version", fmt::format("{}, line {}", reading.trace.path, reading.lines.line_number()),
                "capture again");
  }
  if (!whole) reading.problem(Problem::bad_record, "'header'");
}

void read_process(Reading& reading, od::object object) {
  if (reading.has_process) {
    reading.past_first_process = true;
    return reading.problem(Problem::several_processes, "a second process");
  }
  reading.has_process = true;
  Process& p = reading.trace.process;
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "pid") (void)set_int(value, &p.pid);
    if (key == "rank") (void)set_int(value, &p.rank);
    if (key == "local_rank") (void)set_int(value, &p.local_rank);
    if (key == "world_size") (void)set_int(value, &p.world_size);
    if (key == "device") (void)set_int(value, &p.device);
    if (key == "python") p.python = text_of(value);
    if (key == "torch") p.torch = text_of(value);
    if (key == "cuda") p.cuda = text_of(value);
    if (key == "torch_folder") p.torch_folder = text_of(value);
    if (key == "alloc_conf") p.alloc_conf = text_of(value);
    if (key == "cudnn_required") p.cudnn_required = text_of(value);
    if (key == "cudnn_asked") p.cudnn_asked = text_of(value);
    if (key == "cudnn_not_asked") p.cudnn_not_asked = text_of(value);
    if (key == "places") p.places = raw_text_of(value);
    if (key == "what_if") read_what_ifs(value, &reading.trace.header.what_if);
  });
  if (!whole) reading.problem(Problem::bad_record, "'process'");
}

void read_stack(Reading& reading, od::object object) {
  int64_t id = -1;
  Stack stack;
  stack.first_frame = static_cast<uint32_t>(reading.trace.stack_frames.size());
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "id") (void)set_int(value, &id);
    if (key == "frames") {
      od::array frames;
      if (value.get_array().get(frames) != simdjson::SUCCESS) return;
      for (auto entry : frames) {
        od::array parts;
        if (entry.get_array().get(parts) != simdjson::SUCCESS) continue;
        Elements elements(parts);
        Frame frame;
        std::string_view file, function;
        if (!elements.text(&file)) continue;
        frame.file = reading.trace.strings.intern(file);
        if (elements.integer(&frame.line) && elements.text(&function)) frame.function = reading.trace.strings.intern(function);
        reading.trace.stack_frames.emplace_back(static_cast<int64_t>(reading.trace.frames.size()));
        reading.trace.frames.push_back(frame);
      }
    }
  });
  // Ids are dense. A damaged one must not make us allocate gigabytes.
  if (!whole || id < 0 || id > static_cast<int64_t>(reading.lines.line_number())) return reading.problem(Problem::bad_record, "'stack'");
  stack.frame_count = static_cast<uint32_t>(reading.trace.stack_frames.size()) - stack.first_frame;
  if (reading.trace.stacks.size() <= static_cast<size_t>(id)) reading.trace.stacks.resize(static_cast<size_t>(id) + 1);
  reading.trace.stacks[static_cast<size_t>(id)] = stack;
}

void read_module(Reading& reading, od::object object) {
  int64_t id = -1, parent = -1;
  Module module;
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "id") (void)set_int(value, &id);
    if (key == "parent") (void)set_int(value, &parent);
    if (key == "name") module.name = reading.trace.strings.intern(text_of(value));
    if (key == "type") module.type = reading.trace.strings.intern(text_of(value));
  });
  if (!whole || id < 0 || id > static_cast<int64_t>(reading.lines.line_number())) return reading.problem(Problem::bad_record, "'module'");
  if (parent >= 0 && parent < INT32_MAX) module.parent = ModuleId(parent);
  if (reading.trace.modules.size() <= static_cast<size_t>(id)) reading.trace.modules.resize(static_cast<size_t>(id) + 1);
  reading.trace.modules[static_cast<size_t>(id)] = module;
}

void read_eof(Reading& reading, od::object object) {
  int64_t lines = -1;
  reading.has_eof = true;
  if (!set_int(object["lines"], &lines)) return reading.problem(Problem::bad_record, "'eof'");
  const auto before = static_cast<int64_t>(reading.lines.line_number()) - 1;
  if (lines != before) reading.problem(Problem::lines_missing, fmt::format("it says {}, there are {}", lines, before));
}

void read_clock(Reading& reading, od::object object) {
  ObservedStep& observed = reading.trace.observed;
  each_field(object, [&](std::string_view key, auto value) {
    if (key == "unix_ns") (void)set_int(value, &observed.clock_unix_ns);
    if (key == "order") set_bool(value, &observed.has_order);
  });
  if (observed.clock_unix_ns > 0 && observed.clock_unix_ns <= kLastNs) return;
  observed.clock_unix_ns = 0;
  reading.problem(Problem::bad_record, "'clock'");
}

void read_loader_record(Reading& reading, od::object /*object*/) {
  if (!read_loader(reading.line, &reading.trace.loader)) reading.problem(Problem::bad_record, "'loader'");
}

void read_unobserved_steps(Reading& reading, od::object object) {
  std::vector<int64_t>& steps = reading.trace.observed.unobserved_ns;
  int64_t least_ns = 0;
  each_field(object, [&](std::string_view key, auto value) {
    if (key == "least_ns") (void)set_int(value, &least_ns);
    if (key == "cpu_ns") steps = integers_of(value);
    if (key == "pieces") (void)set_int(value, &reading.trace.observed.unobserved_pieces);
  });
  if (!steps.empty()) steps.insert(steps.begin(), least_ns);
  if (!steps.empty() && std::ranges::all_of(steps, [](int64_t ns) { return ns > 0 && ns <= kLastNs; })) return;
  steps.clear();
  reading.problem(Problem::bad_record, "'unobserved_steps'");
}

constexpr int64_t kMostRanks = 1 << 20;

void read_communicators(Reading& reading, od::object object) {
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "node_ranks") (void)set_int(value, &reading.trace.node_ranks);
    od::object settings;
    if (key == "nccl" && value.get_object().get(settings) == simdjson::SUCCESS)
      each_field(settings, [&](std::string_view name, auto text) { reading.trace.nccl_settings[std::string(name)] = text_of(text); });
    od::array groups;
    if (key != "groups" || value.get_array().get(groups) != simdjson::SUCCESS) return;
    for (auto entry : groups) {
      od::object group;
      if (entry.get_object().get(group) != simdjson::SUCCESS) continue;
      Communicator& made = reading.trace.communicators.emplace_back();
      each_field(group, [&](std::string_view field, auto of_group) {
        if (field == "name") made.name = text_of(of_group);
        if (field == "ranks") made.ranks = integers_of(of_group);
        od::array descriptions;
        if (field == "descriptions" && of_group.get_array().get(descriptions) == simdjson::SUCCESS)
          for (auto description : descriptions) made.descriptions.push_back(text_of(description));
      });
      const bool usable =
          !made.name.empty() && std::ranges::all_of(made.ranks, [](int64_t rank) { return rank >= 0 && rank < kMostRanks; });
      if (!usable) reading.trace.communicators.pop_back();
    }
  });
  reading.trace.node_ranks = std::clamp<int64_t>(reading.trace.node_ranks, 0, kMostRanks);
  if (!whole) reading.problem(Problem::bad_record, "'communicators'");
}

constexpr size_t kMostHolders = 1000;

void read_holders(Reading& reading, od::object object) {
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    od::array holders;
    if (key == "collected") {
      for (const int64_t address : integers_of(value)) reading.trace.collected.push_back(static_cast<uint64_t>(address));
    }
    if (key != "holders" || value.get_array().get(holders) != simdjson::SUCCESS) return;
    for (auto entry : holders) {
      od::object fields;
      if (entry.get_object().get(fields) != simdjson::SUCCESS || reading.trace.kept_holders.size() >= kMostHolders) continue;
      KeptHolder& holder = reading.trace.kept_holders.emplace_back();
      each_field(fields, [&](std::string_view field, auto of_holder) {
        if (field == "name") holder.name = text_of(of_holder);
        if (field == "what") holder.what = text_of(of_holder);
        if (field == "container") holder.container = text_of(of_holder);
        if (field == "node") holder.node = text_of(of_holder);
        if (field == "length") (void)set_int(of_holder, &holder.length);
        if (field == "bound") (void)set_int(of_holder, &holder.bound);
        if (field == "removes") set_bool(of_holder, &holder.removes);
        if (field == "graph") set_bool(of_holder, &holder.graph);
        od::array list;
        if (field != "kept_at" && field != "addresses") return;
        if (field == "addresses") {
          for (const int64_t address : integers_of(of_holder)) holder.addresses.push_back(static_cast<uint64_t>(address));
        } else if (of_holder.get_array().get(list) == simdjson::SUCCESS) {
          for (auto line : list) holder.kept_at.push_back(text_of(line));
        }
      });
      holder.length = std::clamp<int64_t>(holder.length, 0, INT32_MAX);
      holder.bound = std::clamp<int64_t>(holder.bound, 0, INT32_MAX);
    }
  });
  if (!whole) reading.problem(Problem::bad_record, "'holders'");
}

void read_warning(Reading& reading, od::object object) {
  CaptureWarning warning;
  each_field(object, [&](std::string_view key, auto value) {
    if (key == "code") warning.code = text_of(value);
    if (key == "message") warning.message = text_of(value);
  });
  reading.trace.warnings.push_back(std::move(warning));
}

void read_unsupported(Reading& reading, od::object object) {
  UnsupportedCall call;
  each_field(object, [&](std::string_view key, auto value) {
    if (key == "library") call.library = text_of(value);
    if (key == "name") call.name = text_of(value);
    if (key == "count") (void)set_int(value, &call.count);
  });
  call.count = std::clamp<int64_t>(call.count, 1, 1'000'000'000);
  reading.trace.unsupported.push_back(std::move(call));
}

void read_vgpu_end(Reading& reading, od::object object) {
  each_field(object, [&](std::string_view key, auto value) {
    if (key == "dropped") (void)set_int(value, &reading.trace.vgpu_lines_dropped);
    if (key == "peak_device_bytes") (void)set_int(value, &reading.trace.vgpu_peak_device_bytes);
  });
}

void read_command_end(Reading& reading, od::object object) {
  CommandEnd& e = reading.trace.command_end;
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "exit_code") (void)set_int(value, &e.exit_code);
    if (key != "failed_ranks") return;
    od::array ranks;
    if (value.get_array().get(ranks) != simdjson::SUCCESS) return;
    for (auto entry : ranks) {
      od::object fields;
      if (entry.get_object().get(fields) != simdjson::SUCCESS) continue;
      FailedRank& rank = e.failed_ranks.emplace_back();
      each_field(fields, [&](std::string_view field, auto of_rank) {
        if (field == "rank") (void)set_int(of_rank, &rank.rank);
        if (field == "what") rank.what = text_of(of_rank);
      });
    }
  });
  if (!whole) reading.problem(Problem::bad_record, "'command_end'");
}

void read_end(Reading& reading, od::object object) {
  CaptureEnd& e = reading.trace.end;
  reading.has_end = true;
  const auto set_optional = [](auto value, std::optional<int64_t>* out) {
    int64_t number = 0;
    if (set_int(value, &number)) *out = number;
  };
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "reason") e.reason = text_of(value);
    if (key == "how") e.how = text_of(value);
    if (key == "exit_code") (void)set_int(value, &e.exit_code);
    if (key == "optimizer_steps") (void)set_int(value, &e.optimizer_steps);
    if (key == "torch_stats") {
      od::object stats;
      if (value.get_object().get(stats) != simdjson::SUCCESS) return;
      TorchStats& s = e.torch_stats.emplace();
      each_field(stats, [&](std::string_view field, auto of_stats) {
        if (field == "peak_allocated_bytes") set_optional(of_stats, &s.peak_allocated_bytes);
        if (field == "peak_reserved_bytes") set_optional(of_stats, &s.peak_reserved_bytes);
        if (field == "allocated_bytes") set_optional(of_stats, &s.allocated_bytes);
        if (field == "reserved_bytes") set_optional(of_stats, &s.reserved_bytes);
        if (field == "alloc_retries") (void)set_int(of_stats, &s.alloc_retries);
        if (field == "ooms") (void)set_int(of_stats, &s.ooms);
      });
    }
    if (key == "segments") {
      od::array segments;
      if (value.get_array().get(segments) != simdjson::SUCCESS) return;
      auto& list = e.segments.emplace();
      for (auto entry : segments) {
        od::array parts;
        if (entry.get_array().get(parts) != simdjson::SUCCESS) continue;
        Elements elements(parts);
        RecordedSegment segment;
        if (elements.address(&segment.address) && elements.size(&segment.size_bytes) && elements.address(&segment.stream))
          list.push_back(segment);
      }
    }
  });
  if (!whole) reading.problem(Problem::bad_record, "'end'");
}

}  // namespace gpucast::capture
