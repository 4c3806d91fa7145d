// A diff for scripts. Fields are added, not removed: docs/reference/diff.md is the contract.

#include "src/report/diff_reports.h"
#include "src/report/json_parts.h"

namespace gpucast {
namespace {

Json bytes_json(const DiffBytes& bytes) {
  return {{"before_bytes", bytes.before_bytes}, {"after_bytes", bytes.after_bytes}, {"change_bytes", bytes.change_bytes()}};
}

Json side_json(const DiffSide& side) {
  return {{"file", side.file},   {"source", side.source}, {"gpu", side.gpu_id},
          {"torch", side.torch}, {"steps", side.steps},   {"peak", place_json(side.peak)}};
}

Json row_json(const Diff& d, const DiffRow& row) {
  Json out = {{"name", row.name}};
  if (d.by == Grouping::module) {
    out["type"] = row.type;
    out["modules_below"] = row.modules_below;
  }
  out["presence"] = diff_presence_name(row.presence);
  out.update(bytes_json(row.total));
  out["categories"] = Json::object();
  for (size_t c = 0; c < row.categories.size(); ++c) {
    const DiffBytes& bytes = row.categories[c];
    if (bytes.before_bytes != 0 || bytes.after_bytes != 0) out["categories"][d.categories[c].name] = bytes_json(bytes);
  }
  return out;
}

}  // namespace

std::string diff_json(const Diff& d) {
  Json out;
  out["schema_version"] = 1;
  out["before"] = side_json(d.before);
  out["after"] = side_json(d.after);
  out["notes"] = d.notes;
  out["peak_reserved"] = bytes_json(d.peak_reserved);
  out["peak_allocated"] = bytes_json(d.peak_allocated);
  out["device"] = bytes_json(d.device);
  out["free_but_reserved"] = bytes_json(d.free_bytes);
  out["categories"] = list_json(d.categories, [](const DiffCategory& category) {
    Json entry = {{"name", category.name}};
    entry.update(bytes_json(category.bytes));
    return entry;
  });
  out["by"] = grouping_name(d.by);
  out["rows"] = list_json(d.rows, [&](const DiffRow& row) { return row_json(d, row); });
  out["fail_above"] = nullptr;
  if (d.fail_above) {
    out["fail_above"] = {{"given", d.fail_above->text}, {"bytes", d.fail_above->bytes}, {"exceeded", d.fail_above->exceeded}};
  }
  return dump(out);
}

}  // namespace gpucast
