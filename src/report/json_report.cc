// The report for scripts. Fields are added, not removed: docs/reference/report-json.md is the contract.

#include "gpucast/report.h"
#include "src/report/growth_json.h"
#include "src/report/json_parts.h"

namespace gpucast {
namespace {

Json peak_json(const Prediction& p) {
  Json allocated = place_json(p.peak_allocated.place);
  allocated["reserved_bytes"] = p.peak_allocated.reserved_bytes;
  Json reserved = place_json(p.peak_reserved.place);
  reserved["allocated_bytes"] = p.peak_reserved.allocated_bytes;
  const auto known = [&](int64_t bytes) { return p.partial ? Json() : Json(bytes); };
  return {{"allocated_bytes", known(p.peak_allocated.bytes)},
          {"reserved_bytes", p.peak_reserved.bytes},
          {"free_but_reserved_bytes", known(p.free_but_reserved_bytes)},
          {"allocated_at", std::move(allocated)},
          {"reserved_at", std::move(reserved)}};
}

Json gpu_json(const Prediction& p) {
  return {{"name", p.gpu_id},
          {"capacity_bytes", p.gpu_total_bytes},
          {"full_name", p.gpu_name},
          {"capacity_measured", p.gpu_total_measured},
          {"chosen", p.gpu_chosen},
          {"captured_as", p.captured_gpu_id},
          {"enforced_capacity", p.enforced_capacity}};
}

Json ranks_json(const Ranks& ranks) {
  const RankLine* const judged = &ranks.lines[ranks.judged];
  return list_json(ranks.lines, [judged](const RankLine& line) {
    return Json{{"rank", line.rank},
                {"device", line.device},
                {"judged", &line == judged},
                {"verdict", verdict_name(line.verdict)},
                {"allocated_bytes", line.allocated_bytes},
                {"reserved_bytes", line.reserved_bytes},
                {"expected_bytes", line.expected_bytes},
                {"request_bytes", line.request_bytes},
                {"capture", line.capture_path.empty() ? Json() : Json(line.capture_path)}};
  });
}

Json oom_json(const OomPlace& oom) {
  Json out = place_json(oom.place);
  out["requested_bytes"] = oom.requested_bytes;
  out["free_bytes"] = oom.free_bytes;
  out["count"] = oom.count;
  out["ended_run"] = oom.ended_run;
  return out;
}

Json profile_json(const ProfileSummary& profile) {
  Json out = {{"method", profile.method},
              {"traced_blocks", profile.blocks},
              {"traced_bytes", profile.bytes},
              {"added_blocks", profile.added_blocks},
              {"added_bytes", profile.added_bytes}};
  out["fates"] = list_json(profile.fates, [](const ProfileBytesLine& line) {
    return Json{{"name", line.name}, {"blocks", line.blocks}, {"bytes", line.bytes}};
  });
  out["rules"] = list_json(profile.rules, [](const ProfileRuleLine& line) {
    return Json{{"name", line.name},
                {"what", line.what},
                {"dropped_blocks", line.dropped_blocks},
                {"dropped_bytes", line.dropped_bytes},
                {"added_blocks", line.added_blocks},
                {"added_bytes", line.added_bytes},
                {"changed_blocks", line.changed_blocks}};
  });
  return out;
}

Json convolutions_json(const Convolutions& c) {
  return {{"few_channels", c.few_channels}, {"depthwise", c.depthwise}, {"grouped", c.grouped},
          {"pointwise", c.pointwise},       {"dense", c.dense},         {"unknown", c.unknown},
          {"not_float32", c.not_float32},   {"asked", c.asked}};
}

}  // namespace

std::string json_report(const Prediction& p) {
  Json out;
  out["schema_version"] = 1;
  out["source"] = p.source;
  out["gpu"] = gpu_json(p);
  out["environment"] = {{"torch", p.torch}, {"cuda", p.cuda}, {"python", p.python}, {"rank", p.rank}, {"world_size", p.world_size}};
  out["command"] = p.command;
  out["what_if"] = list_json(p.what_if, [](const WhatIf& what_if) {
    return Json{{"name", what_if.name}, {"acted", what_if.acted}, {"did", what_if.did}};
  });
  out["steps"] = p.steps;
  out["steps_requested"] = p.steps_requested;
  if (!p.steps_rule.empty()) out["steps_rule"] = p.steps_rule;
  out["end_reason"] = p.end_reason;
  out["partial"] = p.partial;
  out["failed_ranks"] = list_json(p.failed_ranks, [](const FailedRank& failed) {
    return Json{{"rank", failed.rank}, {"what", failed.what}};
  });
  if (p.ranks) {
    out["ranks"] = ranks_json(*p.ranks);
    out["rank_differences"] = list_json(p.ranks->differences, [](const CategoryDifference& difference) {
      return Json{{"name", difference.name}, {"bytes", difference.bytes}};
    });
  }
  out["verdict"] = verdict_name(p.verdict);
  out["verdict_reason"] = p.verdict_reason;
  out["needs_reclaim"] = p.needs_reclaim;
  out["peak"] = peak_json(p);
  out["device"] = device_json(p.device);
  out["device"]["confidence"] = p.confidence;
  out["device"]["request_source"] = p.request_source;
  out["device"]["classes"] = p.job_classes;
  out["ledger"] = list_json(p.ledger, ledger_line_json);
  out["min_capacity_bytes"] = optional_json(p.min_capacity_bytes);
  out["min_capacity_expandable_segments_bytes"] = optional_json(p.min_capacity_expandable_bytes);
  out["categories"] = list_json(p.categories, [](const CategoryLine& line) { return Json{{"name", line.name}, {"bytes", line.bytes}}; });
  out["step_peaks"] = list_json(p.step_peaks, [](const StepPeak& peak) {
    return Json{{"step", peak.step},
                {"complete", peak.complete},
                {"allocated_bytes", peak.allocated_bytes},
                {"reserved_bytes", peak.reserved_bytes}};
  });
  out["phase_peaks"] = list_json(p.phase_peaks, [](const PhasePeak& peak) {
    return Json{{"phase", peak.phase}, {"allocated_bytes", peak.allocated_bytes}, {"reserved_bytes", peak.reserved_bytes}};
  });
  if (p.gpu_time) out["gpu_time"] = time_range_json(*p.gpu_time);
  if (p.loader_batch) out["loader"] = {{"workers", p.loader_workers}, {"batch", time_range_json(*p.loader_batch)}};
  out["growth"] = p.growth ? growth_json(*p.growth) : Json();
  out["steps_total"] = p.steps_total > 0 ? Json(p.steps_total) : Json();
  out["oom"] = p.oom ? oom_json(*p.oom) : Json();
  out["matches_recorded"] = optional_json(p.matches_recorded);
  out["cards"] = list_json(p.cards, [](const CardFit& card) {
    return Json{{"name", card.gpu},
                {"capacity_bytes", card.total_bytes},
                {"verdict", verdict_name(card.verdict)},
                {"device", device_json(card.device)},
                {"same_capability", card.same_capability}};
  });
  out["profile"] = p.profile ? profile_json(*p.profile) : Json();
  out["convolutions"] = convolutions_json(p.convolutions);
  out["varying_input"] = nullptr;
  if (p.varying_input) {
    out["varying_input"] = {
        {"name", p.varying_input->name}, {"smallest", p.varying_input->smallest}, {"largest", p.varying_input->largest}};
  }
  out["counts"] = {{"allocator_events", p.events}, {"kernels", p.kernels}, {"library_calls", p.library_calls}};
  out["warnings"] = list_json(p.warnings, [](const Warning& warning) {
    return Json{{"code", warning.code}, {"message", warning.message}};
  });
  return dump(out);
}

}  // namespace gpucast
