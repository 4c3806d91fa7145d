#include "gpucast/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "gpucast/error.h"
#include "machines_json.h"
#include "src/base/find_name.h"
#include "src/base/json.h"
#include "src/base/machine_file.h"

namespace gpucast {
namespace {

constexpr std::array<const char*, static_cast<size_t>(CardLink::count_)> kLinkNames{"nvswitch", "nvlink_mesh", "pcie_peer", "host"};

struct MachineTable {
  std::vector<Machine> machines;
  NamedTable names;
};

MachineTable parse_machines() {
  MachineTable out;
  out.names.noun = "machine";
  out.names.command = "gpucast machines";
  std::vector<Json> rows;
  const Json file = Json::parse(kMachinesJson);
  for (const Json& json : file["machines"]) {
    const auto id = json["id"].get<std::string>();
    const std::string where = fmt::format("data/machines.json, {}", id);
    Json whole = json;
    if (const Json* like = json.find("like")) {
      const auto parent =
          std::ranges::find_if(rows, [&](const Json& row) { return row["id"].get<std::string>() == like->get<std::string>(); });
      if (parent == rows.end()) throw Error("'like' names no earlier machine", where);
      whole = with_missing_fields_of(json, *parent);
    }
    Machine machine = machine_of(whole, where);
    NamedRow row{id, {letters_and_digits(id), letters_and_digits(machine.name)}};
    for (const std::string& alias : machine.aliases) row.keys.push_back(letters_and_digits(alias));
    out.names.rows.push_back(std::move(row));
    out.machines.push_back(std::move(machine));
    rows.push_back(std::move(whole));
  }
  return out;
}

const MachineTable& machines() {
  static const MachineTable parsed = parse_machines();
  return parsed;
}

}  // namespace

const char* card_link_name(CardLink link) { return kLinkNames[static_cast<size_t>(link)]; }

const std::vector<Machine>& machine_table() { return machines().machines; }

const Machine& find_machine(const std::string& name) {
  return machine_table()[find_named_row(machines().names, letters_and_digits(name), name)];
}

const Machine& usual_machine(const Gpu& gpu) {
  for (const std::string& id : {gpu.id, gpu.constants_of}) {
    for (const Machine& machine : machine_table())
      if (std::ranges::find(machine.usual_for, id) != machine.usual_for.end()) return machine;
  }
  throw Error(fmt::format("no machine is the usual one of '{}'", gpu.id), "data/machines.json", "name one with --machine");
}

void check_machine_has(const Machine& machine, const Gpu& gpu) {
  for (const std::string& id : {gpu.id, gpu.constants_of})
    if (std::ranges::find(machine.gpu_ids, id) != machine.gpu_ids.end()) return;
  throw Error(fmt::format("the machine '{}' has no {}", machine.id, gpu.name), "",
              fmt::format("name one of its cards with --gpu ({}), or another machine", fmt::join(machine.gpu_ids, ", ")));
}

}  // namespace gpucast
