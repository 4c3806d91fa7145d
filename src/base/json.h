// A JSON value as plain data. Keys keep their order. Only json.cc includes nlohmann/json, which reads and writes it: its headers take
// several times as long to compile as a report.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace gpucast {

class Json {
 public:
  enum class Kind : uint8_t { null, boolean, integer, number, text, array, object };

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : kind_(Kind::boolean), integer_(value ? 1 : 0) {}
  template <std::integral T>
  Json(T value) : kind_(Kind::integer), integer_(static_cast<int64_t>(value)) {}
  Json(double value) : kind_(Kind::number), number_(value) {}
  Json(const char* text) : kind_(Kind::text), text_(text) {}
  Json(std::string text) : kind_(Kind::text), text_(std::move(text)) {}
  Json(std::string_view text) : kind_(Kind::text), text_(text) {}
  template <class T>
  Json(const std::vector<T>& values) : kind_(Kind::array), values_(values.begin(), values.end()) {}
  // {{"name", 1}, {"other", "x"}}: an object if each entry is a pair that begins with a text; otherwise an array.
  Json(std::initializer_list<Json> entries);

  static Json object();
  static Json array();
  // Null if the text is not JSON, or nested more than 1000 deep. Integers beyond 64 bits become numbers. Of a key that an object has twice,
  // the last value counts; `repeated_key` gets the first such key. `error_at`: the bytes read until the error.
  static Json parse(std::string_view text, std::optional<std::string>* repeated_key = nullptr, size_t* error_at = nullptr);
  // Bytes that are not UTF-8 (a command line, a path) are replaced. `indent` -1: on one line.
  std::string dump(int indent = -1) const;

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::null; }
  bool is_boolean() const { return kind_ == Kind::boolean; }
  bool is_integer() const { return kind_ == Kind::integer; }
  bool is_number() const { return kind_ == Kind::integer || kind_ == Kind::number; }
  bool is_text() const { return kind_ == Kind::text; }
  bool is_array() const { return kind_ == Kind::array; }
  bool is_object() const { return kind_ == Kind::object; }

  // The value as T; 0, false or "" if it has another type.
  template <class T>
  T get() const {
    if constexpr (std::is_same_v<T, bool>) {
      return kind_ == Kind::boolean && integer_ != 0;
    } else if constexpr (std::is_arithmetic_v<T>) {
      return kind_ == Kind::integer ? static_cast<T>(integer_) : kind_ == Kind::number ? static_cast<T>(number_) : T{};
    } else {
      return kind_ == Kind::text ? T(text_) : T();
    }
  }

  // For arrays and objects.
  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  const std::vector<Json>& values() const { return values_; }
  std::vector<Json>::const_iterator begin() const { return values_.begin(); }
  std::vector<Json>::const_iterator end() const { return values_.end(); }
  const Json& at(size_t index) const { return values_[index]; }

  // For objects. keys()[i] is the key of values()[i].
  const std::vector<std::string>& keys() const { return keys_; }
  const Json* find(std::string_view key) const;  // nullptr: there is no such key, or this is not an object
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json& operator[](const char* key) const;  // null if there is no such key
  Json& operator[](std::string_view key);         // adds a missing key; null becomes an object
  Json& operator[](const char* key) { return (*this)[std::string_view(key)]; }
  Json& operator[](const std::string& key) { return (*this)[std::string_view(key)]; }
  void update(const Json& other);  // copies the other object's entries into this one
  // object[key] if it has the type of `otherwise` (any number for a number), else `otherwise`.
  bool value(const char* key, bool otherwise) const;
  template <std::integral T>
  int64_t value(const char* key, T otherwise) const {
    const Json& found = (*this)[key];
    return found.is_number() ? found.get<int64_t>() : static_cast<int64_t>(otherwise);
  }
  double value(const char* key, double otherwise) const;
  std::string value(const char* key, const char* otherwise) const;

  void push_back(Json value);  // null becomes an array

 private:
  Kind kind_ = Kind::null;
  int64_t integer_ = 0;
  double number_ = 0;
  std::string text_;
  std::vector<std::string> keys_;
  std::vector<Json> values_;
};

}  // namespace gpucast
