// The answer of `gpucast fit` as text and as JSON. docs/reference/fit.md is the contract.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "gpucast/error.h"
#include "gpucast/fit.h"
#include "src/base/bytes.h"
#include "src/base/command_words.h"
#include "src/base/json.h"
#include "src/report/html_columns.h"
#include "src/report/html_template.h"
#include "src/report/text_writer.h"
#include "src/report/time_words.h"

namespace gpucast {
namespace {

const char* verdict_word(const FitPoint& point) {
  if (point.failed) return "failed";
  if (!point.runs) return "does_not_fit";
  return point.runs_99 ? "fits" : "tight";
}

std::string value_text(const FitAnswer& answer, const std::optional<size_t>& point) {
  return point ? fmt::format("{}", answer.points[*point].value) : "none";
}

std::string rate_text(double samples_per_s) { return samples_per_s > 0 ? fmt::format("{:.4g}", samples_per_s) : "-"; }

// ---- text

void write_answers(const Fit& fit, TextWriter* out) {
  out->line(out->bold(fmt::format("  {:<14}{:>10}{:>10}{:>14}{:>12}{:>12}{:>11}   {}", "card", "largest",
                                  fmt::format("at {:g} %", 100 * fit.confidence), "device memory", "of", "step", "samples/s",
                                  "fastest a sample")));
  for (const FitAnswer& answer : fit.answers) {
    if (!answer.largest) {
      const FitPoint& least = answer.points.front();
      out->format(
          "  {:<14}{:>10}{:>10}{:>14}{:>12}   {}", answer.gpu_id, "none", "", least.failed ? "" : mib(least.expected_bytes, 0) + " MiB",
          mib(answer.capacity_bytes, 0) + " MiB",
          least.failed ? "" : fmt::format("with {}, {} too much", least.setting, format_bytes(least.need_bytes - answer.capacity_bytes)));
      continue;
    }
    const FitPoint& point = answer.points[*answer.largest];
    out->format("  {:<14}{:>10}{:>10}{:>14}{:>12}{:>12}{:>11}   {}", answer.gpu_id, point.value, value_text(answer, answer.largest_99),
                mib(point.expected_bytes, 0) + " MiB", mib(answer.capacity_bytes, 0) + " MiB",
                point.step_ns > 0 ? time_text(point.step_ns) : "-", rate_text(point.samples_per_s),
                answer.fastest ? fmt::format("{} ({}/s)", answer.points[*answer.fastest].value,
                                             rate_text(answer.points[*answer.fastest].samples_per_s))
                               : "");
  }
}

void write_points(const FitAnswer& answer, TextWriter* out) {
  out->line();
  out->line(out->bold(fmt::format("What ran on {}", answer.gpu_id)));
  out->line(
      out->bold(fmt::format("  {:<10}{:>14}{:>15}{:>12}{:>11}   {}", "value", "peak reserved", "device memory", "step", "samples/s", "")));
  for (const FitPoint& point : answer.points) {
    if (point.failed) {
      out->wrapped(fmt::format("  {:<10}", point.value), "failed: " + printable(point.problem), 4);
      continue;
    }
    out->format("  {:<10}{:>14}{:>15}{:>12}{:>11}   {}", point.value, mib(point.peak_reserved_bytes, 0) + " MiB",
                mib(point.expected_bytes, 0) + " MiB", point.step_ns > 0 ? time_text(point.step_ns) : "-", rate_text(point.samples_per_s),
                !point.runs     ? "does not fit"
                : point.runs_99 ? "fits"
                                : "tight");
  }
}

std::string sentence(const Fit& fit, const FitAnswer& answer) {
  if (!answer.largest) {
    const FitPoint& least = answer.points.front();
    return least.failed ? fmt::format("On {} nothing ran.", answer.gpu_id)
                        : fmt::format("On {} nothing fits, not even {}.", answer.gpu_id, least.setting);
  }
  const FitPoint& point = answer.points[*answer.largest];
  std::string out = fmt::format("On {} the largest is {}", answer.gpu_id, point.setting);
  if (!answer.next) {
    out += ", the end of the range: larger ones may fit as well";
  } else if (!answer.points[*answer.next].failed) {
    const FitPoint& next = answer.points[*answer.next];
    const int64_t over = next.need_bytes - answer.capacity_bytes;
    out +=
        over > 0 ? fmt::format("; {} is {} too much", next.value, format_bytes(over)) : fmt::format("; {} runs out of memory", next.value);
  }
  if (!answer.largest_99) {
    out += fmt::format(". None runs with {:g} % probability", 100 * fit.confidence);
  } else if (*answer.largest_99 != *answer.largest) {
    out += fmt::format(". {} runs with {:g} % probability", answer.points[*answer.largest_99].value, 100 * fit.confidence);
  }
  if (point.expected_bytes > answer.capacity_bytes)
    out += fmt::format(". With {}, PyTorch gives cached memory back as it goes, which costs time", point.value);
  return out + ".";
}

// ---- JSON

Json values_json(const Fit& fit, const FitAnswer& answer, const std::optional<size_t>& point) {
  if (!point) return {};
  Json out;
  out[fit.name] = answer.points[*point].value;
  return out;
}

Json point_json(const Fit& fit, const FitPoint& point) {
  Json out;
  out["values"][fit.name] = point.value;
  out["verdict"] = verdict_word(point);
  if (point.failed) {
    out["problem"] = point.problem;
  } else {
    out["peak_reserved_bytes"] = point.peak_reserved_bytes;
    out["device_expected_bytes"] = point.expected_bytes;
    out["request_bytes"] = point.request_bytes;
    out["min_capacity_bytes"] = point.need_bytes;
  }
  if (point.step_ns > 0) out["step_ns"] = point.step_ns;
  if (point.samples_per_s > 0) out["samples_per_s"] = point.samples_per_s;
  out["run"] = point.run;
  out["cached"] = point.cached;
  return out;
}

Json answer_json(const Fit& fit, const FitAnswer& answer) {
  Json out;
  out["gpu"] = answer.gpu_id;
  out["capacity_bytes"] = answer.capacity_bytes;
  out["values"] = values_json(fit, answer, answer.largest);
  out["values_99"] = values_json(fit, answer, answer.largest_99);
  out["next"] = answer.next ? point_json(fit, answer.points[*answer.next]) : Json();
  const FitPoint* largest = answer.largest ? &answer.points[*answer.largest] : nullptr;
  out["peak_reserved_bytes"] = largest != nullptr ? Json(largest->peak_reserved_bytes) : Json();
  out["step_ns"] = largest != nullptr && largest->step_ns > 0 ? Json(largest->step_ns) : Json();
  out["samples_per_s"] = largest != nullptr && largest->samples_per_s > 0 ? Json(largest->samples_per_s) : Json();
  out["fastest"] = answer.fastest ? point_json(fit, answer.points[*answer.fastest]) : Json();
  out["runs"] = Json::array();
  for (const FitPoint& point : answer.points) out["runs"].push_back(point_json(fit, point));
  return out;
}

// A row of the page of `gpucast sweep` (web/src/casedata.ts).
Json page_row(const Fit& fit, const FitAnswer& answer, const FitPoint& point) {
  Json row = point_json(fit, point);
  row["case"] = fmt::format("{}-{}", answer.gpu_id, point.value);
  row["gpu"] = answer.gpu_id;
  row["status"] = verdict_word(point);
  row["capacity_bytes"] = answer.capacity_bytes;
  if (point.failed) row["error"] = point.problem;
  return row;
}

}  // namespace

std::string fit_text(const Fit& fit, bool colour) {
  TextWriter out(colour);
  out.wrapped("", fmt::format("{} of: {}", fit.name, printable(shell_quote(fit.command))));
  out.line();
  write_answers(fit, &out);
  out.line();
  for (const FitAnswer& answer : fit.answers) out.wrapped("", sentence(fit, answer));
  for (const std::string& note : fit.notes) out.wrapped("", printable(note));
  for (const FitAnswer& answer : fit.answers) write_points(answer, &out);
  out.line();
  const FitAnswer& first = fit.answers.front();
  const FitPoint& shown = first.points[first.largest.value_or(0)];
  out.line(fmt::format("{} runs, {} of them made before; {:.1f} s. To see one in full:", fit.run_count, fit.cached_count, fit.seconds));
  out.line("  " + printable(shown.run));
  return out.take();
}

std::string fit_json(const Fit& fit) {
  Json out;
  out["schema_version"] = 1;
  out["name"] = fit.name;
  out["setting"] = fit.what;
  out["command"] = command_json(fit.command);
  out["range"] = {{"low", fit.low}, {"high", fit.high}};
  out["confidence"] = fit.confidence;
  out["answers"] = Json::array();
  for (const FitAnswer& answer : fit.answers) out["answers"].push_back(answer_json(fit, answer));
  out["notes"] = fit.notes;
  out["run_count"] = fit.run_count;
  out["cached_count"] = fit.cached_count;
  out["seconds"] = fit.seconds;
  return out.dump(2) + "\n";
}

std::string fit_html(const Fit& fit) {
  std::string page(cases_template());
  if (page.empty())
    throw Error("this gpucast was built without the HTML pages", "",
                "build it with Node.js and npm (tools/setup installs them), or use --format json");
  Json data = {{"title", fmt::format("fit: {}", fit.name)}, {"names", Json::array()}, {"gpus", Json::array()}, {"rows", Json::array()}};
  data["names"].push_back(fit.name);
  data["to_scale"] = true;
  for (const FitAnswer& answer : fit.answers) {
    data["gpus"].push_back(answer.gpu_id);
    for (const FitPoint& point : answer.points) data["rows"].push_back(page_row(fit, answer, point));
  }
  constexpr std::string_view kPlace = "<!--gpucast:cases-->";
  return page.replace(page.find(kPlace), kPlace.size(),
                      "<script id=\"cases\" type=\"application/json\">" + json_for_script(data.dump()) + "</script>");
}

}  // namespace gpucast
