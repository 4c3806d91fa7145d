// `gpucast gpus --for` as text and as JSON. docs/reference/gpus.md is the contract.
#pragma once

#include <string>
#include <vector>

#include "src/search/rent.h"

namespace gpucast::cli {

struct RentReport {
  std::vector<search::RentRow> rows;  // ranked
  std::vector<std::string> runs;      // lines that the user can paste; empty: from captures
};

std::string rent_text(const RentReport& report, bool colour);
std::string rent_json(const RentReport& report);
bool some_judged(const RentReport& report);
bool some_fit(const RentReport& report);

}  // namespace gpucast::cli
