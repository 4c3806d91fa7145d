// The text report of `gpucast explain`: why the job needs this memory, and what would reduce it.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "gpucast/explain.h"
#include "src/base/bytes.h"
#include "src/base/command_words.h"
#include "src/base/with_spaces.h"
#include "src/report/growth_text.h"
#include "src/report/text_writer.h"
#include "src/report/user_frame.h"

namespace gpucast {
namespace {

constexpr size_t kMostCategories = 5, kMostSizes = 3, kFrameColumns = 60, kMostWarnings = 4, kMostWarningLines = 2;
constexpr char kGlue = '\x01';  // a space at which lines are not broken

double share(int64_t part, int64_t whole) { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0; }

std::string percent_of(int64_t part, int64_t whole) { return fmt::format("{:.0f} %", 100 * share(part, whole)); }

// "half (52 %)"; "12 %" if there is no simple word for the share.
std::string fraction(int64_t part, int64_t whole) {
  static constexpr std::pair<double, const char*> kWords[] = {
      {1.0 / 4, "a quarter"}, {1.0 / 3, "a third"}, {1.0 / 2, "half"}, {2.0 / 3, "two thirds"}, {3.0 / 4, "three quarters"}};
  const double exact = share(part, whole);
  if (part == whole) return "all";
  for (const auto& [value, word] : kWords) {
    if (std::abs(exact - value) <= 0.03) return fmt::format("{} ({})", word, percent_of(part, whole));
  }
  return percent_of(part, whole);
}

std::string count_of(int64_t count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

std::string capital(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

// The user's own line of a stack, with its path relative to the folder in which the command was started; "" for none.
std::string frame_words(const Place& place, const std::string& folder) {
  std::string frame = user_frame(place);
  if (!folder.empty() && frame.starts_with(folder + "/")) frame = frame.substr(folder.size() + 1);
  frame = cut_begin(printable(frame), kFrameColumns);
  std::replace(frame.begin(), frame.end(), ' ', kGlue);
  return frame;
}

// "in backward of step 2, in blocks.5 (Block), at train.py:93 main"; the module and the line only if they are known.
std::string place_words(const Place& place, const std::string& folder) {
  std::string text;
  if (place.phase.empty()) {
    text = fmt::format("at event {} of the history", place.event);
  } else if (place.phase == "other") {
    text = "outside of forward, backward and the optimizer";
  } else {
    text = "in " + with_spaces(place.phase);
  }
  if (place.step > 0) text += fmt::format(" of step {}", place.step);
  if (!place.module.empty()) text += ", in " + place.module;
  const std::string frame = frame_words(place, folder);
  if (!frame.empty()) text += ", at " + frame;
  return text;
}

// Keeps amounts and their units on one line.
std::string glued(std::string_view text) {
  std::string out(text);
  for (char& byte : out) {
    if (byte != kGlue) byte = printable(std::string_view(&byte, 1))[0];
  }
  for (const std::string_view unit : {" B", " KiB", " MiB", " GiB", " TiB", " %", " s"}) {
    for (size_t at = out.find(unit); at != std::string::npos; at = out.find(unit, at + 1)) {
      const size_t end = at + unit.size();
      const bool whole = end == out.size() || std::isalnum(static_cast<unsigned char>(out[end])) == 0;
      if (whole && at > 0 && std::isdigit(static_cast<unsigned char>(out[at - 1])) != 0) out[at] = kGlue;
    }
  }
  return out;
}

void write_paragraph(const std::string& first, std::string_view text, TextWriter* out, size_t most = SIZE_MAX) {
  out->wrapped(first, glued(text), most);
}

std::string verdict_words(Verdict verdict) {
  if (verdict == Verdict::none) return "no verdict";
  return verdict == Verdict::does_not_fit ? "does not fit" : verdict_name(verdict);
}

void write_headline(const Prediction& p, TextWriter* out) {
  const auto [verdict, colour] = headline_of(p.verdict);
  out->line(fmt::format("{} on {} ({}{})", out->paint(verdict, colour), p.gpu_id, format_bytes(p.gpu_total_bytes),
                        p.gpu_chosen ? "" : ", since no card was named"));
  if (!p.verdict_reason.empty()) write_paragraph("  ", p.verdict_reason, out);
  for (const WhatIf& what_if : p.what_if) {
    write_paragraph("  what if: ", fmt::format("{}{}{}", what_if.name, what_if.did.empty() ? "" : ": ", what_if.did), out);
  }
}

std::string listed(const std::vector<std::string>& names, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) out += (i == 0 ? "" : "; ") + names[i];
  if (names.size() > most) out += fmt::format("; and {} more", names.size() - most);
  return out;
}

void write_out_of_memory(const Explanation& e, TextWriter* out) {
  const Prediction& p = e.prediction;
  if (!p.oom || !p.oom->ended_run || !e.out_of_memory) return;
  const OutOfMemoryExplained& oom = *e.out_of_memory;
  out->line();
  out->line(out->bold("Where it ran out of memory"));
  write_paragraph("  ",
                  fmt::format("{} were requested{} {}.", format_bytes(p.oom->requested_bytes), oom.op.empty() ? "" : " by " + oom.op,
                              place_words(p.oom->place, e.folder)),
                  out);
  write_paragraph(
      "  ",
      fmt::format("Of the {} that PyTorch could have, {} were free. {} were reserved, and {} of that in use; the largest free piece "
                  "between blocks was {}.",
                  format_bytes(oom.capacity_bytes), format_bytes(p.oom->free_bytes), format_bytes(e.free.reserved_bytes),
                  format_bytes(e.free.allocated_bytes), format_bytes(oom.largest_free_block_bytes)),
      out);
  if (oom.gets_past.empty()) {
    write_paragraph("  ",
                    fmt::format("No allocator setting gets past this ({} were replayed): the job must take less, or the card have more.",
                                oom.settings_tried),
                    out);
  } else {
    write_paragraph(
        "  ",
        fmt::format("{} of {} other allocator settings {} past this (replayed; what would follow is not in the recording): {}.",
                    oom.gets_past.size(), oom.settings_tried, oom.gets_past.size() == 1 ? "gets" : "get", listed(oom.gets_past, 3)),
        out);
  }
}

std::string most_of(const std::vector<OperatorShare>& operators) {
  const OperatorShare& most = operators.front();
  return most.module_type.empty() ? most.op : fmt::format("{} in {}", most.op, most.module_type);
}

std::string composition(const Explanation& e) {
  const int64_t peak = e.prediction.peak_allocated.bytes;
  const CategoryLine& first = e.categories.front();
  const bool operators_known = !e.operators.empty() && !e.operators.front().op.empty();
  if (first.name == "unattributed" && e.categories.size() == 1) {  // a memory snapshot
    return operators_known
               ? fmt::format("{} of it was allocated by {}.", capital(fraction(e.operators.front().bytes, peak)), most_of(e.operators))
               : "";
  }
  std::string text = fmt::format("{} {} {} of it, {}", capital(with_spaces(first.name)), first.name.ends_with('s') ? "are" : "is",
                                 fraction(first.bytes, peak), format_bytes(first.bytes));
  // Parameters and gradients are left out: the operators that made them only made the model.
  static constexpr std::string_view kMadeByOperators[] = {"activations", "intermediate_gradients", "temporaries", "unattributed"};
  const bool tells = std::find(std::begin(kMadeByOperators), std::end(kMadeByOperators), first.name) != std::end(kMadeByOperators);
  if (operators_known && tells)
    text += fmt::format("; of these {} made {}", most_of(e.operators), fraction(e.operators.front().bytes, first.bytes));
  std::string rest;
  for (size_t i = 1; i < std::min(e.categories.size(), kMostCategories + 1); ++i) {
    if (share(e.categories[i].bytes, peak) < 0.005) break;
    rest += fmt::format("{}{} {}", rest.empty() ? "" : ", ", with_spaces(e.categories[i].name), percent_of(e.categories[i].bytes, peak));
  }
  return text + (rest.empty() ? "." : fmt::format(". The others: {}.", rest));
}

void write_at_the_peak(const Explanation& e, TextWriter* out) {
  const PeakAt& peak = e.prediction.peak_allocated;
  out->line();
  out->line(out->bold(fmt::format("The peak: {} allocated", format_bytes(peak.bytes))));
  std::string text = "It is " + place_words(peak.place, e.folder);
  if (e.last) text += fmt::format(", with {}{}", format_bytes(e.last->size_bytes), e.last->op.empty() ? "" : " for " + e.last->op);
  write_paragraph("  ", text + ".", out);
  if (!e.categories.empty()) write_paragraph("  ", composition(e), out);
}

std::string name_of(const AlikeBlocks& block) { return block.tensor.empty() ? block.module : block.tensor; }

// True: the frame ("train.py:31 forward") ends with the operator's name. An operator without a name has the frame's name. Spaces in frames
// are kGlue.
bool ends_with_operator(const std::string& frame, std::string op) {
  std::replace(op.begin(), op.end(), ' ', kGlue);
  return frame.ends_with(op);
}

// True: the operator adds nothing, because it is the module ("head (Linear)" by nn.Linear) or the line that is shown anyway.
bool says_itself(const AlikeBlocks& block, const std::string& frame) {
  if (block.op.empty() || ends_with_operator(frame, block.op)) return true;
  return block.op.starts_with("nn.") && name_of(block).ends_with(fmt::format("({})", block.op.substr(3)));
}

// "activations: blocks.*.mlp.0 (Linear), at train.py:42 forward"; a sentence if nothing is known.
std::string what_it_is(const AlikeBlocks& block, const std::string& folder) {
  const std::string frame = frame_words(block.born, folder), name = name_of(block);
  std::string text = block.category == "unattributed" ? "" : with_spaces(block.category);
  const auto add = [&](const char* separator, const std::string& what) { text += (text.empty() ? "" : separator) + what; };
  if (!name.empty()) add(": ", name);
  if (!says_itself(block, frame)) add(", ", "by " + block.op);
  if (!frame.empty()) add(", ", "at " + frame);
  if (block.before_start) add(", ", "from before the history begins");
  return text.empty() ? "without a Python stack, as in autograd's own thread" : text;
}

void write_free_memory(const Explanation& e, TextWriter* out) {
  const FreeMemory& f = e.free;
  out->line();
  out->line(out->bold(fmt::format("Reserved but free: {} of {}", format_bytes(f.free_bytes()), format_bytes(f.reserved_bytes))));
  if (f.free_bytes() == 0) return out->line("  Every byte that is reserved is in use.");
  if (!e.out_of_memory) write_paragraph("  ", fmt::format("When it is fullest, {}:", place_words(f.place, e.folder)), out);
  const auto row = [&](int64_t bytes, const std::string& text) {
    write_paragraph(fmt::format("  {:>10}  ", format_bytes(bytes)), text, out);
  };
  if (f.whole_bytes > 0) {
    row(f.whole_bytes,
        fmt::format("in {} without a block: kept for reuse, given back when the card is full", count_of(f.whole_segments, "segment")));
  }
  int64_t segments = 0;
  for (const SegmentSize& size : f.sizes) segments += size.segments;
  if (f.piece_bytes > 0) {
    row(f.piece_bytes, fmt::format("in {} between the blocks of {}, which cannot be given back:", count_of(f.pieces, "piece"),
                                   count_of(segments, "segment")));
  }
  for (size_t i = 0; i < std::min(f.sizes.size(), kMostSizes); ++i) {
    const SegmentSize& size = f.sizes[i];
    write_paragraph(fmt::format("  {:>10}    {:>10}  ", "", format_bytes(size.free_bytes)),
                    fmt::format("in {}, {} of {}", count_of(size.pieces, "piece"), count_of(size.segments, "segment"),
                                format_bytes(size.segment_bytes)),
                    out);
  }
  if (f.sizes.size() > kMostSizes)
    out->line(fmt::format("  {:>10}    {:>10}  in segments of {} other sizes", "", "the rest", f.sizes.size() - kMostSizes));
  if (f.holes.empty()) return;
  const Hole& hole = f.holes.front();
  const std::string holders = hole.blocks == 1 ? "a block" : fmt::format("{} blocks, the largest", hole.blocks);
  write_paragraph(
      "  ",
      fmt::format("The largest piece, {}, is in a segment of {} held by {} of {}: {}.", format_bytes(hole.bytes),
                  format_bytes(hole.segment_bytes), holders, format_bytes(hole.held_by.size_bytes), what_it_is(hole.held_by, e.folder)),
      out);
}

void write_blocks(const Explanation& e, TextWriter* out) {
  if (e.blocks.empty()) return;
  out->line();
  out->line(out->bold("The largest blocks at the peak") + ", alike ones in one line");
  out->line(fmt::format("  {:>10} {:>6} {:>10}", "each", "count", "in all"));
  for (const AlikeBlocks& block : e.blocks) {
    write_paragraph(fmt::format("  {:>10} {:>6} {:>10}  ", format_bytes(block.size_bytes), block.count, format_bytes(block.total_bytes())),
                    what_it_is(block, e.folder), out);
  }
}

std::string signed_bytes(int64_t bytes) { return bytes < 0 ? "-" + format_bytes(-bytes) : format_bytes(bytes); }

bool saves(const Remedy& remedy) {
  if (remedy.saved_reserved_bytes != 0) return remedy.saved_reserved_bytes > 0;
  return remedy.by != RemedyBy::replay && remedy.saved_allocated_bytes > 0;
}

void write_computed(const Explanation& e, TextWriter* out) {
  const auto shown = [](const Remedy& remedy) { return remedy.computed && saves(remedy); };
  const auto by = [&](RemedyBy kind) {
    return std::any_of(e.remedies.begin(), e.remedies.end(), [&](const Remedy& remedy) { return shown(remedy) && remedy.by == kind; });
  };
  const bool settings = by(RemedyBy::replay), reruns = by(RemedyBy::rerun), profiles = by(RemedyBy::profile);
  if (!e.out_of_memory && !settings && e.settings_tried > 0) {
    out->line(fmt::format("  None of {} other allocator settings saves anything (replayed).", e.settings_tried));
  }
  if (!settings && !reruns && !profiles) return;
  out->line(fmt::format("  {:>10} {:>10} {:>10}  on {}", "saves", "reserved", "allocated", e.prediction.gpu_id));
  for (const Remedy& remedy : e.remedies) {
    if (!shown(remedy)) continue;
    const bool says_more = remedy.name == "half-batch" && !remedy.note.empty();  // other notes only repeat the name
    const std::string note = says_more ? fmt::format(" ({})", remedy.note) : "";
    write_paragraph(
        fmt::format("  {:>10} {:>10} {:>10}  {:<13} ", signed_bytes(remedy.saved_reserved_bytes), format_bytes(remedy.peak_reserved_bytes),
                    format_bytes(remedy.peak_allocated_bytes), verdict_words(remedy.verdict)),
        remedy.what + note, out, 3);
  }
  const char* others = reruns ? "the script run again" : "predicted from the trace again";
  std::string how = settings ? fmt::format("allocator settings replayed ({} were tried)", e.settings_tried) : others;
  if (settings && (reruns || profiles)) how += fmt::format(", for the others {}", others);
  write_paragraph("  ", "Saved at the peak of reserved; " + how + ".", out);
}

void write_explained_warnings(const Prediction& p, TextWriter* out) {
  if (p.warnings.empty()) return;
  out->line();
  for (size_t i = 0; i < std::min(p.warnings.size(), kMostWarnings); ++i)
    write_paragraph("warning: ", p.warnings[i].message, out, kMostWarningLines);
  if (p.warnings.size() > kMostWarnings) out->line(fmt::format("  ... and {} more (--format json)", p.warnings.size() - kMostWarnings));
}

void write_next_commands(const Explanation& e, const std::string& file, TextWriter* out) {
  const Prediction& p = e.prediction;
  if (e.reruns_tried && p.verdict == Verdict::does_not_fit && p.source == "vgpu" && !p.command.empty()) {
    std::vector<std::string> words = {"gpucast", "advise", "--gpu", p.gpu_id, "--"};
    words.insert(words.end(), p.command.begin(), p.command.end());
    out->line();
    out->line("next, try more changes, also together:");
    out->line("  " + shell_quote(words));
  }
  if (e.reruns_left == 0) return;
  const std::string each = e.run_s > 0 ? fmt::format(" (about {:.0f} s each)", std::max(1.0, e.run_s)) : "";
  out->line();
  out->line(fmt::format("next, run the script {}{}:", count_of(e.reruns_left, "time"), each));
  out->line(fmt::format("  gpucast explain {} --rerun", file.empty() ? "FILE" : shell_quote({file})));
}

void write_remedies(const Explanation& e, TextWriter* out) {
  out->line();
  out->line(out->bold("What would reduce it"));
  if (!e.baseline.empty()) write_paragraph("  ", e.baseline, out);
  write_computed(e, out);
  std::string waiting;
  for (const Remedy& remedy : e.remedies) {
    if (remedy.computed) continue;
    if (remedy.note.empty()) {
      waiting += (waiting.empty() ? "" : ", ") + remedy.what;
    } else {
      write_paragraph("  left out: ", fmt::format("{}: {}", remedy.what, remedy.note), out, 4);
    }
  }
  std::vector<std::string> useless;  // not allocator settings: gpucast proposed them, not the user
  for (const Remedy& remedy : e.remedies) {
    if (!remedy.computed || remedy.by == RemedyBy::replay || saves(remedy)) continue;
    const int64_t more = -remedy.saved_reserved_bytes;
    useless.push_back(remedy.what + (more > 0 ? fmt::format(" (takes {} more)", format_bytes(more)) : ""));
  }
  if (!useless.empty()) write_paragraph("  saves nothing: ", fmt::format("{}", fmt::join(useless, ", ")), out, 4);
  const Prediction& p = e.prediction;
  const auto makes_it_fit = [](const Remedy& remedy) {
    return remedy.computed && (remedy.verdict == Verdict::fits || remedy.verdict == Verdict::tight);
  };
  if (e.reruns_tried && p.verdict == Verdict::does_not_fit && std::none_of(e.remedies.begin(), e.remedies.end(), makes_it_fit))
    write_paragraph("  ", fmt::format("None of this makes it fit on {}.", p.gpu_id), out);
  if (p.verdict != Verdict::fits && p.verdict != Verdict::grows && p.min_capacity_bytes) {
    std::string text = fmt::format("As it is, it runs on a card of {}", format_bytes(*p.min_capacity_bytes));
    if (p.min_capacity_expandable_bytes && *p.min_capacity_expandable_bytes < *p.min_capacity_bytes) {
      text += fmt::format(", with expandable_segments:True on one of {}", format_bytes(*p.min_capacity_expandable_bytes));
    }
    write_paragraph("  ", text + " (replayed, cached memory given back as it goes).", out);
  }
  if (p.source == "snapshot") {
    write_paragraph("  ",
                    "A snapshot shows allocator settings only. For other remedies capture the script: "
                    "gpucast run -o train.gpucast -- python train.py, then gpucast explain train.gpucast --rerun",
                    out);
  }
  if (!waiting.empty()) write_paragraph("  not computed: ", waiting, out);
}

}  // namespace

std::string explain_text(const Explanation& explanation, const std::string& file, bool colour) {
  TextWriter out(colour);
  write_headline(explanation.prediction, &out);
  if (explanation.prediction.growth) write_growth(*explanation.prediction.growth, &out);
  write_out_of_memory(explanation, &out);
  write_at_the_peak(explanation, &out);
  write_free_memory(explanation, &out);
  write_blocks(explanation, &out);
  write_remedies(explanation, &out);
  write_explained_warnings(explanation.prediction, &out);
  write_next_commands(explanation, file, &out);
  std::string text = out.take();
  std::replace(text.begin(), text.end(), kGlue, ' ');
  return text;
}

}  // namespace gpucast
