// Writes a compressed stream: write plain text to std::ostream(&GzipBuffer), and gzip comes out.
#pragma once

#include <memory>
#include <ostream>
#include <streambuf>

namespace gpucast {

class GzipBuffer : public std::streambuf {
 public:
  // `out` must live longer. Throws Error if the compressor cannot start.
  explicit GzipBuffer(std::ostream& out);
  ~GzipBuffer() override;
  GzipBuffer(const GzipBuffer&) = delete;
  GzipBuffer& operator=(const GzipBuffer&) = delete;

  // Compresses the rest and ends the file; without this call the file is truncated. False if `out` failed.
  bool finish();

 protected:
  int_type overflow(int_type character) override;

 private:
  struct State;
  bool compress(int flush);
  std::unique_ptr<State> state_;
};

}  // namespace gpucast
