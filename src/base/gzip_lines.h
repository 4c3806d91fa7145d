// Reads a gzip file (one or more members), or a plain file, line by line, in one pass and constant memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace gpucast {

class GzipLines {
 public:
  // Why next() stopped. A truncated file still gives every whole line.
  enum class End {
    none,       // not stopped yet
    complete,   // the end of the file, between two gzip members
    truncated,  // the file ends inside a gzip member
    corrupt,    // the compressed bytes are damaged
  };

  // Bytes after the end of a line that may be read (not written): SIMD parsers need them.
  static constexpr size_t kPadding = 64;

  // Throws Error if the file cannot be opened.
  explicit GzipLines(const std::string& path);
  ~GzipLines();
  GzipLines(const GzipLines&) = delete;
  GzipLines& operator=(const GzipLines&) = delete;

  // The next line without its newline, valid until the next call. False at the end. A last line without a newline is returned only if the
  // file is complete. Throws Error if the file cannot be read.
  bool next(std::string_view* line);

  End end() const;
  bool is_gzip() const;           // false: a plain file
  uint64_t file_offset() const;   // bytes read from the file so far; after an error, the place of the truncation or damage
  uint64_t line_number() const;   // of the line last returned, from 1
  uint64_t line_offset() const;   // of its first byte, in the uncompressed text
  bool has_partial_line() const;  // the file ended inside a line

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gpucast
