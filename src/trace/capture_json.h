// The values of a capture's line, one after the other. Every getter returns whether the value exists and has its type.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpucast::capture {

namespace od = simdjson::ondemand;

// The elements of an event, one after the other.
class Elements {
 public:
  explicit Elements(od::array array) : at_(array.begin()), end_(array.end()) {}

  bool text(std::string_view* out) {
    auto value = next();
    return value.error() == simdjson::SUCCESS && value.get_string().get(*out) == simdjson::SUCCESS;
  }
  bool integer(int64_t* out) {
    auto value = next();
    return value.error() == simdjson::SUCCESS && value.get_int64().get(*out) == simdjson::SUCCESS;
  }
  bool address(uint64_t* out) {
    auto value = next();
    return value.error() == simdjson::SUCCESS && value.get_uint64().get(*out) == simdjson::SUCCESS;
  }
  bool size(int64_t* out) { return integer(out) && *out >= 0; }
  bool skip() { return next().error() == simdjson::SUCCESS; }
  simdjson::simdjson_result<od::value> next() {
    if (ended_) return simdjson::INDEX_OUT_OF_BOUNDS;
    if (started_) ++at_;
    started_ = true;
    ended_ = !(at_ != end_);
    if (ended_) return simdjson::INDEX_OUT_OF_BOUNDS;
    auto value = *at_;
    ended_ = value.error() != simdjson::SUCCESS;
    return value;
  }

 private:
  simdjson::simdjson_result<od::array_iterator> at_, end_;
  bool started_ = false;
  bool ended_ = false;  // after the end or an error, simdjson must not be called for more
};

inline std::string text_of(simdjson::simdjson_result<od::value> value) {
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS) return "";
  return std::string(text);
}

// An object as it is written.
inline std::string raw_text_of(simdjson::simdjson_result<od::value> value) {
  od::object object;
  std::string_view text;
  if (value.get_object().get(object) != simdjson::SUCCESS || object.raw_json().get(text) != simdjson::SUCCESS) return "";
  return std::string(text);
}

inline std::vector<int64_t> integers_of(simdjson::simdjson_result<od::value> value) {
  std::vector<int64_t> out;
  od::array numbers;
  if (value.get_array().get(numbers) != simdjson::SUCCESS) return out;
  for (auto entry : numbers) {
    int64_t number = 0;
    if (entry.get_int64().get(number) != simdjson::SUCCESS) return {};
    out.push_back(number);
  }
  return out;
}

// Calls `use(key, value)` for each field. At the first field that cannot be parsed, stops and returns false.
template <class Use>
bool each_field(od::object object, Use use) {
  for (auto field : object) {
    std::string_view key;
    if (field.error() != simdjson::SUCCESS || field.unescaped_key().get(key) != simdjson::SUCCESS) return false;
    use(key, field.value());
  }
  return true;
}

inline bool set_int(simdjson::simdjson_result<od::value> value, int64_t* out) {
  int64_t number = 0;
  if (value.get_int64().get(number) != simdjson::SUCCESS) return false;
  *out = number;
  return true;
}

inline void set_bool(simdjson::simdjson_result<od::value> value, bool* out) {
  bool flag = false;
  if (value.get_bool().get(flag) == simdjson::SUCCESS) *out = flag;
}

}  // namespace gpucast::capture
