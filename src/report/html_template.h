// The page of web/, as one HTML file with places for data. Made at build time (web/build.mjs); "" when GPUCAST_WEB is off.
#pragma once

#include <string_view>

namespace gpucast {

std::string_view html_template();

}  // namespace gpucast
