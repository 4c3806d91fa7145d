#include "src/base/find_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "gpucast/error.h"
#include "gpucast/gpu.h"

namespace gpucast {

std::string letters_and_digits(const std::string& name) {
  std::string key;
  for (unsigned char c : name) {
    if (std::isalnum(c) != 0) key += static_cast<char>(std::tolower(c));
  }
  return key;
}

namespace {

// "4070" of "rtx4070ti": a name's first number, which is the model.
std::string model_number(const std::string& key) {
  const auto begin = std::ranges::find_if(key, [](unsigned char c) { return std::isdigit(c) != 0; });
  const auto end = std::find_if(begin, key.end(), [](unsigned char c) { return std::isdigit(c) == 0; });
  return {begin, end};
}

std::string before_number(const std::string& key) { return key.substr(0, key.find_first_of("0123456789")); }

// The closest key with the same letters and model number, whatever follows; else the closest of all.
std::optional<std::string> nearest_key(const std::string& wanted, const std::vector<std::string>& keys) {
  constexpr size_t kLeastModelDigits = 3;
  const std::string model = model_number(wanted);
  std::vector<std::string> family;
  for (const std::string& key : keys)
    if (model.size() >= kLeastModelDigits && model_number(key) == model && before_number(key) == before_number(wanted))
      family.push_back(key);
  if (family.empty()) return did_you_mean(wanted, keys);
  return *std::ranges::min_element(family, {}, [&](const std::string& key) { return edit_distance(wanted, key); });
}

}  // namespace

size_t find_named_row(const NamedTable& table, const std::string& wanted, const std::string& typed) {
  const std::string unknown = fmt::format("no {} is named '{}'", table.noun, typed);
  std::vector<std::string> begins_so;  // rows whose names begin with it: "a100" is a family
  std::vector<std::string> keys;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const NamedRow& row = table.rows[i];
    bool begins = false;
    for (const std::string& key : row.keys) {
      if (!wanted.empty() && key == wanted) return i;
      begins = begins || key.rfind(wanted, 0) == 0;
      keys.push_back(key);
    }
    if (begins) begins_so.push_back(row.id);
  }
  if (wanted.empty()) throw Error(unknown, "", table.command + " lists the names");
  if (begins_so.size() > 1) {
    throw Error(fmt::format("'{}' may be any of several {}s: {}", typed, table.noun, fmt::join(begins_so, ", ")), "", "name one of them");
  }
  // "l40" is the begin of "l40s", which is another card. So a single match is only a suggestion.
  std::optional<std::string> near;
  if (begins_so.size() == 1) {
    near = begins_so[0];
  } else if (const auto key = nearest_key(wanted, keys)) {
    for (const NamedRow& row : table.rows) {
      if (!near && std::ranges::find(row.keys, *key) != row.keys.end()) near = row.id;
    }
  }
  throw Error(
      unknown, "",
      near ? fmt::format("did you mean '{}'? {} lists all names", *near, table.command) : fmt::format("{} lists the names", table.command));
}

}  // namespace gpucast
