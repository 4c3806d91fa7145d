#include "src/predict/growth.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "gpucast/replay.h"
#include "src/attribution/attribute.h"
#include "src/base/bytes.h"
#include "src/predict/least_capacity.h"
#include "src/predict/place.h"
#include "src/predict/repeated_steps.h"

namespace gpucast {
namespace {

// The first step sets up what PyTorch and the optimizer keep, and what a step leaves for the next one goes with that. So step 2 is the
// first whose survivors count, and step n's are known after step n + 2.
constexpr int32_t kFirstStep = 2, kAfter = 2, kLeastSteps = 5;
constexpr int32_t kCertainSteps = 30;  // if the script also takes entries out, a collection may be filling for this long
constexpr size_t kMostPlaces = 8, kMostGrowingHolders = 12;

// Blocks made at one place of the program.
struct Site {
  std::map<int32_t, int64_t> kept;  // step -> bytes that it made and that are in use at the end
  std::vector<uint32_t> blocks;     // these, as indices of Lifetimes::blocks
  std::vector<int64_t> at_ends;     // bytes in use at the end of each step
  std::vector<uint32_t> newest;     // of the last step
};

using SiteKey = std::tuple<uint32_t, Phase, uint32_t>;

template <class SomeId>
uint32_t number_of(SomeId id) {
  return id.valid() ? static_cast<uint32_t>(id.index()) : UINT32_MAX;
}

// A site's pace.
struct Pace {
  int64_t bytes = 0, rise = 0, every = 1;
  bool replaced = false;
};

std::optional<Pace> pace_of_kept(const Site& site, int32_t steps) {
  const int32_t last_known = steps - kAfter;
  std::vector<std::pair<int32_t, int64_t>> found(site.kept.begin(), site.kept.end());
  if (found.size() < 2) return std::nullopt;
  int32_t gap = 0;
  for (size_t i = 1; i < found.size(); ++i) gap = std::max(gap, found[i].first - found[i - 1].first);
  if (last_known - found.back().first >= gap || found.front().first - kFirstStep >= 2 * gap) return std::nullopt;
  const auto bytes = [&](size_t i) { return found[i].second; };
  const bool equal = std::all_of(found.begin(), found.end(), [&](const auto& one) { return one.second == bytes(0); });
  Pace pace;
  pace.every = gap;
  pace.bytes = bytes(found.size() - 1) / gap;
  if (equal) return pace;
  if (found.size() < 3) return std::nullopt;
  const int64_t rise = bytes(1) - bytes(0);
  bool steady = rise > 0;
  for (size_t i = 2; i < found.size(); ++i) steady = steady && bytes(i) - bytes(i - 1) == rise;
  if (steady) {
    pace.rise = rise;
    return pace;
  }
  // Steps of different lengths. A cache that fills slows down.
  if (found.size() < 4) return std::nullopt;
  const int32_t middle = (found.front().first + last_known + 1) / 2;
  int64_t early = 0, late = 0;
  for (const auto& [step, size] : found) (step < middle ? early : late) += size;
  const double early_pace = static_cast<double>(early) / (middle - found.front().first);
  const double late_pace = static_cast<double>(late) / (last_known + 1 - middle);
  if (late_pace < 0.6 * early_pace) return std::nullopt;
  pace.bytes = std::accumulate(found.begin(), found.end(), int64_t{0}, [](int64_t sum, const auto& one) { return sum + one.second; }) /
               (last_known + 1 - found.front().first);
  pace.every = 1;
  return pace;
}

// Joins what one place made once each in several modules: a list of modules grows.
void join_single_sites(std::map<SiteKey, Site>* sites) {
  std::map<SiteKey, Site> joined;
  for (auto at = sites->begin(); at != sites->end();) {
    if (at->second.kept.size() != 1) {
      ++at;
      continue;
    }
    const auto& [stack, phase, module] = at->first;
    Site& site = joined[SiteKey{stack, phase, UINT32_MAX - 1}];
    site.at_ends.resize(at->second.at_ends.size());
    for (const auto& [step, bytes] : at->second.kept) site.kept[step] += bytes;
    site.blocks.insert(site.blocks.end(), at->second.blocks.begin(), at->second.blocks.end());
    at = sites->erase(at);
  }
  sites->merge(joined);
}

// One tensor that a larger one replaces in each step leaves nothing of past steps.
std::optional<Pace> pace_of_replaced(const Site& site, int32_t steps) {
  const std::vector<int64_t>& ends = site.at_ends;
  const int32_t first = std::max(kFirstStep, steps - 8);
  if (steps - first < 3 || !site.kept.empty()) return std::nullopt;
  const int64_t rise = ends[static_cast<size_t>(steps)] - ends[static_cast<size_t>(steps) - 1];
  for (int32_t step = first + 1; step <= steps; ++step) {
    if (ends[static_cast<size_t>(step)] - ends[static_cast<size_t>(step) - 1] != rise || rise <= 0) return std::nullopt;
  }
  return Pace{rise, 0, 1, true};
}

// Whether the inputs of the steps themselves grow steadily, as in a script that goes on to longer sequences.
bool inputs_rise(const Trace& trace, const std::vector<uint32_t>& ends, const std::vector<uint32_t>& positions) {
  std::unordered_map<int64_t, uint32_t> position_of;
  for (size_t i = 0; i < trace.marks.size(); ++i) position_of.emplace(trace.marks[i].sequence, positions[i]);
  std::vector<int64_t> largest(ends.size() + 1);
  for (const TensorMark& tensor : trace.tensors) {
    const auto at = position_of.find(tensor.sequence);
    if (tensor.kind != TensorKind::input || at == position_of.end()) continue;
    const auto step = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), at->second) - ends.begin());
    largest[step] = std::max(largest[step], tensor.storage_bytes);
  }
  for (size_t step = 2; step < ends.size(); ++step) {
    if (largest[step] <= largest[step - 1]) return false;
  }
  return true;
}

const KeptHolder* holder_of(const Trace& trace, const Lifetimes& lifetimes, const std::vector<uint32_t>& blocks) {
  const KeptHolder* best = nullptr;
  size_t most = 0;
  for (const KeptHolder& holder : trace.kept_holders) {
    size_t count = 0;
    for (const uint32_t block : blocks) {
      count += static_cast<size_t>(std::count(holder.addresses.begin(), holder.addresses.end(), lifetimes.blocks[block].address));
    }
    if (count <= most) continue;
    most = count;
    best = &holder;
  }
  if (best != nullptr) return best;
  // Memory that only a graph holds has no tensor of Python's.
  for (const KeptHolder& holder : trace.kept_holders) {
    if (holder.graph && best == nullptr) best = &holder;  // the deepest graph comes first
  }
  return best;
}

std::string remedy_of(const GrowthHolder& holder) {
  const std::string name = holder.name.empty() ? "it" : holder.name;
  if (holder.container == "hooks") return "remove each hook when its step is done: handle = module.register_...(...), then handle.remove()";
  if (holder.container == "lru_cache")
    return fmt::format("give {} a greatest number of results, @lru_cache(maxsize=...), or no argument that is new in each step", name);
  if (holder.container == "exceptions")
    return "keep str(error) instead of the exception: its traceback holds the variables of all functions that it passed";
  if (holder.replaced)
    return fmt::format("keep the parts on the host: a list of .cpu() tensors, joined once at the end, instead of {}", name);
  if (holder.graph) {
    if (holder.container == "variable" || holder.container.empty())
      return fmt::format("cut the graph: add loss.item() for a number, or set {0} = {0}.detach() for a tensor of the next step", name);
    return fmt::format("keep no graph in {}: .item() for a number, .detach() for a tensor (and .cpu() if it need not stay on the card)",
                       name);
  }
  if (holder.container.empty()) return "free it in each step, or keep .item() or .detach().cpu() of it";
  if (holder.removes) return fmt::format("take entries out of {} as fast as they come, or keep .detach().cpu() of them", name);
  return fmt::format("keep entries of {} on the host (.item() for a number, .cpu() for a tensor), or give it a greatest length", name);
}

// Memory that the allocator reserves in each step though no more is in use: free pieces that no request fits in.
std::optional<Growth> reserved_growth(const Lifetimes& lifetimes, const std::vector<uint32_t>& ends) {
  constexpr size_t kRising = 6;
  if (ends.size() < kRising + 2) return std::nullopt;
  const size_t first = ends.size() - kRising - 1;
  for (size_t step = first + 1; step < ends.size(); ++step) {
    if (lifetimes.reserved_at(ends[step]) <= lifetimes.reserved_at(ends[step - 1])) return std::nullopt;
  }
  const int64_t allocated = lifetimes.allocated_at(ends.back()) - lifetimes.allocated_at(ends[first]);
  Growth growth;
  growth.kind = "reserved";
  growth.bytes_per_step = (lifetimes.reserved_at(ends.back()) - lifetimes.reserved_at(ends[first])) / static_cast<int64_t>(kRising);
  growth.steps = static_cast<int64_t>(ends.size());
  if (allocated * 2 > growth.bytes_per_step * static_cast<int64_t>(kRising)) return std::nullopt;
  return growth;
}

}  // namespace

std::optional<Growth> find_growth(const Trace& trace, const AllocConf& conf, const Lifetimes& lifetimes, const Attribution& attribution) {
  const std::vector<uint32_t> positions = mark_positions(trace);
  const std::vector<uint32_t> ends = step_end_positions(trace, positions);
  const auto steps = static_cast<int32_t>(ends.size());
  if (steps < kLeastSteps) return std::nullopt;

  std::map<SiteKey, Site> sites;
  const std::unordered_set<uint64_t> collected(trace.collected.begin(), trace.collected.end());
  for (size_t i = 0; i < lifetimes.blocks.size(); ++i) {
    const Block& block = lifetimes.blocks[i];
    const auto made_in = static_cast<int32_t>(std::upper_bound(ends.begin(), ends.end(), block.alloc_event) - ends.begin()) + 1;
    const auto first_end = static_cast<size_t>(made_in) - 1;
    if (block.before_start || first_end >= ends.size() || !block.alive_at(ends[first_end])) continue;
    if (block.alive_at(ends.back()) && collected.contains(block.address)) continue;
    const BlockAttribution& what = attribution.blocks[i];
    Site& site = sites[SiteKey{number_of(block.stack), what.phase, number_of(what.module)}];
    site.at_ends.resize(ends.size() + 1);
    const int64_t bytes = conf.round_size(block.requested_bytes);
    for (size_t end = first_end; end < ends.size() && block.alive_at(ends[end]); ++end) site.at_ends[end + 1] += bytes;
    if (!block.alive_at(ends.back())) continue;
    if (made_in == steps) site.newest.push_back(static_cast<uint32_t>(i));
    if (made_in < kFirstStep || made_in > steps - kAfter) continue;
    site.kept[made_in] += bytes;
    site.blocks.push_back(static_cast<uint32_t>(i));
  }

  join_single_sites(&sites);

  Growth growth;
  growth.steps = steps;
  const bool longer_inputs = inputs_rise(trace, ends, positions);
  std::map<const KeptHolder*, GrowthHolder> holders;
  int64_t fills_bytes = 0;
  bool open_ended = false;
  for (const auto& [key, site] : sites) {
    std::optional<Pace> pace = pace_of_kept(site, steps);
    if (!pace && !longer_inputs) pace = pace_of_replaced(site, steps);
    if (!pace) continue;
    const std::vector<uint32_t>& blocks = pace->replaced ? site.newest : site.blocks;
    const KeptHolder* const kept = holder_of(trace, lifetimes, blocks);
    const bool filling = kept != nullptr && kept->removes && steps < kCertainSteps;
    if (filling) continue;
    if (kept != nullptr && kept->bound > 0) {
      fills_bytes += pace->bytes * std::max<int64_t>(0, kept->bound - kept->length);
    } else {
      open_ended = true;
    }
    GrowthHolder& holder = holders[kept];
    if (kept != nullptr && holder.made.empty()) {
      holder.name = kept->name;
      holder.what = kept->what;
      holder.container = kept->container;
      holder.length = kept->length;
      holder.bound = kept->bound;
      holder.removes = kept->removes;
      holder.graph = kept->graph;
      holder.node = kept->node;
      holder.kept_at = kept->kept_at;
    }
    holder.bytes_per_step += pace->bytes;
    holder.replaced = holder.replaced || pace->replaced;
    const Block& example = lifetimes.blocks[blocks.back()];
    const BlockAttribution& what = attribution.blocks[blocks.back()];
    holder.made.push_back({pace->bytes, static_cast<int64_t>(blocks.size()), phase_name(what.phase), module_label(trace, what.module),
                           frames_of(trace, example.stack)});
    growth.bytes_per_step += pace->bytes;
    growth.rise_per_step += pace->rise;
    growth.every_steps = std::max(growth.every_steps, pace->every);
  }
  if (holders.empty()) return reserved_growth(lifetimes, ends);
  if (!open_ended) growth.fills_bytes = std::max<int64_t>(fills_bytes, 1);
  const auto larger = [](const auto& a, const auto& b) { return a.bytes_per_step > b.bytes_per_step; };
  for (auto& [kept, holder] : holders) {
    std::stable_sort(holder.made.begin(), holder.made.end(), larger);
    if (holder.made.size() > kMostPlaces) holder.made.resize(kMostPlaces);
    holder.remedy = remedy_of(holder);
    growth.holders.push_back(std::move(holder));
  }
  std::stable_sort(growth.holders.begin(), growth.holders.end(), larger);
  if (growth.holders.size() > kMostGrowingHolders) growth.holders.resize(kMostGrowingHolders);
  return growth;
}

namespace {

constexpr size_t kMostOps = 4'000'000;  // of the steps that are repeated

}  // namespace

void find_oom_step(const History& history, const Trace& trace, int64_t capacity_bytes, int64_t device_total_bytes, Growth* growth) {
  growth->oom_step.reset();
  growth->oom_step_exact = false;
  if (growth->fills_bytes > 0 || growth->bytes_per_step <= 0 || capacity_bytes <= 0) return;
  const std::vector<size_t> ends = step_end_ops(history, trace);
  const ReplaySettings settings = settings_at(history, capacity_bytes, device_total_bytes);
  const ReplayResult captured = replay(history, settings);
  if (captured.first_oom) return;  // it does not fit even now
  const RepeatedSteps repeated(history, ends, static_cast<size_t>(growth->every_steps));
  const int64_t steps = static_cast<int64_t>(ends.size());
  const int64_t left_bytes = capacity_bytes - captured.stats.peak_reserved_bytes;
  if (repeated.known() && growth->rise_per_step == 0) {
    const double wanted = static_cast<double>(left_bytes) / static_cast<double>(growth->bytes_per_step * growth->every_steps) + 64;
    const size_t most = kMostOps / repeated.size();
    const size_t times = std::min<size_t>(most, static_cast<size_t>(1.1 * wanted));
    if (static_cast<double>(times) >= wanted) {
      const ReplayResult whole = replay(repeated.continued(times), settings);
      if (whole.first_oom) {
        growth->oom_step = repeated.step_of(static_cast<size_t>(whole.first_oom->op), ends.size());
        growth->oom_step_exact = true;
        return;
      }
    } else if (times >= 8) {
      // Too many steps to repeat: the pace of reserved memory over the second half of those that are.
      const auto reserved_after = [&](size_t repetitions) {
        return replay(repeated.continued(repetitions), settings).stats.peak_reserved_bytes;
      };
      const auto first_half = times / 2, second_half = times - first_half;
      const int64_t half = reserved_after(first_half), whole = reserved_after(times);
      if (whole > half) {
        const double pace = static_cast<double>(whole - half) / static_cast<double>(second_half);
        const double more = static_cast<double>(capacity_bytes - whole) / pace;
        growth->oom_step = steps + static_cast<int64_t>(static_cast<double>(times) + more) * growth->every_steps + 1;
        return;
      }
    }
  }
  // left = n * bytes + n * (n + 1) / 2 * rise
  const auto bytes = static_cast<double>(growth->bytes_per_step), rise = static_cast<double>(growth->rise_per_step);
  const auto left = static_cast<double>(left_bytes);
  const double linear = bytes + 2 * rise + rise / 2;  // of the two last captured steps, too
  const double count = rise > 0 ? (-linear + std::sqrt(linear * linear + 2 * rise * left)) / rise : left / bytes;
  growth->oom_step = steps + static_cast<int64_t>(count) + 1;
}

std::string growth_sentence(const Growth& growth) {
  if (growth.fills_bytes > 0) return fmt::format("a collection fills: {} more until it is full", format_bytes(growth.fills_bytes));
  std::string text = growth.kind == "reserved"
                         ? fmt::format("the memory that PyTorch reserves grows by {} a step though its tensors do not",
                                       format_bytes(growth.bytes_per_step))
                         : fmt::format("grows by {} a step", format_bytes(growth.bytes_per_step));
  if (growth.every_steps > 1)
    text += fmt::format(" ({} every {} steps)", format_bytes(growth.bytes_per_step * growth.every_steps), growth.every_steps);
  if (growth.rise_per_step > 0) text += fmt::format(", and by {} more in each further one", format_bytes(growth.rise_per_step));
  if (growth.oom_step)
    text += fmt::format("; at this pace out of memory at {}step {} on this card", growth.oom_step_exact ? "" : "about ", *growth.oom_step);
  return text;
}

}  // namespace gpucast
