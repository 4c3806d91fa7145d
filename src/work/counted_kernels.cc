#include "src/work/counted_kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gpucast/error.h"
#include "src/kernels/counted_work.h"

namespace gpucast {

OperationKind kind_of_compiled(std::string_view name, OperationKind otherwise) {
  return name.starts_with("triton_for_")                                      ? OperationKind::optimizer
         : name.starts_with("triton_red_")                                    ? OperationKind::reduction
         : name.starts_with("triton_poi_") || name.starts_with("triton_per_") ? OperationKind::elementwise
                                                                              : otherwise;
}

void CountedKernels::add_code(const std::string& code, std::string_view ptx) {
  const auto [found, added] = modules_.try_emplace(code, nullptr);
  if (!added) return;
  try {
    found->second = parse_ptx(ptx);
  } catch (const Error&) {
    found->second = nullptr;  // its launches are estimated in other ways
  }
}

std::optional<CountedOperation> CountedKernels::operation(const std::string& code, const std::string& kernel, const KernelLaunch& launch,
                                                          int registers, int64_t static_shared_bytes) {
  const auto module = modules_.find(code);
  if (module == modules_.end() || module->second == nullptr) return std::nullopt;
  const std::string sizes =
      fmt::format("{} {} {} {} {} {} ", kernel, launch.grid, launch.block, launch.dynamic_shared_bytes, registers, static_shared_bytes);
  const auto [found, added] = operations_.try_emplace({code, sizes + launch.parameters});
  if (!added) return found->second;
  const KernelCounts counts = count_kernel(*module->second, kernel, launch);
  if (!counts.limit.empty() || !counts.not_understood.empty() || counts.blocks <= 0) return std::nullopt;
  CountedOperation out;
  out.assumed = counts.assumed_values;
  out.operation.kind = kind_of_compiled(kernel, OperationKind::compiled);
  set_counted(counts, launch, registers, static_shared_bytes, &out.operation);
  found->second = out;
  return out;
}

}  // namespace gpucast
