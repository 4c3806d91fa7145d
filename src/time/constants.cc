#include "src/time/constants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <unordered_set>

#include "architectures_json.h"
#include "cards_json.h"
#include "gpucast/error.h"
#include "operations_json.h"
#include "src/base/constants_file.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

// {"rates": {...}, "KIND": {"all": {...}, "PRECISION": {...}}}: a constant under "all" is for each precision without its own value.
void take_layer(const Json& layer, const std::string& where, const ConstantNames* known, ConstantNumbers* out) {
  if (!layer.is_object()) reject_constants("a layer of constants is no object", where);
  for (size_t i = 0; i < layer.size(); ++i) {
    const std::string& key = layer.keys()[i];
    if (key == "measured") {
      if (!layer.at(i).is_boolean()) reject_constants(fmt::format("'measured' is {}, neither true nor false", layer.at(i).dump()), where);
      continue;
    }
    if (key == "rates") {
      read_constant_group(layer.at(i), key, where, known, out);
      continue;
    }
    if (operation_kind_from_name(key) == OperationKind::count_)
      reject_constants(fmt::format("no kind of operation is named '{}'", key), where);
    const Json& kind = layer.at(i);
    if (!kind.is_object()) reject_constants(fmt::format("'{}' is no object", key), where);
    if (const Json* all = kind.find("all")) {
      for (size_t p = 0; p < static_cast<size_t>(Precision::count_); ++p) {
        read_constant_group(*all, fmt::format("{}.{}", key, precision_name(static_cast<Precision>(p))), where, known, out);
      }
    }
    for (size_t j = 0; j < kind.size(); ++j) {
      const std::string& precision = kind.keys()[j];
      if (precision == "all") continue;
      if (precision_from_name(precision) == Precision::count_)
        reject_constants(fmt::format("no precision is named '{}'", precision), where);
      read_constant_group(kind.at(j), fmt::format("{}.{}", key, precision), where, known, out);
    }
  }
}

struct BuiltIn {
  Json operations = parse_built_in_constants(kOperationsJson, "data/time/operations.json");
  Json architectures = parse_built_in_constants(kArchitecturesJson, "data/time/architectures.json");
  Json cards = parse_built_in_constants(kCardsJson, "data/time/cards.json");
  ConstantNames names;  // of all constants

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

// This card's entry in the file's "cards"; nullptr: there is none. Cards may be named as on the command line; a name of no card is an
// Error.
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
    if (!ids.insert(id).second) reject_constants(fmt::format("'{}' is '{}', which stands there already", key, id), kWhere);
    if (id == gpu.id || (id == gpu.constants_of && found == nullptr)) found = &cards.at(i);
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
  const Json file = parse_constants_file(file_json);
  for (const char* key : {"architectures", "cards"}) {
    const Json* layers = file.find(key);
    if (layers != nullptr && !layers->is_object()) reject_constants(fmt::format("'{}' is no object", key), "the constants file");
  }
  if (const Json* layers = file.find("architectures")) check_architectures(*layers, built_in.architectures["architectures"], gpu);
  const std::string capability = capability_of(gpu);
  // A card of an unmeasured architecture gets the constants of the nearest older one. The file lists architectures from the oldest to the
  // newest.
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
  // null in the file removes the card's built-in layer: the card then counts as unmeasured.
  const Json* own = layer_of_card(file["cards"], gpu);
  const std::string& measured_id = gpu.constants_of.empty() ? gpu.id : gpu.constants_of;
  const Json* measured = built_in.cards["cards"].find(measured_id);
  bool is_measured = measured != nullptr && gpu.constants_are_own;
  // "like": the constants of a related card, so this card counts as unmeasured.
  while (measured != nullptr && measured->contains("like")) {
    is_measured = false;
    measured = built_in.cards["cards"].find((*measured)["like"].get<std::string>());
  }
  const bool removed = own != nullptr && own->is_null();
  if (measured != nullptr && !removed) take_layer(*measured, "data/time/cards.json, " + measured_id, nullptr, &numbers_);
  if (own != nullptr && !removed) take_layer(*own, "the constants file, cards, " + gpu.id, &built_in.names, &numbers_);
  // A built-in layer with "measured": false was copied from a related card, so the card counts as unmeasured, too.
  is_measured = is_measured && measured->value("measured", true);
  has_card_layer_ = !removed && (own != nullptr || is_measured);
  if (file_json.empty()) return;
  const Constants unchanged(gpu, "");
  changes_products_ = std::any_of(numbers_.begin(), numbers_.end(), [&](const auto& number) {
    const auto& [name, value] = number;
    const bool is_rate = name.starts_with("rates.") && name.find("_low") == std::string::npos && name.find("_high") == std::string::npos;
    if (!is_rate && !name.starts_with("gemm.") && !name.starts_with("attention.")) return false;
    const auto before = unchanged.numbers_.find(name);
    return name != "rates.correction_share" && (before == unchanged.numbers_.end() || before->second != value);
  });
}

double Constants::rate(std::string_view name) const {
  const auto found = numbers_.find(fmt::format("rates.{}", name));
  if (found == numbers_.end()) reject_constants(fmt::format("no layer has the constant 'rates.{}'", name), "constants for " + card_);
  return found->second;
}

double Constants::of_operation(OperationKind kind, Precision precision, std::string_view name) const {
  const std::string key = fmt::format("{}.{}.{}", operation_kind_name(kind), precision_name(precision), name);
  const auto found = numbers_.find(key);
  if (found == numbers_.end()) reject_constants(fmt::format("no layer has the constant '{}'", key), "constants for " + card_);
  return found->second;
}

}  // namespace gpucast
