#include "src/search/run_problem.h"

#include <fmt/core.h>

#include "src/run/batch_results.h"

namespace gpucast::search {

std::string run_problem(const Run& run) {
  const std::string said = run::last_line(run.printed), message = run.problem ? run.problem->message : "the run failed";
  return said.empty() || message.find(said) != std::string::npos ? message : fmt::format("{}: {}", message, said);
}

}  // namespace gpucast::search
