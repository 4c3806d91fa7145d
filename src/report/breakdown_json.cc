// A breakdown for scripts: all groupings at all moments. docs/reference/breakdown.md is the contract.

#include <fmt/core.h>

#include "gpucast/report.h"
#include "src/report/json_parts.h"

namespace gpucast {
namespace {

Json figures_json(const Breakdown& b, const BreakdownFigures& figures) {
  Json categories = Json::object();
  for (size_t i = 0; i < kCategories; ++i) {
    const BreakdownFigure& figure = figures.categories[i];
    if (figure.allocated_bytes == 0) continue;
    categories[b.categories[i]] = {{"bytes", figure.allocated_bytes}, {"requested_bytes", figure.requested_bytes}};
  }
  return {{"total_bytes", figures.total.allocated_bytes},
          {"total_requested_bytes", figures.total.requested_bytes},
          {"categories", std::move(categories)}};
}

Json row_json(const Breakdown& b, Grouping grouping, const BreakdownRow& row) {
  Json out = {{"name", row.name}};
  if (grouping == Grouping::module) {
    out["type"] = row.type;
    out["parent"] = row.parent < 0 ? Json(nullptr) : Json(row.parent);
    out["depth"] = row.depth;
    out["itself"] = row.itself;
  }
  for (size_t i = 0; i < kInstants; ++i) {
    if (b.moments[i].known) out[instant_name(static_cast<Instant>(i))] = figures_json(b, row.moments[i]);
  }
  return out;
}

}  // namespace

std::string breakdown_json(const Breakdown& b) {
  Json out;
  out["schema_version"] = 1;
  out["categories"] = b.categories;
  for (size_t i = 0; i < kInstants; ++i) {
    const char* name = instant_name(static_cast<Instant>(i));
    const BreakdownMoment& moment = b.moments[i];
    out["moments"][name] = nullptr;
    if (!moment.known) continue;
    Json entry = Json::object();
    if (static_cast<Instant>(i) != Instant::maximum) {
      entry = place_json(moment.place);
      entry["allocated_bytes"] = moment.allocated_bytes;
      entry["reserved_bytes"] = moment.reserved_bytes;
      entry["free_but_reserved_bytes"] = moment.reserved_bytes - moment.allocated_bytes;
    }
    entry.update(figures_json(b, moment.figures));
    out["moments"][name] = std::move(entry);
  }
  out["peak_reserved_bytes"] = b.peak_reserved_bytes;
  out["ledger"] = list_json(b.ledger, ledger_line_json);
  out["device"] = device_json(b.device);
  for (size_t i = 0; i < b.rows.size(); ++i) {
    const auto grouping = static_cast<Grouping>(i);
    out["by"][grouping_name(grouping)] = list_json(b.rows[i], [&](const BreakdownRow& row) { return row_json(b, grouping, row); });
  }
  return dump(out);
}

}  // namespace gpucast
