// The whole numbers that a launch of a kernel leaves in device memory. All its threads are run, in the order of its blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/kernels/kernel_counts.h"

namespace gpucast {

enum class WhyNot : uint8_t {
  none,
  no_numbers,  // the kernel stores no whole numbers that follow from what is known
  unknown,     // a value that is not known decides where the launch stores, or what it does
  too_long,    // for the few numbers that it stores
};

struct FoundNumbers {
  WhyNot why_not = WhyNot::none;
  std::vector<StoredNumbers> stored;  // by address
};

// Whether a launch of this kernel can store any; `module` as below.
bool may_store_numbers(const PtxModule& module, std::string_view name);

// `module` from parse_ptx_with_stored_numbers. `known`: what device memory holds before the launch. Never throws for bad code, and ends
// after a bounded number of steps.
FoundNumbers find_stored_numbers(const PtxModule& module, std::string_view name, const KernelLaunch& launch, const KnownValue& known);

}  // namespace gpucast
