#include "src/work/counted_kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

#include "gpucast/error.h"
#include "src/kernels/counted_work.h"

namespace gpucast {

KnownValue value_in(std::span<const KnownValues* const> known) {
  if (known.empty()) return {};
  return [known](uint64_t address, int bytes) -> std::optional<uint64_t> {
    for (const KnownValues* one : known) {
      if (const auto value = integer_in(one->bytes, address - one->address, static_cast<size_t>(bytes))) return value;
    }
    return std::nullopt;
  };
}

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
                                                          const MachineCode& machine_code, std::span<const KnownValues* const> known) {
  const auto module = modules_.find(code);
  if (module == modules_.end() || module->second == nullptr) return std::nullopt;
  std::string sizes = fmt::format("{} {} {} {} {} {} {} ", kernel, launch.grid, launch.block, launch.dynamic_shared_bytes,
                                  machine_code.registers, machine_code.static_shared_bytes, machine_code.local_bytes);
  for (const KnownValues* one : known) sizes += fmt::format("{} {} ", one->address, std::hash<std::string>{}(one->bytes));
  const auto [found, added] = operations_.try_emplace({code, sizes + launch.parameters});
  if (!added) return found->second;
  const KernelCounts counts = count_kernel(*module->second, kernel, launch, value_in(known));
  if (!counts.limit.empty() || !counts.not_understood.empty() || counts.blocks <= 0) return std::nullopt;
  CountedOperation out;
  out.assumed = counts.assumed_values;
  out.operation.kind = kind_of_compiled(kernel, OperationKind::compiled);
  set_counted(counts, launch, machine_code, &out.operation);
  found->second = out;
  return out;
}

}  // namespace gpucast
