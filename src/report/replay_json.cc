// `gpucast replay --format json` (docs/reference/replay.md).

#include "gpucast/replay_report.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

Json or_null(const std::optional<int64_t>& value) { return value ? Json(*value) : Json(nullptr); }
Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json oom_json(const ReplayOomReport& oom) {
  Json out;
  out["event"] = oom.place.event;
  out["recorded"] = oom.recorded;
  out["stopped"] = oom.stopped;
  out["requested_bytes"] = oom.requested_bytes;
  out["segment_bytes"] = oom.segment_bytes;
  out["capacity_bytes"] = oom.capacity_bytes;
  out["free_bytes"] = oom.free_bytes;
  out["reserved_bytes"] = oom.reserved_bytes;
  out["allocated_bytes"] = oom.allocated_bytes;
  out["largest_free_block_bytes"] = oom.largest_free_block_bytes;
  out["phase"] = or_null(oom.place.phase);
  out["step"] = oom.place.phase.empty() ? Json(nullptr) : Json(oom.place.step);
  out["module"] = or_null(oom.place.module);
  out["stack"] = oom.place.stack;
  out["message"] = or_null(oom.message);
  out["would_be_saved_by"] = Json::array();
  for (const SavedBy& saved : oom.saved_by) {
    Json row;
    row["alloc_conf"] = saved.alloc_conf;
    row["peak_reserved_bytes"] = saved.peak_reserved_bytes;
    row["driver_calls"] = saved.driver_calls;
    row["alloc_retries"] = saved.alloc_retries;
    out["would_be_saved_by"].push_back(std::move(row));
  }
  out["settings_tried"] = oom.settings_tried;
  out["min_capacity_bytes"] = or_null(oom.min_capacity_bytes);
  out["min_capacity_expandable_bytes"] = or_null(oom.min_capacity_expandable_bytes);
  return out;
}

Json row_json(const ReplayRow& row) {
  Json out;
  out["alloc_conf"] = row.alloc_conf;
  out["addresses"] = row.addresses;
  out["capacity_bytes"] = or_null(row.capacity_bytes);
  out["gpu"] = or_null(row.gpu);
  out["peak"] = {{"allocated_bytes", row.peak_allocated_bytes}, {"reserved_bytes", row.peak_reserved_bytes}, {"event", row.peak_event}};
  out["oom"] = row.oom ? oom_json(*row.oom) : Json(nullptr);
  out["ooms"] = row.ooms;
  out["segments"] = row.segments;
  out["largest_free_block_bytes"] = row.largest_free_block_bytes;
  out["fragmentation_bytes"] = row.fragmentation_bytes;
  out["rounding_bytes"] = row.rounding_bytes;
  out["alloc_retries"] = row.alloc_retries;
  out["segment_allocs"] = row.segment_allocs;
  out["segment_frees"] = row.segment_frees;
  out["matches_recorded"] = row.matches_recorded ? Json(*row.matches_recorded) : Json(nullptr);
  out["first_difference"] = or_null(row.first_difference);
  return out;
}

Json tune_json(const TuneReport& tune) {
  Json out;
  out["capacity_bytes"] = or_null(tune.capacity_bytes);
  out["gpu"] = or_null(tune.gpu);
  out["own"] = tune.rows[tune.own].alloc_conf;
  out["best"] = tune.best ? Json(tune.rows[*tune.best].alloc_conf) : Json(nullptr);
  out["settings"] = Json::array();
  for (const TuneRow& row : tune.rows) {
    Json setting;
    setting["alloc_conf"] = row.alloc_conf;
    setting["survives"] = row.survives;
    setting["peak"] = {{"allocated_bytes", row.peak_allocated_bytes}, {"reserved_bytes", row.peak_reserved_bytes}};
    setting["rounding_bytes"] = row.rounding_bytes;
    setting["driver_calls"] = row.driver_calls;
    setting["alloc_retries"] = row.alloc_retries;
    out["settings"].push_back(std::move(setting));
  }
  return out;
}

}  // namespace

std::string replay_json(const ReplayReport& report) {
  Json out;
  out["schema_version"] = 1;
  out["source"] = report.source;
  out["file"] = report.file;
  out["torch"] = or_null(report.torch);
  out["events"] = report.events;
  out["partial"] = report.partial;
  out["replays"] = Json::array();
  for (const ReplayRow& row : report.rows) out["replays"].push_back(row_json(row));
  if (!report.tuned.empty()) {
    out["tune"] = Json::array();
    for (const TuneReport& tune : report.tuned) out["tune"].push_back(tune_json(tune));
  }
  out["warnings"] = Json::array();
  for (const Warning& warning : report.warnings) out["warnings"].push_back({{"code", warning.code}, {"message", warning.message}});
  return out.dump(2) + "\n";
}

}  // namespace gpucast
