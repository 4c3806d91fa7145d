#include "src/base/gzip_stream.h"

#include <zlib.h>

#include <vector>

#include "gpucast/error.h"

namespace gpucast {
namespace {

constexpr size_t kGzipBufferBytes = 1 << 18;
constexpr int kLevel = 6;
constexpr int kGzipWindow = MAX_WBITS + 16;  // with a gzip header
constexpr int kMemoryLevel = 8;

}  // namespace

struct GzipBuffer::State {
  std::ostream& out;
  z_stream stream = {};
  std::vector<char> plain = std::vector<char>(kGzipBufferBytes), packed = std::vector<char>(kGzipBufferBytes);
};

GzipBuffer::GzipBuffer(std::ostream& out) : state_(new State{out}) {
  if (deflateInit2(&state_->stream, kLevel, Z_DEFLATED, kGzipWindow, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw Error("the compressor cannot start", "", "is there any memory left?");
  }
  setp(state_->plain.data(), state_->plain.data() + state_->plain.size());
}

GzipBuffer::~GzipBuffer() { deflateEnd(&state_->stream); }

bool GzipBuffer::finish() { return compress(Z_FINISH) && state_->out.flush().good(); }

GzipBuffer::int_type GzipBuffer::overflow(int_type character) {
  if (!compress(Z_NO_FLUSH)) return traits_type::eof();
  if (traits_type::eq_int_type(character, traits_type::eof())) return traits_type::not_eof(character);
  return sputc(traits_type::to_char_type(character));
}

bool GzipBuffer::compress(int flush) {
  z_stream& stream = state_->stream;
  stream.next_in = reinterpret_cast<Bytef*>(pbase());
  stream.avail_in = static_cast<uInt>(pptr() - pbase());
  do {
    stream.next_out = reinterpret_cast<Bytef*>(state_->packed.data());
    stream.avail_out = static_cast<uInt>(state_->packed.size());
    deflate(&stream, flush);
    state_->out.write(state_->packed.data(), static_cast<std::streamsize>(state_->packed.size() - stream.avail_out));
  } while (stream.avail_out == 0);
  setp(state_->plain.data(), state_->plain.data() + state_->plain.size());
  return state_->out.good();
}

}  // namespace gpucast
