// A check as text for people, and in the forms that CI systems read (docs/reference/check.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/check/result.h"

namespace gpucast::check {

std::string check_text(const CheckResult& result, bool colour);
std::string check_json(const CheckResult& result);
std::string check_sarif(const CheckResult& result);  // 2.1.0
std::string check_junit(const CheckResult& result);
std::string check_markdown(const CheckResult& result);  // a comment for a pull request

// The report with this name: one of report_names(). Never coloured.
std::string report_as(std::string_view name, const CheckResult& result);
const std::vector<std::string>& report_names();

}  // namespace gpucast::check
