#include "src/base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace gpucast {
namespace {

using Library = nlohmann::ordered_json;

// The handler that the library's parser calls for each value.
class Builder : public Library::json_sax_t {
 public:
  Json result;
  std::optional<std::string> repeated_key;
  size_t error_at = 0;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override {
    return std::in_range<int64_t>(value) ? add(static_cast<int64_t>(value)) : add(static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Library::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool key(std::string& name) override {
    key_.push_back(std::move(name));
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error_at = position;
    return false;
  }

 private:
  bool open(Json container) {
    if (open_.size() == kMostNested) return false;
    open_.push_back(std::move(container));
    return true;
  }
  bool close() {
    Json whole = std::move(open_.back());
    open_.pop_back();
    return add(std::move(whole));
  }
  bool add(Json value) {
    if (open_.empty()) {
      result = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().push_back(std::move(value));
    } else {
      if (!repeated_key && open_.back().contains(key_.back())) repeated_key = key_.back();
      open_.back()[key_.back()] = std::move(value);
      key_.pop_back();
    }
    return true;
  }

  static constexpr size_t kMostNested = 1000;  // each takes a call's stack when the value ends

  std::vector<Json> open_;
  std::vector<std::string> key_;  // keys of the open objects that wait for a value
};

Library to_library(const Json& json) {
  switch (json.kind()) {
    case Json::Kind::null:
      return nullptr;
    case Json::Kind::boolean:
      return json.get<bool>();
    case Json::Kind::integer:
      return json.get<int64_t>();
    case Json::Kind::number:
      return json.get<double>();
    case Json::Kind::text:
      return json.get<std::string>();
    case Json::Kind::array: {
      Library out = Library::array();
      for (const Json& value : json) out.push_back(to_library(value));
      return out;
    }
    case Json::Kind::object: {
      Library out = Library::object();
      for (size_t i = 0; i < json.size(); ++i) out[json.keys()[i]] = to_library(json.at(i));
      return out;
    }
  }
  return nullptr;
}

}  // namespace

Json::Json(std::initializer_list<Json> entries) {
  const bool pairs = std::all_of(entries.begin(), entries.end(),
                                 [](const Json& entry) { return entry.is_array() && entry.size() == 2 && entry.at(0).is_text(); });
  kind_ = pairs ? Kind::object : Kind::array;
  for (const Json& entry : entries) {
    if (pairs) {
      (*this)[entry.at(0).text_] = entry.at(1);
    } else {
      values_.push_back(entry);
    }
  }
}

Json Json::object() {
  Json out;
  out.kind_ = Kind::object;
  return out;
}

Json Json::array() {
  Json out;
  out.kind_ = Kind::array;
  return out;
}

Json Json::parse(std::string_view text, std::optional<std::string>* repeated_key, size_t* error_at) {
  Builder builder;
  const bool is_json = Library::sax_parse(text, &builder);
  if (error_at) *error_at = builder.error_at;
  if (!is_json) return {};
  if (repeated_key) *repeated_key = std::move(builder.repeated_key);
  return std::move(builder.result);
}

std::string Json::dump(int indent) const { return to_library(*this).dump(indent, ' ', false, Library::error_handler_t::replace); }

const Json* Json::find(std::string_view key) const {
  const auto found = std::find(keys_.begin(), keys_.end(), key);
  return found == keys_.end() ? nullptr : &values_[static_cast<size_t>(found - keys_.begin())];
}

const Json& Json::operator[](const char* key) const {
  static const Json nothing;
  const Json* found = find(key);
  return found ? *found : nothing;
}

Json& Json::operator[](std::string_view key) {
  if (kind_ == Kind::null) kind_ = Kind::object;
  const auto found = std::find(keys_.begin(), keys_.end(), key);
  if (found != keys_.end()) return values_[static_cast<size_t>(found - keys_.begin())];
  keys_.emplace_back(key);
  return values_.emplace_back();
}

bool Json::value(const char* key, bool otherwise) const {
  const Json& found = (*this)[key];
  return found.is_boolean() ? found.get<bool>() : otherwise;
}

double Json::value(const char* key, double otherwise) const {
  const Json& found = (*this)[key];
  return found.is_number() ? found.get<double>() : otherwise;
}

std::string Json::value(const char* key, const char* otherwise) const {
  const Json& found = (*this)[key];
  return found.is_text() ? found.text_ : otherwise;
}

void Json::update(const Json& other) {
  for (size_t i = 0; i < other.size(); ++i) (*this)[other.keys_[i]] = other.at(i);
}

void Json::push_back(Json value) {
  if (kind_ == Kind::null) kind_ = Kind::array;
  values_.push_back(std::move(value));
}

}  // namespace gpucast
