// A breakdown for spreadsheets: one line for each row and category that ever holds a byte. Columns: docs/reference/breakdown.md.

#include <fmt/core.h>

#include "gpucast/report.h"

namespace gpucast {
namespace {

// RFC 4180: quoted only if necessary, with quotes doubled.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"') out += '"';
    out += letter;
  }
  return out + '"';
}

std::string head() {
  std::string out = "by,name,type,depth,itself,category";
  for (size_t i = 0; i < kInstants; ++i) {
    const char* name = instant_name(static_cast<Instant>(i));
    out += fmt::format(",{}_bytes,{}_requested_bytes", name, name);
  }
  return out + '\n';
}

void add_rows(const Breakdown& b, Grouping by, std::string* text) {
  std::string& out = *text;
  for (const BreakdownRow& row : b.by(by)) {
    for (size_t category = 0; category <= kCategories; ++category) {
      const bool total = category == kCategories;
      const auto figure = [&](size_t moment) { return total ? row.moments[moment].total : row.moments[moment].categories[category]; };
      if (figure(static_cast<size_t>(Instant::maximum)).allocated_bytes == 0) continue;
      out += fmt::format("{},{},{},{},{},{}", grouping_name(by), quoted(row.name), quoted(row.type), row.depth, row.itself ? 1 : 0,
                         total ? "total" : b.categories[category]);
      for (size_t moment = 0; moment < kInstants; ++moment) {
        // Empty, not 0, if nothing is known about the moment.
        out += b.moments[moment].known ? fmt::format(",{},{}", figure(moment).allocated_bytes, figure(moment).requested_bytes) : ",,";
      }
      out += '\n';
    }
  }
}

}  // namespace

std::string breakdown_csv(const Breakdown& b, std::optional<Grouping> by) {
  std::string out = head();
  for (size_t i = 0; i < b.rows.size(); ++i) {
    const auto grouping = static_cast<Grouping>(i);
    if (!by || by == grouping) add_rows(b, grouping, &out);
  }
  return out;
}

}  // namespace gpucast
