// `gpucast explain` for people: why it takes what it takes, and what would reduce it, in plain words.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "gpucast/explain.h"
#include "src/base/bytes.h"
#include "src/report/next_command.h"
#include "src/report/text_writer.h"
#include "src/report/user_frame.h"

namespace gpucast {
namespace {

constexpr size_t kMostCategories = 5, kMostSizes = 3;

double share(int64_t part, int64_t whole) { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0; }

std::string percent(int64_t part, int64_t whole) { return fmt::format("{:.0f} %", 100 * share(part, whole)); }

// "half (52 %)"; "12 %" where no plain word is near.
std::string fraction(int64_t part, int64_t whole) {
  static constexpr std::pair<double, const char*> kWords[] = {
      {1.0 / 4, "a quarter"}, {1.0 / 3, "a third"}, {1.0 / 2, "half"}, {2.0 / 3, "two thirds"}, {3.0 / 4, "three quarters"}};
  const double exact = share(part, whole);
  if (part == whole) return "all";
  for (const auto& [value, word] : kWords) {
    if (std::abs(exact - value) <= 0.03) return fmt::format("{} ({})", word, percent(part, whole));
  }
  return percent(part, whole);
}

std::string count_of(int64_t count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

std::string words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string capital(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

// "backward of step 2, in blocks.5 (Block), at train.py:93 main"; the module and the frame as far as they are known.
std::string place_words(const Place& place) {
  std::string text;
  if (place.phase.empty()) {
    text = fmt::format("event {} of the history", place.event);
  } else {
    text = words(place.phase);
    if (place.step > 0) text += fmt::format(" of step {}", place.step);
  }
  if (!place.module.empty()) text += ", in " + place.module;
  const std::string frame = user_frame(place);
  if (!frame.empty()) text += ", at " + cut_begin(frame, 60);
  return printable(text);
}

std::string verdict_words(Verdict verdict) {
  return verdict == Verdict::fits ? "fits" : verdict == Verdict::tight ? "tight" : "does not fit";
}

void headline(const Prediction& p, TextWriter* out) {
  const char* verdict = p.verdict == Verdict::fits ? "FITS" : p.verdict == Verdict::tight ? "TIGHT" : "DOES NOT FIT";
  const char* colour = p.verdict == Verdict::fits ? "1;32" : p.verdict == Verdict::tight ? "1;33" : "1;31";
  out->line(fmt::format("{} on {} ({}): {} reserved at the peak", out->paint(verdict, colour), p.gpu_id, format_bytes(p.gpu_total_bytes),
                        format_bytes(p.peak_reserved.bytes)));
  if (!p.verdict_reason.empty()) out->wrapped("  ", p.verdict_reason);
  for (const WhatIf& what_if : p.what_if) {
    out->wrapped("  what if: ", printable(fmt::format("{}{}{}", what_if.name, what_if.did.empty() ? "" : ": ", what_if.did)));
  }
}

std::string list(const std::vector<std::string>& names, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) out += (i == 0 ? "" : "; ") + names[i];
  if (names.size() > most) out += fmt::format("; and {} more", names.size() - most);
  return out;
}

void out_of_memory(const Explanation& e, TextWriter* out) {
  const Prediction& p = e.prediction;
  if (!p.oom || !p.oom->ended_run || !e.out_of_memory) return;
  const OutOfMemoryExplained& oom = *e.out_of_memory;
  out->line();
  out->line(out->bold("Where it ran out of memory"));
  out->wrapped("  ", fmt::format("{} were asked for in {}.", format_bytes(p.oom->requested_bytes), place_words(p.oom->place)));
  out->wrapped("  ",
               fmt::format("PyTorch could have {} of the card: {} were reserved, of them {} in use, and {} were left. The largest "
                           "free piece in segments that are in use: {}.",
                           format_bytes(oom.capacity_bytes), format_bytes(e.free.reserved_bytes), format_bytes(e.free.allocated_bytes),
                           format_bytes(p.oom->free_bytes), format_bytes(oom.largest_free_block_bytes)));
  if (oom.gets_past.empty()) {
    out->wrapped("  ", fmt::format("None of {} other allocator settings gets past this (replayed): it takes less memory, or a larger card.",
                                   oom.settings_tried));
  } else {
    out->wrapped("  ", fmt::format("{} of {} other allocator settings get past this (replayed; what comes behind is not known): {}.",
                                   oom.gets_past.size(), oom.settings_tried, list(oom.gets_past, 3)));
  }
}

void at_the_peak(const Explanation& e, TextWriter* out) {
  const Prediction& p = e.prediction;
  out->line();
  out->line(out->bold(fmt::format("The peak: {} allocated", format_bytes(p.peak_allocated.bytes))));
  out->wrapped("  ", fmt::format("It is in {}.", place_words(p.peak_allocated.place)));
  if (e.categories.empty()) return;
  const CategoryLine& first = e.categories.front();
  const bool known = first.name != "unattributed" || e.categories.size() > 1;
  std::string text;
  if (known) {
    text = fmt::format("{} are {} of it ({})", capital(words(first.name)), fraction(first.bytes, p.peak_allocated.bytes),
                       format_bytes(first.bytes));
    if (!e.operators.empty() && !e.operators.front().op.empty()) {
      const OperatorShare& most = e.operators.front();
      text += fmt::format("; of these, {}{}{} made {}", most.op, most.module_type.empty() ? "" : " in ", most.module_type,
                          fraction(most.bytes, first.bytes));
    }
    text += ".";
    std::string rest;
    for (size_t i = 1; i < std::min(e.categories.size(), kMostCategories + 1); ++i) {
      rest += fmt::format("{}{} {}", rest.empty() ? "" : ", ", words(e.categories[i].name),
                          percent(e.categories[i].bytes, p.peak_allocated.bytes));
    }
    if (!rest.empty()) text += fmt::format(" The rest: {}.", rest);
  } else if (!e.operators.empty() && !e.operators.front().op.empty()) {
    const OperatorShare& most = e.operators.front();
    text = fmt::format("{} of it was allocated by {}.", capital(fraction(most.bytes, first.bytes)), most.op);
  }
  if (!text.empty()) out->wrapped("  ", printable(text));
}

void free_memory(const Explanation& e, TextWriter* out) {
  const FreeMemory& f = e.free;
  const bool at_oom = e.out_of_memory.has_value();
  out->line();
  out->line(out->bold(fmt::format("Reserved but free: {} of {}", format_bytes(f.free_bytes()), format_bytes(f.reserved_bytes))));
  if (f.free_bytes() == 0) {
    out->line("  Nothing: every byte that is reserved is in use.");
    return;
  }
  out->wrapped("  ", at_oom ? "Where it ran out of memory." : fmt::format("Where reserved is highest: {}.", place_words(f.place)));
  const auto row = [&](int64_t bytes, const std::string& text) {
    out->wrapped(fmt::format("  {:>12}  ", format_bytes(bytes)), printable(text));
  };
  if (f.whole_bytes > 0)
    row(f.whole_bytes, fmt::format("{} with no block in {}: kept for reuse; PyTorch gives them back when the card is full",
                                   count_of(f.whole_segments, "segment"), f.whole_segments == 1 ? "it" : "them"));
  if (f.piece_bytes > 0) {
    int64_t segments = 0;
    for (const SegmentSize& size : f.sizes) segments += size.segments;
    row(f.piece_bytes, fmt::format("{} of {} that {} in use too, and so cannot be given back:", count_of(f.pieces, "piece"),
                                   count_of(segments, "segment"), segments == 1 ? "is" : "are"));
  }
  for (size_t i = 0; i < std::min(f.sizes.size(), kMostSizes); ++i) {
    const SegmentSize& size = f.sizes[i];
    out->wrapped(fmt::format("  {:>12}    {:>10}  ", "", format_bytes(size.free_bytes)),
                 fmt::format("in {} of {} of {}", count_of(size.pieces, "piece"), count_of(size.segments, "segment"),
                             format_bytes(size.segment_bytes)));
  }
  if (f.sizes.size() > kMostSizes)
    out->line(fmt::format("  {:>12}    {:>10}  in segments of {} other sizes", "", "the rest", f.sizes.size() - kMostSizes));
  if (f.holes.empty()) return;
  const Hole& hole = f.holes.front();
  const std::string name = hole.held_by.tensor.empty() ? hole.held_by.module : hole.held_by.tensor;
  out->wrapped("  ", printable(fmt::format("The largest piece, {}, lies in a segment of {} that {} {}: the largest is {} of {}{}{}.",
                                           format_bytes(hole.bytes), format_bytes(hole.segment_bytes), count_of(hole.blocks, "block"),
                                           hole.blocks == 1 ? "holds" : "hold", format_bytes(hole.held_by.size_bytes),
                                           words(hole.held_by.category), name.empty() ? "" : ", ", name)));
}

void blocks(const Explanation& e, TextWriter* out) {
  if (e.blocks.empty()) return;
  out->line();
  out->line(out->bold("The largest blocks at the peak") + " (alike ones in one line)");
  out->line(fmt::format("  {:>10} {:>5} {:>10}  what", "each", "count", "in all"));
  for (const AlikeBlocks& block : e.blocks) {
    std::string text = words(block.category);
    if (!block.tensor.empty()) text += ", " + block.tensor;
    if (!block.module.empty()) text += (block.tensor.empty() ? ", " : " of ") + block.module;
    if (!block.op.empty() && block.op != user_frame(block.born)) text += ", by " + block.op;
    const std::string frame = user_frame(block.born);
    if (!frame.empty()) text += ", at " + cut_begin(frame, 60);
    out->wrapped(fmt::format("  {:>10} {:>5} {:>10}  ", format_bytes(block.size_bytes), block.count, format_bytes(block.total_bytes())),
                 printable(text));
  }
}

std::string signed_bytes(int64_t bytes) { return bytes < 0 ? "-" + format_bytes(-bytes) : format_bytes(bytes); }

std::string how(const Remedy& remedy) {
  switch (remedy.by) {
    case RemedyBy::replay:
      return "replayed";
    case RemedyBy::rerun:
      return "run again";
    case RemedyBy::profile:
      return "predicted from the trace";
  }
  return "";
}

void remedies(const Explanation& e, const std::string& file, TextWriter* out) {
  out->line();
  out->line(out->bold("What would reduce it"));
  if (!e.baseline.empty()) out->wrapped("  ", e.baseline);
  const bool any = std::any_of(e.remedies.begin(), e.remedies.end(), [](const Remedy& remedy) { return remedy.computed; });
  if (any) out->line(fmt::format("  {:>10} {:>10} {:>10}  on {}", "saves", "reserved", "allocated", e.prediction.gpu_id));
  for (const Remedy& remedy : e.remedies) {
    if (!remedy.computed) continue;
    std::string text = fmt::format("{}: {} ({})", verdict_words(remedy.verdict), remedy.what, how(remedy));
    if (remedy.verdict != e.prediction.verdict) text = fmt::format("{}, not {}", text, verdict_words(e.prediction.verdict));
    out->wrapped(fmt::format("  {:>10} {:>10} {:>10}  ", signed_bytes(remedy.saved_reserved_bytes),
                             format_bytes(remedy.peak_reserved_bytes), format_bytes(remedy.peak_allocated_bytes)),
                 printable(text));
    if (!remedy.note.empty()) out->wrapped(fmt::format("  {:>10} {:>10} {:>10}    ", "", "", ""), printable(remedy.note), 2);
  }
  if (!any && e.settings_tried > 0)
    out->line(fmt::format("  None of {} other allocator settings saves anything (replayed).", e.settings_tried));
  std::string waiting;
  for (const Remedy& remedy : e.remedies) {
    if (remedy.computed) continue;
    if (remedy.note.empty()) {
      waiting += (waiting.empty() ? "" : ", ") + remedy.what;
    } else {
      out->wrapped("  not computed: ", printable(fmt::format("{}: {}", remedy.what, remedy.note)), 4);
    }
  }
  if (!waiting.empty()) {
    out->wrapped("  not computed: ", printable(waiting));
    const std::string each = e.run_s > 0 ? fmt::format(" (about {:.0f} s each)", std::max(1.0, e.run_s)) : "";
    out->line(fmt::format("next, run the script {}{}:", count_of(e.reruns_left, "time"), each));
    out->line(fmt::format("  gpucast explain {} --rerun", file.empty() ? "FILE" : shell_quote({file})));
  }
}

}  // namespace

std::string explain_text(const Explanation& explanation, const std::string& file, bool colour) {
  TextWriter out(colour);
  headline(explanation.prediction, &out);
  out_of_memory(explanation, &out);
  at_the_peak(explanation, &out);
  free_memory(explanation, &out);
  blocks(explanation, &out);
  remedies(explanation, file, &out);
  return out.take();
}

}  // namespace gpucast
