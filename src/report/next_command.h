// The command that is most useful after this report.
#pragma once

#include <string>
#include <vector>

#include "gpucast/prediction.h"

namespace gpucast {

struct NextCommand {
  std::string why;      // "is it exact? with the card's limit enforced:"
  std::string command;  // ready to paste
};

// `capture_path`: empty if the capture is not kept. The result is empty if there is no useful command.
std::vector<NextCommand> next_commands(const Prediction& prediction, const std::string& capture_path);

}  // namespace gpucast
