// The constants of the time model: numbers under names like "gemm.fp16.k_overhead", in three layers, the later over the earlier: operation
// and precision; architecture; card. docs/reference/time-constants.md has the format.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "gpucast/gpu.h"
#include "src/time/operation.h"

namespace gpucast {

class Constants {
 public:
  // All layers of this card. `file_json`: the user's constants, which replace built-in ones; "" for none. Throws Error for a value that is
  // no finite positive number.
  Constants(const Gpu& gpu, const std::string& file_json);

  // Throws Error where no layer has it.
  double rate(std::string_view name) const;
  double of_operation(OperationKind kind, Precision precision, std::string_view name) const;
  bool has_card_layer() const { return has_card_layer_; }
  // The file gives the card other rates, or other constants of products or attention.
  bool changes_products() const { return changes_products_; }

 private:
  std::unordered_map<std::string, double> numbers_;
  std::string card_;
  bool has_card_layer_ = false, changes_products_ = false;
};

}  // namespace gpucast
