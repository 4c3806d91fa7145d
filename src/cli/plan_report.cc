#include "src/cli/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/base/json.h"
#include "src/base/to_number.h"
#include "src/cli/columns.h"
#include "src/report/text_writer.h"
#include "src/report/time_words.h"

namespace gpucast::cli {
namespace {

constexpr double kHalf = 0.5;      // cards that bring less are hardly worth it
constexpr double kNothing = 0.05;  // cards that bring less bring nothing

bool plan_fits(const search::Plan& plan) { return !plan.figures.failed && fits_now(plan.figures.verdict); }

bool is_derived(const search::Plan& plan) { return plan.captured_gpus != plan.choice.gpus; }

std::string gib_text(int64_t bytes) { return bytes > 0 ? fmt::format("{:.1f}", static_cast<double>(bytes) / (1LL << 30)) : ""; }

// "20 B tokens", "1 M samples"
std::string goal_words(const PlanReport& report) {
  return fmt::format("{} {}", amount_text(report.goal.tokens > 0 ? report.goal.tokens : 1e6),
                     report.found.by_tokens ? "tokens" : "samples");
}

size_t count_of(const PlanReport& report, bool failed, bool fitting) {
  return static_cast<size_t>(std::ranges::count_if(report.found.plans, [&](const search::Plan& plan) {
    return plan.figures.failed == failed && (failed || plan_fits(plan) == fitting);
  }));
}

std::string order_words(const PlanReport& report) {
  if (report.offer) return report.goal.deadline_ns > 0 ? "the cheapest that makes the deadline first" : "the cheapest first";
  return report.goal.deadline_ns > 0 ? "the fewest cards that make the deadline first" : "the fastest first";
}

void print_best(const PlanReport& report, TextWriter* out) {
  std::vector<Column> columns{{"cards", {}}};
  for (const search::PlanParameter& parameter : report.space.parameters) columns.push_back({printable(parameter.name), {}});
  const size_t first = columns.size();
  const char* const unit = report.found.by_tokens ? "tokens/s" : "samples/s";
  for (const std::string& title : {std::string("a step"), std::string(unit), std::string("samples"), std::string("peak GiB"),
                                   std::string("bubble"), std::string("exposed"), goal_words(report)})
    columns.push_back({title, {}});
  if (report.offer) columns.push_back({report.offer->currency.empty() ? "price" : printable(report.offer->currency), {}});
  for (const search::Plan& plan : report.found.plans) {
    if (!plan_fits(plan) || columns.front().cells.size() == report.most_plans) break;
    const search::PlanFigures& figures = plan.figures;
    columns.front().cells.push_back(fmt::format("{}{}", is_derived(plan) ? "~" : "", plan.choice.gpus));
    for (size_t i = 0; i < plan.choice.values.size(); ++i) columns[1 + i].cells.push_back(printable(plan.choice.values[i]));
    size_t at = first;
    columns[at++].cells.push_back(time_text(figures.step.expected_ns));
    columns[at++].cells.push_back(plan.throughput > 0 ? amount_text(plan.throughput) : "");
    columns[at++].cells.push_back(figures.samples > 0 ? std::to_string(figures.samples) : "");
    columns[at++].cells.push_back(gib_text(figures.peak_reserved_bytes) + (figures.verdict == Verdict::tight ? "!" : ""));
    columns[at++].cells.push_back(percent(figures.bubble_share));
    columns[at++].cells.push_back(percent(figures.exposed_share));
    columns[at++].cells.push_back(plan.ns > 0 ? long_time_text(plan.ns) + (plan.in_time ? "" : " (late)") : "");
    if (report.offer) columns[at].cells.push_back(plan.cost > 0 ? money_text(plan.cost) : "");
  }
  print_columns(columns, out);
}

void print_scale(const PlanReport& report, TextWriter* out) {
  const std::vector<search::PlanScale>& scale = report.found.scale;
  if (scale.size() < 2) return;
  out->line();
  out->line(out->bold("The fastest on each number of cards"));
  std::vector<Column> columns{
      {"cards", {}}, {"nodes", {}}, {report.found.by_tokens ? "tokens/s" : "samples/s", {}}, {"each card more brings", {}}};
  for (const search::PlanScale& row : scale) {
    const search::Plan& plan = report.found.plans[row.plan];
    columns[0].cells.push_back(fmt::format("{}{}", is_derived(plan) ? "~" : "", row.gpus));
    columns[1].cells.push_back(std::to_string(plan.figures.nodes));
    columns[2].cells.push_back(amount_text(plan.throughput));
    columns[3].cells.push_back(&row == scale.data() ? "" : percent(std::max(0.0, row.of_more_cards)));
  }
  print_columns(columns, out);
  const auto weak = std::find_if(scale.begin() + 1, scale.end(), [](const search::PlanScale& row) { return row.of_more_cards < kHalf; });
  if (weak == scale.end()) return;
  const bool nothing = weak->of_more_cards < kNothing;
  out->wrapped("  ", fmt::format("From {} to {} cards, one more node brings {}.", (weak - 1)->gpus, weak->gpus,
                                 nothing ? "nothing" : "less than half of what the first cards bring"));
}

// "Price: AWS p5.48xlarge, 55.04 USD an hour for 8 cards, us-east-1, on 2026-11-09"
std::string price_words(const search::Offer& offer) {
  return fmt::format("Price: {}, {} {} an hour for {} card{}{}{}", printable(offer.name), offer.price_per_hour, printable(offer.currency),
                     offer.cards, offer.cards == 1 ? "" : "s", offer.region.empty() ? "" : ", " + printable(offer.region),
                     offer.date.empty() ? "" : ", on " + printable(offer.date));
}

void print_notes(const PlanReport& report, TextWriter* out) {
  const search::Plan& best = report.found.plans.front();
  const auto derived = [](const search::Plan& plan) { return plan_fits(plan) && is_derived(plan); };
  if (std::ranges::any_of(report.found.plans, derived))
    out->wrapped("  ",
                 fmt::format("~ not captured on this many cards, but on fewer, and given more replicas{}",
                             report.found.sharded ? ": a rank holds at most this memory, and its optimizer needs at most this time" : ""));
  if (std::ranges::any_of(report.found.plans,
                          [](const search::Plan& plan) { return plan_fits(plan) && plan.figures.verdict == Verdict::tight; }))
    out->line("  ! tight: it runs, but close to the card's memory");
  const auto differs = [&](const search::Plan& plan) { return plan_fits(plan) && plan.figures.samples != best.figures.samples; };
  if (best.figures.samples > 0 && std::ranges::any_of(report.found.plans, differs))
    out->wrapped("  ", "The plans have different global batches (samples): a model may need more tokens with a larger one.");
  for (const std::string& note : best.figures.notes) out->wrapped("  ", "Note: " + printable(note));
  if (report.offer) {
    const search::Offer& offer = *report.offer;
    out->line("  " + price_words(offer));
    if (!offer.source.empty()) out->line("  from " + printable(offer.source));
  }
}

void print_none(const PlanReport& report, TextWriter* out) {
  const search::Plan* least = nullptr;
  for (const search::Plan& plan : report.found.plans) {
    if (plan.figures.peak_reserved_bytes <= 0) continue;
    if (least == nullptr || plan.figures.peak_reserved_bytes < least->figures.peak_reserved_bytes) least = &plan;
  }
  out->line(
      out->bold(fmt::format("No plan fits {} ({} GiB).", report.gpu.id, gib_text(static_cast<int64_t>(report.gpu.total_memory_bytes)))));
  if (least != nullptr)
    out->wrapped(
        "  ", fmt::format("The least memory: {} GiB reserved, {} GiB of the device, with {}.", gib_text(least->figures.peak_reserved_bytes),
                          gib_text(least->figures.expected_bytes), search::plan_words(report.space, least->choice)));
  if (least != nullptr && !least->figures.runs.empty()) out->line("  " + least->figures.runs.front());
}

void print_failures(const PlanReport& report, TextWriter* out) {
  const auto failed = std::ranges::find_if(report.found.plans, [](const search::Plan& plan) { return plan.figures.failed; });
  if (failed == report.found.plans.end()) return;
  out->wrapped(
      "  ",
      fmt::format("With {} the script failed: {}", search::plan_words(report.space, failed->choice), printable(failed->figures.problem)),
      4);
}

Json plan_entry(const PlanReport& report, const search::Plan& plan) {
  const search::PlanFigures& figures = plan.figures;
  Json flags = Json::object();
  for (size_t i = 0; i < plan.choice.values.size(); ++i) {
    const auto number = to_number<int64_t>(plan.choice.values[i]);
    flags[report.space.parameters[i].name] = number ? Json(*number) : Json(plan.choice.values[i]);
  }
  const bool timed = plan_fits(plan) && figures.step.expected_ns > 0;
  Json out{{"gpus", plan.choice.gpus},
           {"flags", flags},
           {"verdict", figures.failed ? "failed" : verdict_name(figures.verdict)},
           {"problem", figures.problem.empty() ? Json() : Json(figures.problem)},
           {"captured_gpus", plan.captured_gpus > 0 ? Json(plan.captured_gpus) : Json()},
           {"peak_reserved_bytes", figures.peak_reserved_bytes > 0 ? Json(figures.peak_reserved_bytes) : Json()},
           {"step_ns", timed ? Json(figures.step.expected_ns) : Json()}};
  if (timed) {
    out.update({{"step", {{"low_ns", figures.step.low_ns}, {"expected_ns", figures.step.expected_ns}, {"high_ns", figures.step.high_ns}}},
                {"nodes", figures.nodes},
                {"replicas", figures.replicas},
                {"samples", figures.samples},
                {"tokens", figures.tokens},
                {"throughput", plan.throughput},
                {"bubble_share", figures.bubble_share},
                {"exposed_share", figures.exposed_share},
                {"ns", plan.ns},
                {"in_time", plan.in_time}});
    out["cost"] = plan.cost > 0 ? Json(plan.cost) : Json();
  }
  out["runs"] = figures.runs;
  return out;
}

}  // namespace

bool has_answer(const search::PlanSearch& found) {
  return !found.plans.empty() && plan_fits(found.plans.front()) && found.plans.front().in_time;
}

std::string plan_text(const PlanReport& report, bool colour) {
  TextWriter out(colour);
  const search::PlanSearch& found = report.found;
  const size_t fitting = count_of(report, false, true), failed = count_of(report, true, false);
  if (fitting == 0) print_none(report, &out);
  if (fitting > 0) {
    out.line(out.bold(fmt::format("Plans for {} of {}, {}", report.gpu.id, report.machine.name, order_words(report))));
    print_best(report, &out);
    print_notes(report, &out);
    print_scale(report, &out);
  }
  if (report.goal.deadline_ns > 0 && fitting > 0 && !found.plans.front().in_time)
    out.line(out.bold(fmt::format("No plan makes the deadline of {}.", long_time_text(report.goal.deadline_ns))));
  out.line();
  out.wrapped("", fmt::format("{} plans: {} fit, {} do not fit, {} failed; {} runs", found.plans.size(), fitting,
                              count_of(report, false, false), failed, found.runs));
  print_failures(report, &out);
  if (fitting > 0 && !found.plans.front().figures.runs.empty()) {
    out.line(is_derived(found.plans.front()) ? "The first is derived from" : "The first is");
    out.line("  " + found.plans.front().figures.runs.front());
  }
  return out.take();
}

std::string plan_json(const PlanReport& report) {
  Json out{{"schema_version", 1}, {"machine", report.machine.id}, {"gpu", report.gpu.id}, {"command", report.space.command}};
  Json constraints = Json::array();
  for (const search::Expression& constraint : report.space.constraints) constraints.push_back(constraint.text());
  out["constraints"] = constraints;
  out["goal"] = {{"unit", report.found.by_tokens ? "tokens" : "samples"},
                 {"amount", report.goal.tokens > 0 ? report.goal.tokens : 1e6},
                 {"deadline_ns", report.goal.deadline_ns > 0 ? Json(report.goal.deadline_ns) : Json()}};
  out["price"] = Json();
  if (report.offer) {
    const search::Offer& offer = *report.offer;
    out["price"] = {{"name", offer.name},         {"cards", offer.cards},   {"price_per_hour", offer.price_per_hour},
                    {"currency", offer.currency}, {"region", offer.region}, {"source", offer.source},
                    {"date", offer.date}};
  }
  Json plans = Json::array(), scale = Json::array();
  for (const search::Plan& plan : report.found.plans) plans.push_back(plan_entry(report, plan));
  for (const search::PlanScale& row : report.found.scale)
    scale.push_back(Json{{"gpus", row.gpus}, {"plan", row.plan}, {"of_more_cards", row.of_more_cards}});
  out["plans"] = std::move(plans);
  out["scale"] = std::move(scale);
  return out.dump(2) + "\n";
}

}  // namespace gpucast::cli
