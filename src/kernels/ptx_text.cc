#include "src/kernels/ptx_text.h"

#include <algorithm>
#include <array>

namespace gpucast::ptx {
namespace {

constexpr std::array<bool, 256> word_characters() {
  std::array<bool, 256> out = {};
  for (int c = 'a'; c <= 'z'; ++c) out[static_cast<size_t>(c)] = true;
  for (int c = 'A'; c <= 'Z'; ++c) out[static_cast<size_t>(c)] = true;
  for (int c = '0'; c <= '9'; ++c) out[static_cast<size_t>(c)] = true;
  for (const unsigned char c : {'_', '$', '%', '.'}) out[c] = true;
  return out;
}
constexpr std::array<bool, 256> kInWord = word_characters();
bool in_word(char c) { return kInWord[static_cast<unsigned char>(c)]; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }

}  // namespace

void PtxText::skip_line() { at_ = std::min(text_.find('\n', at_), text_.size()); }

void PtxText::skip_blanks() {
  while (at_ < text_.size()) {
    if (is_blank(text_[at_])) {
      ++at_;
    } else if (text_.compare(at_, 2, "//") == 0) {
      skip_line();
    } else if (text_.compare(at_, 2, "/*") == 0) {
      const size_t end = text_.find("*/", at_ + 2);
      at_ = end == std::string_view::npos ? text_.size() : end + 2;
    } else {
      return;
    }
  }
}

bool PtxText::word(std::string_view* out) {
  skip_blanks();
  if (at_ >= text_.size()) return false;
  const size_t begin = at_;
  if (text_[at_] == '"') {
    const size_t end = text_.find('"', at_ + 1);
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
  } else if (in_word(text_[at_])) {
    // Two colons are part of a modifier: .shared::cta.
    while (at_ < text_.size()) {
      if (in_word(text_[at_])) {
        ++at_;
      } else if (text_.compare(at_, 2, "::") == 0) {
        at_ += 2;
      } else {
        break;
      }
    }
  } else {
    ++at_;
  }
  *out = text_.substr(begin, at_ - begin);
  return true;
}

void PtxText::skip_body() {
  int depth = 0;
  std::string_view next_word;
  while (word(&next_word)) {
    if (next_word == "{") ++depth;
    if (next_word == "}" && --depth <= 0) return;
  }
}

Part PtxText::next(std::vector<std::string_view>* words) {
  words->clear();
  bool function = false;
  std::string_view next_word;
  for (;;) {
    const size_t before = at_;
    if (!word(&next_word)) return words->empty() ? Part::end : Part::statement;
    if (words->empty()) {
      if (next_word == ";") continue;
      if (next_word == "{") return Part::open;
      if (next_word == "}") return Part::close;
      // Debug lines end with the line.
      if (next_word == ".loc" || next_word == ".file" || next_word == ".version" || next_word == ".target" ||
          next_word == ".address_size") {
        skip_line();
        continue;
      }
      if (next_word == ".section") {
        skip_body();
        continue;
      }
    }
    if (next_word == ";") return Part::statement;
    if (next_word == "{" && function) {
      at_ = before;
      return Part::header;
    }
    if (next_word == "}" && std::find(words->begin(), words->end(), "{") == words->end()) {
      at_ = before;  // a statement without its semicolon
      return Part::statement;
    }
    function = function || next_word == ".entry" || next_word == ".func";
    if (next_word == ":" && words->size() == 1) return Part::label;
    words->push_back(next_word);
  }
}

}  // namespace gpucast::ptx
