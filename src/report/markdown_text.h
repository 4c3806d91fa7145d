// Names in Markdown, where they may contain characters with a meaning.
#pragma once

#include <string>
#include <string_view>

namespace gpucast {

// All characters that are not certainly harmless in Markdown and HTML are written as character references.
std::string markdown_escaped(std::string_view text);

// "<code>name</code>", cut at its beginning.
std::string markdown_code(std::string_view name);

inline constexpr size_t kMarkdownNameColumns = 80;  // of one name

}  // namespace gpucast
