// Steps through JSON text that may be cut off or broken, and copies nothing: values are views of the text.
//
// As lenient as traces need it: control characters and unknown escapes in strings (PyTorch writes source text and Windows paths as they
// are) and bare words as numbers (inf, nan) are taken. Structure is not: what stands where no string, comma, colon or bracket may stand
// is an error, so an unescaped quote is noticed where it is.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace gpucast {

// What was read. `text`: a string without its quotes and still escaped, a number or word, or the whole of a list or object.
struct JsonValue {
  enum Kind : uint8_t { none, string, escaped_string, word, list, object };
  std::string_view text;
  Kind kind = none;

  bool is_string() const { return kind == string || kind == escaped_string; }
};

inline bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Appends `text` with its escapes resolved; one that JSON does not know stays as it is.
void append_unescaped(std::string_view text, std::string* out);

class JsonScanner {
 public:
  // Up to kPadding zeros behind `end` are read, never used.
  static constexpr size_t kPadding = 8;

  JsonScanner(const char* begin, const char* end) : at_(begin), end_(end) {}

  enum class Stop : uint8_t { none, more, bad };
  Stop stop() const { return stop_; }     // why the last step returned false: it ran into the end, or this is not JSON
  const char* at() const { return at_; }  // after `false`: about where
  const char* expected() const { return expected_; }

  // White space, then exactly this character.
  bool take(char c) {
    const char* at = space();
    if (*at != c || at == end_) return fail(at, c == ':' ? "':'" : c == '{' ? "'{'" : c == '"' ? "a string in quotes" : "punctuation");
    at_ = at + 1;
    return true;
  }
  // White space, then a look at what is next; '\0' at the end.
  char peek() {
    at_ = space();
    return at_ == end_ ? '\0' : *at_;
  }
  // Behind a value inside an object or list: a comma (more follows, *last false) or `close`.
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

  const char* space() const {  // the padding ends it
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
