// The pipeline, top to bottom: one call for each stage, with the invariant that holds after it.
//
//   follow(trace)        -> Facts: everything in the capture that does not depend on a card
//   judge(facts, card)   -> Analysis: memory, ledger, verdict, the GPU's time of a step
//   src/job, from Facts  -> step_times() (gpucast time), job_occupancy() (gpucast occupancy), packing_figures() (gpucast pack)

#include "gpucast/predict.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/ranks.h"
#include "src/attribution/attribute.h"
#include "src/base/alloc_conf.h"
#include "src/base/bytes.h"
#include "src/ledger/beside.h"
#include "src/ledger/device_ledger.h"
#include "src/ledger/job_class.h"
#include "src/lifetime/lifetime.h"
#include "src/loader/loader_model.h"
#include "src/predict/analysis.h"
#include "src/predict/facts.h"
#include "src/predict/growth.h"
#include "src/predict/least_capacity.h"
#include "src/predict/place.h"
#include "src/predict/verdict.h"
#include "src/predict/warnings.h"
#include "src/schedule/step_schedule.h"
#include "src/time/duration.h"
#include "src/work/observe_step.h"

namespace gpucast {
namespace {

// The card of the capture: from the table, or, if it is not in the table, as the capture describes it. A memory snapshot does not name its
// card; it gets the default card of a run.
Gpu captured_gpu(const Header& header) {
  if (header.source == "snapshot") return find_gpu(kDefaultGpu);
  const std::string& id = header.gpu.id.empty() ? header.gpu.name : header.gpu.id;
  for (const Gpu& gpu : gpu_table()) {
    if (gpu.id == id) return gpu;
  }
  Gpu gpu;
  try {
    gpu = find_gpu(id);
  } catch (const Error&) {
    if (header.gpu.total_memory_bytes <= 0) {
      throw Error(fmt::format("the capture's card '{}' is not in the device table", id), "the capture's header",
                  "name one: --gpu NAME (see `gpucast gpus`)");
    }
    gpu.id = id;
    gpu.name = header.gpu.name;
    gpu.compute_major = header.gpu.compute_major;
    gpu.compute_minor = header.gpu.compute_minor;
    gpu.total_memory_bytes = static_cast<uint64_t>(header.gpu.total_memory_bytes);
  }
  return gpu;
}

PeakAt peak_at(const Trace& trace, const Lifetimes& lifetimes, const Attribution& attribution, const Peak& peak) {
  PeakAt out;
  out.bytes = peak.bytes;
  if (lifetimes.allocated.empty()) return out;
  out.allocated_bytes = lifetimes.allocated_at(peak.position());
  out.reserved_bytes = lifetimes.reserved_at(peak.position());
  out.place = place_of_event(trace, attribution, peak.event);
  return out;
}

// The highest value of a curve over positions [begin, end]. The value at position p is the value after event p-1.
int64_t highest(const std::vector<int64_t>& curve, uint32_t begin, uint32_t end) {
  int64_t top = begin == 0 ? 0 : curve[begin - 1];
  for (uint32_t event = begin; event < end; ++event) top = std::max(top, curve[event]);
  return top;
}

void add_step_and_phase_peaks(const Lifetimes& lifetimes, const Attribution& attribution, Prediction* out) {
  std::map<int32_t, StepPeak> steps;
  std::map<Phase, PhasePeak> phases;
  for (const Span& span : attribution.spans) {
    const int64_t allocated = highest(lifetimes.allocated, span.begin, span.end);
    const int64_t reserved = highest(lifetimes.reserved, span.begin, span.end);
    StepPeak& step = steps[span.step];
    step.step = span.step;
    step.complete = span.step <= attribution.steps_completed;
    step.allocated_bytes = std::max(step.allocated_bytes, allocated);
    step.reserved_bytes = std::max(step.reserved_bytes, reserved);
    PhasePeak& phase = phases[span.phase];
    phase.phase = phase_name(span.phase);
    phase.allocated_bytes = std::max(phase.allocated_bytes, allocated);
    phase.reserved_bytes = std::max(phase.reserved_bytes, reserved);
  }
  for (auto& [number, step] : steps) out->step_peaks.push_back(step);
  for (auto& [phase, peak] : phases) out->phase_peaks.push_back(peak);
}

std::optional<OomPlace> oom_place(const Trace& trace, const Lifetimes& lifetimes, const Attribution& attribution) {
  if (lifetimes.ooms.empty()) return std::nullopt;
  const Oom& last = lifetimes.ooms.back();
  OomPlace out;
  out.place = place_of_event(trace, attribution, last.event);
  out.requested_bytes = last.requested_bytes;
  out.free_bytes = last.free_bytes;
  out.count = static_cast<int64_t>(lifetimes.ooms.size());
  // A script that catches the error and continues allocates again.
  const bool went_on = std::any_of(trace.events.begin() + last.event, trace.events.end(),
                                   [](const AllocatorEvent& event) { return event.kind == EventKind::alloc; });
  out.ended_run = (trace.end.reason == "exception" || trace.header.source == "snapshot") && !went_on;
  return out;
}

// A script that searches for a batch that fits (accelerate's find_executable_batch_size) fails, frees memory and trains with less. That
// begins where reserved memory is lowest between the last failure and the next complete step. Unset: no step followed.
std::optional<uint32_t> begin_after_failures(const Trace& trace, const Lifetimes& lifetimes) {
  if (lifetimes.ooms.empty()) return std::nullopt;
  const uint32_t last = lifetimes.ooms.back().event;
  const std::vector<uint32_t> positions = mark_positions(trace);
  for (size_t i = 0; i < positions.size(); ++i) {
    if (trace.marks[i].kind != MarkKind::step || positions[i] <= last) continue;
    const auto from = lifetimes.reserved.begin() + last, to = lifetimes.reserved.begin() + positions[i];
    return static_cast<uint32_t>(std::min_element(from, to) - lifetimes.reserved.begin());
  }
  return std::nullopt;
}

Peak peak_from(const std::vector<int64_t>& curve, uint32_t event) {
  const auto top = std::max_element(curve.begin() + event, curve.end());
  return {*top, static_cast<uint32_t>(top - curve.begin()), false};
}

JobFacts job_facts(const Trace& trace, const Prediction& prediction) {
  JobFacts job;
  // Batches that were padded only for this run have many lengths otherwise.
  const bool padded = std::any_of(prediction.what_if.begin(), prediction.what_if.end(),
                                  [](const WhatIf& what_if) { return what_if.acted && what_if.name.starts_with(kMaxLength); });
  job.classes = job_classes(trace.convolutions, padded || prediction.varying_input.has_value());
  job.measured_type = trace.convolutions.not_float32 == 0;
  job.peak_reserved_bytes = prediction.peak_reserved.bytes;
  if (prediction.profile && prediction.profile->method != "recorded") job.profile_method = prediction.profile->method;
  job.cudnn_asked = trace.process.cudnn_asked;
  job.how_to_ask = how_to_ask_cudnn(trace.process);
  job.own_lines = ledger_from_capture(trace);
  job.cuda_major = cuda_major_of(trace.process.cuda);
  return job;
}

void judge_cards(const MemoryNeed& need, const Gpu& gpu, const JobFacts& job, Prediction* out) {
  for (const Gpu& card : gpu_table()) {
    if (!runs_pytorch(card)) continue;
    const auto total = static_cast<int64_t>(card.total_memory_bytes);
    const Judgement judgement = judge_need(need, beside_allocator(card, job, out->confidence), total);
    out->cards.push_back({card.id, total, judgement.verdict, judgement.device, card.compute_major == gpu.compute_major});
  }
  std::stable_sort(out->cards.begin(), out->cards.end(), [](const CardFit& a, const CardFit& b) { return a.total_bytes < b.total_bytes; });
}

// A job whose memory grows fits for some steps only.
void add_growth(const Facts& facts, const Gpu& gpu, Prediction* out) {
  if (!out->growth) return;
  int64_t capacity_bytes = static_cast<int64_t>(usable_capacity_bytes(gpu, facts.job.cuda_major));
  for (const LedgerLine& line : facts.job.own_lines) capacity_bytes -= line.expected_bytes;
  if (out->growth->fills_bytes > 0) {
    out->warnings.push_back({"memory_fills", fmt::format("Memory grows by {} a step, and will until {} more are in use: {} is full then.",
                                                         format_bytes(out->growth->bytes_per_step), format_bytes(out->growth->fills_bytes),
                                                         out->growth->holders.front().name)});
    return;
  }
  if (!fits_now(out->verdict)) {
    if (out->verdict == Verdict::does_not_fit) out->verdict_reason += "; it " + growth_sentence(*out->growth);
    return;
  }
  find_oom_step(facts.history, facts.trace, capacity_bytes, out->gpu_total_bytes, &*out->growth);
  out->verdict = Verdict::grows;
  out->verdict_reason = growth_sentence(*out->growth);
}

}  // namespace

void check_confidence(double confidence) {
  if (confidence >= kLeastConfidence && confidence <= kMostConfidence) return;
  throw Error(fmt::format("a confidence of {:g} cannot be promised", confidence), "--confidence",
              fmt::format("name a probability from {:g} to {:g}: --confidence 0.99", kLeastConfidence, kMostConfidence));
}

std::shared_ptr<const Facts> follow(Trace trace) {
  const auto followed = std::make_shared<Facts>();
  Facts& facts = *followed;
  facts.trace = std::move(trace);
  Trace& given = facts.trace;
  Prediction& out = facts.any_card;
  const bool is_snapshot = given.header.source == "snapshot";
  describe_run(given, &out);

  // Events -> blocks. Now allocated[i] is the sum of the sizes of the blocks alive after event i, and the blocks of a segment fill it
  // without gaps. Both equal PyTorch's own figures, byte for byte, if the comparison found no difference.
  facts.conf = parse_alloc_conf(given.process.alloc_conf, given.process.torch);
  if (is_snapshot) facts.start = reconstruct_start(given.events, given.end_segments, facts.conf, &given.problems);
  Lifetimes& lifetimes = facts.lifetimes = follow_blocks(given.events, facts.conf, &given.problems, facts.start);
  facts.comparison = compare_with_recorded(given, lifetimes);
  facts.begin_after_failures = begin_after_failures(given, lifetimes);
  if (facts.begin_after_failures) {
    out.failed_attempts_reserved_bytes = lifetimes.peak_reserved.bytes;
    lifetimes.peak_allocated = peak_from(lifetimes.allocated, *facts.begin_after_failures);
    lifetimes.peak_reserved = peak_from(lifetimes.reserved, *facts.begin_after_failures);
  }

  // Blocks -> phase, step, module, category. Now the categories add up to allocated[i] after every event i.
  const Attribution& attribution = facts.attribution = attribute(given, lifetimes, &given.problems);
  out.steps = attribution.steps_completed;
  out.peak_allocated = peak_at(given, lifetimes, attribution, lifetimes.peak_allocated);
  out.peak_reserved = peak_at(given, lifetimes, attribution, lifetimes.peak_reserved);
  out.free_but_reserved_bytes = out.peak_allocated.reserved_bytes - out.peak_allocated.allocated_bytes;
  const CategoryBytes categories = categories_at(lifetimes, attribution, lifetimes.peak_allocated.position());
  if (std::accumulate(categories.begin(), categories.end(), int64_t{0}) != lifetimes.peak_allocated.bytes) {
    throw Error("internal error: the categories do not add up to the peak", given.path, "please report this with the capture");
  }
  for (size_t i = 0; i < categories.size(); ++i) out.categories.push_back({category_name(static_cast<Category>(i)), categories[i]});
  if (!is_snapshot) add_step_and_phase_peaks(lifetimes, attribution, &out);
  out.oom = oom_place(given, lifetimes, attribution);
  if (!is_snapshot) out.growth = find_growth(given, facts.conf, lifetimes, attribution);

  // The ledger's facts about the job.
  out.convolutions = given.convolutions;
  out.varying_input = varying_input(given);
  facts.job = job_facts(given, out);
  for (const JobClass job_class : facts.job.classes) out.job_classes.emplace_back(job_class_name(job_class));

  // The same requests on smaller cards. Now the least capacity is the memory that the allocator needs if it gives cached memory back.
  facts.history = history_from_trace(given);
  const bool whole = !facts.cut_short() && !facts.begin_after_failures;  // attempts that failed would fail again
  if (whole) facts.least = least_capacity(facts.history);
  if (facts.comparison.possible) out.matches_recorded = facts.comparison.matches_recorded && (!whole || facts.least.replay_matches);

  // The observed step -> operations with sizes. Step times, occupancy, packing and the clock start from these operations.
  if (has_step_operations(given)) facts.step = step_operations(given);
  out.loader_workers = given.loader.workers;
  out.loader_batch = loader_batch_time(given.loader);
  return followed;
}

std::vector<const Facts*> pointers_to(const std::vector<std::shared_ptr<const Facts>>& ranks) {
  std::vector<const Facts*> out;
  out.reserve(ranks.size());
  for (const auto& rank : ranks) out.push_back(rank.get());
  return out;
}

const StepOperations& observed_step(const Facts& facts) {
  if (!facts.step) throw why_no_step(facts.trace);
  return *facts.step;
}

Analysis judge(std::shared_ptr<const Facts> followed, const std::optional<std::string>& gpu_name, double confidence) {
  check_confidence(confidence);
  Analysis analysis;
  analysis.facts = std::move(followed);
  const Facts& facts = *analysis.facts;
  Prediction& out = analysis.prediction = facts.any_card;
  const Trace& trace = facts.trace;
  const Lifetimes& lifetimes = facts.lifetimes;
  const bool is_snapshot = trace.header.source == "snapshot";
  const Gpu& gpu = analysis.gpu = gpu_name ? find_gpu(*gpu_name) : captured_gpu(trace.header);
  const Gpu captured = is_snapshot ? gpu : captured_gpu(trace.header);
  describe_card(trace, captured, gpu, gpu_name.has_value(), &out);

  // The card's memory outside of the allocator, with the errors of measured jobs of this class. Now the device's bytes are the peak
  // reserved plus the ledger.
  out.confidence = confidence;
  analysis.beside = beside_allocator(gpu, facts.job, confidence);
  out.ledger = analysis.beside.lines;
  out.request_source = analysis.beside.request_source;
  const int64_t beside_bytes = analysis.beside.expected_bytes;
  if (facts.least.own_settings_bytes) out.min_capacity_bytes = *facts.least.own_settings_bytes + beside_bytes;
  if (facts.least.expandable_bytes) out.min_capacity_expandable_bytes = *facts.least.expandable_bytes + beside_bytes;

  // The GPU's time for a step. The step's waits and the card's occupancy are computed only by commands that need them: src/job.
  if (facts.step && !facts.step->operations.empty() && has_rates(gpu)) out.gpu_time = gpu_time_of_step(*facts.step, card_rates(gpu));

  // The verdict.
  MemoryNeed need;
  need.peak_allocated_bytes = lifetimes.peak_allocated.bytes;
  need.peak_reserved_bytes = lifetimes.peak_reserved.bytes;
  need.nothing_to_judge = nothing_to_judge(trace, out);
  need.runs_at = [&](int64_t capacity_bytes) {
    if (facts.begin_after_failures) return RunsAt{capacity_bytes >= lifetimes.peak_reserved.bytes, 0};
    return runs_at(facts.history, capacity_bytes, out.gpu_total_bytes);
  };
  const bool same_card = !is_snapshot && gpu.id == captured.id;  // a snapshot's card is not known
  need.ended_in_oom = facts.cut_short() && same_card;
  need.cut_by_oom = facts.cut_short() && !same_card;
  const Judgement judgement = judge_need(need, analysis.beside, out.gpu_total_bytes);
  out.verdict = judgement.verdict;
  out.verdict_reason = judgement.reason;
  if (need.ended_in_oom) {
    out.verdict_reason +=
        fmt::format(": {} were requested, {} were free", format_bytes(out.oom->requested_bytes), format_bytes(out.oom->free_bytes));
  }
  if (!need.nothing_to_judge.empty()) out.min_capacity_bytes = out.min_capacity_expandable_bytes = std::nullopt;
  out.needs_reclaim = judgement.needs_reclaim;
  out.device = judgement.device;
  add_growth(facts, gpu, &out);
  if (!out.gpu_chosen) {
    need.cut_by_oom = need.cut_by_oom || need.ended_in_oom;
    need.ended_in_oom = false;
    // Every card is compared with the least capacity. A replay for each card would give the same result.
    const int64_t least_bytes = facts.least.own_settings_bytes.value_or(facts.begin_after_failures ? lifetimes.peak_reserved.bytes : 0);
    need.runs_at = [&](int64_t capacity_bytes) { return RunsAt{capacity_bytes >= least_bytes, 0}; };
    judge_cards(need, captured, facts.job, &out);
    for (CardFit& card : out.cards) {
      if (out.growth && out.growth->fills_bytes == 0 && fits_now(card.verdict)) card.verdict = Verdict::grows;
    }
    if (is_snapshot) {
      for (CardFit& card : out.cards) card.same_capability = true;  // the snapshot does not name its card
    }
  }

  if (!facts.start.segments.empty()) {
    out.warnings.push_back(
        {"partial_history", fmt::format("The snapshot's history begins in the middle: {} were allocated and {} reserved before its first "
                                        "event. What happened before is not known, higher peaks included.",
                                        format_bytes(facts.start.allocated_bytes), format_bytes(facts.start.reserved_bytes))});
  }
  if (out.min_capacity_bytes && !facts.least.replay_matches && facts.comparison.possible && facts.comparison.matches_recorded) {
    out.warnings.push_back(
        {"replay_differs", fmt::format("The simulated allocator left the recorded path ({}), so the smallest card is approximate.",
                                       facts.least.first_difference)});
  }
  add_warnings(trace, facts.conf, facts.comparison, captured, gpu, &out);
  return analysis;
}

Analysis judge_job(const std::vector<std::shared_ptr<const Facts>>& ranks, const std::string& gpu, double confidence) {
  std::vector<Analysis> all;
  std::vector<Prediction> predictions;
  for (const auto& facts : ranks) {
    all.push_back(judge(facts, gpu, confidence));
    predictions.push_back(all.back().prediction);
  }
  Ranks compared = compare_ranks(predictions);
  Analysis& out = all[compared.judged];
  if (all.size() > 1) out.prediction.ranks = std::move(compared);
  return std::move(out);
}

Prediction predict(Trace trace, const std::optional<std::string>& gpu, double confidence) {
  return judge(follow(std::move(trace)), gpu, confidence).prediction;
}

}  // namespace gpucast
