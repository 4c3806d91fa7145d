#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpucast {

// The precision of the arithmetic, not of the tensors in memory: fp32 numbers may be multiplied as tf32.
enum class Precision : uint8_t { fp64, fp32, tf32, fp16, bf16, fp8, int8, count_ };
inline constexpr size_t kPrecisionCount = static_cast<size_t>(Precision::count_);
const char* precision_name(Precision precision);
Precision precision_from_name(std::string_view name);  // count_: there is none

}  // namespace gpucast
