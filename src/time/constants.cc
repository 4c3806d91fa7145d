#include "src/time/constants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "architectures_json.h"
#include "cards_json.h"
#include "gpucast/error.h"
#include "operations_json.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

using Numbers = std::unordered_map<std::string, double>;
using Names = std::unordered_set<std::string>;  // "rates.launch_ns", "gemm.floor_cycles": of any precision

[[noreturn]] void reject(const std::string& what, const std::string& where) {
  throw Error(what, where, "correct the constants file: docs/reference/time-constants.md says what stands in it");
}

// Which side of 1 a bound of measured over expected time lies on: -1 for "low", "step_low_datasheet"; 1 for high ones; 0: it is none.
int side_of_one(std::string_view name) {
  if (name.starts_with("step_")) name.remove_prefix(5);
  if (name.ends_with("_datasheet")) name.remove_suffix(10);
  return name == "low" ? -1 : name == "high" ? 1 : 0;
}

// {"name": 0.8, ..., "source": "..."}: each name, behind `prefix`, becomes a number above 0. `known`: nullptr for the built-in files, which
// say what there is.
void take_numbers(const Json& group, const std::string& prefix, const std::string& where, const Names* known, Numbers* out) {
  if (!group.is_object()) reject(fmt::format("'{}' is no object of numbers", prefix), where);
  if (group["source"].get<std::string>().empty()) reject(fmt::format("the constants of '{}' have no \"source\"", prefix), where);
  for (size_t i = 0; i < group.size(); ++i) {
    const std::string& name = group.keys()[i];
    if (name == "source") continue;
    const std::string of_kind = fmt::format("{}.{}", prefix.substr(0, prefix.find('.')), name);
    if (known != nullptr && !known->contains(of_kind)) reject(fmt::format("no constant is named '{}'", of_kind), where);
    const Json& value = group.at(i);
    const auto number = value.get<double>();
    if (!value.is_number() || !std::isfinite(number) || number <= 0) {
      reject(fmt::format("the constant '{}.{}' is {}, not a finite number above 0", prefix, name, value.dump()), where);
    }
    if (const int side = side_of_one(name); side * (number - 1) < 0) {
      reject(fmt::format("the constant '{}.{}' is {}, {} 1: the expected time would lie outside of its interval", prefix, name,
                         value.dump(), side < 0 ? "above" : "below"),
             where);
    }
    (*out)[fmt::format("{}.{}", prefix, name)] = number;
  }
}

// {"rates": {...}, "KIND": {"all": {...}, "PRECISION": {...}}}: what stands under "all" is for each precision that does not say otherwise.
void take_layer(const Json& layer, const std::string& where, const Names* known, Numbers* out) {
  if (!layer.is_object()) reject("a layer of constants is no object", where);
  for (size_t i = 0; i < layer.size(); ++i) {
    const std::string& key = layer.keys()[i];
    if (key == "measured") {
      if (!layer.at(i).is_boolean()) reject(fmt::format("'measured' is {}, neither true nor false", layer.at(i).dump()), where);
      continue;
    }
    if (key == "rates") {
      take_numbers(layer.at(i), key, where, known, out);
      continue;
    }
    if (operation_kind_from_name(key) == OperationKind::count_) reject(fmt::format("no kind of operation is named '{}'", key), where);
    const Json& kind = layer.at(i);
    if (!kind.is_object()) reject(fmt::format("'{}' is no object", key), where);
    if (const Json* all = kind.find("all")) {
      for (size_t p = 0; p < static_cast<size_t>(Precision::count_); ++p) {
        take_numbers(*all, fmt::format("{}.{}", key, precision_name(static_cast<Precision>(p))), where, known, out);
      }
    }
    for (size_t j = 0; j < kind.size(); ++j) {
      const std::string& precision = kind.keys()[j];
      if (precision == "all") continue;
      if (precision_from_name(precision) == Precision::count_) reject(fmt::format("no precision is named '{}'", precision), where);
      take_numbers(kind.at(j), fmt::format("{}.{}", key, precision), where, known, out);
    }
  }
}

Json parse_file(const std::string& text, const char* where) {
  Json file = Json::parse(text);
  if (!file.is_object()) reject("the constants are no JSON object (JSON has no NaN)", where);
  return file;
}

struct BuiltIn {
  Json operations = parse_file(kOperationsJson, "data/time/operations.json");
  Json architectures = parse_file(kArchitecturesJson, "data/time/architectures.json");
  Json cards = parse_file(kCardsJson, "data/time/cards.json");
  Names names;  // of all constants

  BuiltIn() {
    take_names(operations["operations"]);
    for (const Json& layer : architectures["architectures"]) take_names(layer);
    for (const Json& layer : cards["cards"]) take_names(layer);
  }

 private:
  void take_names(const Json& layer) {
    for (size_t i = 0; i < layer.size(); ++i) {
      const std::string& key = layer.keys()[i];
      const auto take = [&](const Json& group) {
        for (const std::string& name : group.keys()) names.insert(fmt::format("{}.{}", key, name));
      };
      if (key == "rates") {
        take(layer.at(i));
      } else {
        for (const Json& group : layer.at(i)) take(group);
      }
    }
  }
};

std::string capability_of(const Gpu& gpu) { return fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor); }

// The entry of this card in the file's "cards", which may name it as the command line may; nullptr: there is none. Every name must be a
// card's.
const Json* layer_of_card(const Json& cards, const Gpu& gpu) {
  constexpr const char* kWhere = "the constants file, cards";
  std::unordered_set<std::string> ids;
  const Json* found = nullptr;
  for (size_t i = 0; i < cards.size(); ++i) {
    const std::string& key = cards.keys()[i];
    std::string id = gpu.id;
    if (key != gpu.id) {
      try {
        id = find_gpu(key).id;
      } catch (const Error& error) {
        throw Error(error.what(), kWhere, error.hint);
      }
    }
    if (!ids.insert(id).second) reject(fmt::format("'{}' is '{}', which stands there already", key, id), kWhere);
    if (id == gpu.id) found = &cards.at(i);
  }
  return found;
}

// Every key of the file's "architectures" must be one that is built in, or a card's.
void check_architectures(const Json& architectures, const Json& built_in, const Gpu& gpu) {
  for (const std::string& key : architectures.keys()) {
    bool known = built_in.contains(key) || key == capability_of(gpu);
    for (const Gpu& card : gpu_table()) known = known || key == capability_of(card);
    if (!known) {
      throw Error(fmt::format("no card's compute capability is '{}'", key), "the constants file, architectures",
                  fmt::format("name one of {}", fmt::join(built_in.keys(), ", ")));
    }
  }
}

}  // namespace

Constants::Constants(const Gpu& gpu, const std::string& file_json) : card_(gpu.id) {
  static const BuiltIn built_in;
  Json file = Json::object();
  if (!file_json.empty()) {
    file = parse_file(file_json, "the constants file");
    for (const std::string& key : file.keys()) {
      if (key != "schema_version" && key != "operations" && key != "architectures" && key != "cards" && key != "source") {
        reject(fmt::format("'{}' is none of operations, architectures, cards", key), "the constants file");
      }
    }
    if (file.value("schema_version", 0) != 1) reject("the constants' schema_version is not 1", "the constants file");
    for (const char* key : {"architectures", "cards"}) {
      const Json* layers = file.find(key);
      if (layers != nullptr && !layers->is_object()) reject(fmt::format("'{}' is no object", key), "the constants file");
    }
    if (const Json* layers = file.find("architectures")) check_architectures(*layers, built_in.architectures["architectures"], gpu);
  }
  const std::string capability = capability_of(gpu);
  // A card of an architecture nobody measured is taken as its nearest older relative. The file has them from the oldest on.
  std::string architecture;
  for (const std::string& key : built_in.architectures["architectures"].keys()) {
    const double version = std::strtod(key.c_str(), nullptr);
    if (architecture.empty() || version <= std::strtod(capability.c_str(), nullptr)) architecture = key;
  }
  take_layer(built_in.operations["operations"], "data/time/operations.json", nullptr, &numbers_);
  if (const Json* layer = file.find("operations")) take_layer(*layer, "the constants file, operations", &built_in.names, &numbers_);
  take_layer(built_in.architectures["architectures"][architecture.c_str()], "data/time/architectures.json, " + architecture, nullptr,
             &numbers_);
  for (const std::string& key : {architecture, capability}) {
    const Json* layer = file["architectures"].find(key);
    if (layer != nullptr) take_layer(*layer, "the constants file, architectures, " + key, &built_in.names, &numbers_);
    if (architecture == capability) break;
  }
  // null in the file takes the built-in layer away: the card as if nobody had measured it.
  const Json* own = layer_of_card(file["cards"], gpu);
  const Json* measured = built_in.cards["cards"].find(gpu.id);
  const bool removed = own != nullptr && own->is_null();
  if (measured != nullptr && !removed) take_layer(*measured, "data/time/cards.json, " + gpu.id, nullptr, &numbers_);
  if (own != nullptr && !removed) take_layer(*own, "the constants file, cards, " + gpu.id, &built_in.names, &numbers_);
  // A card that is taken as a relative of its own generation is none that was measured.
  const bool is_measured = measured != nullptr && measured->value("measured", true);
  has_card_layer_ = !removed && (own != nullptr || is_measured);
}

double Constants::rate(std::string_view name) const {
  const auto found = numbers_.find(fmt::format("rates.{}", name));
  if (found == numbers_.end()) reject(fmt::format("no layer has the constant 'rates.{}'", name), "constants for " + card_);
  return found->second;
}

double Constants::of(OperationKind kind, Precision precision, std::string_view name) const {
  const std::string key = fmt::format("{}.{}.{}", operation_kind_name(kind), precision_name(precision), name);
  const auto found = numbers_.find(key);
  if (found == numbers_.end()) reject(fmt::format("no layer has the constant '{}'", key), "constants for " + card_);
  return found->second;
}

}  // namespace gpucast
