#include "src/report/job_step_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/report/time_words.h"

namespace gpucast {
namespace {

constexpr size_t kMostRanks = 16;
constexpr size_t kMostParts = 8;

std::string share_text(double ns, double of_ns) { return of_ns > 0 ? fmt::format("{:.1f} %", 100 * ns / of_ns) : ""; }

void write_ranks(TextWriter& out, const JobStep& job) {
  out.line(out.bold(fmt::format("  {:<22}{:>14}{:>15}{:>16}{:>14}{:>14}", "Share of the step", "compute", "communication",
                                "waits for ranks", "host too late", "hidden")));
  for (size_t i = 0; i < job.captured.size() && i < kMostRanks; ++i) {
    const RankStep& rank = job.captured[i];
    const auto share = [&](double ns) { return share_text(ns, rank.step_ns); };
    out.format("  {:<22}{:>14}{:>15}{:>16}{:>14}{:>14}", fmt::format("rank {}{}", rank.rank, i == job.busiest ? ", waits least" : ""),
               share(rank.compute_ns), share(rank.exposed_ns), share(rank.waiting_ns), share(rank.idle_ns), share(rank.hidden_ns));
  }
  if (job.captured.size() > kMostRanks) out.format("  and {} more captured ranks", job.captured.size() - kMostRanks);
}

void write_communication(TextWriter& out, const RankStep& rank) {
  if (rank.communication.empty()) return;
  out.line(out.bold(fmt::format("  {:<40}{:>8}{:>12}{:>13}{:>12}{:>12}", fmt::format("Communication of rank {}", rank.rank), "calls",
                                "size", "exposed", "waiting", "hidden")));
  for (size_t i = 0; i < rank.communication.size() && i < kMostParts; ++i) {
    const CommunicationPart& part = rank.communication[i];
    const std::string nodes = part.nodes > 1 ? fmt::format(" on {} nodes", part.nodes) : "";
    out.format("  {:<40}{:>8}{:>12}{:>13}{:>12}{:>12}",
               fmt::format("{}: {} of {}{}", group_purpose_name(part.purpose), part.kind, part.ranks, nodes), part.calls,
               fmt::format("{:.1f} MB", part.bytes / 1e6), time_text(part.exposed_ns), time_text(part.waiting_ns),
               time_text(part.hidden_ns));
  }
}

// "the end of the step waits for compute 71.2 %, pipeline communication 26.1 %, late hosts 2.7 %"
std::string critical_words(const JobStep& job) {
  std::map<std::string, double> sums;
  for (const CriticalPart& part : job.critical) sums[part.what] += part.ns;
  std::vector<std::pair<std::string, double>> ordered(sums.begin(), sums.end());
  std::ranges::stable_sort(ordered, std::greater<>(), &std::pair<std::string, double>::second);
  std::vector<std::string> parts;
  for (const auto& [what, ns] : ordered) {
    const std::string name = what == "host" ? "late hosts" : what == "compute" ? what : what + " communication";
    parts.push_back(fmt::format("{} {}", name, share_text(ns, job.played_ns)));
  }
  return fmt::format("the end of the step waits for {}", fmt::join(parts, ", "));
}

}  // namespace

void write_job(TextWriter& out, const JobStep& job, bool loader_bound) {
  out.line();
  out.line(out.bold(
      fmt::format("The job: {} ranks on {}{}", job.ranks, job.nodes > 1 ? fmt::format("{} x ", job.nodes) : "", job.machine_name)));
  const int64_t cards = job.ranks / job.replicas;
  const std::string on = cards == 1 ? "one card" : fmt::format("{} cards", cards);
  const std::string captured =
      job.captured.size() == 1 ? "one rank was captured" : fmt::format("{} ranks were captured", job.captured.size());
  const bool all = static_cast<int64_t>(job.captured.size()) == job.ranks;
  out.wrapped("  ",
              fmt::format("{} on {}; {}{}",
                          job.replicas == 1 ? "one replica of the model" : fmt::format("{} replicas of the model, each", job.replicas), on,
                          captured,
                          all                        ? ""
                          : job.captured.size() == 1 ? " and stands for the others"
                                                     : " and stand for the others"));
  write_ranks(out, job);
  if (loader_bound)
    out.wrapped("  ", fmt::format("shares of {}, the step with its batches ready", time_text(job.captured[job.busiest].step_ns)));
  write_communication(out, job.captured[job.busiest]);
  out.wrapped("  ", critical_words(job));
  for (const std::string& note : job.notes) out.wrapped("  ", note);
}

void write_missing(TextWriter& out, const JobStep& job) {
  if (!job.missing.empty()) out.wrapped("  ", "not the whole job: ranks are missing (below), and these times and samples/s are too good");
}

void write_scale(TextWriter& out, const std::vector<ScalePoint>& points) {
  constexpr double kHalf = 0.5;
  out.line();
  out.line(out.bold(fmt::format("{:<8}{:>8}{:>12}{:>14}{:>16}{:>16}{:>16}", "Cards", "nodes", "a step", "samples/s", "a card brings",
                                "a card more", "communication")));
  for (const ScalePoint& point : points) {
    const bool first = &point == &points.front();
    out.format("{:<8}{:>8}{:>12}{:>14}{:>16}{:>16}{:>16}", point.ranks, point.nodes, time_text(point.step.expected_ns),
               point.samples_per_s > 0 ? rate_text(point.samples_per_s) : "", fmt::format("{:.0f} %", 100 * point.efficiency),
               first ? "" : fmt::format("{:.0f} %", 100 * point.of_more_cards),
               share_text(point.exposed_ns + point.waiting_ns, point.step.expected_ns));
  }
  const auto half = std::ranges::find_if(points, [&](const ScalePoint& point) { return point.of_more_cards < kHalf; });
  if (half != points.end())
    out.wrapped("", fmt::format("from {} cards on, a card more brings less than half of what a card of the first row brings", half->ranks));
}

}  // namespace gpucast
