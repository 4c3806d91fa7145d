// `gpucast machines`: the table of machines, or one machine in full.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "gpucast/machine.h"
#include "src/base/machine_file.h"
#include "src/cli/subcommand.h"

namespace gpucast::cli {
namespace {

std::string cards_text(const Machine& machine) {
  const std::string& card = machine.gpu_ids.front();
  const size_t others = machine.gpu_ids.size() - 1;
  return fmt::format("{} x {}{}", machine.links.cards, machine.card_name.empty() ? card : "as " + card,
                     others == 0 ? "" : fmt::format(" +{}", others));
}

std::string network_text(const Links& links) {
  return links.network_cards == 0 ? "-" : fmt::format("{} x {:g}", links.network_cards, links.network_card_bytes_per_s / 1e9);
}

void print_machines() {
  fmt::print("{:<18} {:<30} {:<20} {:<12} {:>5}  {}\n", "--machine", "name", "cards", "inside", "GB/s", "network");
  for (const Machine& machine : machine_table()) {
    const Links& links = machine.links;
    fmt::print("{:<18} {:<30} {:<20} {:<12} {:>5g}  {}\n", machine.id, machine.name, cards_text(machine), card_link_name(links.inside),
               links.card_bytes_per_s / 1e9, network_text(links));
  }
  fmt::print(
      "\nGB/s in one direction, by datasheet: of a card inside a node, and of each of the network cards.\n"
      "- : no fast network is known. +N: or one of N other cards. as: this card stands for one that\n"
      "`gpucast gpus` does not have. All figures and sources: gpucast machines --show NAME\n");
}

std::string inside_text(const Links& links) {
  static constexpr const char* kWords[] = {"NVSwitch", "NVLink, each pair has its own links", "PCIe, peer to peer",
                                           "through the host's memory"};
  return fmt::format("{}: {:g} GB/s a card in one direction{}", kWords[static_cast<size_t>(links.inside)], links.card_bytes_per_s / 1e9,
                     links.multicast ? ", the switch adds and copies (NVLS)" : "");
}

std::string racks_text(const Links& links) {
  if (links.network_cards == 0) return "one node";
  if (links.rack_nodes == 0) return "all nodes reach each other at the full rate (assumed)";
  return fmt::format("{} nodes a rack; between racks 1/{:g} of the rate", links.rack_nodes, links.oversubscription);
}

std::string host_text(const Machine& machine) {
  std::string out = machine.processor.empty() ? "processor not known" : machine.processor;
  if (machine.cores > 0) out += fmt::format(", {} cores", machine.cores);
  if (machine.memory_bytes > 0) out += fmt::format(", {:.0f} GB", static_cast<double>(machine.memory_bytes) / 1e9);
  if (machine.cards_per_host != machine.links.cards)
    out += fmt::format("; {} cards a host, {} hosts a node", machine.cards_per_host, machine.links.cards / machine.cards_per_host);
  return out;
}

void print_machine(const Machine& machine) {
  const Links& links = machine.links;
  fmt::print("{} (--machine {})\n", machine.name, machine.id);
  if (!machine.aliases.empty()) fmt::print("  also      {}\n", fmt::join(machine.aliases, ", "));
  const std::string ids = fmt::format("{}", fmt::join(machine.gpu_ids, " or "));
  fmt::print("  cards     {} x {}\n", links.cards,
             machine.card_name.empty() ? ids : fmt::format("{}, timed as {}", machine.card_name, ids));
  if (!machine.usual_for.empty()) fmt::print("  usual for {}\n", fmt::join(machine.usual_for, ", "));
  fmt::print("  inside    {}\n", inside_text(links));
  if (links.network_cards > 0) {
    const double node_gb_per_s = static_cast<double>(links.network_cards) * links.network_card_bytes_per_s / 1e9;
    fmt::print("  network   {} x {:g} GB/s, {:g} GB/s a node{}\n", links.network_cards, links.network_card_bytes_per_s / 1e9, node_gb_per_s,
               machine.network.empty() ? "" : ": " + machine.network);
    if (links.network_hop_ns > 0) fmt::print("            {:g} us for a small message between nodes\n", links.network_hop_ns / 1e3);
  } else {
    fmt::print("  network   no fast network known\n");
  }
  fmt::print("  racks     {}\n", racks_text(links));
  fmt::print("  host      {}\n", host_text(machine));
  fmt::print("  sources\n");
  for (const std::string& source : machine.sources) fmt::print("    {}\n", source);
}

void print_machines_json() {
  Json table;
  table["schema_version"] = 1;
  table["machines"] = Json::array();
  for (const Machine& machine : machine_table()) table["machines"].push_back(entry_of(machine));
  fmt::print("{}\n", table.dump(2));
}

}  // namespace

void declare_machines(Arguments& arguments) {
  static std::string format = "text", show;
  arguments.option("--show", &show, "one machine in full, with sources: a name of the table, or a file as for --machine");
  arguments.option("--format", &format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.action([] {
    const bool json = format == "json";
    if (show.empty() && json) {
      print_machines_json();
    } else if (show.empty()) {
      print_machines();
    } else if (json) {
      fmt::print("{}\n", entry_of(read_machine(show)).dump(2));
    } else {
      print_machine(read_machine(show));
    }
    return 0;
  });
}

}  // namespace gpucast::cli
