#include "src/check/reports.h"

namespace gpucast::check {

const std::vector<std::string>& report_names() {
  static const std::vector<std::string> names{"text", "json", "sarif", "junit", "markdown"};
  return names;
}

std::string report_as(std::string_view name, const CheckResult& result) {
  if (name == "json") return check_json(result);
  if (name == "sarif") return check_sarif(result);
  if (name == "junit") return check_junit(result);
  if (name == "markdown") return check_markdown(result);
  return check_text(result, false);
}

}  // namespace gpucast::check
