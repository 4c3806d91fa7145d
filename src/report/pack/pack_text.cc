// A plan for people.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "src/pack/policy.h"
#include "src/report/pack/pack_report.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

constexpr size_t kPackRows = 20;

std::string gib(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30)); }

// "82.4 ms", "3 min 5 s", "7 h 12 min", "2 d 3 h".
std::string span_text(double ns) {
  const int64_t s = std::llround(ns / 1e9);
  if (ns < 0.5) return "0 s";
  if (s < 120) return time_text(ns);
  if (s < 7200) return fmt::format("{} min {} s", s / 60, s % 60);
  if (s < 172800) return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {} h", s / 86400, s / 3600 % 24);
}

std::string cards_of(const PackReport& report) {
  std::string out;
  for (size_t t = 0; t < report.cluster.types.size(); ++t) {
    int64_t count = 0;
    for (const pack::Card& card : report.cluster.cards) count += card.type == t ? 1 : 0;
    out += fmt::format("{}{} x {}", t == 0 ? "" : ", ", count, report.cluster.types[t].id);
  }
  return out;
}

std::string reason_of(const PackReport& report, const pack::Placement& placed) {
  std::string beside;
  for (size_t i = 0; i < placed.neighbours.size() && i < 3; ++i)
    beside += fmt::format("{}{}", i == 0 ? "" : ", ", cut_end(printable(report.jobs[placed.neighbours[i]].name), 20));
  if (placed.neighbours.size() > 3) beside += fmt::format(" and {} more", placed.neighbours.size() - 3);
  switch (placed.reason) {
    case pack::Reason::idle_card:
      return placed.cards.size() > 1 ? "idle cards" : "an idle card";
    case pack::Reason::share_fits:
      return fmt::format("next to {}: shares fit", beside);
    case pack::Reason::memory_fits:
      return fmt::format("next to {}: memory fits", beside);
    case pack::Reason::best_neighbour:
      return fmt::format("next to {}: +{:.2f} jobs' progress", beside, placed.gain);
    case pack::Reason::slice_fits:
      return fmt::format(
          "a slice of {}",
          pack::mig_profiles(report.cluster.types[report.cluster.cards[placed.cards.front()].type])[static_cast<size_t>(placed.mig_profile)]
              .name);
    case pack::Reason::alone_after_out_of_memory:
      return "alone, after it ran out of memory";
    case pack::Reason::none:
    case pack::Reason::count_:
      break;
  }
  return "";
}

std::string contention_text(const PackReport& report, const ContendingPair& pair) {
  const auto name = [&](size_t job) { return cut_end(printable(report.jobs[job].name), 30); };
  const std::string both = fmt::format("{} and {}", name(pair.one), name(pair.other));
  const double used = pair.contention.used;
  switch (pair.contention.part) {
    case pack::Contended::multiprocessors:
      return fmt::format("{} compete for the multiprocessors: alone they use {:.2f} of them", both, used);
    case pack::Contended::bandwidth:
      return fmt::format("{} compete for memory bandwidth: alone they use {:.2f} of it", both, used);
    case pack::Contended::host:
      return fmt::format("{} compete for the bus to the host: alone they use {:.2f} of it", both, used);
    case pack::Contended::nothing:
    case pack::Contended::count_:
      break;
  }
  return fmt::format("{} compete for nothing: alone they use {:.2f} of the multiprocessors", both, used);
}

std::string goal_text(pack::Goal goal, double value) {
  return goal == pack::Goal::cost ? fmt::format("{:.2f} h of cards", value) : span_text(value);
}

void write_best(TextWriter& out, const pack::BestPlan& best) {
  const double value = pack::goal_value(best.goal, best.plan);
  out.format("  best {:<12} {}: the best of {} plans; no plan is below {}{}", pack::goal_name(best.goal), goal_text(best.goal, value),
             best.plans, goal_text(best.goal, best.lower_bound),
             best.lower_bound > 0 ? fmt::format(" (+{:.1f} %)", 100 * (value / best.lower_bound - 1)) : "");
  std::vector<std::string> policies;
  for (const pack::TriedPlan& plan : best.tried)
    if (std::find(policies.begin(), policies.end(), plan.policy) == policies.end()) policies.push_back(plan.policy);
  for (const std::string& policy : policies) {
    const pack::TriedPlan* least = nullptr;
    for (const pack::TriedPlan& plan : best.tried)
      if (plan.policy == policy &&
          (!least || std::tuple(plan.out_of_memory_runs, plan.value) < std::tuple(least->out_of_memory_runs, least->value)))
        least = &plan;
    out.format("    {:<14} {}{}{}", policy, goal_text(best.goal, least->value),
               least->order == pack::JobOrder::arrival         ? ""
               : least->order == pack::JobOrder::longest_first ? ", longest jobs first"
               : least->order == pack::JobOrder::searched      ? ", order found by search"
                                                               : ", shortest jobs first",
               least->out_of_memory_runs > 0 ? fmt::format(", {} runs out of memory", least->out_of_memory_runs) : "");
  }
}

void write_together(TextWriter& out, const PackReport& report) {
  const Together& all = *report.together;
  const Gpu& gpu = report.cluster.types.front();
  if (!all.fits) {
    out.line(out.paint(fmt::format("NOT TOGETHER: they ask for {} of {}'s {}", gib(all.request_bytes), gpu.id, gib(all.capacity_bytes)),
                       "1;31"));
    out.line();
    return;
  }
  out.line(out.bold(fmt::format("TOGETHER on one {}: they ask for {} of {}", gpu.id, gib(all.request_bytes), gib(all.capacity_bytes))));
  out.format("  {:<34}{:>12}{:>14}{:>14}{:>10}  {}", "job", "memory", "step alone", "together", "slower", "90 %");
  for (size_t i = 0; i < all.slowdowns.size(); ++i) {
    const pack::Figures* figures = report.jobs[i].figures_on(gpu.id);
    const pack::Slowdown& slower = all.slowdowns[i];
    out.format("  {:<34}{:>12}{:>14}{:>14}{:>10}  {}", cut_end(printable(report.jobs[i].name), 33), gib(figures->request_bytes),
               time_text(figures->step_ns), time_text(figures->step_ns * slower.expected), fmt::format("{:.2f} x", slower.expected),
               fmt::format("{:.2f} to {:.2f}", slower.low, slower.high));
  }
  for (const ContendingPair& pair : all.pairs) out.wrapped("  ", contention_text(report, pair));
  out.line();
}

void write_ways(TextWriter& out, const PackReport& report) {
  out.line(out.bold(fmt::format("{:<14}{:>10}  {}", "shared by", "progress", "how slow each job gets, and what it may use")));
  for (const pack::WayToShare& way : report.ways) {
    std::string jobs = way.problem;
    for (size_t i = 0; i < way.slowdowns.size(); ++i)
      jobs += fmt::format("{}{} {:.2f} x{}", i == 0 ? "" : ", ", cut_end(printable(report.jobs[i].name), 20), way.slowdowns[i].expected,
                          way.limits.empty() ? "" : fmt::format(" ({})", way.limits[i]));
    const std::string progress = way.problem.empty() ? fmt::format("{:.2f}", way.progress) : "-";
    out.wrapped(fmt::format("{:<14}{:>10}  ", pack::sharing_mode_name(way.mode), progress), jobs);
  }
  out.line("  progress: of all jobs together while they share the card; 1 is one job alone");
  out.line();
}

void write_jobs(TextWriter& out, const PackReport& report) {
  out.line();
  out.line(out.bold(fmt::format("{:<24}{:<14}{:>12}{:>12}{:>8}  {}", "job", "card", "start", "end", "slower", "why")));
  std::vector<size_t> order(report.jobs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto rank = [&](size_t i) { return report.plan.jobs[i].outcome == pack::Outcome::finished ? 1 : 0; };
  const size_t shown = std::min(kPackRows, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(), [&](size_t a, size_t b) {
    return std::tuple(rank(a), report.plan.jobs[a].start_ns, a) < std::tuple(rank(b), report.plan.jobs[b].start_ns, b);
  });
  const auto since = [&](int64_t ns) { return span_text(static_cast<double>(ns - report.plan.first_arrival_ns)); };
  for (size_t at = 0; at < shown; ++at) {
    const size_t i = order[at];
    const pack::Placement& placed = report.plan.jobs[i];
    const std::string name = cut_end(printable(report.jobs[i].name), 23);
    if (placed.outcome != pack::Outcome::finished) {
      const int cards = report.jobs[i].cards;
      out.line(fmt::format("{:<24}{}", name,
                           placed.outcome == pack::Outcome::out_of_memory ? "ran out of memory on an empty card"
                           : cards > 1 ? fmt::format("never: no {} cards of one type are large enough", cards)
                                       : "never: no card is large enough"));
      continue;
    }
    std::string where = report.cluster.cards[placed.cards.front()].id;
    if (placed.cards.size() > 1) where += fmt::format(" +{}", placed.cards.size() - 1);
    out.line(fmt::format("{:<24}{:<14}{:>12}{:>12}{:>8}  {}", name, cut_end(where, 13), since(placed.start_ns), since(placed.end_ns),
                         fmt::format("{:.2f}", placed.slowdown), reason_of(report, placed)));
  }
  if (shown < order.size()) out.format("... and {} more: --format json has all", order.size() - shown);
}

void write_cards(TextWriter& out, const PackReport& report) {
  out.line();
  out.line(out.bold(
      fmt::format("{:<24}{:>8}{:>10}{:>10}{:>12}{:>16}{:>10}", "card", "jobs", "busy", "NVML", "occupancy", "most memory", "at once")));
  for (size_t c = 0; c < report.plan.cards.size() && c < kPackRows; ++c) {
    const pack::CardUse& use = report.plan.cards[c];
    out.format("{:<24}{:>8}{:>10}{:>10}{:>12}{:>16}{:>10}", report.cluster.cards[c].id, use.jobs, percent(use.busy), percent(use.nvml),
               percent(use.occupancy), gib(use.most_bytes), use.most_jobs);
  }
  if (report.plan.cards.size() > kPackRows) out.format("... and {} more: --format json has all", report.plan.cards.size() - kPackRows);
}

}  // namespace

std::string pack_text(const PackReport& report, bool colour) {
  TextWriter out(colour);
  const pack::Plan& plan = report.plan;
  if (report.together) write_together(out, report);
  if (!report.ways.empty()) write_ways(out, report);
  const int64_t all = static_cast<int64_t>(report.jobs.size());
  out.line(out.bold(fmt::format("{} of {} jobs done in {} on {} ({}, policy {}{})", plan.finished, all,
                                span_text(static_cast<double>(plan.makespan_ns)), cards_of(report), pack::sharing_mode_name(plan.mode),
                                plan.policy, plan.fair ? ", fair" : "")));
  out.wrapped("  rule             ", pack::find_policy(plan.policy).rule);
  if (report.best) write_best(out, *report.best);
  out.format("  arrival to end   mean {}, median {}, 99th percentile {}", span_text(plan.mean_jct_ns), span_text(plan.p50_jct_ns),
             span_text(plan.p99_jct_ns));
  out.format("  queueing         mean {}, 99th percentile {}", span_text(plan.mean_queue_ns), span_text(plan.p99_queue_ns));
  out.format("  slowdown         {:.2f} times as long as alone, on average", plan.mean_slowdown);
  out.format("  cards            {} of the time with a job; NVML {}, occupancy {}", percent(plan.utilization), percent(plan.nvml),
             percent(plan.occupancy));
  out.format("  GPU hours        {:.2f} of cards, {:.2f} of jobs", plan.gpu_hours, plan.job_gpu_hours);
  if (plan.never_fits > 0) out.line(out.paint(fmt::format("  never placed     {}: no card is large enough", plan.never_fits), "31"));
  if (plan.out_of_memory_runs > 0)
    out.line(out.paint(fmt::format("  out of memory    {} runs; {} jobs do not fit an empty card either", plan.out_of_memory_runs,
                                   plan.out_of_memory_jobs),
                       "31"));
  write_jobs(out, report);
  write_cards(out, report);
  for (const std::string& note : report.notes) out.wrapped("note: ", note);
  return out.take();
}

}  // namespace gpucast
