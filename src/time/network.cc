#include "src/time/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "gpucast/machine.h"
#include "network_json.h"
#include "src/base/constants_file.h"

namespace gpucast {
namespace {

const char* generation_of(const Gpu& gpu) {
  return gpu.compute_major >= 10 ? "blackwell" : gpu.compute_major == 9 ? "hopper" : gpu.compute_major == 8 ? "ampere" : "volta";
}

// 0 where the group has no such number.
double optional_number(const ConstantSection& section, const std::string& group, std::string_view name) {
  const auto found = section.numbers().find(fmt::format("{}.{}", group, name));
  return found == section.numbers().end() ? 0 : found->second;
}

TunerLine tuner_line(const ConstantSection& section, const std::string& name) {
  const auto number = [&](std::string_view of) { return optional_number(section, "tuner_" + name, of); };
  TunerLine out;
  out.start_ns = number("start_ns");
  out.step = {number("nvlink_ns"), number("pci_ns"), number("network_ns")};
  for (size_t i = 0; i < out.correction.size(); ++i) out.correction[i] = number(fmt::format("bandwidth_{}", uint64_t{64} << i));
  return out;
}

std::array<TunerLine, 3> tuner_lines(const ConstantSection& section, const std::string& algorithm) {
  return {tuner_line(section, algorithm + "_ll"), tuner_line(section, algorithm + "_ll128"), tuner_line(section, algorithm + "_simple")};
}

TunerLimits limits_of(const ConstantSection& section, const std::string& generation) {
  const std::string group = "limits_" + generation;
  const auto by_nodes = [&](std::string_view name) {
    ByNodes out = {};
    for (size_t i = 0; i < out.size(); ++i) out[i] = optional_number(section, group, fmt::format("{}_{}_bytes_per_s", name, 1 << i));
    return out;
  };
  return {.ll_bytes_per_s = by_nodes("ll"),
          .ring_ll128_bytes_per_s = by_nodes("ring_ll128"),
          .tree_ll128_bytes_per_s = by_nodes("tree_ll128"),
          .tree_bytes_per_s = by_nodes("tree"),
          .nvls_tree_bytes_per_s = by_nodes("nvls_tree"),
          .nvls_fraction = optional_number(section, group, "nvls_fraction"),
          .nvls_most_bytes_per_s = optional_number(section, group, "nvls_most_bytes_per_s")};
}

PathConstants path_of(const ConstantSection& section, const std::string& name) {
  const std::string group = "path_" + name;
  const auto number = [&](std::string_view of) { return section.number(group, of); };
  PathConstants out;
  out.bus_fraction = number("bus_fraction");
  out.channels = static_cast<int64_t>(number("channels"));
  out.nvls_channels = static_cast<int64_t>(optional_number(section, group, "nvls_channels"));
  out.own_work = number("own_work");
  out.ll_start_ns = number("ll_start_ns");
  out.ll_step_ns = number("ll_step_ns");
  out.ll_fill_ns = number("ll_fill_ns");
  out.ll_channels_ns = number("ll_channels_ns");
  out.ll_fraction = number("ll_fraction");
  out.ll128_start_ns = number("ll128_start_ns");
  out.ll128_step_ns = number("ll128_step_ns");
  out.ll128_fraction = number("ll128_fraction");
  out.simple_start_ns = number("simple_start_ns");
  out.simple_wait_ns = number("simple_wait_ns");
  out.simple_slice_ns = number("simple_slice_ns");
  out.simple_fraction = number("simple_fraction");
  out.nvls_start_ns = optional_number(section, group, "nvls_start_ns");
  out.nvls_loop_ns = optional_number(section, group, "nvls_loop_ns");
  out.nvls_fraction = optional_number(section, group, "nvls_fraction");
  out.peer_start_ns = number("peer_start_ns");
  out.peer_ll_start_ns = number("peer_ll_start_ns");
  out.peer_round_ns = number("peer_round_ns");
  out.peer_channel_bytes_per_s = number("peer_channel_bytes_per_s");
  out.peer_copy_bytes_per_s = number("peer_copy_bytes_per_s");
  out.peer_fraction = number("peer_fraction");
  return out;
}

KernelConstants kernels_of(const ConstantSection& section) {
  const auto number = [&](std::string_view name) { return section.number("kernel", name); };
  return {.ll_fill_power = number("ll_fill_power"),
          .ll_extra_all_reduce = number("ll_extra_all_reduce"),
          .ll_extra_all_gather = number("ll_extra_all_gather"),
          .ll_extra_reduce_scatter = number("ll_extra_reduce_scatter"),
          .simple_extra_all_reduce = number("simple_extra_all_reduce"),
          .simple_extra_all_gather = number("simple_extra_all_gather"),
          .simple_extra_reduce_scatter = number("simple_extra_reduce_scatter"),
          .ll_int8 = number("ll_int8"),
          .simple_int8 = number("simple_int8"),
          .simple_overlap = number("simple_overlap"),
          .tree_fill = section.number("network", "tree_fill"),
          .nvls_fill = number("nvls_fill"),
          .peer_overlap = number("peer_overlap"),
          .reads = number("reads")};
}

TunerFactors factors_of(const ConstantSection& section) {
  const auto number = [&](std::string_view name) { return section.number("factors", name); };
  return {.ring_ll = number("ring_ll"),
          .ring_ll128 = number("ring_ll128"),
          .tree = number("tree"),
          .tree_ll = number("tree_ll"),
          .tree_ll128_one_node = number("tree_ll128_one_node"),
          .tree_ll128_nodes = number("tree_ll128_nodes"),
          .ring_plateau = number("ring_plateau"),
          .post_ns = number("post_ns")};
}

double slot_bytes_per_s(const Gpu& gpu, const ConstantSection& section) {
  const int doublings = gpu.compute_major < 8 ? 0 : gpu.compute_major < 9 ? 1 : 2;
  return section.number("slot", "pcie3_bytes_per_s") * (1 << doublings);
}

}  // namespace

bool addresses_peers(const Gpu& gpu) {
  const bool since_turing = gpu.compute_major * 10 + gpu.compute_minor >= 75;
  return !(since_turing && gpu.name.find("GeForce") != gpu.name.npos);
}

double mesh_part(double ranks, double cards) {
  constexpr double kNeighbours = 3;
  if (cards <= kNeighbours + 1) return std::min(1.0, (ranks - 1) / std::max(1.0, cards - 1));
  // Two halves of four cards (V100): a third of the links within a half goes to each neighbour of it, a third of all to the other half.
  return ranks <= 2 ? 1 / kNeighbours : ranks <= kNeighbours + 1 ? 2 / kNeighbours : 1;
}

NetworkConstants read_network_constants(const Gpu& gpu, const std::string& file) {
  const ConstantSection section("network", kNetworkJson, file);
  const std::string generation = generation_of(gpu);
  NetworkConstants out;
  out.ring = tuner_lines(section, "ring");
  out.tree = tuner_lines(section, "tree");
  out.nvls = tuner_line(section, "nvls_simple");
  out.nvls_tree = tuner_line(section, "nvls_tree_simple");
  out.limits = limits_of(section, generation);
  out.factors = factors_of(section);
  out.nvlink = path_of(section, generation);
  out.pcie = path_of(section, "pcie");
  out.host = path_of(section, "host");
  out.kernel = kernels_of(section);
  out.hop_ns = section.number("network", "hop_ns");
  out.hop_fill = section.number("network", "hop_fill");
  out.ordered_most_hop_ns = section.number("network", "ordered_most_hop_ns");
  out.simple_hops = section.number("network", "simple_hops");
  out.network_fraction = section.number("network", "fraction");
  out.unknown_network_bytes_per_s = section.number("network", "unknown_bytes_per_s");
  out.slot_bytes_per_s = slot_bytes_per_s(gpu, section);
  out.fences_stop_others = gpu.compute_major < section.number("fences", "apart_since_major");
  out.slot_interval = {section.number("error", "slot_low"), section.number("error", "slot_high")};
  out.interval = {section.number("error", "network_low"), section.number("error", "network_high")};
  return out;
}

Links usual_links(const Gpu& gpu) {
  for (const std::string& id : {gpu.id, gpu.constants_of}) {
    for (const Machine& machine : machine_table())
      if (std::ranges::find(machine.usual_for, id) != machine.usual_for.end()) return machine.links;
  }
  return {.inside = CardLink::host, .card_bytes_per_s = read_network_constants(gpu, "").slot_bytes_per_s};
}

}  // namespace gpucast
