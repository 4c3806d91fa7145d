#include "src/trace/json_scanner.h"

#include <charconv>

namespace gpucast {
namespace {

static_assert(std::endian::native == std::endian::little, "first_special() counts from the low end");

constexpr uint64_t kOnes = 0x0101010101010101;
constexpr uint64_t kHighs = 0x8080808080808080;

// Has the high bit set in each byte of `word` that equals `c`. Only the first such byte is exact.
constexpr uint64_t bytes_equal(uint64_t word, char c) {
  const uint64_t x = word ^ (kOnes * static_cast<unsigned char>(c));
  return (x - kOnes) & ~x & kHighs;
}

bool is_word(char c) {
  return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

bool JsonScanner::string(JsonValue* out) {
  if (!skip_char('"')) return false;
  const char* const begin = at_;
  const char* at = begin;
  out->kind = JsonValue::string;
  while (at < end_) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    const uint64_t special = bytes_equal(word, '"') | bytes_equal(word, '\\');
    if (special == 0) {
      at += sizeof word;
      continue;
    }
    at += std::countr_zero(special) / 8;
    if (at >= end_) break;
    if (*at == '"') {
      out->text = {begin, static_cast<size_t>(at - begin)};
      at_ = at + 1;
      return true;
    }
    out->kind = JsonValue::escaped_string;
    at += 2;
  }
  return fail(end_, "the end of a string");
}

bool JsonScanner::value(JsonValue* out, int depth) {
  const char* const begin = space();
  at_ = begin;
  const char first = *begin;
  if (begin == end_) return fail(begin, "a value");
  if (first == '"') return string(out);
  if (first != '[' && first != '{') {
    const char* at = begin;
    while (is_word(*at)) ++at;
    if (at == begin || at == end_) return fail(at, "a value");
    out->kind = JsonValue::word;
    out->text = {begin, static_cast<size_t>(at - begin)};
    at_ = at;
    return true;
  }
  if (depth == kMostDepth) {
    fail(begin, "less nesting");
    return false;
  }
  const bool is_object = first == '{';
  const char close = is_object ? '}' : ']';
  at_ = begin + 1;
  JsonValue inner;
  if (peek() == close) {
    ++at_;
  } else {
    for (bool last = false; !last;) {
      if (is_object && (!string(&inner) || !skip_char(':'))) return false;
      if (!value(&inner, depth + 1) || !separator(close, &last)) return false;
    }
  }
  out->kind = is_object ? JsonValue::object : JsonValue::list;
  out->text = {begin, static_cast<size_t>(at_ - begin)};
  return true;
}

void append_unescaped(std::string_view text, std::string* out) {
  const auto hex4 = [&](size_t at, uint32_t* code) {
    if (at + 4 > text.size()) return false;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, *code, 16);
    return error == std::errc() && end == text.data() + at + 4;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out->push_back(text[i]);
      continue;
    }
    const char c = text[++i];
    switch (c) {
      case '"':
      case '\\':
      case '/':
        out->push_back(c);
        break;
      case 'b':
        out->push_back('\b');
        break;
      case 'f':
        out->push_back('\f');
        break;
      case 'n':
        out->push_back('\n');
        break;
      case 'r':
        out->push_back('\r');
        break;
      case 't':
        out->push_back('\t');
        break;
      case 'u': {
        uint32_t code = 0, low = 0;
        if (!hex4(i + 1, &code)) {
          out->append("\\u");
          break;
        }
        i += 4;
        if (code >= 0xd800 && code < 0xdc00 && i + 2 < text.size() && text[i + 1] == '\\' && text[i + 2] == 'u' && hex4(i + 3, &low) &&
            low >= 0xdc00 && low < 0xe000) {
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
          i += 6;
        } else if (code >= 0xd800 && code < 0xe000) {
          code = 0xfffd;  // half of a surrogate pair
        }
        if (code < 0x80) {
          out->push_back(static_cast<char>(code));
        } else {
          const int bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
          constexpr uint32_t kLead[] = {0, 0, 0xc0, 0xe0, 0xf0};
          out->push_back(static_cast<char>(kLead[bytes] | (code >> (6 * (bytes - 1)))));
          for (int b = bytes - 2; b >= 0; --b) out->push_back(static_cast<char>(0x80 | ((code >> (6 * b)) & 0x3f)));
        }
        break;
      }
      default:
        out->push_back('\\');
        out->push_back(c);
    }
  }
}

}  // namespace gpucast
