#include "src/search/remedies.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "gpucast/error.h"
#include "src/base/bytes.h"
#include "src/explain/explain.h"
#include "src/search/run_problem.h"

namespace gpucast::search {
namespace {

constexpr size_t kMostPaired = 3;  // remedies: three pairs

RunSpec as_recorded(const Analysis& recorded) {
  const Prediction& p = recorded.prediction;
  RunSpec spec;
  spec.command = p.command;
  spec.gpu = p.gpu_id;
  if (p.steps_rule == "auto" || p.steps_rule == "until-end") {
    spec.steps = p.steps_rule;
  } else if (p.steps_requested > 0) {
    spec.steps = std::to_string(p.steps_requested);
  }
  const std::string& folder = recorded.facts->trace.header.folder;
  std::error_code error;
  if (!folder.empty() && std::filesystem::is_directory(folder, error)) spec.folder = folder;
  const std::string& conf = recorded.facts->trace.process.alloc_conf;
  spec.environment = {{"PYTORCH_ALLOC_CONF", std::nullopt},
                      {"PYTORCH_CUDA_ALLOC_CONF", conf.empty() ? std::nullopt : std::optional<std::string>(conf)}};
  for (const WhatIf& what_if : p.what_if) spec.what_ifs.push_back(what_if.name);
  return spec;
}

std::string difference_to_recorded(const Analysis& recorded, const Analysis& now) {
  const Prediction &p = recorded.prediction, &q = now.prediction;
  if (p.peak_allocated.bytes == q.peak_allocated.bytes && p.peak_reserved.bytes == q.peak_reserved.bytes && p.torch == q.torch) return "";
  std::string why;
  if (p.torch != q.torch) why = fmt::format(" with torch {} instead of {}", q.torch, p.torch);
  if (p.enforced_capacity) why += " without the card's limit";
  if (p.gpu_id != p.captured_gpu_id) why += fmt::format(" on {} instead of {}", p.gpu_id, p.captured_gpu_id);
  return fmt::format("Run again as it is{}, the script reserves {} at its peak and allocates {} ({}). What is saved is counted from there.",
                     why, format_bytes(q.peak_reserved.bytes), format_bytes(q.peak_allocated.bytes),
                     q.verdict == Verdict::does_not_fit ? "does not fit" : verdict_name(q.verdict));
}

// Of one or two what-ifs.
struct Change {
  std::vector<std::string> what_ifs;

  std::string name() const { return fmt::format("{}", fmt::join(what_ifs, "+")); }
  std::string words() const {
    std::vector<std::string> each(what_ifs.size());
    std::ranges::transform(what_ifs, each.begin(), what_if_words);
    return fmt::format("{}", fmt::join(each, ", and "));
  }
};

Remedy not_computed(const Change& change, std::string why) {
  Remedy remedy;
  remedy.by = RemedyBy::rerun;
  remedy.name = change.name();
  remedy.what = change.words();
  remedy.note = std::move(why);
  return remedy;
}

Analysis judged(const Run& run, const std::string& gpu_id) { return judge(facts_of(run).front(), gpu_id); }

Remedy remedy_of(const Change& change, const Run& run, const Analysis& baseline) {
  if (run.captures.empty()) return not_computed(change, run_problem(run));
  const Analysis changed = judged(run, baseline.prediction.gpu_id);
  std::vector<std::string> did;
  for (const std::string& name : change.what_ifs) {
    const auto& all = changed.prediction.what_if;
    const auto what_if = std::ranges::find(all, name, &WhatIf::name);
    if (what_if == all.end() || !what_if->acted)
      return not_computed(change, "it changes nothing: " + (what_if == all.end() ? "" : what_if->did));
    did.push_back(what_if->did);
  }
  Remedy remedy = compare_remedy(RemedyBy::rerun, change.name(), baseline.prediction, changed.prediction);
  remedy.what = change.words();
  remedy.note = fmt::format("{}", fmt::join(did, "; "));
  return remedy;
}

std::vector<Remedy> remedies_of(const std::vector<Change>& changes, const RunSpec& as_it_is, const Analysis& baseline, Runs* runs) {
  std::vector<RunSpec> specs;
  for (const Change& change : changes) {
    specs.push_back(as_it_is);
    specs.back().what_ifs.insert(specs.back().what_ifs.end(), change.what_ifs.begin(), change.what_ifs.end());
  }
  const std::vector<Run> done = runs->run(specs);
  std::vector<Remedy> out;
  out.reserve(done.size());
  for (size_t i = 0; i < done.size(); ++i) out.push_back(remedy_of(changes[i], done[i], baseline));
  return out;
}

bool helps(const Remedy& remedy) { return remedy.computed && remedy.verdict != Verdict::does_not_fit && remedy.verdict != Verdict::none; }

// The remedies that save most, two at a time.
std::vector<Change> pairs_of(std::vector<Remedy> singles) {
  std::erase_if(singles, [](const Remedy& remedy) { return !remedy.computed || remedy.saved_reserved_bytes <= 0; });
  sort_remedies(&singles);
  std::vector<Change> out;
  for (size_t second = 1; second < std::min(singles.size(), kMostPaired); ++second) {
    for (size_t first = 0; first < second; ++first) out.push_back({{singles[first].name, singles[second].name}});
  }
  return out;
}

}  // namespace

void add_remedies(const Analysis& recorded, const std::vector<std::string>& what_ifs, Runs* runs, Explanation* out) {
  out->reruns_tried = true;
  const RunSpec as_it_is = as_recorded(recorded);
  std::vector<Change> changes;
  changes.reserve(what_ifs.size());
  for (const std::string& name : what_ifs) changes.push_back({{name}});
  const Run again = runs->run(as_it_is);
  if (again.captures.empty()) {
    out->baseline = fmt::format("The script could not be run again: {}.", run_problem(again));
    for (const Change& change : changes) out->remedies.push_back(not_computed(change, "the script could not be run again"));
    return;
  }
  const Analysis baseline = judged(again, as_it_is.gpu);
  out->baseline = difference_to_recorded(recorded, baseline);
  if (!out->baseline.empty()) {
    // Also replaces the explanation of allocator settings, so that it is about a complete run of the same script as the what-ifs.
    Explanation now = explain(baseline);
    out->remedies = std::move(now.remedies);
    out->settings_tried = now.settings_tried;
  }
  const std::vector<Remedy> singles = remedies_of(changes, as_it_is, baseline, runs);
  out->remedies.insert(out->remedies.end(), singles.begin(), singles.end());
  if (baseline.prediction.verdict != Verdict::does_not_fit || std::ranges::any_of(out->remedies, helps)) return;
  const std::vector<Change> pairs = pairs_of(singles);
  if (pairs.empty()) return;
  for (Remedy& pair : remedies_of(pairs, as_it_is, baseline, runs)) out->remedies.push_back(std::move(pair));
}

}  // namespace gpucast::search
