#include "src/search/advise.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/replay.h"
#include "gpucast/step_time.h"
#include "src/base/seconds_since.h"
#include "src/explain/explain.h"
#include "src/explain/what_if.h"
#include "src/predict/least_capacity.h"
#include "src/predict/verdict.h"
#include "src/search/advise_choices.h"
#include "src/search/recomputed_modules.h"
#include "src/search/run_problem.h"

namespace gpucast::search {
namespace {

constexpr size_t kRunsAtOnce = 4;              // together, so that no processor waits
constexpr double kSameTime = 0.01;             // the host's part of a step differs from run to run
constexpr int64_t kWorthSettings_percent = 5;  // of the peak: a smaller gain by allocator settings is not reported
constexpr int kNothing = 4;                    // the rank of a run that may bring nothing
constexpr int kNarrowings = 4;                 // runs to find how many modules must be recomputed

using Configuration = std::vector<size_t>;  // for each axis, which of its options

// What a run showed. The followed capture is not kept: it is read again where it is needed.
struct MeasuredRun {
  Run run;
  int64_t request_bytes = 0, persistent_bytes = 0, dynamic_bytes = 0;
  Verdict verdict = Verdict::none;
  double sample_ns = 0;
};

// What an option alone changes. Only guides the order of runs.
struct Effect {
  int64_t persistent_bytes = 0;  // parameters, their copies, optimizer state: added
  double dynamic_factor = 1;     // everything else: multiplied
  double sample_ns = 0;          // added
};

struct Guess {
  double request_bytes = 0, sample_ns = 0;
};

int64_t persistent_bytes_of(const Prediction& prediction) {
  int64_t out = 0;
  for (const CategoryLine& line : prediction.categories) {
    for (const Category category : {Category::parameters, Category::optimizer_state, Category::parameter_copies, Category::buffers}) {
      if (line.name == category_name(category)) out += line.bytes;
    }
  }
  return out;
}

bool is_partial(const std::string& option) { return option.find('=') != std::string::npos; }

class Search {
 public:
  Search(const AdviseQuestion& question, RunsOptions options, const std::function<void(const AdviseProgress&)>& on_progress)
      : question_(question), gpu_(find_gpu(question.as_it_is.gpu)), on_progress_(on_progress), runs_(std::move(options)) {}

  Advice find() {
    measure_as_it_is();
    measure_single_changes();
    measure_promising(1);
    recompute_fewer_modules();
    measure_promising(kNothing - 1);
    finish();
    return std::move(out_);
  }

 private:
  // ---- runs --------------------------------------------------------------------------------------------------------------------

  bool stops() {
    if (!out_.stopped.empty()) return true;
    if (question_.most_runs > 0 && out_.runs + out_.cached_runs >= question_.most_runs) {
      out_.stopped = fmt::format("{} runs were made; for more: --runs N", question_.most_runs);
    } else if (question_.most_seconds > 0 && seconds_since(begin_) + round_seconds_ > question_.most_seconds) {
      out_.stopped = fmt::format("after {:.0f} s; for more: --seconds S", seconds_since(begin_));
    }
    return !out_.stopped.empty();
  }

  std::vector<std::string> what_ifs_of(const Configuration& configuration) const {
    std::vector<std::string> out;
    for (size_t axis = 0; axis < configuration.size(); ++axis) {
      if (configuration[axis] > 0) out.push_back(axes_[axis].options[configuration[axis]]);
    }
    return out;
  }

  RunSpec spec_of(const Configuration& configuration) const {
    RunSpec spec = question_.as_it_is;
    for (std::string& what_if : what_ifs_of(configuration)) spec.what_ifs.push_back(std::move(what_if));
    return spec;
  }

  void measure(std::vector<Configuration> configurations) {
    if (question_.most_runs > 0) {
      const int64_t left = std::max<int64_t>(question_.most_runs - out_.runs - out_.cached_runs, 0);
      configurations.resize(std::min(configurations.size(), static_cast<size_t>(left)));
    }
    std::vector<RunSpec> specs;
    for (const Configuration& configuration : configurations) {
      asked_.insert(configuration);
      specs.push_back(spec_of(configuration));
    }
    const auto begin = Clock::now();
    const std::vector<Run> runs = runs_.run(specs);
    for (size_t i = 0; i < runs.size(); ++i) take(configurations[i], runs[i]);
    round_seconds_ = seconds_since(begin);
  }

  void take(const Configuration& configuration, const Run& run) {
    ++(run.cached ? out_.cached_runs : out_.runs);
    const std::vector<std::string> what_ifs = what_ifs_of(configuration);
    const std::string name = fmt::format("{}", fmt::join(what_ifs, ", "));
    if (run.end != RunEnd::captured) {
      out_.left_out.push_back({name, run_problem(run)});
    } else {
      add_point(configuration, run, what_ifs, name);
    }
    const AdvisedPoint* best = best_point() ? &out_.points[*best_point()] : nullptr;
    if (on_progress_) on_progress_({out_.runs + out_.cached_runs, seconds_since(begin_), name, best});
  }

  void add_point(const Configuration& configuration, const Run& run, const std::vector<std::string>& what_ifs, const std::string& name) {
    const std::vector<std::shared_ptr<const Facts>> ranks = facts_of(run);
    const Analysis analysis = judge_job(ranks, gpu_.id);
    const Prediction& p = analysis.prediction;
    AdvisedPoint point;
    point.rank = p.rank;
    point.device = p.device_index;
    point.what_ifs = what_ifs;
    for (const WhatIf& what_if : p.what_if) {
      if (std::find(what_ifs.begin(), what_ifs.end(), what_if.name) == what_ifs.end()) continue;
      if (!what_if.acted) return out_.left_out.push_back({name, "it changes nothing: " + what_if.did});
      point.did.push_back(what_if.did);
      point.changes_mathematics = point.changes_mathematics || changes_mathematics(what_if.name);
    }
    point.peak_reserved_bytes = p.peak_reserved.bytes;
    point.device_expected_bytes = p.device.expected_bytes;
    point.verdict = p.verdict;
    add_time(ranks, &point);
    // Such as a script that ends before K small batches: without a step of the optimizer its memory is not comparable either.
    if (!out_.points.empty() && out_.points.front().sample_ns > 0 && point.sample_ns <= 0)
      return out_.left_out.push_back({name, "no whole step was observed: the script ends too early"});
    point.run = run_line(run.spec);
    point.folder = analysis.facts->trace.header.folder;
    point.places = analysis.facts->trace.process.places;
    MeasuredRun measured{run, p.device.request_bytes, persistent_bytes_of(p), 0, p.verdict, point.sample_ns};
    measured.dynamic_bytes = std::max<int64_t>(p.peak_reserved.bytes - measured.persistent_bytes, 1);
    if (out_.points.empty()) {
      out_.command = p.command;
      out_.gpu_name = p.gpu_name;
      out_.gpu_total_bytes = p.gpu_total_bytes;
      out_.ranks = std::max<int64_t>(1, p.world_size);
      out_.captured = static_cast<int64_t>(ranks.size());
      out_.rank_options = rank_options(run.spec);
    }
    out_.points.push_back(point);
    measured_.emplace(configuration, std::move(measured));
    add_with_expandable_segments(analysis, run.spec, point);
  }

  void add_time(const std::vector<std::shared_ptr<const Facts>>& ranks, AdvisedPoint* point) {
    StepTimeOptions options;
    options.gpus = {gpu_};
    try {
      const StepTimes times = step_times(pointers_to(ranks), options);
      const CardTime& card = times.cards.front();
      const int64_t of_job = card.job ? card.job->samples : times.samples;
      // Batches in time: the loader is the same for all configurations.
      point->step_ns = (card.loader ? card.loader->step_without : card.step).expected_ns;
      if (out_.points.empty()) {
        out_.has_loader = times.loader && times.loader->kind == LoaderKind::dataloader;
        samples_ = times.samples;
        job_samples_ = of_job;
        optimizer_share_ = optimizer_share(card);
      }
      // Parts of a batch add up to it.
      const bool other_batch = std::find(point->what_ifs.begin(), point->what_ifs.end(), kHalfBatch) != point->what_ifs.end();
      const int64_t samples = other_batch ? of_job : job_samples_;
      point->samples_per_s = static_cast<double>(samples) * 1e9 / point->step_ns;
      point->sample_ns = point->step_ns / static_cast<double>(std::max<int64_t>(samples, 1));
    } catch (const Error& error) {
      out_.time_problem = error.what();
    }
  }

  // Of a step that waits for the host the kernels say too little: 1.
  static double optimizer_share(const CardTime& card) {
    if (card.bound != StepBound::gpu) return 1;
    const auto part = std::ranges::find(card.by_phase, std::string(phase_name(Phase::optimizer_step)), &TimePart::name);
    return part == card.by_phase.end() ? 1 : part->share;
  }

  // Allocator settings need no run: the requests are the same.
  void add_with_expandable_segments(const Analysis& analysis, RunSpec spec, AdvisedPoint point) {
    const History& history = analysis.facts->history;
    if (history.ops.empty() || history.alloc_conf.find("expandable_segments") != std::string::npos) return;
    ReplaySettings settings;
    settings.alloc_conf = with_expandable_segments(history.alloc_conf);
    const ReplayResult replayed = replay(history, settings);
    const int64_t saved_bytes = point.peak_reserved_bytes - replayed.stats.peak_reserved_bytes;
    if (replayed.ooms > 0 || saved_bytes * 100 < point.peak_reserved_bytes * kWorthSettings_percent) return;
    History changed = history;
    changed.alloc_conf = settings.alloc_conf;
    MemoryNeed need{replayed.stats.peak_allocated_bytes, replayed.stats.peak_reserved_bytes, false, false, nullptr};
    need.runs_at = [&](int64_t capacity_bytes) { return runs_at(changed, capacity_bytes, analysis.prediction.gpu_total_bytes); };
    if (analysis.prediction.verdict == Verdict::none) need.nothing_to_judge = analysis.prediction.verdict_reason;
    const Judgement judged = judge_need(need, analysis.beside, analysis.prediction.gpu_total_bytes);
    point.settings = settings.alloc_conf;
    point.peak_reserved_bytes = replayed.stats.peak_reserved_bytes;
    point.device_expected_bytes = judged.device.expected_bytes;
    point.verdict = judged.verdict;
    spec.environment.emplace_back("PYTORCH_CUDA_ALLOC_CONF", point.settings);
    point.run = run_line(spec);
    out_.points.push_back(std::move(point));
  }

  // ---- what to run -------------------------------------------------------------------------------------------------------------

  void measure_as_it_is() {
    out_.gpu_id = gpu_.id;
    const Run run = runs_.run(question_.as_it_is);
    if (run.end != RunEnd::captured) {
      const run::JobProblem problem = run.problem.value_or(run::JobProblem{"", "the run failed", "", ""});
      throw Error("the script as it is cannot be run: " + problem.message, problem.where, problem.to_do);
    }
    take({}, run);
    const Analysis analysis = judge_job(facts_of(run), gpu_.id);
    axes_ = axes_of(analysis, samples_, optimizer_share_, question_.allowed, &out_.left_out);
    // From here on a configuration has an option for each axis.
    MeasuredRun measured = std::move(measured_.begin()->second);
    measured_.clear();
    measured_.emplace(Configuration(axes_.size(), 0), std::move(measured));
    asked_.insert(Configuration(axes_.size(), 0));
    find_usable_options();
  }

  const MeasuredRun& as_it_is() const { return measured_.at(Configuration(axes_.size(), 0)); }

  // Each change alone, a few at a time. As long as nothing fits, combinations of known changes come first.
  void measure_single_changes() {
    const std::vector<Configuration> singles = single_changes();
    for (size_t i = 0; i < singles.size() && !stops(); i += kRunsAtOnce) {
      const std::vector<Configuration> some(singles.begin() + static_cast<ptrdiff_t>(i),
                                            singles.begin() + static_cast<ptrdiff_t>(std::min(i + kRunsAtOnce, singles.size())));
      measure(some);
      for (const Configuration& single : some) note_effect(single);
      find_usable_options();
      while (!best_point() && !stops()) {
        const std::vector<Configuration> next = most_promising(0);
        if (next.empty()) break;
        measure(next);
      }
    }
  }

  std::vector<Configuration> single_changes() const {
    std::vector<Configuration> singles;
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
      for (size_t option = 1; option < axes_[axis].options.size(); ++option) {
        // The effect of more parts follows from the effect of two parts.
        if (what_if_kind(axes_[axis].options[option]) == kMicroBatch && option > 1) continue;
        Configuration single(axes_.size(), 0);
        single[axis] = option;
        singles.push_back(std::move(single));
      }
    }
    return singles;
  }

  void note_effect(const Configuration& single) {
    const auto found = measured_.find(single);
    if (found == measured_.end()) return;
    const MeasuredRun &with = found->second, &without = as_it_is();
    const size_t axis = static_cast<size_t>(std::find_if(single.begin(), single.end(), [](size_t o) { return o > 0; }) - single.begin());
    Effect effect;
    effect.persistent_bytes = with.persistent_bytes - without.persistent_bytes;
    effect.dynamic_factor = static_cast<double>(with.dynamic_bytes) / static_cast<double>(without.dynamic_bytes);
    effect.sample_ns = with.sample_ns - without.sample_ns;
    const bool same_time = std::abs(effect.sample_ns) <= kSameTime * without.sample_ns;
    if (same_time && with.run.spec.what_ifs != without.run.spec.what_ifs && with.request_bytes == without.request_bytes) {
      out_.left_out.push_back({axes_[axis].options[single[axis]], "it changes neither the memory nor the step's time"});
      std::erase_if(out_.points, [&](const AdvisedPoint& point) { return point.what_ifs == what_ifs_of(single); });
      measured_.erase(found);
      return;
    }
    effects_[{axis, single[axis]}] = effect;
    if (what_if_kind(axes_[axis].options[single[axis]]) == kMicroBatch) note_effects_of_more_parts(axis, effect);
  }

  // A part of the memory is a batch's, and each further part takes the same time more.
  void note_effects_of_more_parts(size_t axis, const Effect& of_two) {
    const double fixed_share = std::clamp(2 * of_two.dynamic_factor - 1, 0.0, 1.0);
    for (size_t option = 2; option < axes_[axis].options.size(); ++option) {
      if (what_if_kind(axes_[axis].options[option]) != kMicroBatch) continue;
      const double parts = std::stod(what_if_argument(axes_[axis].options[option]));
      effects_[{axis, option}] = {of_two.persistent_bytes, fixed_share + (1 - fixed_share) / parts, of_two.sample_ns * (parts - 1)};
    }
  }

  // Options whose single run showed nothing are never combined.
  void find_usable_options() {
    usable_.assign(axes_.size(), {0});
    for (const auto& [key, effect] : effects_) usable_[key.first].push_back(key.second);
  }

  Guess guess(const Configuration& configuration) const {
    const MeasuredRun& base = as_it_is();
    double persistent = static_cast<double>(base.persistent_bytes), dynamic = static_cast<double>(base.dynamic_bytes);
    double sample_ns = base.sample_ns;
    for (size_t axis = 0; axis < configuration.size(); ++axis) {
      const auto found = effects_.find({axis, configuration[axis]});
      if (found == effects_.end()) continue;
      persistent += static_cast<double>(found->second.persistent_bytes);
      dynamic *= found->second.dynamic_factor;
      sample_ns += found->second.sample_ns;
    }
    const double beside = static_cast<double>(base.request_bytes - base.persistent_bytes - base.dynamic_bytes);
    return {std::max(persistent, 0.0) + dynamic + beside, std::max(sample_ns, 1.0)};
  }

  // The guess, moved by how far off the guess was for the most alike configuration that was measured.
  Guess corrected_guess(const Configuration& configuration) const {
    const MeasuredRun* nearest = nullptr;
    Guess of_nearest;
    size_t least = SIZE_MAX;
    for (const auto& [other, measured] : measured_) {
      size_t different = 0;
      for (size_t axis = 0; axis < other.size(); ++axis) different += other[axis] != configuration[axis];
      if (different > least || has_partial(other)) continue;
      const Guess guessed = guess(other);
      if (different == least && guessed.request_bytes > of_nearest.request_bytes) continue;
      least = different;
      nearest = &measured;
      of_nearest = guessed;
    }
    Guess out = guess(configuration);
    out.request_bytes *= static_cast<double>(nearest->request_bytes) / of_nearest.request_bytes;
    out.sample_ns *= nearest->sample_ns / of_nearest.sample_ns;
    return out;
  }

  bool has_partial(const Configuration& configuration) const {
    for (size_t axis = 0; axis < configuration.size(); ++axis) {
      if (is_partial(axes_[axis].options[configuration[axis]])) return true;
    }
    return false;
  }

  std::vector<Configuration> combinations() const {
    std::vector<Configuration> out = {{}};
    for (const std::vector<size_t>& options : usable_) {
      std::vector<Configuration> longer;
      for (const Configuration& begun : out) {
        for (const size_t option : options) {
          longer.push_back(begun);
          longer.back().push_back(option);
        }
      }
      out = std::move(longer);
    }
    std::erase_if(out, [this](const Configuration& configuration) { return contradicts_itself(configuration); });
    return out;
  }

  // A step in each backward pass is none of the whole batch.
  bool contradicts_itself(const Configuration& configuration) const {
    const std::vector<std::string> what_ifs = what_ifs_of(configuration);
    const auto has = [&](std::string_view begin) {
      return std::ranges::any_of(what_ifs, [&](const std::string& what_if) { return what_if.starts_with(begin); });
    };
    if (has("micro-batch:") && has("optimizer-in-backward")) return true;
    // Compiled code has no calls of single modules that could be changed.
    return has(kCompile) && (has("checkpoint:") || has("chunked-loss:") || has("attention:"));
  }

  std::optional<size_t> best_point() const {
    std::optional<size_t> best;
    for (size_t i = 0; i < out_.points.size(); ++i) {
      const AdvisedPoint& point = out_.points[i];
      if (point.verdict != Verdict::fits) continue;
      if (!best || is_better(point, out_.points[*best])) best = i;
    }
    return best;
  }

  // Faster; or as fast with fewer changes; or, if times are not known, with fewer changes.
  static bool is_better(const AdvisedPoint& a, const AdvisedPoint& b) {
    const auto changes = [](const AdvisedPoint& point) { return point.what_ifs.size() + (point.settings.empty() ? 0 : 1); };
    if (a.sample_ns > 0 && std::abs(a.sample_ns - b.sample_ns) > kSameTime * b.sample_ns) return a.sample_ns < b.sample_ns;
    return std::make_pair(changes(a), a.device_expected_bytes) < std::make_pair(changes(b), b.device_expected_bytes);
  }

  // How much a run of this configuration may bring: first what may be the new best, then what may beat a point of the front, then what may
  // be a new point of it.
  struct Promise {
    int rank = 0;      // the least first; kNothing: it may bring nothing
    double order = 0;  // the least first
  };
  Promise promise_of(const Configuration& configuration, const std::optional<size_t>& best) const {
    const Guess guessed = corrected_guess(configuration);
    const double total = static_cast<double>(out_.gpu_total_bytes);
    const bool may_fit = guessed.request_bytes < 1.03 * total;
    if (!best) return may_fit ? Promise{0, guessed.sample_ns} : Promise{1, guessed.request_bytes};
    if (may_fit && guessed.sample_ns < (1 - kSameTime) * out_.points[*best].sample_ns) return {0, guessed.sample_ns};
    bool is_beaten_by_one = false;
    for (const auto& [other, measured] : measured_) {
      is_beaten_by_one = is_beaten_by_one || (static_cast<double>(measured.request_bytes) < 1.02 * guessed.request_bytes &&
                                              measured.sample_ns < (1 + kSameTime) * guessed.sample_ns);
      const bool less = guessed.request_bytes < 0.99 * static_cast<double>(measured.request_bytes);
      const bool not_slower = guessed.sample_ns <= (1 + kSameTime) * measured.sample_ns;
      if (less && not_slower && !is_beaten(measured)) return {2, guessed.request_bytes / static_cast<double>(measured.request_bytes)};
    }
    return may_fit && !is_beaten_by_one ? Promise{3, guessed.sample_ns} : Promise{kNothing, 0};
  }

  bool is_beaten(const MeasuredRun& measured) const {
    return std::any_of(measured_.begin(), measured_.end(), [&](const auto& other) {
      const MeasuredRun& o = other.second;
      return o.request_bytes < measured.request_bytes && o.sample_ns <= measured.sample_ns;
    });
  }

  void measure_promising(int last_rank) {
    while (!stops()) {
      const std::vector<Configuration> next = most_promising(last_rank);
      if (next.empty()) return;
      measure(next);
    }
  }

  std::vector<Configuration> most_promising(int last_rank) const {
    const std::optional<size_t> best = best_point();
    std::vector<std::pair<std::pair<int, double>, Configuration>> ranked;
    for (Configuration& configuration : combinations()) {
      if (asked_.contains(configuration)) continue;
      const Promise promise = promise_of(configuration, best);
      if (promise.rank <= last_rank) ranked.emplace_back(std::pair(promise.rank, promise.order), std::move(configuration));
    }
    std::sort(ranked.begin(), ranked.end());
    std::vector<Configuration> out;
    for (size_t i = 0; i < std::min(ranked.size(), kRunsAtOnce); ++i) out.push_back(std::move(ranked[i].second));
    return out;
  }

  // ---- recomputing only some modules -------------------------------------------------------------------------------------------

  // Where the job fits with all modules recomputed and not with none, some are enough: the cheapest set, by bytes and time of each.
  void recompute_fewer_modules() {
    const auto axis = std::find_if(axes_.begin(), axes_.end(), [](const Axis& a) { return a.name == "checkpoint"; });
    if (axis == axes_.end()) return;
    const size_t place = static_cast<size_t>(axis - axes_.begin());
    if (usable_[place].size() < 2) return;
    std::set<Configuration> tried;
    while (!stops()) {
      const std::optional<Configuration> without = fastest_with_fewer_modules(place, tried);
      if (!without) return;
      tried.insert(*without);
      Configuration with_all = *without;
      with_all[place] = 1;
      std::vector<Configuration> missing;
      for (const Configuration& one : {*without, with_all}) {
        if (!asked_.contains(one)) missing.push_back(one);
      }
      measure(missing);
      if (measured_.contains(*without) && measured_.contains(with_all)) narrow(place, with_all, *without);
    }
  }

  // The configuration without recomputation whose variant with some of it may be the fastest; unset: none may be faster than the best so
  // far.
  std::optional<Configuration> fastest_with_fewer_modules(size_t place, const std::set<Configuration>& tried) const {
    const std::optional<size_t> best = best_point();
    double least_ns = best ? (1 - kSameTime) * out_.points[*best].sample_ns : std::numeric_limits<double>::infinity();
    std::optional<Configuration> found;
    for (const Configuration& without : combinations()) {
      if (without[place] != 0 || tried.contains(without)) continue;
      Configuration with_all = without;
      with_all[place] = 1;
      const Guess none = known_or_guessed(without), all = known_or_guessed(with_all);
      const double total = static_cast<double>(out_.gpu_total_bytes);
      if (none.request_bytes <= total || all.request_bytes >= total) continue;
      const double share = (none.request_bytes - total) / (none.request_bytes - all.request_bytes);
      const double sample_ns = none.sample_ns + share * (all.sample_ns - none.sample_ns);
      if (sample_ns >= least_ns) continue;
      least_ns = sample_ns;
      found = without;
    }
    return found;
  }

  Guess known_or_guessed(const Configuration& configuration) const {
    const auto found = measured_.find(configuration);
    if (found == measured_.end()) return corrected_guess(configuration);
    return {static_cast<double>(found->second.request_bytes), found->second.sample_ns};
  }

  void narrow(size_t place, const Configuration& with_all, const Configuration& without) {
    const std::string type = what_if_argument(axes_[place].options[1]);
    const MeasuredRun &all = measured_.at(with_all), &none = measured_.at(without);
    const std::vector<Recomputed> modules =
        recomputed_modules(*judge_job(facts_of(none.run), gpu_.id).facts, *judge_job(facts_of(all.run), gpu_.id).facts, type, gpu_);
    int64_t can_save_bytes = 0;
    for (const Recomputed& module : modules) can_save_bytes += std::max<int64_t>(module.saved_bytes, 0);
    int64_t need_bytes = all.request_bytes + can_save_bytes - out_.gpu_total_bytes;
    for (int i = 0; i < kNarrowings && !stops(); ++i) {
      const auto chosen = cheapest_saving(modules, need_bytes);
      if (!chosen || chosen->empty() || chosen->size() == modules.size()) return;
      const Configuration some = with_option(place, with_all, fmt::format("checkpoint:{}={}", type, ranges_text(*chosen)));
      if (asked_.contains(some)) return;
      measure({some});
      const auto found = measured_.find(some);
      if (found == measured_.end()) return;
      const int64_t missing_bytes = found->second.request_bytes - out_.gpu_total_bytes;
      if (missing_bytes == 0) return;
      need_bytes += missing_bytes;
    }
  }

  Configuration with_option(size_t axis, Configuration configuration, const std::string& option) {
    std::vector<std::string>& options = axes_[axis].options;
    const auto found = std::find(options.begin(), options.end(), option);
    configuration[axis] = static_cast<size_t>(found - options.begin());
    if (found == options.end()) options.push_back(option);
    return configuration;
  }

  // ---- the answer --------------------------------------------------------------------------------------------------------------

  void finish() {
    out_.best = best_point();
    for (size_t i = 0; i < out_.points.size(); ++i) {
      AdvisedPoint& point = out_.points[i];
      if (point.device_expected_bytes < out_.points[out_.smallest].device_expected_bytes) out_.smallest = i;
      point.on_front = std::none_of(out_.points.begin(), out_.points.end(), [&](const AdvisedPoint& other) { return beats(other, point); });
    }
  }

  // Less memory at the same time, or less time with the same memory.
  static bool beats(const AdvisedPoint& a, const AdvisedPoint& b) {
    const bool as_small = a.device_expected_bytes <= b.device_expected_bytes, as_fast = a.sample_ns <= b.sample_ns;
    return as_small && as_fast && (a.device_expected_bytes < b.device_expected_bytes || a.sample_ns < b.sample_ns);
  }

  const AdviseQuestion& question_;
  const Gpu gpu_;
  const std::function<void(const AdviseProgress&)>& on_progress_;
  Runs runs_;
  const Clock::time_point begin_ = Clock::now();
  double round_seconds_ = 0;    // of the latest runs, made together
  int64_t samples_ = 0;         // of a step of the script as it is, on one rank
  int64_t job_samples_ = 0;     // on all
  double optimizer_share_ = 1;  // of its time
  std::vector<Axis> axes_;
  std::vector<std::vector<size_t>> usable_;  // for each axis, the options that change something
  std::map<Configuration, MeasuredRun> measured_;
  std::set<Configuration> asked_;
  std::map<std::pair<size_t, size_t>, Effect> effects_;  // by axis and option
  Advice out_;
};

}  // namespace

Advice advise(const AdviseQuestion& question, RunsOptions options, const std::function<void(const AdviseProgress&)>& on_progress) {
  check_allowed(question.allowed);
  return Search(question, std::move(options), on_progress).find();
}

}  // namespace gpucast::search
