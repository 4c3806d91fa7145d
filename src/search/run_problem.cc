#include "src/search/run_problem.h"

#include <fmt/core.h>

namespace gpucast::search {
namespace {

// The last line that says something; lines of a progress bar end in "\r".
std::string last_said_line(const std::string& text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string::npos) return "";
  const size_t before = text.find_last_of("\r\n", last);
  const size_t begin = text.find_first_not_of(" \t", before == std::string::npos ? 0 : before + 1);
  return text.substr(begin, last + 1 - begin);
}

}  // namespace

std::string run_problem(const Run& run) {
  const std::string said = last_said_line(run.printed), message = run.problem ? run.problem->message : "the run failed";
  return said.empty() || message.find(said) != std::string::npos ? message : fmt::format("{}: {}", message, said);
}

}  // namespace gpucast::search
