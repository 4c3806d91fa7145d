#include "src/search/script_options.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "src/base/read_file.h"

namespace gpucast::search {
namespace {

std::string script_text(const std::vector<std::string>& command, const std::string& folder) {
  for (const std::string& word : command) {
    if (word.ends_with(".py")) return read_file((std::filesystem::path(folder) / word).string());
  }
  return "";
}

bool is_option_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.'; }

}  // namespace

std::vector<std::string> declared_options(const std::vector<std::string>& command, const std::string& folder) {
  const std::string text = script_text(command, folder);
  std::vector<std::string> out;
  for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
    if (at == 0 || (text[at - 1] != '"' && text[at - 1] != '\'')) continue;
    const auto end = std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), is_option_character);
    if (end != text.end() && *end == text[at - 1]) out.emplace_back(text.begin() + static_cast<std::ptrdiff_t>(at), end);
  }
  return out;
}

}  // namespace gpucast::search
