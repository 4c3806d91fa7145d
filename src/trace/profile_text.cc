// Parses texts that a ProfileTrace keeps unparsed from the file.

#include <algorithm>

#include "src/base/to_number.h"
#include "src/trace/json_scanner.h"
#include "src/trace/read_profile.h"

namespace gpucast {
namespace {

// The scanner needs padding after the end, and a view has none, so it works on a copy.
class PaddedText {
 public:
  explicit PaddedText(std::string_view text) : text_(text) { text_.append(JsonScanner::kPadding, '\0'); }
  JsonScanner scanner() const { return {text_.data(), text_.data() + text_.size() - JsonScanner::kPadding}; }

 private:
  std::string text_;
};

// Steps through a list: `item` is called before each element and must step over it. Stops at the first error.
template <class Item>
bool each_item(JsonScanner& scanner, Item item) {
  if (!scanner.skip_char('[')) return false;
  if (scanner.peek() == ']') return scanner.skip_char(']');
  for (bool last = false; !last;) {
    if (!item() || !scanner.separator(']', &last)) return false;
  }
  return true;
}

}  // namespace

std::optional<int64_t> parse_scaled(std::string_view text, int shift) {
  constexpr uint64_t kMost = (uint64_t{1} << 62) - 1;
  if (shift == 0 && text.size() < 19) {  // most numbers are short integers
    if (const std::optional<int64_t> number = to_number<int64_t>(text)) return number;
  }
  const char* at = text.data();
  const char* const end = at + text.size();
  const bool negative = at != end && *at == '-';
  if (at != end && (*at == '-' || *at == '+')) ++at;
  uint64_t digits = 0;
  int64_t exponent = shift;  // the result is digits * 10^exponent
  bool any = false, point = false, round_up = false;
  int dropped = 0;  // digits that no longer fit
  for (; at != end; ++at) {
    if (*at == '.' && !point) {
      point = true;
    } else if (*at >= '0' && *at <= '9') {
      any = true;
      if (digits <= kMost / 10) {
        digits = digits * 10 + static_cast<uint64_t>(*at - '0');
        exponent -= point ? 1 : 0;
      } else {
        if (dropped++ == 0) round_up = *at >= '5';
        exponent += point ? 0 : 1;
      }
    } else {
      break;
    }
  }
  if (!any) return std::nullopt;
  if (at != end) {
    if (*at != 'e' && *at != 'E') return std::nullopt;
    ++at;
    const bool down = at != end && *at == '-';
    if (at != end && (*at == '-' || *at == '+')) ++at;
    if (at == end) return std::nullopt;
    int64_t power = 0;
    for (; at != end; ++at) {
      if (*at < '0' || *at > '9') return std::nullopt;
      power = std::min<int64_t>(power * 10 + (*at - '0'), 100000);
    }
    exponent += down ? -power : power;
  }
  if (digits != 0 && exponent > 0 && dropped > 0) return std::nullopt;
  if (exponent < 0) round_up = false;
  for (; exponent < 0 && digits != 0; ++exponent) {
    round_up = digits % 10 >= 5;
    digits /= 10;
  }
  if (exponent < 0) round_up = false;
  for (; exponent > 0 && digits != 0; --exponent) {
    if (digits > kMost / 10) return std::nullopt;
    digits *= 10;
  }
  digits += round_up ? 1 : 0;
  if (digits > kMost) return std::nullopt;
  return negative ? -static_cast<int64_t>(digits) : static_cast<int64_t>(digits);
}

DimsList parse_dims(std::string_view json) {
  DimsList dims;
  const PaddedText text(json);
  JsonScanner scanner = text.scanner();
  JsonValue value;
  const auto shape = [&](std::vector<int64_t>* sizes) {
    if (scanner.peek() != '[') return scanner.value(&value);
    return each_item(scanner, [&] {
      if (!scanner.value(&value)) return false;
      if (value.kind == JsonValue::word) sizes->push_back(parse_scaled(value.text, 0).value_or(-1));
      return true;
    });
  };
  each_item(scanner, [&] {
    std::vector<int64_t>& sizes = dims.inputs.emplace_back();
    std::vector<std::vector<int64_t>>& list = dims.lists.emplace_back();
    if (scanner.peek() != '[') return scanner.value(&value);
    return each_item(scanner, [&] {
      if (scanner.peek() == '[') return shape(&list.emplace_back());
      if (!scanner.value(&value)) return false;
      if (value.kind == JsonValue::word) sizes.push_back(parse_scaled(value.text, 0).value_or(-1));
      return true;
    });
  });
  return dims;
}

std::vector<std::string> parse_texts(std::string_view json) {
  std::vector<std::string> texts;
  const PaddedText text(json);
  JsonScanner scanner = text.scanner();
  JsonValue value;
  each_item(scanner, [&] {
    if (!scanner.value(&value)) return false;
    if (value.kind == JsonValue::escaped_string) {
      append_unescaped(value.text, &texts.emplace_back());
    } else {
      texts.emplace_back(value.text);
    }
    return true;
  });
  return texts;
}

}  // namespace gpucast
