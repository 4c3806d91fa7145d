// The pages of web/, each one HTML file with places for data. Made at build time (web/build.mjs); "" when GPUCAST_WEB is off.
#pragma once

#include <string_view>

namespace gpucast {

std::string_view html_template();
std::string_view sweep_template();

}  // namespace gpucast
