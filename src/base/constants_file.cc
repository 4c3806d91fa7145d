#include "src/base/constants_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"

namespace gpucast {
namespace {

constexpr const char* kUserFile = "the constants file";
constexpr const char* kConstantsPage = "docs/reference/time-constants.md";

// The sections of a user's file. Add a new section here.
const std::vector<std::string>& section_names() {
  static const std::vector<std::string> names = {"operations", "architectures", "cards", "network", "pack", "step", "loader", "power"};
  return names;
}

// The side of 1 on which a bound of measured / expected must be: -1 for "low" and "step_low_datasheet", 1 for high ones, 0: not a bound.
int side_of_one(std::string_view name) {
  for (const std::string_view part : {"step_", "guessed_", "unknown_", "window_"})
    if (name.starts_with(part)) name.remove_prefix(part.size());
  if (name.ends_with("_datasheet")) name.remove_suffix(10);
  return name == "low" ? -1 : name == "high" ? 1 : 0;
}

void check_number(const std::string& full_name, const std::string& name, const Json& value, const std::string& where) {
  const auto number = value.get<double>();
  if (!value.is_number() || !std::isfinite(number) || number <= 0)
    reject_constants(fmt::format("the constant '{}' is {}, not a finite number above 0", full_name, value.dump()), where);
  if (const int side = side_of_one(name); side * (number - 1) < 0)
    reject_constants(fmt::format("the constant '{}' is {}, {} 1: the expected value would lie outside of its interval", full_name,
                                 value.dump(), side < 0 ? "above" : "below"),
                     where);
}

}  // namespace

void reject_constants(const std::string& what, const std::string& where) {
  throw Error(what, where, fmt::format("correct the constants file: {} says what stands in it", kConstantsPage));
}

void reject_constants(const std::string& what, const std::string& where, const std::string& word,
                      const std::vector<std::string>& candidates) {
  const std::optional<std::string> meant = did_you_mean(word, candidates);
  if (!meant) reject_constants(what, where);
  throw Error(what, where, fmt::format("did you mean '{}'? {} says what a constants file holds", *meant, kConstantsPage));
}

Json parse_built_in_constants(const char* text, const std::string& where) {
  Json file = Json::parse(text);
  if (!file.is_object()) reject_constants("the constants are no JSON object (JSON has no NaN)", where);
  return file;
}

Json parse_constants_file(const std::string& text) {
  if (text.empty()) return Json::object();
  Json file = parse_built_in_constants(text.c_str(), kUserFile);
  for (const std::string& key : file.keys()) {
    if (key == "schema_version" || key == "source" || std::ranges::find(section_names(), key) != section_names().end()) continue;
    reject_constants(fmt::format("'{}' is none of {}", key, fmt::join(section_names(), ", ")), kUserFile, key, section_names());
  }
  if (file.value("schema_version", 0) != 1) reject_constants("the constants' schema_version is not 1", kUserFile);
  return file;
}

void read_constant_group(const Json& group, const std::string& group_name, const std::string& where, const ConstantNames* known,
                         ConstantNumbers* out) {
  if (!group.is_object()) reject_constants(fmt::format("'{}' is no object of numbers", group_name), where);
  if (group["source"].get<std::string>().empty())
    reject_constants(fmt::format("the constants of '{}' have no \"source\"", group_name), where);
  const std::string kind = group_name.substr(0, group_name.find('.'));
  for (size_t i = 0; i < group.size(); ++i) {
    const std::string& name = group.keys()[i];
    if (name == "source") continue;
    const std::string known_name = fmt::format("{}.{}", kind, name);
    if (known && !known->contains(known_name)) {
      std::vector<std::string> names(known->begin(), known->end());
      std::ranges::sort(names);
      reject_constants(fmt::format("no constant is named '{}'", known_name), where, known_name, names);
    }
    const std::string full_name = fmt::format("{}.{}", group_name, name);
    check_number(full_name, name, group.at(i), where);
    (*out)[full_name] = group.at(i).get<double>();
  }
}

ConstantSection::ConstantSection(const char* name, const char* built_in, const std::string& file) : name_(name) {
  const std::string data_file = fmt::format("data/{}.json", name);
  const Json built_in_json = parse_built_in_constants(built_in, data_file);
  const Json& groups = built_in_json[name];
  for (size_t i = 0; i < groups.size(); ++i) read_constant_group(groups.at(i), groups.keys()[i], data_file, nullptr, &numbers_);
  const Json file_json = parse_constants_file(file);
  const Json* users = file_json.find(name);
  if (!users) return;
  const std::string where = fmt::format("{}, {}", kUserFile, name);
  if (!users->is_object()) reject_constants(fmt::format("'{}' is no object", name), kUserFile);
  ConstantNames known;
  for (const auto& [full_name, number] : numbers_) known.insert(full_name);
  for (size_t i = 0; i < users->size(); ++i) {
    const std::string& group = users->keys()[i];
    if (!groups.contains(group)) reject_constants(fmt::format("no group of constants is named '{}'", group), where, group, groups.keys());
    read_constant_group(users->at(i), group, where, &known, &numbers_);
  }
}

double ConstantSection::number(std::string_view group, std::string_view name) const {
  const auto entry = numbers_.find(fmt::format("{}.{}", group, name));
  if (entry == numbers_.end())
    reject_constants(fmt::format("there is no constant '{}.{}'", group, name), fmt::format("data/{}.json", name_));
  return entry->second;
}

}  // namespace gpucast
