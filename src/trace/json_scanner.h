// Steps through JSON text that may be cut off or broken, and copies nothing: values are views of the text.
//
// Traces need some leniency. Strings may contain control characters and unknown escapes, because PyTorch writes source text and Windows
// paths without escaping them, and bare words (inf, nan) count as numbers. Structure is strict: a string, comma, colon or bracket at a
// wrong place is an error, so an unescaped quote is noticed at its place.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace gpucast {

// One value. `text`: a string without its quotes and still escaped, a number or word, or a whole list or object.
struct JsonValue {
  enum Kind : uint8_t { none, string, escaped_string, word, list, object };
  std::string_view text;
  Kind kind = none;

  bool is_string() const { return kind == string || kind == escaped_string; }
};

inline bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Appends `text` with its escapes resolved. Escapes that JSON does not have are copied unchanged.
void append_unescaped(std::string_view text, std::string* out);

class JsonScanner {
 public:
  // Up to kPadding zeros after `end` are read, but never used.
  static constexpr size_t kPadding = 8;

  JsonScanner(const char* begin, const char* end) : at_(begin), end_(end) {}

  enum class Stop : uint8_t { none, more, bad };
  Stop stop() const { return stop_; }           // why the last step returned false: the text ended, or it is not JSON
  const char* position() const { return at_; }  // after `false`: near the error
  const char* expected() const { return expected_; }

  // Steps over white space, then over exactly this character.
  bool skip_char(char c) {
    const char* at = space();
    if (*at != c || at == end_) return fail(at, c == ':' ? "':'" : c == '{' ? "'{'" : c == '"' ? "a string in quotes" : "punctuation");
    at_ = at + 1;
    return true;
  }
  // Steps over white space and returns the next character without consuming it; '\0' at the end.
  char peek() {
    at_ = space();
    return at_ == end_ ? '\0' : *at_;
  }
  // Steps over the character after a value in an object or list: a comma (more values follow, *last is false) or `close`.
  bool separator(char close, bool* last) {
    const char* at = space();
    const char c = *at;
    if ((c != ',' && c != close) || at == end_) return fail(at, close == '}' ? "',' or '}'" : "',' or ']'");
    *last = c == close;
    at_ = at + 1;
    return true;
  }
  bool string(JsonValue* out);
  bool value(JsonValue* out) { return value(out, 0); }

 private:
  static constexpr int kMostDepth = 64;

  const char* space() const {  // the padding ends the loop
    const char* at = at_;
    while (is_json_space(*at)) ++at;
    return at;
  }
  bool fail(const char* at, const char* expected) {
    stop_ = at == end_ ? Stop::more : Stop::bad;
    at_ = at;
    expected_ = expected;
    return false;
  }
  bool value(JsonValue* out, int depth);

  const char* at_;
  const char* end_;
  const char* expected_ = "";
  Stop stop_ = Stop::none;
};

}  // namespace gpucast
