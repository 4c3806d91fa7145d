#include "src/report/markdown_text.h"

#include <fmt/core.h>

#include <cctype>

#include "src/report/text_writer.h"

namespace gpucast {

std::string markdown_escaped(std::string_view text) {
  static constexpr std::string_view kHarmless = " .,:;'+-/=%()";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80 || std::isalnum(byte) != 0 || kHarmless.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("&#{};", byte);
    }
  }
  return out;
}

std::string markdown_code(std::string_view name) {
  return fmt::format("<code>{}</code>", markdown_escaped(cut_begin(printable(name), kMarkdownNameColumns)));
}

}  // namespace gpucast
