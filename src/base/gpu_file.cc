// A user's card from a file.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "gpucast/error.h"
#include "src/base/gpu_variant.h"
#include "src/base/json.h"
#include "src/base/text_place.h"

namespace gpucast {
namespace {

constexpr size_t kMostGpuFileBytes = 64 << 10;
constexpr const char* kGpuPage = "docs/reference/gpus.md describes the fields";
constexpr double kBytesOfMiB = 1 << 20;

const std::vector<std::string>& gpu_fields() {
  static const std::vector<std::string> names = {"schema_version",
                                                 "name",
                                                 "like",
                                                 "mig",
                                                 "compute_capability",
                                                 "multiprocessors",
                                                 "total_memory_bytes",
                                                 "total_memory_mib",
                                                 "total_memory_measured",
                                                 "l2_bytes",
                                                 "memory_bus_width_bits",
                                                 "memory_clock_khz",
                                                 "clock_khz",
                                                 "bandwidth_bytes_per_s",
                                                 "peak_flop_per_s",
                                                 "power_w",
                                                 "sources"};
  return names;
}

const std::vector<std::string>& rate_names() {
  static const std::vector<std::string> names = {"fp32", "tf32", "fp16", "bf16", "fp8", "int8"};
  return names;
}

// A file's fields with their places. A field that is null counts as missing: its value is not known.
struct GpuFile {
  std::string path, text;
  Json entry;

  std::string place(const std::string& field) const {
    const std::string key = fmt::format("\"{}\"", field);
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
      const size_t next = text.find_first_not_of(" \t\r\n", at + key.size());
      if (next != std::string::npos && text[next] == ':') return fmt::format("{}, {}", path, text_place(text, at));
    }
    return path;
  }
  [[noreturn]] void reject(const std::string& what, const std::string& field, const std::string& hint = kGpuPage) const {
    throw Error(what, place(field), hint);
  }
  bool has(const char* field) const { return !entry[field].is_null(); }
  std::string read_text(const char* field) const {
    if (has(field) && !entry[field].is_text()) reject(fmt::format("\"{}\" is {}, not a text", field, entry[field].dump()), field);
    return entry[field].get<std::string>();
  }
  double checked(const Json& value, const std::string& field, double least, double most, bool whole) const {
    const auto number = value.get<double>();
    if (!value.is_number() || !(number >= least && number <= most))
      reject(fmt::format("\"{}\" is {}, not a number from {} to {}", field, value.dump(), least, most), field);
    if (whole && number != std::floor(number)) reject(fmt::format("\"{}\" is {}, not a whole number", field, value.dump()), field);
    return number;
  }
  double number(const char* field, double least, double most, double otherwise, bool whole = false) const {
    return has(field) ? checked(entry[field], field, least, most, whole) : otherwise;
  }
};

GpuFile load_gpu_file(const std::string& path) {
  const std::string hint = "name a file, or a card of `gpucast gpus`";
  GpuFile out;
  out.path = path;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw Error("this is a folder, no card", path, hint);
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("the card's file cannot be read", path, hint);
  out.text.resize(kMostGpuFileBytes + 1);
  in.read(out.text.data(), static_cast<std::streamsize>(out.text.size()));
  out.text.resize(static_cast<size_t>(in.gcount()));
  if (out.text.size() > kMostGpuFileBytes) throw Error("the file is larger than 64 KiB, so it is no card", path, hint);
  std::optional<std::string> repeated;
  size_t error_at = 0;
  out.entry = Json::parse(out.text, &repeated, &error_at);
  if (out.entry.is_null())
    throw Error("the file is not JSON (which has no NaN, no infinity and no comments)",
                fmt::format("{}, {}", path, text_place(out.text, error_at > 0 ? error_at - 1 : 0)), kGpuPage);
  if (repeated) out.reject(fmt::format("the key \"{}\" is there twice", *repeated), *repeated, "keep one of them");
  if (!out.entry.is_object()) throw Error("a card is one JSON object", path, kGpuPage);
  for (const std::string& field : out.entry.keys()) {
    if (std::ranges::find(gpu_fields(), field) != gpu_fields().end()) continue;
    const auto meant = did_you_mean(field, gpu_fields());
    out.reject(fmt::format("a card has no field \"{}\"", field), field,
               meant ? fmt::format("did you mean \"{}\"? {}", *meant, kGpuPage) : std::string(kGpuPage));
  }
  if (out.entry.value("schema_version", 1) != 1) out.reject("the card's schema_version is not 1", "schema_version");
  return out;
}

bool is_geforce(const Gpu& gpu) { return gpu.name.find("GeForce") != std::string::npos; }

// The card whose figures stand in for what the file leaves out: of the same capability and of GeForce or not, the nearest in
// multiprocessors.
const Gpu& nearest_gpu(const GpuFile& file) {
  const std::string capability = file.read_text("compute_capability");
  const int multiprocessors = static_cast<int>(file.number("multiprocessors", 1, 4096, 0, true));
  const bool geforce = file.read_text("name").find("GeForce") != std::string::npos;
  const Gpu* nearest = nullptr;
  std::vector<std::string> capabilities;
  const auto far = [&](const Gpu& gpu) { return std::pair(is_geforce(gpu) != geforce, std::abs(gpu.multiprocessors - multiprocessors)); };
  for (const Gpu& gpu : gpu_table()) {
    const std::string other = fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor);
    if (std::ranges::find(capabilities, other) == capabilities.end()) capabilities.push_back(other);
    if (other == capability && (nearest == nullptr || far(gpu) < far(*nearest))) nearest = &gpu;
  }
  if (nearest == nullptr)
    file.reject(fmt::format("no card of compute capability \"{}\" is known", capability), "compute_capability",
                fmt::format("one of {}", fmt::join(capabilities, ", ")));
  return *nearest;
}

void require_own_figures(const GpuFile& file) {
  const char* hint = "add it, or \"like\": a card that has the same; docs/howto/add-a-card.md says where it stands";
  for (const char* field : {"name", "compute_capability", "multiprocessors", "clock_khz"})
    if (!file.has(field)) throw Error(fmt::format("the card has no \"{}\"", field), file.path, hint);
  if (!file.has("total_memory_bytes") && !file.has("total_memory_mib"))
    throw Error("the card has neither \"total_memory_mib\" nor \"total_memory_bytes\"", file.path, hint);
  if (!file.has("bandwidth_bytes_per_s") && !(file.has("memory_bus_width_bits") && file.has("memory_clock_khz")))
    throw Error("the card has no \"bandwidth_bytes_per_s\", and not both \"memory_bus_width_bits\" and \"memory_clock_khz\"", file.path,
                hint);
}

void read_rates(const GpuFile& file, const Gpu& base, Gpu* gpu) {
  const Json& rates = file.entry["peak_flop_per_s"];
  if (!rates.is_null() && !rates.is_object()) file.reject("\"peak_flop_per_s\" is no object of rates", "peak_flop_per_s");
  // Rates that are left out follow from multiprocessors and clock, in the ratios of the related card.
  const double faster =
      static_cast<double>(gpu->multiprocessors) * gpu->clock_khz / (static_cast<double>(base.multiprocessors) * base.clock_khz);
  bool scaled = false;
  for (auto& [type, flop_per_s] : gpu->peak_flop_per_s) {
    flop_per_s *= faster;
    scaled = scaled || (faster != 1 && type != "fp32" && !rates.contains(type));
  }
  for (size_t i = 0; i < rates.size(); ++i) {
    const std::string& type = rates.keys()[i];
    if (std::ranges::find(rate_names(), type) == rate_names().end())
      file.reject(fmt::format("no rate is named \"{}\"", type), type, fmt::format("one of {}", fmt::join(rate_names(), ", ")));
    if (rates.at(i).is_null())
      gpu->peak_flop_per_s.erase(type);
    else
      gpu->peak_flop_per_s[type] = file.checked(rates.at(i), type, 1e9, 1e18, false);
  }
  if (!gpu->peak_flop_per_s.contains("fp32")) file.reject("a card without \"fp32\" has no plain cores", "fp32");
  if (scaled) mark_estimated("peak_flop_per_s", gpu);
}

Gpu parse_gpu_file(const GpuFile& file) {
  const std::string like = file.read_text("like"), slice = file.read_text("mig");
  if (file.has("mig") && like.empty())
    file.reject("a MIG slice needs the card it is cut from", "mig", "add \"like\": \"a100-80\", or another card with MIG");
  if (like.empty()) require_own_figures(file);
  Gpu base;
  try {
    if (is_gpu_file(like)) throw Error(fmt::format("'{}' is a file", like), "", "name a card of `gpucast gpus`");
    base = like.empty() ? nearest_gpu(file) : find_gpu(like);
    if (!slice.empty()) base = mig_slice(base, slice, slice);
  } catch (const Error& error) {
    if (like.empty()) throw;
    file.reject(fmt::format("\"{}\": {}", slice.empty() ? "like" : "mig", error.what()), slice.empty() ? "like" : "mig", error.hint);
  }
  const std::string capability = fmt::format("{}.{}", base.compute_major, base.compute_minor);
  if (file.has("compute_capability") && file.read_text("compute_capability") != capability)
    file.reject(
        fmt::format("\"compute_capability\" is \"{}\", but {} has \"{}\"", file.read_text("compute_capability"), base.id, capability),
        "compute_capability", "name a card of the same capability under \"like\", or leave \"like\" out");
  Gpu gpu = base;
  gpu.id = file.path;
  gpu.name = file.has("name") ? file.read_text("name") : base.name;
  if (gpu.constants_of.empty()) gpu.constants_of = base.id;
  gpu.constants_are_own = false;
  gpu.notes.clear();
  gpu.sources.clear();
  if (like.empty()) gpu.mig_slices = 0;
  gpu.multiprocessors = static_cast<int>(file.number("multiprocessors", 1, 4096, base.multiprocessors, true));
  gpu.clock_khz = static_cast<int>(file.number("clock_khz", 1e5, 1e7, base.clock_khz, true));
  gpu.power_w = file.number("power_w", 1, 1e5, base.power_w);
  if (file.has("power_w") && slice.empty()) gpu.board_power_w = 0;
  gpu.l2_bytes = static_cast<uint64_t>(file.number("l2_bytes", 1 << 16, 1 << 30, static_cast<double>(base.l2_bytes), true));
  gpu.memory_bus_width_bits = static_cast<int>(file.number("memory_bus_width_bits", 32, 1 << 16, base.memory_bus_width_bits, true));
  gpu.memory_clock_khz = static_cast<int>(file.number("memory_clock_khz", 1e5, 1e8, base.memory_clock_khz, true));
  const double from_bus = 2.0 * gpu.memory_clock_khz * 1e3 * gpu.memory_bus_width_bits / 8;
  const bool bus_given = file.has("memory_bus_width_bits") || file.has("memory_clock_khz");
  gpu.bandwidth_bytes_per_s = file.number("bandwidth_bytes_per_s", 1e9, 1e15, bus_given ? from_bus : base.bandwidth_bytes_per_s);
  constexpr double kMostApart = 0.1;  // datasheets round; a factor of 2 or 8 is a mistake
  if (file.has("bandwidth_bytes_per_s") && file.has("memory_bus_width_bits") && file.has("memory_clock_khz") &&
      std::abs(from_bus / gpu.bandwidth_bytes_per_s - 1) > kMostApart)
    file.reject(fmt::format("\"bandwidth_bytes_per_s\" is {:g}, and bus and clock give {:g}", gpu.bandwidth_bytes_per_s, from_bus),
                "bandwidth_bytes_per_s", "memory_clock_khz is as nvidia-smi reports it: half of the transfers of a pin in a second");
  if (!bus_given && file.has("bandwidth_bytes_per_s") && gpu.memory_bus_width_bits > 0)
    gpu.memory_clock_khz = static_cast<int>(std::lround(gpu.bandwidth_bytes_per_s * 8 / 2 / gpu.memory_bus_width_bits / 1e3));
  if (file.has("total_memory_bytes") && file.has("total_memory_mib"))
    file.reject("the card has both \"total_memory_bytes\" and \"total_memory_mib\"", "total_memory_mib", "keep one of them");
  const double most_bytes = std::ldexp(1, 44), least_bytes = std::ldexp(1, 28);
  const double total = file.number("total_memory_bytes", least_bytes, most_bytes, static_cast<double>(base.total_memory_bytes), true);
  gpu.total_memory_bytes = static_cast<uint64_t>(
      file.number("total_memory_mib", least_bytes / kBytesOfMiB, most_bytes / kBytesOfMiB, total / kBytesOfMiB) * kBytesOfMiB);
  if (file.has("total_memory_measured") && !file.entry["total_memory_measured"].is_boolean())
    file.reject("\"total_memory_measured\" is neither true nor false", "total_memory_measured");
  gpu.total_memory_measured = file.entry.value("total_memory_measured", false);
  read_rates(file, base, &gpu);
  if (like.empty() && !file.has("l2_bytes")) mark_estimated("l2_bytes", &gpu);
  if (like.empty() && !file.has("power_w")) mark_estimated("power_w", &gpu);
  if (file.has("sources") && !file.entry["sources"].is_array()) file.reject("\"sources\" is no list of texts", "sources");
  for (const Json& source : file.entry["sources"]) gpu.sources.push_back(source.get<std::string>());
  gpu.sources.push_back(fmt::format("{}; what it leaves out, and constants: as {}", file.path, base.id));
  return gpu;
}

}  // namespace

bool is_gpu_file(const std::string& name) { return name.find('/') != std::string::npos || name.ends_with(".json"); }

Gpu read_gpu_file(const std::string& path) { return parse_gpu_file(load_gpu_file(path)); }

}  // namespace gpucast
