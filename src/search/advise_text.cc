// The text report of `gpucast advise`.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "gpucast/advise.h"
#include "src/base/bytes.h"
#include "src/base/command_words.h"
#include "src/base/with_spaces.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

constexpr size_t kMostOfFront = 14;

std::string name_of(const AdvisedPoint& point) {
  std::string out = fmt::format("{}", fmt::join(point.what_ifs, ", "));
  if (!point.settings.empty()) out += (out.empty() ? "" : ", ") + point.settings;
  return out.empty() ? "as it is" : out;
}

// Of several ranks or devices, the one with these needs.
std::string rank_of(const Advice& advice, const AdvisedPoint& point) {
  if (advice.ranks > 1) return fmt::format(" of rank {}", point.rank);
  return advice.captured > 1 ? fmt::format(" cuda:{}", point.device) : "";
}

std::string figures_of(const Advice& advice, const AdvisedPoint& point) {
  std::string out = fmt::format("{} at its peak, {} on the card{}", format_bytes(point.peak_reserved_bytes),
                                format_bytes(point.device_expected_bytes), rank_of(advice, point));
  if (point.step_ns > 0) out += fmt::format(", {} a step", time_text(point.step_ns));
  if (point.samples_per_s > 0) out += fmt::format(", {:.4g} samples/s", point.samples_per_s);
  return out;
}

void write_changes(const AdvisedPoint& point, TextWriter* out) {
  for (size_t i = 0; i < point.what_ifs.size(); ++i) {
    out->wrapped(fmt::format("  {}: ", point.what_ifs[i]), change_to_write(point.what_ifs[i], i < point.did.size() ? point.did[i] : ""));
  }
  if (!point.settings.empty()) out->wrapped("  ", settings_to_write(point.settings));
  if (point.changes_mathematics) out->line("  It changes the mathematics of the training.");
  out->line("  run it:");
  out->format("    {}", point.run);
}

void write_answer(const Advice& advice, TextWriter* out) {
  if (advice.best == size_t{0}) {
    out->line(out->bold("Best: as it is. It fits, and nothing that was tried is faster."));
    return;
  }
  if (advice.best) {
    const AdvisedPoint& best = advice.points[*advice.best];
    out->wrapped("Best: ", name_of(best));
    out->wrapped("  ", figures_of(advice, best));
    return write_changes(best, out);
  }
  const AdvisedPoint& smallest = advice.points[advice.smallest];
  out->line(out->bold("Nothing that was tried fits."));
  out->wrapped("Smallest: ", name_of(smallest));
  out->wrapped("  ", figures_of(advice, smallest));
  const int64_t missing_bytes = smallest.device_expected_bytes - advice.gpu_total_bytes;
  if (missing_bytes > 0) out->format("  {} more than the card has", format_bytes(missing_bytes));
  write_changes(smallest, out);
}

std::vector<const AdvisedPoint*> front_of(const Advice& advice) {
  std::vector<const AdvisedPoint*> front;
  for (const AdvisedPoint& point : advice.points) {
    if (point.on_front) front.push_back(&point);
  }
  std::sort(front.begin(), front.end(), [](auto* a, auto* b) { return a->device_expected_bytes < b->device_expected_bytes; });
  return front;
}

void write_front(const Advice& advice, TextWriter* out) {
  const std::vector<const AdvisedPoint*> front = front_of(advice);
  out->line();
  out->line("The front: every other configuration needs more memory or is slower");
  out->format("  {:>12}  {:>12}  {:>12}  {:>9}  {:>9}  {}", "reserved MiB", "on the card", "", "a step", "samples/s", "changes");
  const size_t every = (front.size() + kMostOfFront - 1) / kMostOfFront;
  const AdvisedPoint* best = advice.best ? &advice.points[*advice.best] : nullptr;
  size_t shown = 0;
  for (size_t i = 0; i < front.size(); ++i) {
    const AdvisedPoint& point = *front[i];
    if (i % every != 0 && &point != best) continue;
    ++shown;
    const std::string first =
        fmt::format("  {:>12}  {:>12}  {:>12}  {:>9}  {:>9}  ", mib(point.peak_reserved_bytes), mib(point.device_expected_bytes),
                    with_spaces(verdict_name(point.verdict)), point.step_ns > 0 ? time_text(point.step_ns) : "",
                    point.samples_per_s > 0 ? fmt::format("{:.4g}", point.samples_per_s) : "");
    out->wrapped(first, name_of(point) + (point.changes_mathematics ? " (other mathematics)" : ""));
  }
  if (shown < front.size()) out->format("  and {} more: --format json", front.size() - shown);
  if (advice.has_loader) out->line("  steps as if every batch came in time: gpucast time says whether the DataLoader keeps up");
}

void write_left_out(const Advice& advice, TextWriter* out) {
  if (advice.left_out.empty()) return;
  out->line();
  out->line("Left out");
  for (const LeftOut& left_out : advice.left_out) out->wrapped(fmt::format("  {}: ", left_out.what), printable(left_out.why), 2);
}

// The lines to paste, from the folder in which the user is.
void write_steps(const Patch& patch, const std::string& settings, const std::string& gpu, const std::string& rank_options,
                 TextWriter* out) {
  std::error_code error;
  const bool is_here = std::filesystem::equivalent(patch.folder, ".", error);
  const std::string path = is_here ? patch.path : std::filesystem::absolute(patch.path, error).string();
  out->line("  apply it, then see what it needs:");
  if (!is_here) out->format("    cd {}", printable(shell_quote({patch.folder})));
  out->format("    git apply {}", printable(shell_quote({path})));
  const std::string set = settings.empty() ? "" : "PYTORCH_CUDA_ALLOC_CONF=" + settings + " ";
  out->format("    {}gpucast run --gpu {}{} -- {}", set, gpu, rank_options, printable(shell_quote(patch.command)));
}

void write_patch_lines(const Advice& advice, const Patch& patch, TextWriter* out) {
  const AdvisedPoint& point = advice.points[patch.point];
  out->line();
  if (patch.path.empty()) {
    out->line(out->bold("No patch: no line of the script is changed with certainty."));
    if (patch.other_command) out->wrapped("  run it as: ", printable(shell_quote(patch.command)));
  } else {
    std::string files;
    for (const Patch::File& file : patch.files)
      files += fmt::format("{}{}: +{} -{}", files.empty() ? "" : ", ", printable(file.name), file.added, file.removed);
    out->format("{} ({})", out->bold("Patch: " + printable(patch.path)), files);
    out->wrapped("  makes: ", fmt::format("{}", fmt::join(patch.placed, ", ")));
  }
  if (!point.settings.empty()) out->wrapped("  with ", settings_to_write(point.settings));
  for (const ByHand& by_hand : patch.by_hand)
    out->wrapped(fmt::format("  by hand: {}: ", by_hand.what_if), fmt::format("{} (the change is above)", printable(by_hand.why)));
  if (!patch.path.empty()) write_steps(patch, point.settings, advice.gpu_id, advice.rank_options, out);
}

void write_patches_of(const Advice& advice, TextWriter* out) {
  if (advice.patches.size() == 1) return write_patch_lines(advice, advice.patches.front(), out);
  if (advice.patches.empty()) return;
  out->line();
  out->line(out->bold("Patches"));
  for (const Patch& patch : advice.patches) {
    const std::string name = name_of(advice.points[patch.point]);
    std::string line = patch.path.empty() ? fmt::format("none for {}", name) : printable(patch.path);
    for (size_t i = 0; i < patch.by_hand.size(); ++i) line += fmt::format("{}{}", i == 0 ? "; by hand: " : ", ", patch.by_hand[i].what_if);
    out->wrapped("  ", line, 4);
  }
  out->line("  Each says what it changes, and how to apply and run it.");
}

}  // namespace

std::string advice_text(const Advice& advice, bool colour) {
  TextWriter out(colour);
  const AdvisedPoint& as_it_is = advice.points.front();
  out.wrapped("", printable(shell_quote(advice.command)));
  const int64_t cards = std::max(advice.ranks, advice.captured);
  out.format("on {}{} ({}), {}{}", cards > 1 ? fmt::format("{} x ", cards) : "", advice.gpu_id, advice.gpu_name,
             format_bytes(advice.gpu_total_bytes), cards > 1 ? " each" : "");
  if (cards > 1)
    out.wrapped("", fmt::format("{}: memory is the largest of them, a step and samples/s are the job's",
                                advice.ranks > 1 ? fmt::format("{} ranks, {} of them captured", advice.ranks, advice.captured)
                                                 : fmt::format("One process with {} devices", advice.captured)));
  const Headline headline = headline_of(as_it_is.verdict);
  out.wrapped(fmt::format("As it is: {}: ", out.paint(headline.words, headline.colour)), figures_of(advice, as_it_is));
  out.line();
  write_answer(advice, &out);
  write_front(advice, &out);
  write_left_out(advice, &out);
  write_patches_of(advice, &out);
  out.line();
  out.format("{} runs{}", advice.runs + advice.cached_runs,
             advice.cached_runs > 0 ? fmt::format(", {} of them from the cache", advice.cached_runs) : "");
  if (!advice.stopped.empty()) out.wrapped("stopped: ", advice.stopped);
  if (!advice.time_problem.empty()) out.wrapped("step time: ", "not known: " + advice.time_problem);
  return out.take();
}

}  // namespace gpucast
