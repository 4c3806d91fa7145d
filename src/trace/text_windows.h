// Reads the text of a plain or gzip file in windows. Unread text is contiguous in memory; consumed text is dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace gpucast {

class TextWindows {
 public:
  // Why more() returned false.
  enum class End {
    none,       // it has not returned false
    complete,   // the end of the file, between two gzip members
    truncated,  // the file ends inside a gzip member
    corrupt,    // the compressed bytes are damaged
  };

  // Zeros that follow end() and may be read.
  static constexpr size_t kPadding = 64;

  // Reads at most window_bytes (>= 1) of text at a time. Throws Error when the file cannot be opened.
  TextWindows(const std::string& path, size_t window_bytes);
  ~TextWindows();
  TextWindows(const TextWindows&) = delete;
  TextWindows& operator=(const TextWindows&) = delete;

  // The unread text. Valid until more().
  const char* begin() const { return begin_; }
  const char* end() const { return end_; }
  size_t size() const { return static_cast<size_t>(end_ - begin_); }
  uint64_t offset() const { return offset_; }  // of begin(), in the uncompressed text

  // Moves begin() to `to`, which must be within [begin(), end()].
  void consume(const char* to) {
    offset_ += static_cast<uint64_t>(to - begin_);
    begin_ = to;
  }

  // Appends at least one byte of text after end(). False when nothing more can be read. Throws Error when reading fails.
  bool more();
  End ended() const;
  bool is_gzip() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  const char* begin_ = nullptr;
  const char* end_ = nullptr;
  uint64_t offset_ = 0;
};

}  // namespace gpucast
