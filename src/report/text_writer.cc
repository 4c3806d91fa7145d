#include "src/report/text_writer.h"

#include <algorithm>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }  // inside of a code point

// Bytes of the first `columns` code points.
size_t bytes_of(std::string_view text, size_t columns) {
  size_t at = 0;
  while (at < text.size() && columns > 0) {
    ++at;
    while (at < text.size() && continues(text[at])) ++at;
    --columns;
  }
  return at;
}

// As much of a word as a line has room for, if possible up to the end of a name: `layers.0.` of `layers.0.attention`.
std::string_view beginning(std::string_view word, size_t room) {
  const std::string_view out = word.substr(0, std::max<size_t>(1, bytes_of(word, room)));
  if (word.substr(out.size()) == ",") return word;  // no line begins with a comma
  const size_t end = out.find_last_of("./,:=_-");
  return end == std::string_view::npos || end < out.size() / 2 ? out : out.substr(0, end + 1);
}

}  // namespace

std::string TextWriter::paint(std::string_view text, const char* code) const {
  return colour_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

void TextWriter::line(std::string_view text) {
  out_ += text.substr(0, text.find_last_not_of(' ') + 1);
  out_ += '\n';
}

void TextWriter::wrapped(const std::string& first, std::string_view text, size_t most) {
  const std::string indent(std::min(width(first), kColumns * 2 / 3), ' ');
  std::string current = first;
  bool empty = true;
  size_t lines = 1;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    if (!empty && width(current) + 1 + width(word) > kColumns) {
      if (lines == most) {
        current += " ...";
        break;
      }
      line(current);
      ++lines;
      current = indent;
      empty = true;
    }
    if (!empty) current += ' ';
    if (const size_t room = kColumns - std::min(kColumns, width(current)); width(word) > room) word = beginning(word, room);
    current += word;
    empty = false;
    text.remove_prefix(word.size());
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  }
  line(current);
}

Headline headline_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::fits:
      return {"FITS", "1;32"};
    case Verdict::tight:
      return {"TIGHT", "1;33"};
    case Verdict::does_not_fit:
      return {"DOES NOT FIT", "1;31"};
    case Verdict::grows:
      return {"GROWS", "1;33"};
    case Verdict::none:
      return {"NO VERDICT", "1;33"};
  }
  return {"", "0"};
}

std::string place_text(const Place& place) {
  if (place.phase.empty()) return fmt::format("event {} of the history", place.event);
  std::string text = place.step > 0 ? fmt::format("{}, step {}", place.phase, place.step) : place.phase;
  if (!place.module.empty()) text += ", in " + place.module;
  return text;
}

std::string rate_text(double per_s) { return per_s < 1e4 ? fmt::format("{:.4g}", per_s) : fmt::format("{:.0f}", per_s); }

std::string time_text(double ns) {
  const double scaled = ns >= 1e9 ? ns / 1e9 : ns >= 1e6 ? ns / 1e6 : ns / 1e3;
  const char* unit = ns >= 1e9 ? "s" : ns >= 1e6 ? "ms" : "us";
  return fmt::format("{:.{}f} {}", scaled, scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2, unit);
}

std::string mib(int64_t bytes, int digits) {
  return fmt::format("{:.{}f}", static_cast<double>(bytes) / static_cast<double>(kMiB), digits);
}

size_t width(std::string_view text) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {  // a colour needs no column
      i = std::min(text.find('m', i), text.size() - 1);
    } else if (!continues(text[i])) {
      ++columns;
    }
  }
  return columns;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string cut_end(std::string_view text, size_t columns) {
  if (width(text) <= columns) return std::string(text);
  return std::string(text.substr(0, bytes_of(text, columns - 1))) + "…";
}

std::string cut_begin(std::string_view text, size_t columns) {
  if (width(text) <= columns) return std::string(text);
  return "…" + std::string(text.substr(bytes_of(text, width(text) - columns + 1)));
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& byte : out) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x20 || code == 0x7F) byte = '?';
  }
  return out;
}

}  // namespace gpucast
