// The JSON report of `gpucast advise`: docs/reference/advise.md.

#include "gpucast/advise.h"
#include "src/base/command_words.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

Json point_json(const AdvisedPoint& point) {
  Json changes = Json::array();
  for (size_t i = 0; i < point.what_ifs.size(); ++i)
    changes.push_back(change_to_write(point.what_ifs[i], i < point.did.size() ? point.did[i] : ""));
  if (!point.settings.empty()) changes.push_back(settings_to_write(point.settings));
  return Json{{"what_ifs", point.what_ifs},
              {"settings", point.settings},
              {"changes", changes},
              {"peak_reserved_bytes", point.peak_reserved_bytes},
              {"device_expected_bytes", point.device_expected_bytes},
              {"verdict", verdict_name(point.verdict)},
              {"rank", point.rank},
              {"device", point.device},
              {"step_ns", point.step_ns > 0 ? Json(point.step_ns) : Json(nullptr)},
              {"samples_per_s", point.samples_per_s > 0 ? Json(point.samples_per_s) : Json(nullptr)},
              {"changes_mathematics", point.changes_mathematics},
              {"on_front", point.on_front},
              {"run", point.run}};
}

Json patch_json(const Patch& patch) {
  Json out = {{"point", patch.point}, {"path", patch.path.empty() ? Json(nullptr) : Json(patch.path)}, {"folder", patch.folder}};
  out["placed"] = patch.placed;
  out["by_hand"] = Json::array();
  for (const ByHand& by_hand : patch.by_hand) out["by_hand"].push_back({{"what_if", by_hand.what_if}, {"why", by_hand.why}});
  out["command"] = command_json(patch.command);
  out["files"] = Json::array();
  for (const Patch::File& file : patch.files)
    out["files"].push_back({{"name", file.name}, {"added_lines", file.added}, {"removed_lines", file.removed}});
  return out;
}

}  // namespace

std::string advice_json(const Advice& advice) {
  Json out;
  out["schema_version"] = 1;
  out["command"] = command_json(advice.command);
  out["gpu"] = {{"name", advice.gpu_id}, {"capacity_bytes", advice.gpu_total_bytes}};
  out["ranks"] = advice.ranks;
  out["captured"] = advice.captured;
  out["points"] = Json::array();
  for (const AdvisedPoint& point : advice.points) out["points"].push_back(point_json(point));
  out["best"] = advice.best ? Json(*advice.best) : Json(nullptr);
  out["smallest"] = advice.smallest;
  out["left_out"] = Json::array();
  for (const LeftOut& left_out : advice.left_out) out["left_out"].push_back({{"what", left_out.what}, {"why", left_out.why}});
  out["runs"] = advice.runs;
  out["cached_runs"] = advice.cached_runs;
  out["stopped"] = advice.stopped;
  out["time_problem"] = advice.time_problem;
  out["patches"] = Json::array();
  for (const Patch& patch : advice.patches) out["patches"].push_back(patch_json(patch));
  return out.dump(2) + "\n";
}

}  // namespace gpucast
