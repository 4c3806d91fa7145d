// Names of modules that differ by the number of a layer.
#pragma once

#include <string>
#include <string_view>

namespace gpucast {

// "blocks.3.mlp.0 (Linear)" -> "blocks.*.mlp.0 (Linear)": replaces the layer's number.
std::string without_layer(std::string_view name);

}  // namespace gpucast
