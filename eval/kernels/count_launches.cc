// What the launches of a program of cases do, as counted from their PTX: a line of JSON for each launch in order.
//
//   count_launches CAPTURE CARD: the launches between two launches of `case_mark_kernel`, where the first has more than one block. The
//   number of a case is the number of blocks - 1. eval/kernels/measure_counters.py is such a program.
//
// eval/kernels/compare_counters.py compiles this with the library and runs it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/trace.h"
#include "src/base/json.h"
#include "src/kernels/counted_work.h"
#include "src/kernels/kernel_counts.h"
#include "src/time/duration.h"
#include "src/work/counted_kernels.h"

namespace {

using gpucast::KernelCounts;
using gpucast::KernelLaunch;

void add_counts(const KernelCounts& counts, gpucast::Json* line) {
  gpucast::Json& out = *line;
  out["blocks"] = counts.blocks;
  out["warps"] = counts.warps;
  out["load_sectors"] = counts.load_sectors;
  out["store_sectors"] = counts.store_sectors;
  out["atomic_sectors"] = counts.atomic_sectors;
  out["async_load_bytes"] = counts.async_load_bytes;
  out["async_store_bytes"] = counts.async_store_bytes;
  out["tile_bytes"] = counts.tile_bytes;
  out["unique_load_bytes"] = counts.unique_load_bytes;
  out["unique_store_bytes"] = counts.unique_store_bytes;
  out["block_load_bytes"] = counts.block_load_bytes;
  out["block_store_bytes"] = counts.block_store_bytes;
  out["shared_wavefronts"] = counts.shared_wavefronts;
  out["tensor_flops"] = std::accumulate(counts.tensor_flops.begin(), counts.tensor_flops.end(), 0.0);
  out["instructions"] = counts.fp32 + counts.fp16 + counts.fp64 + counts.integer + counts.special + counts.control + counts.memory;
  out["memory_instructions"] = counts.memory;
  out["assumed"] = counts.assumed_values;
  out["limit"] = counts.limit;
  out["not_understood"] = counts.not_understood;
}

void print_launches(const char* path, const char* card_name) {
  const gpucast::Trace trace = gpucast::read_trace(path);
  const gpucast::ObservedStep& step = trace.observed;
  const gpucast::CardRates card = gpucast::card_rates(gpucast::find_gpu(card_name));
  std::map<int64_t, std::shared_ptr<const gpucast::PtxModule>> modules;
  int64_t inside = 0;
  for (const gpucast::Work& work : step.work) {
    if (work.kind != gpucast::WorkKind::kernel && work.kind != gpucast::WorkKind::call) continue;
    const std::string name(trace.strings.text(work.name));
    if (name == "case_mark_kernel") {
      inside = static_cast<int64_t>(work.grid[0]) - 1;
      continue;
    }
    if (inside == 0) continue;
    gpucast::Json line = gpucast::Json::object();
    line["case"] = inside;
    line["kernel"] = name;
    line["grid"] = std::vector<uint32_t>(work.grid.begin(), work.grid.end());
    line["block"] = std::vector<uint32_t>(work.block.begin(), work.block.end());
    line["compiled"] = work.compiled >= 0;
    const gpucast::CompiledKernel kernel =
        work.compiled >= 0 ? step.compiled[static_cast<size_t>(work.compiled)] : gpucast::CompiledKernel{};
    const auto ptx = step.codes.find(kernel.code);
    if (ptx != step.codes.end()) {
      try {
        if (!modules.contains(kernel.code)) modules[kernel.code] = gpucast::parse_ptx(ptx->second);
        std::vector<const gpucast::KnownValues*> known;
        for (const int64_t id : work.values) {
          const auto values = step.values.find(id);
          if (values != step.values.end()) known.push_back(&values->second);
        }
        const auto shared = static_cast<uint32_t>(std::min<int64_t>(work.size_bytes, UINT32_MAX));
        const KernelLaunch launch = {work.grid, work.block, shared, work.parameters};
        const KernelCounts counts = gpucast::count_kernel(*modules[kernel.code], name, launch, gpucast::value_in(known));
        add_counts(counts, &line);
        line["registers"] = kernel.registers;
        line["shared_bytes"] = kernel.static_shared_bytes + work.size_bytes;
        gpucast::Operation operation;
        operation.kind = gpucast::kind_of_compiled(name, gpucast::OperationKind::compiled);
        gpucast::set_counted(counts, launch, kernel.registers, kernel.static_shared_bytes, &operation);
        line["predicted_ns"] = gpucast::operation_duration(operation, card).expected_ns;
        // Where nothing is in L2 before the launch, as under Nsight Compute.
        const double read_ns = 1e9 * counts.unique_load_bytes / (card.dram_bytes_per_s * card.counted.dram_fraction);
        line["cold_ns"] = std::max(line["predicted_ns"].get<double>(), card.counted.floor_ns + read_ns);
      } catch (const gpucast::Error& error) {
        line["problem"] = error.what();
      }
    }
    fmt::print("{}\n", line.dump());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: count_launches CAPTURE CARD\n");
    return 2;
  }
  try {
    print_launches(argv[1], argv[2]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
