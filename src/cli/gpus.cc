// `gpucast gpus`: the device table.

#include <fmt/core.h>

#include <string>

#include "gpucast/gpu.h"
#include "src/base/gpu_json.h"
#include "src/cli/subcommand.h"

namespace gpucast::cli {
namespace {

constexpr double kGiB = 1 << 30, kMiB = 1 << 20;

std::string rate(const Gpu& gpu, const char* type) {
  const auto found = gpu.peak_flop_per_s.find(type);
  return found == gpu.peak_flop_per_s.end() ? "-" : fmt::format("{:.1f}", found->second / 1e12);
}

void print_text() {
  fmt::print("{:<13} {:<30} {:>4} {:>4} {:>8} {:>6} {:>5} {:>6} {:>6} {:>6} {:>6} {:>7}\n", "", "", "", "", "memory", "GB/s", "L2",
             "TFLOP/s", "", "", "", "");
  fmt::print("{:<13} {:<30} {:>4} {:>4} {:>8} {:>6} {:>5} {:>6} {:>6} {:>6} {:>6} {:>7}\n", "--gpu", "name", "cap.", "SMs", "GiB", "",
             "MiB", "fp32", "tf32", "fp16", "fp8", "int8");
  for (const Gpu& gpu : gpu_table()) {
    fmt::print("{:<13} {:<30} {:>4} {:>4} {:>8} {:>6.0f} {:>5.0f} {:>6} {:>6} {:>6} {:>6} {:>7}\n", gpu.id, gpu.name,
               fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor), gpu.multiprocessors,
               fmt::format("{}{:.2f}", gpu.total_memory_measured ? "" : "~", static_cast<double>(gpu.total_memory_bytes) / kGiB),
               gpu.bandwidth_bytes_per_s / 1e9, static_cast<double>(gpu.l2_bytes) / kMiB, rate(gpu, "fp32"), rate(gpu, "tf32"),
               rate(gpu, "fp16"), rate(gpu, "fp8"), rate(gpu, "int8"));
  }
  fmt::print(
      "\nMemory as CUDA reports it (~ estimated). Peak rates without sparsity; bf16 as fp16 from capability 8.0 on.\n"
      "Exact figures, limits and sources: gpucast gpus --format json\n");
}

void print_json() {
  Json table;
  table["schema_version"] = 1;
  table["gpus"] = Json::array();
  for (const Gpu& gpu : gpu_table()) {
    Json row;
    row["id"] = gpu.id;
    row["name"] = gpu.name;
    row["architecture"] = gpu.architecture;
    row["compute_capability"] = fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor);
    add_gpu_figures(gpu, &row);
    row["power_w"] = gpu.power_w;
    row["sources"] = gpu.sources;
    table["gpus"].push_back(std::move(row));
  }
  fmt::print("{}\n", table.dump(2));
}

}  // namespace

void declare_gpus(Arguments& arguments) {
  static std::string format = "text";
  arguments.option("--format", &format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.action([] {
    if (format == "json") {
      print_json();
    } else {
      print_text();
    }
    return 0;
  });
}

}  // namespace gpucast::cli
