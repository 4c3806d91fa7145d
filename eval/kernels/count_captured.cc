// Which kernels of a capture's observed step the interpreter of PTX understands.
//
//   count_captured CAPTURE: a line of JSON for each kernel, with what its launches met.
//   count_captured --code FILE.ptx ...: the same for kernels that no launch is known of, from their code alone.
//
// eval/kernels/evaluate.py compiles this with the library and runs it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/trace.h"
#include "src/base/json.h"
#include "src/kernels/kernel_counts.h"
#include "src/kernels/ptx_code.h"
#include "src/work/counted_kernels.h"

namespace {

using gpucast::KernelCounts;
using gpucast::PtxModule;

struct Kernel {
  std::string ptx;
  int launches = 0, counted = 0, cut_off = 0, assumed = 0;  // launches that are equal are counted once
  std::set<std::string> met, in_code, limits;
  std::optional<std::string> problem;  // its code could not be read
};

std::shared_ptr<const PtxModule> parse(const std::string& ptx, std::optional<std::string>* problem) {
  try {
    return gpucast::parse_ptx(ptx);
  } catch (const gpucast::Error& error) {
    *problem = error.what();
    return nullptr;
  }
}

void add_code(const PtxModule* module, const std::string& name, Kernel* out) {
  if (module == nullptr) return;
  const auto kernel = module->kernels.find(name);
  if (kernel == module->kernels.end()) {
    out->problem = "the code has no kernel of this name";
    return;
  }
  out->in_code.insert(kernel->second.messages.begin(), kernel->second.messages.end());
}

gpucast::Json list(const std::set<std::string>& texts) { return std::vector<std::string>(texts.begin(), texts.end()); }

void print(const std::string& name, const Kernel& kernel) {
  gpucast::Json line = gpucast::Json::object();
  line["kernel"] = name;
  line["launches"] = kernel.launches;
  line["counted"] = kernel.counted;
  line["cut_off"] = kernel.cut_off;
  line["assumed"] = kernel.assumed;
  line["limits"] = list(kernel.limits);
  line["met"] = list(kernel.met);
  line["in_code"] = list(kernel.in_code);
  line["problem"] = kernel.problem.value_or("");
  line["ptx"] = kernel.ptx;
  fmt::print("{}\n", line.dump());
}

void count_capture(const char* path) {
  const gpucast::Trace trace = gpucast::read_trace(path);
  const gpucast::ObservedStep& step = trace.observed;
  std::map<int64_t, std::shared_ptr<const PtxModule>> modules;
  std::map<std::pair<std::string, int64_t>, Kernel> kernels;
  std::set<std::string> seen;
  for (const gpucast::Work& work : step.work) {
    if (work.kind != gpucast::WorkKind::kernel || work.compiled < 0) continue;
    const int64_t code = step.compiled[static_cast<size_t>(work.compiled)].code;
    const std::string name(trace.strings.text(work.name));
    const auto [found, added] = kernels.try_emplace({name, code});
    Kernel& kernel = found->second;
    ++kernel.launches;
    const auto ptx = step.codes.find(code);
    if (ptx == step.codes.end()) {
      kernel.problem = "its PTX is not in the capture";
      continue;
    }
    if (added) {
      kernel.ptx = ptx->second;
      if (!modules.contains(code)) modules[code] = parse(ptx->second, &kernel.problem);
      add_code(modules[code].get(), name, &kernel);
    }
    if (modules[code] == nullptr) continue;
    const auto launch =
        fmt::format("{} {} {} {} {} {} {}", code, name, work.grid, work.block, work.size_bytes, work.values, work.parameters);
    if (!seen.insert(launch).second) continue;
    ++kernel.counted;
    std::vector<const gpucast::KnownValues*> known;
    for (const int64_t id : work.values) {
      const auto values = step.values.find(id);
      if (values != step.values.end()) known.push_back(&values->second);
    }
    const auto shared = static_cast<uint32_t>(std::min<int64_t>(work.size_bytes, UINT32_MAX));
    const KernelCounts counts =
        gpucast::count_kernel(*modules[code], name, {work.grid, work.block, shared, work.parameters}, gpucast::value_in(known));
    kernel.met.insert(counts.not_understood.begin(), counts.not_understood.end());
    if (!counts.limit.empty()) ++kernel.cut_off, kernel.limits.insert(counts.limit);
    if (counts.assumed_values) ++kernel.assumed;
  }
  for (const auto& [name_and_code, kernel] : kernels) print(name_and_code.first, kernel);
}

void read_code(const char* path) {
  std::ifstream file(path, std::ios::binary);
  Kernel out;
  out.ptx.assign(std::istreambuf_iterator<char>(file), {});
  const std::shared_ptr<const PtxModule> module = parse(out.ptx, &out.problem);
  if (module == nullptr) return print(path, out);
  for (const auto& [name, code] : module->kernels) {
    Kernel kernel = out;
    add_code(module.get(), name, &kernel);
    print(name, kernel);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<const char*> words(argv + 1, argv + argc);
    if (words.size() > 1 && std::strcmp(words[0], "--code") == 0) {
      std::for_each(words.begin() + 1, words.end(), read_code);
    } else if (words.size() == 1) {
      count_capture(words[0]);
    } else {
      fmt::print(stderr, "usage: count_captured CAPTURE, or count_captured --code FILE.ptx ...\n");
      return 2;
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
