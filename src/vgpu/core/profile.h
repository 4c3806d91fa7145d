// Reads the device profile; core.h describes its fields.
#pragma once

#include <string>
#include <string_view>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

DeviceProfile default_profile();
// Fields that the text does not name keep their values of default_profile(). `problems` gets one line for each unusable line.
DeviceProfile parse_profile(std::string_view text, std::string* problems);
// From the file that GPUCAST_VGPU_PROFILE names; problems go to stderr.
DeviceProfile read_profile();

}  // namespace gpucast::vgpu
