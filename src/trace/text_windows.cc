#include "src/trace/text_windows.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "gpucast/error.h"

namespace gpucast {
namespace {

constexpr size_t kLeastInputBytes = 4 << 10, kMostInputBytes = 256 << 10;  // compressed bytes in one read

}  // namespace

struct TextWindows::State {
  std::string path;
  int file = -1;
  size_t window_bytes = 0;
  bool gzip = false;
  bool inside_member = false;  // the end of the input here means that it is truncated
  End ended = End::none;
  uint64_t file_offset = 0;
  z_stream inflater = {};
  std::vector<unsigned char> input;  // compressed bytes; of a plain file only its first bytes
  size_t input_at = 0;
  std::vector<char> text;

  size_t read_some(void* to, size_t count) {
    while (true) {
      const ssize_t got = ::read(file, to, count);
      if (got >= 0) {
        file_offset += static_cast<uint64_t>(got);
        return static_cast<size_t>(got);
      }
      if (errno != EINTR) throw Error(fmt::format("cannot read {}: {}", path, std::strerror(errno)), fmt::format("byte {}", file_offset));
    }
  }

  bool refill() {
    input.resize(std::clamp(window_bytes, kLeastInputBytes, kMostInputBytes));
    input.resize(read_some(input.data(), input.size()));
    input_at = 0;
    return !input.empty();
  }

  // Reads up to `room` bytes of text; returns 0 at the end, with `ended` set.
  size_t produce(char* to, size_t room) {
    if (!gzip) {
      size_t count = std::min(room, input.size() - input_at);
      if (count > 0) {  // the bytes that were read to recognize gzip
        std::memcpy(to, input.data() + input_at, count);
        input_at += count;
      } else {
        count = read_some(to, room);
      }
      if (count == 0) ended = End::complete;
      return count;
    }
    while (ended == End::none) {
      if (input_at == input.size() && !refill()) {
        ended = inside_member ? End::truncated : End::complete;
        break;
      }
      if (!inside_member && input[input_at] == 0) {  // zeros after the last member: padding of a tape or a disk block
        ++input_at;
        continue;
      }
      inside_member = true;
      inflater.next_in = input.data() + input_at;
      inflater.avail_in = static_cast<uInt>(input.size() - input_at);
      inflater.next_out = reinterpret_cast<Bytef*>(to);
      inflater.avail_out = static_cast<uInt>(room);
      const int status = inflate(&inflater, Z_NO_FLUSH);
      input_at = input.size() - inflater.avail_in;
      if (status == Z_STREAM_END) {
        inside_member = false;
        inflateReset(&inflater);
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        ended = End::corrupt;
      }
      const size_t count = room - inflater.avail_out;
      if (count > 0) return count;
    }
    return 0;
  }
};

TextWindows::TextWindows(const std::string& path, size_t window_bytes) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.path = path;
  s.window_bytes = std::max<size_t>(window_bytes, 1);
  s.file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (s.file < 0) throw Error(fmt::format("cannot open {}: {}", path, std::strerror(errno)), path, "check the file's name");
  try {
    if (s.refill() && s.input.size() >= 2 && s.input[0] == 0x1f && s.input[1] == 0x8b) {
      s.gzip = true;
      if (inflateInit2(&s.inflater, 15 + 16) != Z_OK) throw Error("cannot start zlib: out of memory");
    }
  } catch (...) {
    ::close(s.file);
    throw;
  }
  s.text.resize(kPadding);
  begin_ = end_ = s.text.data();
}

TextWindows::~TextWindows() {
  if (state_->gzip) inflateEnd(&state_->inflater);
  ::close(state_->file);
}

bool TextWindows::more() {
  State& s = *state_;
  if (s.ended != End::none) return false;
  const size_t unread = size();
  const size_t needed = unread + s.window_bytes + kPadding;
  if (needed > s.text.size()) {
    std::vector<char> larger(std::max(needed, 2 * unread));
    std::memcpy(larger.data(), begin_, unread);
    s.text.swap(larger);
  } else if (begin_ != s.text.data()) {
    std::memmove(s.text.data(), begin_, unread);
  }
  const size_t count = s.produce(s.text.data() + unread, s.window_bytes);
  begin_ = s.text.data();
  end_ = begin_ + unread + count;
  std::memset(s.text.data() + unread + count, 0, kPadding);
  return count > 0;
}

TextWindows::End TextWindows::ended() const { return state_->ended; }
bool TextWindows::is_gzip() const { return state_->gzip; }

}  // namespace gpucast
