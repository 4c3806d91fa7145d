// Reads the device profile; core.h says what is in it.
#pragma once

#include <string>
#include <string_view>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

DeviceProfile default_profile();
// What the text does not name stays as in default_profile(). `problems` gets a line for each that could not be used.
DeviceProfile parse_profile(std::string_view text, std::string* problems);
// From the file that GPUCAST_VGPU_PROFILE names; problems go to stderr.
DeviceProfile read_profile();

}  // namespace gpucast::vgpu
