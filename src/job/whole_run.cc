// A record has each DataLoader's passes: its length, the times at which batches came, and whether it was cut. Times are of the card's
// clock.
//
//   start | pass: first batch, batches ... | pass (evaluation) | pass ... | end
//
// A pass that was cut counts with its whole length. Training counts with the predicted time of a step, all else with the clock's. What
// comes before the first pass of training happens once, and so do passes after the last one that do not follow the others.

#include "gpucast/whole_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "gpucast/error.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

// PyTorch loads libraries and kernels in its first step. Median of 40 trainings on an H200 (eval/truth/h200): first step minus a later one.
constexpr double kFirstUseNs = 0.62e9;
// Of a checkpoint: pickled and written. An assumption, the same order as one NVMe disk or a fast network file system.
constexpr double kCheckpointBytesPerNs = 1;
constexpr double kLongStep = 3;  // a step this many times as long as the median has other work in it
constexpr size_t kWarmBatches = 2, kWarmSteps = 3;
constexpr double kRounding = 1e-6;

struct LoaderPass {
  std::string dataset;
  int64_t length = 0, batch_size = 0, parent = -1, parent_batch = 0, steps = 0;
  int64_t call = 0;                  // the evaluation of a Trainer's schedule that it belongs to; 0: none
  double times = 1;                  // it stands for this number of passes
  std::vector<double> step_batches;  // for each step: the batches so far
  double begin_ns = 0, end_ns = 0;
  std::vector<double> fetched_ns;
  bool cut = false;
  std::vector<size_t> children;

  bool trains() const { return steps > 0; }
  double taken() const { return static_cast<double>(fetched_ns.size()); }
  double whole() const { return cut ? static_cast<double>(length) : taken(); }
  auto kind() const { return std::tie(dataset, length, batch_size); }
};

struct Checkpoint {
  double bytes = 0;
  int64_t pass = -1;  // the outermost pass around it; -1: none
  double place = 0;   // batches of that pass before it; without a pass: steps
  bool scheduled = false;
};

// What a Trainer does in all its steps.
struct Schedule {
  double steps = 0;                          // 0: there is none
  std::optional<double> evaluations, saves;  // unset: not after a number of steps
};

struct RunRecord {
  std::string end;
  double end_ns = 0;
  std::vector<LoaderPass> passes;
  std::vector<double> steps_ns;
  std::vector<Checkpoint> saves;
  Schedule schedule;
};

std::vector<double> numbers(const Json& json) {
  std::vector<double> out;
  for (const Json& one : json) out.push_back(one.get<double>());
  return out;
}

RunRecord read_record(std::string_view text) {
  const Json json = Json::parse(text);
  if (!json.is_object() || !json["passes"].is_array() || !json["steps_ns"].is_array())
    throw Error("the run left no record of its passes and steps", "", "this is a defect of gpucast: please report it");
  RunRecord out;
  out.end = json["end"].get<std::string>();
  if (out.end == "exception")
    throw Error(fmt::format("on the card's clock the script raised {}, after {} optimizer step{}", json.value("exception", "an exception"),
                            json["steps_ns"].size(), json["steps_ns"].size() == 1 ? "" : "s"),
                "", "what it printed is above; `gpucast run --warp -- COMMAND` runs it whole");
  out.end_ns = json["end_ns"].get<double>();
  out.steps_ns = numbers(json["steps_ns"]);
  for (const Json& save : json["saves"]) {
    const std::vector<double> fields = numbers(save);
    if (fields.size() < 4) continue;
    out.saves.push_back({.bytes = fields[0], .pass = static_cast<int64_t>(fields[1]), .place = fields[2], .scheduled = fields[3] != 0});
  }
  const Json& schedule = json["schedule"];
  out.schedule.steps = schedule.value("steps", 0.0);
  if (schedule.contains("evaluations")) out.schedule.evaluations = schedule["evaluations"].get<double>();
  if (schedule.contains("saves")) out.schedule.saves = schedule["saves"].get<double>();
  for (const Json& one : json["passes"]) {
    LoaderPass pass;
    pass.dataset = one["dataset"].get<std::string>();
    pass.length = one["length"].get<int64_t>();
    pass.batch_size = one["batch_size"].get<int64_t>();
    pass.parent = one["parent"].get<int64_t>();
    pass.parent_batch = one["parent_batch"].get<int64_t>();
    pass.steps = one["steps"].get<int64_t>();
    pass.call = one["call"].get<int64_t>();
    pass.times = one["times"].get<double>();
    pass.step_batches = numbers(one["step_batches"]);
    pass.begin_ns = one["begin_ns"].get<double>();
    pass.end_ns = one["end_ns"].get<double>();
    pass.fetched_ns = numbers(one["fetched_ns"]);
    pass.cut = one["cut"].get<bool>();
    const size_t number = out.passes.size();
    if (pass.parent >= 0 && static_cast<size_t>(pass.parent) < number)
      out.passes[static_cast<size_t>(pass.parent)].children.push_back(number);
    out.passes.push_back(std::move(pass));
  }
  return out;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double period_of(const std::vector<double>& at) {
  return at.size() < 2 ? 0 : (at.back() - at.front()) / static_cast<double>(at.size() - 1);
}

// What happened `at` these positions of a series of `seen` comes again in a series of `whole`: so often altogether. Once does not say how
// often, if it would have come a second time.
double repeated(const std::vector<double>& at, double seen, double whole) {
  if (whole <= seen || at.empty()) return static_cast<double>(at.size());
  if (at.size() == 1) return 2 * at.front() <= seen ? 1 : std::max(1.0, std::floor(whole / at.front()));
  const double period = period_of(at);
  return period > 0 ? std::floor((whole - at.front()) / period) + 1 : static_cast<double>(at.size());
}

struct Totals {
  double steps = 0, loader_start_ns = 0, loader_starts = 0, evaluation_ns = 0, evaluation_batches = 0;

  void add(const Totals& other, double times) {
    steps += times * other.steps;
    loader_start_ns += times * other.loader_start_ns;
    loader_starts += times * other.loader_starts;
    evaluation_ns += times * other.evaluation_ns;
    evaluation_batches += times * other.evaluation_batches;
  }
};

class LoaderPasses {
 public:
  explicit LoaderPasses(const RunRecord& record) : record_(record) {}

  // Adds the pass, as whole as the script would have made it, `times` times.
  void add(size_t number, double times, Totals* totals) const {
    const LoaderPass& pass = record_.passes[number];
    if (pass.fetched_ns.empty()) return;
    const LoaderPass& shown = pass.cut ? longest_like(pass) : pass;
    const double whole = pass.whole(), scale = whole / shown.taken();
    totals->loader_start_ns += times * (pass.fetched_ns.front() - pass.begin_ns);
    totals->loader_starts += times;
    if (pass.trains() || shown.trains()) {
      totals->steps += times * (whole > shown.taken() ? steps_of(shown, whole) : static_cast<double>(shown.steps) * scale);
    } else {
      totals->evaluation_ns += times * evaluation_ns(shown, whole);
      totals->evaluation_batches += times * whole;
    }
    std::vector<double> at;
    for (const size_t child : shown.children)
      if (record_.passes[child].call == 0) at.push_back(static_cast<double>(record_.passes[child].parent_batch));
    double count = repeated(at, shown.taken(), whole);
    if (&shown != &pass && !at.empty() && !begins_like(pass, at.front())) count = period_of(at) > 0 ? whole / period_of(at) : 0;
    if (!at.empty()) totals->evaluation_ns += times * count / static_cast<double>(at.size()) * work_after_inner_ns(shown);
    for (const size_t child : shown.children) {
      const LoaderPass& inner = record_.passes[child];
      if (inner.call == 0) add(child, times * inner.times * count / static_cast<double>(at.size()), totals);
    }
  }

 private:
  const LoaderPass& longest_like(const LoaderPass& pass) const {
    const LoaderPass* out = &pass;
    for (const LoaderPass& other : record_.passes)
      if (other.kind() == pass.kind() && other.trains() == pass.trains() && other.taken() > out->taken()) out = &other;
    return *out;
  }

  // What the script does next to the passes inside of one that trains (it generates text), between the same two batches.
  double work_after_inner_ns(const LoaderPass& shown) const {
    if (!shown.trains()) return 0;
    std::map<size_t, double> inner_ns;  // by the batches before
    for (const size_t child : shown.children) {
      const LoaderPass& inner = record_.passes[child];
      if (inner.call == 0) inner_ns[static_cast<size_t>(inner.parent_batch)] += inner.end_ns - inner.begin_ns;
    }
    std::vector<double> apart;
    for (size_t i = 1; i < shown.fetched_ns.size(); ++i)
      if (!inner_ns.contains(i)) apart.push_back(shown.fetched_ns[i] - shown.fetched_ns[i - 1]);
    if (apart.empty()) return 0;
    const double longest_ns = *std::max_element(apart.begin(), apart.end());
    double out = 0;
    for (const auto& [batches, ns] : inner_ns) {
      if (batches == 0 || batches >= shown.fetched_ns.size()) continue;
      const double own_ns = shown.fetched_ns[batches] - shown.fetched_ns[batches - 1] - ns;
      if (own_ns > kLongStep * longest_ns) out += own_ns - longest_ns;
    }
    return out;
  }

  // Whether a pass inside began `at` this batch; true if the pass ended before. If not, the script goes on counting in later passes.
  bool begins_like(const LoaderPass& pass, double at) const {
    if (pass.taken() < at) return true;
    return std::any_of(pass.children.begin(), pass.children.end(), [&](size_t child) {
      return record_.passes[child].call == 0 && static_cast<double>(record_.passes[child].parent_batch) <= at;
    });
  }

  // Of a pass with `whole` batches, more than the `shown` one had.
  double steps_of(const LoaderPass& shown, double whole) const {
    const std::vector<double>& at = shown.step_batches;
    std::vector<double> apart;
    for (size_t i = 1; i < at.size(); ++i) apart.push_back(at[i] - at[i - 1]);
    const double period = apart.empty() ? (at.empty() ? 0 : at.front()) : median(apart);
    if (period <= 1) return static_cast<double>(shown.steps) * whole / shown.taken();
    if (counts_on(shown, period)) return whole / period;
    // A loop that is one batch ahead has fetched one more.
    const double first = at.front() > period && at.front() <= period + 2 ? period : at.front();
    const double regular = std::floor((whole - first) / period) + 1;
    const bool ends_with_step = !apart.empty() && apart.back() < period && at.back() >= shown.taken();
    return regular + (ends_with_step && std::fmod(whole - first, period) > 0 ? 1 : 0);
  }

  // Whether the script goes on counting a step's batches in the next pass.
  bool counts_on(const LoaderPass& shown, double period) const {
    const LoaderPass* before = nullptr;
    for (const LoaderPass& pass : record_.passes) {
      if (pass.kind() != shown.kind() || pass.step_batches.empty()) continue;
      if (before != nullptr) {
        const double left = before->taken() - before->step_batches.back();
        if (left > 0 && left < period && left + pass.step_batches.front() == period) return true;
      }
      before = &pass;
    }
    return false;
  }

  // From the first batch to the end, without the passes inside.
  double evaluation_ns(const LoaderPass& shown, double whole) const {
    const std::vector<double>& at = shown.fetched_ns;
    const size_t warm = std::min(kWarmBatches, at.size() - 1);
    double steady_ns = shown.end_ns - at[warm];
    for (const size_t child : shown.children) steady_ns -= record_.passes[child].end_ns - record_.passes[child].begin_ns;
    const auto batches = static_cast<double>(at.size() - warm);
    return at[warm] - at.front() + std::max(0.0, steady_ns) / batches * (whole - static_cast<double>(warm));
  }

  const RunRecord& record_;
};

// Of the first steps: what they took longer than later ones, such as compilation. Evaluations between them count elsewhere.
double first_steps_ns(const RunRecord& record, double begin_ns) {
  std::vector<double> later;
  for (size_t i = kWarmSteps; i < record.steps_ns.size(); ++i) later.push_back(record.steps_ns[i] - record.steps_ns[i - 1]);
  if (later.empty()) return 0;
  const double end_ns = record.steps_ns[kWarmSteps - 1];
  double took_ns = end_ns - begin_ns - static_cast<double>(kWarmSteps) * median(later);
  for (const LoaderPass& pass : record.passes)
    if (!pass.trains() && pass.parent >= 0 && pass.begin_ns >= begin_ns && pass.end_ns <= end_ns) took_ns -= pass.end_ns - pass.begin_ns;
  return std::max(0.0, took_ns);
}

// What comes again with each pass or step, or happens once.
struct Repeated {
  Totals totals;
  double other_ns = 0, checkpoint_bytes = 0, checkpoints = 0;

  void add(const Repeated& other, double times) {
    totals.add(other.totals, times);
    other_ns += times * other.other_ns;
    checkpoint_bytes += times * other.checkpoint_bytes;
    checkpoints += times * other.checkpoints;
  }
};

struct Seen {
  Repeated once, again;
  double passes = 0;  // of training
};

// A run that was ended has no evaluation after its last pass of training: that pass does not count.
void leave_out_last_pass(RunRecord* record) {
  if (record->end != "enough") return;
  std::vector<size_t> training;
  for (size_t i = 0; i < record->passes.size(); ++i)
    if (record->passes[i].parent < 0 && record->passes[i].trains()) training.push_back(i);
  if (training.size() < 2) return;
  record->end_ns = record->passes[training.back()].begin_ns;
  const int64_t left_out_steps = record->passes[training.back()].steps;
  record->passes.resize(training.back());
  const auto steps = static_cast<double>(record->steps_ns.size()) - static_cast<double>(left_out_steps);
  std::erase_if(record->saves, [&](const Checkpoint& save) {
    return save.pass < 0 ? save.place > steps : save.pass >= static_cast<int64_t>(training.back());
  });
}

// Of a pass, or all checkpoints. `seen`, `whole`: as in `repeated`.
void add_checkpoints(const RunRecord& record, std::optional<int64_t> pass, double seen, double whole, Repeated* out) {
  std::vector<double> at;
  double bytes = 0;
  for (const Checkpoint& save : record.saves) {
    if (save.scheduled || (pass && save.pass != *pass)) continue;
    at.push_back(save.place);
    bytes += save.bytes;
  }
  if (at.empty()) return;
  const double count = repeated(at, seen, whole);
  out->checkpoints += count;
  out->checkpoint_bytes += bytes * count / static_cast<double>(at.size());
}

// The outermost passes that happen once: all before the first pass of training; after the last one, what comes more often than after the
// others. With one pass of training nothing shows that.
std::set<size_t> passes_once(const RunRecord& record) {
  std::set<size_t> out;
  std::map<decltype(record.passes.front().kind()), std::vector<size_t>> now;  // by kind, since the last pass of training
  std::map<decltype(record.passes.front().kind()), size_t> most;              // after one pass of training
  size_t trainings = 0;
  for (size_t i = 0; i < record.passes.size(); ++i) {
    const LoaderPass& pass = record.passes[i];
    if (pass.parent >= 0 || pass.call > 0) continue;
    if (!pass.trains()) {
      now[pass.kind()].push_back(i);
      continue;
    }
    for (const auto& [kind, numbers] : now) {
      if (trainings > 0) most[kind] = std::max(most[kind], numbers.size());
      if (trainings == 0) out.insert(numbers.begin(), numbers.end());
    }
    now.clear();
    ++trainings;
  }
  if (trainings < 2 || record.end == "enough") return out;
  for (const auto& [kind, numbers] : now)
    if (numbers.size() > most[kind]) out.insert(numbers.begin() + static_cast<std::ptrdiff_t>(most[kind]), numbers.end());
  return out;
}

// Checkpoints outside of passes: those before the first step happen once.
void add_checkpoints_between(const RunRecord& record, Seen* seen) {
  for (const Checkpoint& save : record.saves) {
    if (save.scheduled || save.pass >= 0) continue;
    Repeated& to = save.place > 0 ? seen->again : seen->once;
    to.checkpoints += 1;
    to.checkpoint_bytes += save.bytes;
  }
}

Seen of_passes(const RunRecord& record, double start_ns) {
  Seen out;
  const LoaderPasses all(record);
  const std::set<size_t> once = passes_once(record);
  double between_ns = record.end_ns - start_ns, before_ns = -start_ns;
  bool trained = false;
  for (size_t i = 0; i < record.passes.size(); ++i) {
    const LoaderPass& pass = record.passes[i];
    if (pass.parent >= 0) continue;
    if (pass.trains() && !std::exchange(trained, true)) {
      out.once.other_ns = std::max(0.0, before_ns + pass.begin_ns);
      between_ns -= out.once.other_ns;
    }
    if (!trained) before_ns -= pass.end_ns - pass.begin_ns;
    between_ns -= pass.end_ns - pass.begin_ns;
    out.passes += pass.trains() ? 1 : 0;
    if (pass.call > 0) continue;
    Repeated& to = once.contains(i) ? out.once : out.again;
    all.add(i, pass.times, &to.totals);
    add_checkpoints(record, static_cast<int64_t>(i), pass.taken(), pass.whole(), &to);
  }
  add_checkpoints_between(record, &out);
  out.again.other_ns = std::max(0.0, between_ns);
  return out;
}

// What the Trainer does after numbers of steps, in all its steps.
Repeated of_schedule(const RunRecord& record) {
  Repeated out;
  std::set<int64_t> calls;
  const LoaderPasses all(record);
  Totals evaluations;
  for (size_t i = 0; i < record.passes.size(); ++i) {
    if (record.passes[i].call == 0) continue;
    calls.insert(record.passes[i].call);
    all.add(i, 1, &evaluations);
  }
  if (record.schedule.evaluations && !calls.empty())
    out.totals.add(evaluations, *record.schedule.evaluations / static_cast<double>(calls.size()));
  double bytes = 0, saves = 0;
  for (const Checkpoint& save : record.saves) {
    if (!save.scheduled) continue;
    bytes += save.bytes;
    saves += 1;
  }
  if (record.schedule.saves && saves > 0) {
    out.checkpoints = *record.schedule.saves;
    out.checkpoint_bytes = bytes / saves * out.checkpoints;
  }
  return out;
}

// Without a DataLoader. A long step has an evaluation or a checkpoint in it.
Repeated of_steps(const RunRecord& record, double whole) {
  Repeated out;
  const std::vector<double>& at = record.steps_ns;
  out.totals.steps = whole;
  std::vector<double> took, places;
  for (size_t i = 1; i < at.size(); ++i) took.push_back(at[i] - at[i - 1]);
  const double usual_ns = median(took);
  double extra_ns = 0;
  for (size_t i = kWarmSteps; i < took.size(); ++i) {
    if (took[i] < kLongStep * usual_ns) continue;
    places.push_back(static_cast<double>(i + 1));
    extra_ns += took[i] - usual_ns;
  }
  if (!places.empty()) {
    out.totals.evaluation_batches = repeated(places, static_cast<double>(at.size()), whole);
    out.totals.evaluation_ns = extra_ns * out.totals.evaluation_batches / static_cast<double>(places.size());
  }
  add_checkpoints(record, std::nullopt, static_cast<double>(at.size()), whole, &out);
  return out;
}

bool card_works(const RunPart& part) { return part.name == "training" || part.name == "evaluation"; }

}  // namespace

EnergyRange run_energy(const WholeRun& run, const CardPower& power) {
  double working_s = 0, idle_s = 0;
  for (const RunPart& part : run.parts) (card_works(part) ? working_s : idle_s) += part.ns * 1e-9;
  const double idle_j = idle_s * power.idle_power_w;
  return {.low_j = working_s * power.power.low_w + idle_j,
          .expected_j = working_s * power.power.expected_w + idle_j,
          .high_j = working_s * power.power.high_w + idle_j};
}

WholeRun whole_run(std::string_view text, const TimeRange& step, const WholeRunWanted& wanted) {
  RunRecord record = read_record(text);
  if (record.steps_ns.empty())
    throw Error("the run on the card's clock took no optimizer step", "", "--run is for trainings with an optimizer of PyTorch");
  leave_out_last_pass(&record);
  const auto trains = std::find_if(record.passes.begin(), record.passes.end(),
                                   [](const LoaderPass& pass) { return pass.trains() && !pass.fetched_ns.empty(); });
  const bool by_passes = trains != record.passes.end();
  WholeRun out;
  const bool named = wanted.epochs > 0 || wanted.steps > 0;
  out.complete = record.end == "script_end" || record.schedule.steps > 0 || named;
  const double first_ns = by_passes ? trains->fetched_ns.front() : record.steps_ns.front();
  const double start_ns = by_passes ? record.passes.front().begin_ns : first_ns;
  Seen seen;
  if (by_passes) {
    seen = of_passes(record, start_ns);
  } else {
    const auto taken = static_cast<double>(record.steps_ns.size());
    seen.again = of_steps(record, wanted.steps > 0 ? static_cast<double>(wanted.steps) : taken);
    if (wanted.epochs > 0)
      throw Error("--epochs counts passes of a DataLoader, and this script trains without one", "", "say --steps-total");
  }
  double factor = 1;
  if (wanted.epochs > 0) {
    factor = static_cast<double>(wanted.epochs) / seen.passes;
  } else if (wanted.steps > 0) {
    factor = static_cast<double>(wanted.steps) / seen.again.totals.steps;
  } else if (record.schedule.steps > 0 && record.end == "enough") {
    factor = record.schedule.steps / seen.again.totals.steps;
  } else if (record.schedule.steps > 0) {
    seen.again.totals.steps = record.schedule.steps;
  }
  Repeated all = seen.once;
  all.add(seen.again, factor);
  out.steps = named ? all.totals.steps : std::floor(all.totals.steps + kRounding);
  out.passes = factor * seen.passes;
  if (record.schedule.steps > 0) all.add(of_schedule(record), out.steps / record.schedule.steps);
  const double first_steps = by_passes ? first_steps_ns(record, first_ns) : 0;
  out.parts = {{"start", start_ns, 0},
               {"first steps", first_steps + kFirstUseNs, 0},
               {"training", out.steps * step.expected_ns, out.steps},
               {"evaluation", all.totals.evaluation_ns, all.totals.evaluation_batches},
               {"checkpoints", all.checkpoint_bytes / kCheckpointBytesPerNs, all.checkpoints},
               {"loader starts", all.totals.loader_start_ns, all.totals.loader_starts},
               {"other", all.other_ns, 0}};
  std::erase_if(out.parts, [](const RunPart& part) { return part.ns <= 0; });
  for (const RunPart& part : out.parts) {
    const bool of_card = card_works(part);
    out.wall.expected_ns += part.ns;
    out.wall.low_ns += part.ns * (of_card ? step.low_ns / step.expected_ns : 1);
    out.wall.high_ns += part.ns * (of_card ? step.high_ns / step.expected_ns : 1);
  }
  if (!out.complete)
    out.notes.push_back(fmt::format("The run was ended after {:.0f} steps, and the script goes on: say how far with {}.", out.steps,
                                    by_passes ? "--epochs or --steps-total" : "--steps-total"));
  if (all.checkpoints > 0)
    out.notes.push_back(fmt::format("Checkpoints are not written: {:.3g} GB for each, at an assumed 1 GB/s.",
                                    all.checkpoint_bytes / all.checkpoints * 1e-9));
  return out;
}

}  // namespace gpucast
