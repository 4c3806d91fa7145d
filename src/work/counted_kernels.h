// Operations of launches whose kernel's code (PTX) is known: counted once for each launch that differs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "gpucast/trace.h"
#include "src/kernels/kernel_counts.h"
#include "src/time/operation.h"

namespace gpucast {

// Reads integers from these values, which must outlive it.
KnownValue value_in(std::span<const KnownValues* const> known);

// The kind of work, from the name that inductor gave the kernel; `otherwise` for other names.
OperationKind kind_of_compiled(std::string_view name, OperationKind otherwise);

struct CountedOperation {
  Operation operation;
  bool assumed = false;  // values that are not known decided its addresses or branches
};

class CountedKernels {
 public:
  // `code`: any name of the PTX, the same for each launch of it.
  void add_code(const std::string& code, std::string_view ptx);
  // `known`: what the launch's pointers lead to. Unset: the code was not added, is no PTX, or could not be counted.
  std::optional<CountedOperation> operation(const std::string& code, const std::string& kernel, const KernelLaunch& launch,
                                            const MachineCode& machine_code, std::span<const KnownValues* const> known = {});

 private:
  std::map<std::string, std::shared_ptr<const PtxModule>> modules_;                            // null: no PTX
  std::map<std::pair<std::string, std::string>, std::optional<CountedOperation>> operations_;  // by code, kernel, sizes and arguments
};

}  // namespace gpucast
