#include "src/base/machine_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "gpucast/error.h"

namespace gpucast {
namespace {

constexpr size_t kMostFileBytes = 64 << 10;
constexpr const char* kPage = "docs/reference/machines.md describes the fields";
const std::vector<std::string>& machine_fields() {
  static const std::vector<std::string> names = {"schema_version", "id",
                                                 "name",           "aliases",
                                                 "like",           "usual_for",
                                                 "cards",          "card_name",
                                                 "cards_per_node", "cards_per_host",
                                                 "inside",         "card_bytes_per_s",
                                                 "multicast",      "network",
                                                 "network_cards",  "network_card_bytes_per_s",
                                                 "network_hop_ns", "oversubscription",
                                                 "rack_nodes",     "processor",
                                                 "cores",          "memory_bytes",
                                                 "sources"};
  return names;
}

[[noreturn]] void reject_machine(const std::string& what, const std::string& where, const std::string& hint = kPage) {
  throw Error(what, where, hint);
}

// One entry, and the place that errors name. A field that is null counts as missing.
struct EntryReader {
  const Json& entry;
  const std::string& where;

  bool has(const char* field) const { return !entry[field].is_null(); }
  const Json& required(const char* field) const {
    if (!has(field)) reject_machine(fmt::format("the machine has no \"{}\"", field), where);
    return entry[field];
  }

  std::string text(const char* field) const {
    if (has(field) && !entry[field].is_text()) reject_machine(fmt::format("\"{}\" is {}, not a text", field, entry[field].dump()), where);
    return entry[field].get<std::string>();
  }

  std::vector<std::string> texts(const char* field) const {
    std::vector<std::string> out;
    if (has(field) && !entry[field].is_array())
      reject_machine(fmt::format("\"{}\" is {}, not a list of texts", field, entry[field].dump()), where);
    for (const Json& value : entry[field]) {
      if (!value.is_text()) reject_machine(fmt::format("\"{}\" holds {}, not a text", field, value.dump()), where);
      out.push_back(value.get<std::string>());
    }
    return out;
  }

  double number(const char* field, double least, double most, double otherwise) const {
    if (!has(field)) return otherwise;
    const auto value = entry[field].get<double>();
    if (!entry[field].is_number() || !(value >= least && value <= most))
      reject_machine(fmt::format("\"{}\" is {}, not a number from {} to {}", field, entry[field].dump(), least, most), where);
    return value;
  }

  int64_t whole_number(const char* field, int64_t least, int64_t most, int64_t otherwise) const {
    const double value = number(field, static_cast<double>(least), static_cast<double>(most), static_cast<double>(otherwise));
    if (value != std::floor(value)) reject_machine(fmt::format("\"{}\" is {}, not a whole number", field, entry[field].dump()), where);
    return static_cast<int64_t>(value);
  }

  // The bounds catch rates in GB/s or Gb/s.
  double rate(const char* field) const {
    constexpr double kLeast = 1e6, kMost = 1e14;
    const auto value = required(field).get<double>();
    if (!entry[field].is_number() || !(value >= kLeast && value <= kMost))
      reject_machine(fmt::format("\"{}\" is {}, not a rate in bytes per second from 1e6 to 1e14", field, entry[field].dump()), where);
    return value;
  }

  bool flag(const char* field) const {
    if (has(field) && !entry[field].is_boolean())
      reject_machine(fmt::format("\"{}\" is {}, not true or false", field, entry[field].dump()), where);
    return entry[field].get<bool>();
  }
};

void check_fields(const Json& entry, const std::string& where) {
  if (!entry.is_object()) reject_machine("a machine is one JSON object", where);
  for (const std::string& field : entry.keys()) {
    if (std::ranges::find(machine_fields(), field) != machine_fields().end()) continue;
    const std::optional<std::string> meant = did_you_mean(field, machine_fields());
    reject_machine(fmt::format("a machine has no field \"{}\"", field), where,
                   meant ? fmt::format("did you mean \"{}\"? {}", *meant, kPage) : std::string(kPage));
  }
  if (entry.value("schema_version", 1) != 1) reject_machine("the machine's schema_version is not 1", where);
}

std::vector<std::string> gpu_ids_of(const std::vector<std::string>& names, const std::string& where) {
  std::vector<std::string> ids;
  for (const std::string& name : names) {
    try {
      ids.push_back(find_gpu(name).id);
    } catch (const Error& error) {
      throw Error(fmt::format("\"cards\": {}", error.what()), where, error.hint);
    }
  }
  return ids;
}

CardLink card_link_of(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(CardLink::count_); ++i) {
    if (name == card_link_name(static_cast<CardLink>(i))) return static_cast<CardLink>(i);
    names.emplace_back(card_link_name(static_cast<CardLink>(i)));
  }
  reject_machine(fmt::format("\"inside\" is '{}', none of {}", name, fmt::join(names, ", ")), where);
}

Links links_of(const EntryReader& reader) {
  constexpr int64_t kMostCards = 1024, kMostNodes = 1'000'000;
  Links links;
  (void)reader.required("cards_per_node");
  (void)reader.required("inside");
  links.cards = reader.whole_number("cards_per_node", 1, kMostCards, 0);
  links.inside = card_link_of(reader.text("inside"), reader.where);
  links.card_bytes_per_s = reader.rate("card_bytes_per_s");
  links.multicast = reader.flag("multicast");
  if (links.multicast && links.inside != CardLink::nvswitch)
    reject_machine("\"multicast\" is true, but only an NVSwitch adds and copies: \"inside\" must be \"nvswitch\"", reader.where);
  links.network_cards = reader.whole_number("network_cards", 0, kMostCards, 0);
  if (links.network_cards > 0) links.network_card_bytes_per_s = reader.rate("network_card_bytes_per_s");
  links.network_hop_ns = reader.number("network_hop_ns", 100, 1e7, 0);
  links.oversubscription = reader.number("oversubscription", 1, 1000, 1);
  links.rack_nodes = reader.whole_number("rack_nodes", 1, kMostNodes, 0);
  if (links.oversubscription > 1 && links.rack_nodes == 0)
    reject_machine("\"oversubscription\" is about nodes of different racks, and there is no \"rack_nodes\"", reader.where);
  return links;
}

std::string text_of_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    reject_machine("this is a folder, no machine", path, "name a file, or a machine of `gpucast machines`");
  std::ifstream in(path, std::ios::binary);
  if (!in) reject_machine("the machine's file cannot be read", path, "name a file, or a machine of `gpucast machines`");
  std::string text(kMostFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMostFileBytes) reject_machine("the file is larger than 64 KiB, so it is no machine", path);
  return text;
}

Json parse_entry(const std::string& path) {
  std::optional<std::string> repeated;
  Json entry = Json::parse(text_of_file(path), &repeated);
  if (entry.is_null()) reject_machine("the file is not JSON (which has no NaN, no infinity and no comments)", path);
  if (repeated) reject_machine(fmt::format("the key \"{}\" is there twice", *repeated), path, "keep one of them");
  check_fields(entry, path);
  return entry;
}

bool is_file_name(const std::string& text) { return text.find('/') != std::string::npos || text.ends_with(".json"); }

// The files that led to one, as they were named and as they are.
struct Begun {
  std::vector<std::string> named, canonical;
};

// The entry with the fields of what it is like, and so on.
Json whole_entry(const std::filesystem::path& path, Begun* begun) {
  std::error_code error;
  std::string canonical = std::filesystem::weakly_canonical(path, error).string();
  if (error) canonical = path.string();
  const bool again = std::ranges::find(begun->canonical, canonical) != begun->canonical.end();
  begun->named.push_back(path.string());
  begun->canonical.push_back(canonical);
  if (again)
    reject_machine("the machine's \"like\" leads back to itself", fmt::format("{}", fmt::join(begun->named, " -> ")),
                   "name a machine of `gpucast machines`");
  Json entry = parse_entry(path.string());
  const std::string where = path.string();
  entry["id"] = where;
  if (entry["name"].is_null()) entry["name"] = path.stem().string();
  const std::string like = EntryReader{entry, where}.text("like");
  if (like.empty()) return entry;
  if (is_file_name(like)) return with_missing_fields_of(entry, whole_entry(path.parent_path() / like, begun));
  try {
    return with_missing_fields_of(entry, entry_of(find_machine(like)));
  } catch (const Error& unknown) {
    throw Error(fmt::format("\"like\": {}", unknown.what()), where, unknown.hint);
  }
}

}  // namespace

Json with_missing_fields_of(const Json& entry, const Json& parent) {
  Json out = entry;
  for (const char* own : {"name", "aliases", "usual_for"})
    if (!entry.contains(own)) out[own] = nullptr;
  if (entry.contains("cards") && !entry.contains("card_name")) out["card_name"] = nullptr;
  for (size_t i = 0; i < parent.size(); ++i)
    if (!out.contains(parent.keys()[i])) out[parent.keys()[i]] = parent.at(i);
  const Json own_sources = entry["sources"].is_array() ? entry["sources"] : Json::array();
  out["sources"] = own_sources;
  for (const Json& source : parent["sources"]) {
    auto text = source.get<std::string>();
    out["sources"].push_back(text.starts_with("as ") ? text : fmt::format("as {}: {}", parent["id"].get<std::string>(), text));
  }
  return out;
}

Machine machine_of(const Json& entry, const std::string& where) {
  check_fields(entry, where);
  const EntryReader reader{entry, where};
  Machine machine;
  machine.id = reader.text("id");
  machine.name = reader.text("name");
  machine.aliases = reader.texts("aliases");
  machine.usual_for = gpu_ids_of(reader.texts("usual_for"), where);
  (void)reader.required("cards");
  machine.gpu_ids = gpu_ids_of(reader.texts("cards"), where);
  if (machine.gpu_ids.empty()) reject_machine("\"cards\" is empty", where);
  machine.card_name = reader.text("card_name");
  machine.links = links_of(reader);
  machine.cards_per_host = reader.whole_number("cards_per_host", 1, machine.links.cards, machine.links.cards);
  if (machine.links.cards % machine.cards_per_host != 0)
    reject_machine(
        fmt::format("\"cards_per_node\" {} is no multiple of \"cards_per_host\" {}", machine.links.cards, machine.cards_per_host), where);
  machine.network = reader.text("network");
  machine.processor = reader.text("processor");
  machine.cores = reader.whole_number("cores", 1, 1 << 16, 0);
  machine.memory_bytes = static_cast<uint64_t>(reader.whole_number("memory_bytes", 1'000'000, int64_t{1} << 50, 0));
  machine.sources = reader.texts("sources");
  return machine;
}

Json entry_of(const Machine& machine) {
  const Links& links = machine.links;
  const auto known = [](auto value) { return value == 0 ? Json() : Json(value); };
  const auto said = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json out;
  out["id"] = machine.id;
  out["name"] = machine.name;
  out["aliases"] = machine.aliases;
  out["usual_for"] = machine.usual_for;
  out["cards"] = machine.gpu_ids;
  out["card_name"] = said(machine.card_name);
  out["cards_per_node"] = links.cards;
  out["cards_per_host"] = machine.cards_per_host == links.cards ? Json() : Json(machine.cards_per_host);
  out["inside"] = card_link_name(links.inside);
  out["card_bytes_per_s"] = static_cast<int64_t>(links.card_bytes_per_s);
  out["multicast"] = links.multicast;
  out["network"] = said(machine.network);
  out["network_cards"] = links.network_cards;
  out["network_card_bytes_per_s"] = known(static_cast<int64_t>(links.network_card_bytes_per_s));
  out["network_hop_ns"] = known(links.network_hop_ns);
  out["oversubscription"] = links.oversubscription;
  out["rack_nodes"] = known(links.rack_nodes);
  out["processor"] = said(machine.processor);
  out["cores"] = known(machine.cores);
  out["memory_bytes"] = known(machine.memory_bytes);
  out["sources"] = machine.sources;
  return out;
}

Machine read_machine(const std::string& name_or_file) {
  if (!is_file_name(name_or_file)) return find_machine(name_or_file);
  Begun begun;
  return machine_of(whole_entry(name_or_file, &begun), name_or_file);
}

}  // namespace gpucast
