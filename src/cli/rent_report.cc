#include "src/cli/rent_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "src/base/json.h"
#include "src/cli/columns.h"
#include "src/report/text_writer.h"
#include "src/report/time_words.h"

namespace gpucast::cli {
namespace {

constexpr size_t kNameColumns = 26;

bool row_fits(const search::RentRow& row) { return row.problem.empty() && fits_now(row.verdict); }

bool by_tokens(const RentReport& report) {
  return std::ranges::any_of(report.rows, [](const search::RentRow& row) { return row.tokens_per_s > 0; });
}

std::string number_text(double number) { return number > 0 ? amount_text(number) : ""; }
std::string price_text(double price) { return price > 0 ? money_text(price) : ""; }

void print_rows(const RentReport& report, TextWriter* out) {
  const bool tokens = by_tokens(report);
  const search::RentRow& first = report.rows.front();
  const std::string currency = first.offer ? printable(first.offer->currency) : "";
  std::vector<Column> columns{{first.offer ? "offer" : "card", {}, true},
                              {"--gpu", {}, true},
                              {"memory", {}},
                              {"a step", {}},
                              {tokens ? "tokens/s" : "samples/s", {}},
                              {"an epoch", {}},
                              {currency + "/h", {}},
                              {currency + "/epoch", {}},
                              {fmt::format("{}/1 {} {}", currency, tokens ? "B" : "M", tokens ? "tokens" : "samples"), {}}};
  constexpr double kMillionsOfBillion = 1000;
  for (const search::RentRow& row : report.rows) {
    if (!row_fits(row)) continue;
    size_t at = 0;
    for (const std::string& cell :
         {cut_end(printable(row.name), kNameColumns), row.gpu.id + (row.same_capability ? "" : "*"),
          fmt::format("{:.0f} %{}", 100 * static_cast<double>(row.expected_bytes) / static_cast<double>(row.gpu.total_memory_bytes),
                      row.verdict == Verdict::tight ? "!" : ""),
          row.step.expected_ns > 0 ? time_text(row.step.expected_ns) : "", number_text(tokens ? row.tokens_per_s : row.samples_per_s),
          row.epoch_ns > 0 ? long_time_text(row.epoch_ns) : "", price_text(row.price_per_hour), price_text(row.epoch_price),
          row.epoch_price > 0 ? "" : price_text(row.million_price * (tokens ? kMillionsOfBillion : 1))})
      columns[at++].cells.push_back(cell);
  }
  print_columns(columns, out);
}

void print_rest(const RentReport& report, TextWriter* out) {
  std::string names;
  std::set<std::string> named;
  for (const search::RentRow& row : report.rows) {
    if (row_fits(row) || !row.problem.empty() || !named.insert(row.name).second) continue;
    names += fmt::format("{}{}{}", names.empty() ? "" : ", ", printable(row.offer ? row.name : row.gpu.id), row.same_capability ? "" : "*");
  }
  if (!names.empty()) out->wrapped("Does not fit: ", names);
  std::map<std::string, std::string> problems;  // names, by problem
  for (const search::RentRow& row : report.rows) {
    if (row.problem.empty()) continue;
    std::string& text = problems[row.problem];
    text += (text.empty() ? "" : ", ") + printable(row.offer ? row.name : row.gpu.id);
  }
  for (const auto& [problem, of] : problems) out->wrapped("Not judged: ", fmt::format("{}: {}", of, printable(problem)), 6);
}

// Where the loader or the host decides, cards differ by the error of the measurement.
std::string bound_note(const RentReport& report) {
  int64_t fitting = 0, by_loader = 0, by_host = 0;
  for (const search::RentRow& row : report.rows) {
    if (!row_fits(row) || row.step.expected_ns <= 0) continue;
    ++fitting;
    by_loader += row.bound == StepBound::loader ? 1 : 0;
    by_host += row.bound == StepBound::host ? 1 : 0;
  }
  if (by_loader + by_host == 0) return "";
  const char* const what = by_loader >= by_host ? "loader" : "host";
  return fmt::format(
      "on {} of these {} cards the step is {}-bound: the {}'s time was measured on this machine, a faster card does not shorten the "
      "step, and small differences between such cards mean nothing. `gpucast time` shows what limits it.",
      by_loader + by_host, fitting, what, what);
}

void print_rent_notes(const RentReport& report, TextWriter* out) {
  if (const std::string note = bound_note(report); !note.empty()) out->wrapped("Note: ", note);
  const auto any = [&](const auto& has) { return std::ranges::any_of(report.rows, has); };
  if (any([](const search::RentRow& row) { return row.problem.empty() && !row.same_capability; }))
    out->wrapped("* ",
                 "captured for another capability class: this card's libraries choose other kernels and workspaces. The exact answer: "
                 "`gpucast gpus --for -- COMMAND`");
  if (any([](const search::RentRow& row) { return row.verdict == Verdict::tight; }))
    out->wrapped("! ", "tight: it runs, but close to the card's memory");
  const auto partly = [](const search::RentRow& row) { return row_fits(row) && row.offer && row.cards % row.offer->cards != 0; };
  for (const std::string& note : report.rows.front().notes) out->wrapped("Note: ", printable(note));
  if (any(partly)) out->line("All cards of an offer are paid, used or not.");
}

void print_sources(const RentReport& report, TextWriter* out) {
  std::set<std::string> sources;
  for (const search::RentRow& row : report.rows)
    if (row.offer) sources.insert(fmt::format("{}  {}", row.offer->date, row.offer->source));
  sources.erase("  ");
  if (sources.empty()) return;
  out->line();
  out->line("Prices of these dates, from:");
  for (const std::string& source : sources) out->line("  " + printable(source));
}

Json known(double number) { return number > 0 ? Json(number) : Json(); }

Json row_json(const search::RentRow& row) {
  const bool timed = row.step.expected_ns > 0;
  Json out{{"name", row.name},
           {"gpu", row.gpu.id},
           {"machine", row.machine.id},
           {"cards", row.cards},
           {"verdict", row.problem.empty() ? verdict_name(row.verdict) : "failed"},
           {"problem", row.problem.empty() ? Json() : Json(row.problem)},
           {"same_capability", row.same_capability},
           {"expected_bytes", row.expected_bytes},
           {"capacity_bytes", static_cast<int64_t>(row.gpu.total_memory_bytes)},
           {"step_ns", known(row.step.expected_ns)},
           {"samples_per_s", known(row.samples_per_s)},
           {"tokens_per_s", known(row.tokens_per_s)},
           {"epoch_ns", known(row.epoch_ns)},
           {"price_per_hour", known(row.price_per_hour)},
           {"epoch_price", known(row.epoch_price)},
           {"million_price", known(row.million_price)}};
  if (timed) out["step"] = {{"low_ns", row.step.low_ns}, {"expected_ns", row.step.expected_ns}, {"high_ns", row.step.high_ns}};
  if (row.offer)
    out["offer"] = {{"cards", row.offer->cards},       {"price_per_hour", row.offer->price_per_hour},
                    {"currency", row.offer->currency}, {"region", row.offer->region},
                    {"source", row.offer->source},     {"date", row.offer->date}};
  return out;
}

}  // namespace

bool some_fit(const RentReport& report) { return std::ranges::any_of(report.rows, row_fits); }

bool some_judged(const RentReport& report) {
  return std::ranges::any_of(report.rows, [](const search::RentRow& row) { return row.problem.empty(); });
}

std::string rent_text(const RentReport& report, bool colour) {
  TextWriter out(colour);
  const bool priced = report.rows.front().offer.has_value();
  const int64_t cards = report.rows.front().cards;
  const std::string what = cards == 1 ? "this job" : fmt::format("this job on {} cards", cards);
  if (some_fit(report)) {
    out.line(out.bold(fmt::format("{} for {}, the {} first", priced ? "Offers" : "Cards", what, priced ? "cheapest" : "fastest")));
    print_rows(report, &out);
  } else {
    out.line(out.bold(some_judged(report) ? fmt::format("No {} fits {}.", priced ? "offer" : "card", what) : "No card could be judged."));
  }
  out.line();
  print_rest(report, &out);
  print_rent_notes(report, &out);
  print_sources(report, &out);
  if (!report.runs.empty()) {
    out.line();
    out.line("Runs:");
    for (const std::string& run : report.runs) out.line("  " + run);
  }
  return out.take();
}

std::string rent_json(const RentReport& report) {
  Json rows = Json::array();
  for (const search::RentRow& row : report.rows) rows.push_back(row_json(row));
  Json out{{"schema_version", 1}, {"unit", by_tokens(report) ? "tokens" : "samples"}};
  out["rows"] = std::move(rows);
  out["runs"] = report.runs;
  return out.dump(2) + "\n";
}

}  // namespace gpucast::cli
