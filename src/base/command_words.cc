#include "src/base/command_words.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "src/base/hex.h"

namespace gpucast {
namespace {

constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./=:,@%+";

bool is_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

// $'...': octal escapes for characters that a terminal would not show, or would not accept as input.
std::string quote_bytes(std::string_view word) {
  const bool utf8 = is_utf8(word);
  std::string out = "$'";
  for (const char c : word) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\'' || c == '\\') {
      out += {'\\', c};
    } else if (is_control(c) || (!utf8 && static_cast<unsigned char>(c) >= 0x80)) {
      out += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string quote_word(std::string_view word) {
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  if (std::any_of(word.begin(), word.end(), is_control) || !is_utf8(word)) return quote_bytes(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

Json command_json(const std::vector<std::string>& words) {
  Json out = Json::array();
  for (const std::string& word : words) {
    if (is_utf8(word)) {
      out.push_back(word);
      continue;
    }
    std::string hex;
    append_hex(word, &hex);
    Json bytes;
    bytes["hex"] = std::move(hex);
    out.push_back(std::move(bytes));
  }
  return out;
}

std::optional<std::string> word_from_json(const Json& entry) {
  if (entry.is_text()) return entry.get<std::string>();
  if (!entry.is_object() || entry.size() != 1 || !entry["hex"].is_text()) return std::nullopt;
  return bytes_from_hex(entry["hex"].get<std::string>());
}

std::string shell_quote(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ' ';
    out += quote_word(word);
  }
  return out;
}

}  // namespace gpucast
