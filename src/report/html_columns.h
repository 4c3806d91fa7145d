// The data of an HTML page, as web/src/container.ts reads it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "src/base/json.h"

namespace gpucast {

// "GCR1", length of the directory, directory (JSON), columns; each column at a multiple of 8 bytes.
class HtmlColumns {
 public:
  template <class T>
  void add(const char* name, const std::vector<T>& values) {
    static constexpr const char* kType = std::is_same_v<T, uint8_t>    ? "u8"
                                         : std::is_same_v<T, uint32_t> ? "u32"
                                         : std::is_same_v<T, int32_t>  ? "i32"
                                                                       : "f64";
    static_assert(std::is_same_v<T, uint8_t> || std::is_same_v<T, uint32_t> || std::is_same_v<T, int32_t> || std::is_same_v<T, double>);
    add_bytes(name, kType, values.data(), values.size(), sizeof(T));
  }

  // Compressed and written as base64, with `meta` as the directory's other fields.
  std::string packed(Json meta) const;

 private:
  void add_bytes(const char* name, const char* type, const void* values, size_t count, size_t value_bytes);

  Json directory_ = Json::array();
  std::string bytes_;
};

// Numbers texts in the order of their first use: many rows share few different texts.
class HtmlTexts {
 public:
  uint32_t number_of(const std::string& text) {
    const auto [found, is_new] = numbers_.try_emplace(text, static_cast<uint32_t>(numbers_.size()));
    if (is_new) texts_.push_back(text);
    return found->second;
  }
  const Json& texts() const { return texts_; }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
  Json texts_ = Json::array();
};

// JSON that may stand in a <script>: nothing in it looks like a tag.
std::string json_for_script(const std::string& json);

}  // namespace gpucast
