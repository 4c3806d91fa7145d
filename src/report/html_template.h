// The pages of web/, each an HTML file with markers for the data. Made at build time (web/build.mjs); "" if GPUCAST_WEB is off.
#pragma once

#include <string_view>

namespace gpucast {

std::string_view html_template();
std::string_view sweep_template();
std::string_view job_template();
std::string_view cases_template();

}  // namespace gpucast
