#include "src/report/html_columns.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "gpucast/error.h"

namespace gpucast {
namespace {

static_assert(std::endian::native == std::endian::little, "columns are written in the byte order of memory");

// The lowest level: columns repeat in every step, so a higher level gains little.
std::string gzip(const std::string& bytes) {
  z_stream stream = {};
  constexpr int kGzip = 15 + 16;
  if (deflateInit2(&stream, 1, Z_DEFLATED, kGzip, 9, Z_DEFAULT_STRATEGY) != Z_OK) throw Error("zlib cannot be used");
  std::string out;
  constexpr size_t kPiece = size_t{1} << 30;  // zlib counts in 32 bits
  std::vector<char> buffer(1 << 18);
  int result = Z_OK;
  for (size_t at = 0; result != Z_STREAM_END;) {
    if (stream.avail_in == 0 && at < bytes.size()) {
      stream.avail_in = static_cast<uInt>(std::min(kPiece, bytes.size() - at));
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + at));
      at += stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    result = deflate(&stream, at == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    out.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

std::string base64(const std::string& bytes) {
  static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out((bytes.size() + 2) / 3 * 4, '=');
  size_t to = 0;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t three = 0;
    for (size_t j = 0; j < left; ++j) three |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i + j])) << (16 - 8 * j);
    for (size_t j = 0; j <= left; ++j) out[to + j] = kLetters[three >> (18 - 6 * j) & 63];
    to += 4;
  }
  return out;
}

}  // namespace

void HtmlColumns::add_bytes(const char* name, const char* type, const void* values, size_t count, size_t value_bytes) {
  bytes_.resize((bytes_.size() + 7) / 8 * 8);
  directory_.push_back({{"name", name}, {"type", type}, {"offset", bytes_.size()}, {"count", count}});
  const size_t offset = bytes_.size();
  bytes_.resize(offset + count * value_bytes);
  if (count > 0) std::memcpy(bytes_.data() + offset, values, count * value_bytes);
}

std::string HtmlColumns::packed(Json meta) const {
  meta["columns"] = directory_;
  // Names of tensors and files need not be UTF-8.
  std::string json = meta.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string out = "GCR1";
  const auto length = static_cast<uint32_t>(json.size());
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  return base64(gzip(out + json + bytes_));
}

// JSON has '<' only in strings.
std::string json_for_script(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace gpucast
