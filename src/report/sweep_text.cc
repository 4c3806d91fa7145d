// A sweep as text and as JSON. docs/reference/occupancy.md is the contract.

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "gpucast/error.h"
#include "gpucast/sweep.h"
#include "src/base/json.h"
#include "src/report/html_columns.h"
#include "src/report/html_template.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

constexpr double kEnough = 0.95;

bool fits(const SweepRow& row) { return row.verdict == "fits" || row.verdict == "tight"; }

Json rows_json(const Sweep& sweep) {
  Json out = Json::array();
  for (const SweepRow& row : sweep.rows) {
    Json entry = {{"value", row.value}, {"verdict", row.verdict}};
    if (!row.problem.empty()) entry["problem"] = row.problem;
    if (row.expected_bytes > 0) entry["expected_bytes"] = row.expected_bytes;
    if (row.timed()) {
      entry.update({{"step_ns", row.step_ns},
                    {"samples", row.samples},
                    {"samples_per_s", row.samples_per_s},
                    {"occupancy", {{"time_weighted", row.occupancy}, {"mean_of_kernels", row.mean_of_kernels}, {"of_step", row.of_step}}},
                    {"nvml_utilization", row.nvml_utilization},
                    {"sm_active", row.sm_active}});
    }
    out.push_back(std::move(entry));
  }
  return out;
}

Json json_of(const Sweep& sweep) {
  const auto knee = knee_of(sweep);
  return {{"schema_version", 1},
          {"name", sweep.name},
          {"gpu", sweep.gpu_id},
          {"gpu_name", sweep.gpu_name},
          {"capacity_bytes", sweep.capacity_bytes},
          {"command", sweep.command},
          {"knee", knee ? Json(sweep.rows[*knee].value) : Json()},
          {"knee_reason", knee_sentence(sweep)},
          {"sweep", rows_json(sweep)}};
}

}  // namespace

std::optional<size_t> knee_of(const Sweep& sweep) {
  double most = 0;
  for (const SweepRow& row : sweep.rows)
    if (fits(row)) most = std::max(most, row.samples_per_s);
  for (size_t i = 0; i < sweep.rows.size(); ++i)
    if (most > 0 && fits(sweep.rows[i]) && sweep.rows[i].samples_per_s >= kEnough * most) return i;
  return std::nullopt;
}

std::string knee_sentence(const Sweep& sweep) {
  const auto knee = knee_of(sweep);
  if (!knee) return "No value that fits was timed.";
  const std::string at = fmt::format("{} = {}", printable(sweep.name), printable(sweep.rows[*knee].value));
  const bool last = std::none_of(sweep.rows.begin() + static_cast<std::ptrdiff_t>(*knee) + 1, sweep.rows.end(),
                                 [](const SweepRow& row) { return row.timed() && fits(row); });
  return last ? fmt::format("{} is the fastest and the last that fits: more may still gain.", at)
              : fmt::format("At {} it reaches 95 % of the most samples a second of all that fit; beyond, more memory buys little.", at);
}

std::string sweep_json(const Sweep& sweep) { return json_of(sweep).dump(2) + "\n"; }

std::string sweep_text(const Sweep& sweep, bool colour) {
  TextWriter out(colour);
  const auto knee = knee_of(sweep);
  out.line(out.bold(fmt::format("{} on {} ({})", sweep.name, sweep.gpu_id, sweep.gpu_name)));
  out.line(out.bold(fmt::format("  {:<14}{:>12}{:>12}{:>13}{:>11}{:>12}{:>12}", sweep.name, "memory", "a step", "samples/s", "occupancy",
                                "nvidia-smi", "SM active")));
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const SweepRow& row = sweep.rows[i];
    const std::string value = cut_end(printable(row.value), 13);
    if (!row.timed()) {
      out.wrapped(fmt::format("  {:<14}", value), row.problem.empty() ? row.verdict : printable(row.problem), 4);
      continue;
    }
    const bool failed = row.verdict == "failed";
    out.format("  {:<14}{:>12}{:>12}{:>13}{:>11}{:>12}{:>12}{}", value, mib(row.expected_bytes, 0) + " MiB", time_text(row.step_ns),
               row.samples_per_s > 0 ? rate_text(row.samples_per_s) : "", percent(row.occupancy), percent(row.nvml_utilization),
               percent(row.sm_active),
               knee && *knee == i ? "  < knee"
               : fits(row)        ? ""
               : failed           ? "  failed"
                                  : "  does not fit");
    if (failed && !row.problem.empty()) out.wrapped("      ", printable(row.problem), 4);
  }
  out.line();
  out.wrapped("", knee_sentence(sweep));
  return out.take();
}

std::string sweep_html(const Sweep& sweep) {
  std::string page(sweep_template());
  if (page.empty())
    throw Error("this gpucast was built without the HTML pages", "",
                "build it with Node.js and npm (tools/setup installs them), or use --format json");
  constexpr std::string_view kPlace = "<!--gpucast:sweep-->";
  return page.replace(page.find(kPlace), kPlace.size(),
                      "<script id=\"sweep\" type=\"application/json\">" + json_for_script(json_of(sweep).dump()) + "</script>");
}

}  // namespace gpucast
