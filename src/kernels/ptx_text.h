// PTX as a sequence of statements, each a list of words.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace gpucast::ptx {

enum class Part : uint8_t { end, statement, open, close, label, header };  // header: of a function, up to its body

class PtxText {
 public:
  explicit PtxText(std::string_view text) : text_(text) {}
  // `words`: the statement's words without the semicolon, or a label's name.
  Part next(std::vector<std::string_view>* words);
  void skip_body();  // after a header: to the end of the braces

 private:
  void skip_blanks();
  void skip_line();
  bool word(std::string_view* out);
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace gpucast::ptx
