// Shared by the text reports: lines of at most 100 columns; names that are cut get a mark.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "gpucast/prediction.h"

namespace gpucast {

inline constexpr size_t kColumns = 100;

class TextWriter {
 public:
  explicit TextWriter(bool colour = false) : colour_(colour) {}

  std::string paint(std::string_view text, const char* code) const;
  std::string bold(std::string_view text) const { return paint(text, "1"); }

  void line(std::string_view text = "");
  template <class... Args>
  void format(fmt::format_string<Args...> form, Args&&... args) {
    line(fmt::format(form, std::forward<Args>(args)...));
  }

  // Writes `first` and then `text`, broken between words. Further lines start under `text`, at most at two thirds of the width. A word that
  // is longer than a line is broken. At most `most` lines.
  void wrapped(const std::string& first, std::string_view text, size_t most = SIZE_MAX);

  std::string take() { return std::move(out_); }

 private:
  bool colour_;
  std::string out_;
};

struct Headline {
  const char* words;   // "DOES NOT FIT"
  const char* colour;  // for TextWriter::paint
};
Headline headline_of(Verdict verdict);

// "backward, step 2, in layer1.0.conv1 (Conv2d)"; for a memory snapshot, which has no phases: "event 17 of the history".
std::string place_text(const Place& place);

// "82.4 ms": three figures.
std::string time_text(double ns);
// Of samples or tokens: four digits, and no exponent: "27.35", "96030".
std::string rate_text(double per_s);

// "82.4 %"
std::string percent(double share);

// A number of MiB without the unit, for columns with the unit in their heading.
std::string mib(int64_t bytes, int digits = 2);

// The columns of a text on a terminal: its code points, which is exact for the names and marks that we print.
size_t width(std::string_view text);
// `text` in at most `columns` columns: if it is longer, "…" replaces its end or its beginning. For paths, the end is more useful.
std::string cut_end(std::string_view text, size_t columns);
std::string cut_begin(std::string_view text, size_t columns);

// Replaces bytes of escape sequences and line breaks by "?", because names with them would garble a terminal.
std::string printable(std::string_view text);

}  // namespace gpucast
