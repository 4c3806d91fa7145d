#include "src/base/toml_file.h"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <utility>

#include "gpucast/error.h"
#include "src/base/read_file.h"

namespace gpucast {
namespace {

TextPlace place_of(const toml::source_region& region) { return {region.begin.line, region.begin.column}; }

TomlValue value_of(const toml::node& node);

void add_entries(const toml::table& table, TomlValue* out) {
  for (const auto& [key, node] : table) {
    TomlValue entry = value_of(node);
    entry.key = std::string(key.str());
    entry.key_place = place_of(key.source());
    out->values.push_back(std::move(entry));
  }
  std::stable_sort(out->values.begin(), out->values.end(), [](const TomlValue& a, const TomlValue& b) {
    return std::pair(a.key_place.line, a.key_place.column) < std::pair(b.key_place.line, b.key_place.column);
  });
}

TomlValue value_of(const toml::node& node) {
  TomlValue out;
  out.place = place_of(node.source());
  if (const auto* table = node.as_table()) {
    add_entries(*table, &out);
  } else if (const auto* array = node.as_array()) {
    out.kind = TomlKind::array;
    for (const toml::node& entry : *array) out.values.push_back(value_of(entry));
  } else if (const auto* text = node.as_string()) {
    out.kind = TomlKind::text;
    out.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    out.kind = TomlKind::integer;
    out.integer = integer->get();
    out.number = static_cast<double>(integer->get());
  } else if (const auto* number = node.as_floating_point()) {
    out.kind = TomlKind::number;
    out.number = number->get();
  } else if (const auto* boolean = node.as_boolean()) {
    out.kind = TomlKind::boolean;
    out.boolean = boolean->get();
  } else {
    out.kind = TomlKind::date;
  }
  return out;
}

}  // namespace

const char* toml_kind_name(TomlKind kind) {
  static constexpr const char* kNames[] = {"text", "a whole number", "a number", "true or false", "a date", "a list", "a table"};
  return kNames[static_cast<size_t>(kind)];
}

const TomlValue* TomlValue::find(std::string_view name) const {
  const auto found = std::find_if(values.begin(), values.end(), [&](const TomlValue& value) { return value.key == name; });
  return found == values.end() ? nullptr : &*found;
}

TomlValue read_toml(const std::string& path) { return parse_toml(read_file_or_throw(path), path); }

TomlValue parse_toml(std::string_view text, const std::string& path) {
  try {
    return value_of(toml::parse(text, path));
  } catch (const toml::parse_error& error) {
    throw Error(fmt::format("this is no TOML: {}", error.description()), file_place(path, place_of(error.source())),
                "correct this line: https://toml.io/en/v1.0.0");
  }
}

std::string file_place(const std::string& path, const TextPlace& place) {
  return place.line > 0 ? fmt::format("{}:{}:{}", path, place.line, place.column) : path;
}

}  // namespace gpucast
