// TOML files as plain values with their places. Only toml_file.cc includes toml++, because its headers cost much to compile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpucast {

struct TextPlace {
  int64_t line = 0, column = 0;  // from 1; 0: none
};

enum class TomlKind : uint8_t { text, integer, number, boolean, date, array, table };
const char* toml_kind_name(TomlKind kind);  // "text", "a whole number", ...

struct TomlValue {
  TomlKind kind = TomlKind::table;
  std::string text;
  int64_t integer = 0;
  double number = 0;  // of an integer, too
  bool boolean = false;
  TextPlace place;
  std::string key;                // of an entry of a table
  TextPlace key_place;            // the same
  std::vector<TomlValue> values;  // of an array or a table, in the order of the file

  const TomlValue* find(std::string_view name) const;  // nullptr: none
};

// The table of the whole file. Throws Error with the line and column.
TomlValue read_toml(const std::string& path);
TomlValue parse_toml(std::string_view text, const std::string& path);

// "gpucast.toml:3:9".
std::string file_place(const std::string& path, const TextPlace& place);

}  // namespace gpucast
