// A plan as a picture: one page without network and scripts. A row is a card, a bar is a job. Jobs that run at the same time are one above
// the other.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/markup.h"
#include "src/pack/policy.h"
#include "src/report/pack/pack_report.h"

namespace gpucast {
namespace {

constexpr size_t kMostCards = 200, kMostBars = 20000;
constexpr double kLeft = 130, kWidth = 1000, kLane = 18, kGap = 8, kTop = 28, kLetter = 6.2;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #d9dce1; --paper: #ffffff; --sat: 55%; --light: 72%; --bad: #c62a2f; }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --soft: #a7adb6; --line: #34383e; --paper: #16181b; --sat: 38%; --light: 36%; --bad: #ff8f8f; } }
body { margin: 24px; background: var(--paper); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 19px; margin: 0 0 4px; }
h2 { font-size: 15px; margin: 20px 0 2px; }
p { margin: 4px 0; color: var(--soft); }
.bad { color: var(--bad); }
dl { display: grid; grid-template-columns: max-content max-content max-content max-content; gap: 2px 16px; margin: 12px 0; }
dt { color: var(--soft); } dd { margin: 0; font-variant-numeric: tabular-nums; }
svg { width: 100%; max-width: 1180px; height: auto; display: block; }
text { fill: var(--ink); font: 11px system-ui, sans-serif; }
.axis { fill: var(--soft); } .grid { stroke: var(--line); }
rect.job { stroke: var(--paper); stroke-width: 1; fill: hsl(var(--hue) var(--sat) var(--light)); }
rect.slow { stroke: var(--bad); }
)";

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!append_entity(c, &out)) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

// The unit in which the whole time is a short number.
struct Unit {
  const char* name;
  double ns;
};
Unit unit_of(double ns) {
  for (const Unit unit : {Unit{"days", 8.64e13}, Unit{"hours", 3.6e12}, Unit{"minutes", 6e10}, Unit{"s", 1e9}, Unit{"ms", 1e6}})
    if (ns >= 2 * unit.ns) return unit;
  return {"us", 1e3};
}

// 1, 2 or 5 times a power of ten, for about eight marks.
double tick_of(double range) {
  const double power = std::pow(10, std::floor(std::log10(range / 8)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (range / (factor * power) <= 10) return factor * power;
  return 10 * power;
}

size_t hue_of(size_t job) { return job * 137 % 360; }

struct Bar {
  uint32_t job = 0;
  size_t lane = 0;
};

// The bars of a card, each in the lowest lane that is free at its start.
std::vector<Bar> bars_of(const PackReport& report, std::vector<uint32_t> jobs, size_t* lanes) {
  std::sort(jobs.begin(), jobs.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(report.plan.jobs[a].start_ns, a) < std::pair(report.plan.jobs[b].start_ns, b);
  });
  std::vector<int64_t> free_at;
  std::vector<Bar> out;
  for (const uint32_t job : jobs) {
    const pack::Placement& placed = report.plan.jobs[job];
    size_t lane = 0;
    while (lane < free_at.size() && free_at[lane] > placed.start_ns) ++lane;
    if (lane == free_at.size()) free_at.push_back(0);
    free_at[lane] = placed.end_ns;
    out.push_back({job, lane});
  }
  *lanes = std::max<size_t>(1, free_at.size());
  return out;
}

void draw_bar(const PackReport& report, const Bar& bar, double y, double scale, const Unit& unit, std::string* svg) {
  const pack::Placement& placed = report.plan.jobs[bar.job];
  const auto since = [&](int64_t ns) { return static_cast<double>(ns - report.plan.first_arrival_ns); };
  const double x = kLeft + since(placed.start_ns) * scale, width = std::max(0.5, (since(placed.end_ns) - since(placed.start_ns)) * scale);
  const std::string name = html_escaped(report.jobs[bar.job].name);
  fmt::format_to(std::back_inserter(*svg),
                 "<g><title>{}\n{:.2f} to {:.2f} {}, {:.2f} times as long as alone\n{:.2f} GiB{}</title>"
                 "<rect class=\"job{}\" style=\"--hue:{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\"/>",
                 name, since(placed.start_ns) / unit.ns, since(placed.end_ns) / unit.ns, unit.name, placed.slowdown,
                 static_cast<double>(placed.request_bytes) / static_cast<double>(int64_t{1} << 30),
                 placed.cards.size() > 1 ? fmt::format(", on {} cards", placed.cards.size()) : "", placed.slowdown > 1.5 ? " slow" : "",
                 hue_of(bar.job), x, y, width, kLane - 2);
  const auto fits = static_cast<size_t>(std::max(0.0, (width - 6) / kLetter));
  if (fits >= 3 && report.jobs[bar.job].name.size() <= fits)
    fmt::format_to(std::back_inserter(*svg), "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", x + 4, y + 12, name);
  *svg += "</g>\n";
}

std::string gantt(const PackReport& report, std::string* left_out) {
  const pack::Plan& plan = report.plan;
  std::vector<std::vector<uint32_t>> by_card(std::min(kMostCards, plan.cards.size()));
  size_t bars = 0;
  for (uint32_t j = 0; j < plan.jobs.size(); ++j) {
    if (plan.jobs[j].outcome != pack::Outcome::finished) continue;
    for (const uint32_t card : plan.jobs[j].cards) {
      if (card >= by_card.size()) continue;
      if (bars++ < kMostBars) by_card[card].push_back(j);
    }
  }
  if (bars > kMostBars || by_card.size() < plan.cards.size())
    *left_out = fmt::format("Drawn: the first {} bars of {} on {} of {} cards. --format json has all.", std::min(bars, kMostBars), bars,
                            by_card.size(), plan.cards.size());
  const double span = std::max(1.0, static_cast<double>(plan.makespan_ns)), scale = kWidth / span;
  const Unit unit = unit_of(span);
  std::string rows, axis;
  double y = kTop;
  for (size_t c = 0; c < by_card.size(); ++c) {
    size_t lanes = 1;
    const std::vector<Bar> drawn = bars_of(report, std::move(by_card[c]), &lanes);
    fmt::format_to(std::back_inserter(rows), "<text x=\"0\" y=\"{:.1f}\">{}</text>\n", y + 13, html_escaped(report.cluster.cards[c].id));
    for (const Bar& bar : drawn) draw_bar(report, bar, y + kLane * static_cast<double>(bar.lane), scale, unit, &rows);
    y += kLane * static_cast<double>(lanes) + kGap;
    fmt::format_to(std::back_inserter(rows), "<line class=\"grid\" x1=\"0\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kLeft + kWidth,
                   y - kGap / 2, y - kGap / 2);
  }
  const double tick = tick_of(span / unit.ns);
  const auto ticks = static_cast<int>(span / unit.ns / tick * 1.0001);
  for (int t = 0; t <= ticks; ++t) {
    const double at = t * tick;
    const double x = kLeft + at * unit.ns * scale;
    fmt::format_to(
        std::back_inserter(axis),
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.1f}\"/><text class=\"axis\" x=\"{0:.1f}\" y=\"14\" "
        "text-anchor=\"middle\">{3:g}{4}</text>\n",
        x, kTop - 8, y, at, at == 0 ? fmt::format(" {}", unit.name) : "");
  }
  return fmt::format("<svg viewBox=\"0 0 {} {:.0f}\" role=\"img\" aria-label=\"jobs by card and time\">\n{}{}</svg>\n", kLeft + kWidth + 20,
                     y, axis, rows);
}

// The progress of all jobs in each mode, one mode below the other: a job's part of a bar is its speed, where 1 is alone on the card.
std::string ways_picture(const PackReport& report) {
  constexpr double kBar = 26, kPerJob = 300;
  const double end = kLeft + kPerJob * static_cast<double>(report.jobs.size());
  std::string svg;
  double y = kTop;
  for (const pack::WayToShare& way : report.ways) {
    fmt::format_to(std::back_inserter(svg), "<text x=\"0\" y=\"{:.1f}\">{}</text>\n", y + 16, pack::sharing_mode_name(way.mode));
    double x = kLeft;
    for (size_t i = 0; i < way.slowdowns.size(); ++i) {
      const pack::Slowdown& slower = way.slowdowns[i];
      const double width = kPerJob / slower.expected;
      const std::string name = html_escaped(report.jobs[i].name), limit = way.limits.empty() ? "" : fmt::format(", {}", way.limits[i]);
      const std::string slower_text = fmt::format("{:.2f} x", slower.expected);
      // The longest label that the part has room for.
      std::string label;
      for (const std::string& one : {fmt::format("{}: {}{}", name, slower_text, limit), slower_text + limit, slower_text})
        if (label.empty() && static_cast<double>(one.size()) * kLetter < width - 6) label = one;
      fmt::format_to(std::back_inserter(svg),
                     "<g><title>{}\n{:.2f} times as long as alone, 90 % between {:.2f} and {:.2f}{}</title>"
                     "<rect class=\"job\" style=\"--hue:{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\"/>",
                     name, slower.expected, slower.low, slower.high, limit, hue_of(i), x, y, width, kBar - 4);
      fmt::format_to(std::back_inserter(svg), "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", x + 4, y + 15, label);
      svg += "</g>\n";
      x += width;
    }
    const std::string sum = way.problem.empty() ? fmt::format("{:.2f}", way.progress) : html_escaped(way.problem);
    fmt::format_to(std::back_inserter(svg), "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x + 6, y + 16, sum);
    y += kBar + kGap;
  }
  std::string axis;
  for (size_t jobs = 0; jobs <= report.jobs.size(); ++jobs)
    fmt::format_to(
        std::back_inserter(axis),
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.1f}\"/><text class=\"axis\" x=\"{0:.1f}\" y=\"14\" "
        "text-anchor=\"middle\">{3}</text>\n",
        kLeft + kPerJob * static_cast<double>(jobs), kTop - 8, y, jobs);
  return fmt::format(
      "<h2>All jobs at once, by the way to share the card</h2>\n<p>The length of a job's part is its speed: 1 is alone on the card. What "
      "is "
      "longer in all does more work in the same time.</p>\n<svg class=\"ways\" viewBox=\"0 0 {:.0f} {:.0f}\" style=\"max-width: {:.0f}px\" "
      "role=\"img\" aria-label=\"progress of the jobs by mode\">\n{}{}</svg>\n<h2>The plan</h2>\n",
      end + 60, y, end + 60, axis, svg);
}

}  // namespace

std::string pack_html(const PackReport& report) {
  const pack::Plan& plan = report.plan;
  const Unit unit = unit_of(std::max(1.0, static_cast<double>(plan.makespan_ns)));
  std::string cards;
  for (size_t t = 0; t < report.cluster.types.size(); ++t) {
    const auto count =
        std::count_if(report.cluster.cards.begin(), report.cluster.cards.end(), [&](const pack::Card& c) { return c.type == t; });
    cards += fmt::format("{}{} x {}", t == 0 ? "" : ", ", count, html_escaped(report.cluster.types[t].name));
  }
  const auto time = [&](double ns) { return fmt::format("{:.2f} {}", ns / unit.ns, unit.name); };
  std::string facts;
  const auto fact = [&](const char* name, const std::string& value) { facts += fmt::format("<dt>{}</dt><dd>{}</dd>", name, value); };
  fact("makespan", time(static_cast<double>(plan.makespan_ns)));
  if (report.best) {
    const double value = pack::goal_value(report.best->goal, report.best->plan), bound = report.best->lower_bound;
    const auto named = [&](double one) { return report.best->goal == pack::Goal::cost ? fmt::format("{:.2f} h", one) : time(one); };
    fact(fmt::format("best {} of {} plans", pack::goal_name(report.best->goal), report.best->tried.size()).c_str(), named(value));
    fact("no plan is below", named(bound));
  }
  fact("jobs done", fmt::format("{} of {}", plan.finished, report.jobs.size()));
  fact("arrival to end, mean", time(plan.mean_jct_ns));
  fact("99th percentile", time(plan.p99_jct_ns));
  fact("queueing, mean", time(plan.mean_queue_ns));
  fact("slowdown, mean", fmt::format("{:.2f}", plan.mean_slowdown));
  fact("cards with a job", fmt::format("{:.1f} %", 100 * plan.utilization));
  fact("NVML utilization", fmt::format("{:.1f} %", 100 * plan.nvml));
  fact("GPU hours of cards", fmt::format("{:.2f}", plan.gpu_hours));
  fact("of jobs", fmt::format("{:.2f}", plan.job_gpu_hours));
  std::string lost, left_out;
  if (plan.never_fits > 0 || plan.out_of_memory_runs > 0)
    lost = fmt::format("<p class=\"bad\">{} runs out of memory; {} jobs that no card can hold.</p>\n", plan.out_of_memory_runs,
                       plan.never_fits + plan.out_of_memory_jobs);
  const std::string picture = gantt(report, &left_out);
  for (const std::string& note : report.notes) lost += fmt::format("<p>{}</p>\n", html_escaped(note));
  if (!left_out.empty()) lost += fmt::format("<p>{}</p>\n", left_out);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
      "<title>gpucast pack</title><style>{}</style></head><body>\n<h1>{}</h1>\n<p>{}, policy {}{}: {}. A red border: more than 1.5 times "
      "as "
      "long as alone.</p>\n{}<dl>{}</dl>\n{}{}</body></html>\n",
      kStyle, cards, pack::sharing_mode_name(plan.mode), plan.policy, plan.fair ? ", fair" : "",
      html_escaped(pack::find_policy(plan.policy).rule), lost, facts, report.ways.empty() ? "" : ways_picture(report), picture);
}

}  // namespace gpucast
