// Writes a stream compressed: std::ostream(&GzipBuffer) is plain on one side and gzip on the other.
#pragma once

#include <memory>
#include <ostream>
#include <streambuf>

namespace gpucast {

class GzipBuffer : public std::streambuf {
 public:
  // `out` must live longer. Throws Error when the compressor cannot start.
  explicit GzipBuffer(std::ostream& out);
  ~GzipBuffer() override;
  GzipBuffer(const GzipBuffer&) = delete;
  GzipBuffer& operator=(const GzipBuffer&) = delete;

  // Compresses what is left and ends the file: without it the file is cut off. False when `out` failed.
  bool finish();

 protected:
  int_type overflow(int_type character) override;

 private:
  struct State;
  bool compress(int flush);
  std::unique_ptr<State> state_;
};

}  // namespace gpucast
