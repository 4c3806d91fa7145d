#include "src/base/gzip_lines.h"

#include <fmt/core.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "gpucast/error.h"

namespace gpucast {
namespace {

constexpr size_t kInputBytes = 256 << 10;
constexpr size_t kTextBytes = 1 << 20;  // grows if a single line is longer

}  // namespace

struct GzipLines::State {
  std::string path;
  std::FILE* file = nullptr;
  z_stream inflater = {};
  bool inflater_open = false;
  bool gzip = false;
  bool inside_member = false;  // inside a member of the gzip file: an end here is a truncation
  bool input_ended = false;
  End end = End::none;
  std::vector<unsigned char> input = std::vector<unsigned char>(kInputBytes);
  size_t input_at = 0, input_size = 0;
  uint64_t input_taken = 0;  // bytes of the file before input[input_at]
  std::vector<char> text = std::vector<char>(kTextBytes + kPadding);
  size_t text_at = 0, text_size = 0;
  size_t searched = 0;       // bytes after text_at known to have no newline
  uint64_t text_offset = 0;  // of text[text_at] in the uncompressed text
  uint64_t line_number = 0, line_offset = 0;
  bool partial_line = false;

  bool read_input() {
    if (input_ended) return false;
    input_at = 0;
    input_size = std::fread(input.data(), 1, input.size(), file);
    if (input_size == 0) {
      if (std::ferror(file) != 0)
        throw Error(fmt::format("cannot read {}: {}", path, std::strerror(errno)), fmt::format("byte {}", input_taken));
      input_ended = true;
    }
    return input_size != 0;
  }

  void consume_input(size_t count) {
    input_at += count;
    input_taken += count;
  }

  // Makes room after text_size: moves the unread text to the front.
  void make_room() {
    if (text_at > 0) {
      std::memmove(text.data(), text.data() + text_at, text_size - text_at);
      text_size -= text_at;
      text_at = 0;
    }
    if (text_size + kPadding + kTextBytes / 2 > text.size()) text.resize(text.size() * 2);
  }

  // Appends some text. False: there is no more, and `end` is set.
  bool fill() {
    if (end != End::none) return false;
    make_room();
    const size_t room = text.size() - kPadding - text_size;
    while (true) {
      if (input_at == input_size && !read_input()) {
        end = inside_member ? End::truncated : End::complete;
        return false;
      }
      if (!gzip) {
        const size_t count = std::min(room, input_size - input_at);
        std::memcpy(text.data() + text_size, input.data() + input_at, count);
        text_size += count;
        consume_input(count);
        return true;
      }
      if (!inside_member && input[input_at] == 0) {  // zeros after the last member: padding of a tape or a disk block
        consume_input(1);
        continue;
      }
      inside_member = true;
      inflater.next_in = input.data() + input_at;
      inflater.avail_in = static_cast<uInt>(input_size - input_at);
      inflater.next_out = reinterpret_cast<Bytef*>(text.data() + text_size);
      inflater.avail_out = static_cast<uInt>(room);
      const int status = inflate(&inflater, Z_NO_FLUSH);
      consume_input(input_size - input_at - inflater.avail_in);
      const size_t count = room - inflater.avail_out;
      text_size += count;
      if (status == Z_STREAM_END) {
        inside_member = false;
        inflateReset(&inflater);
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        end = End::corrupt;
      }
      if (count > 0) return true;
      if (end != End::none) return false;
    }
  }
};

GzipLines::GzipLines(const std::string& path) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.path = path;
  s.file = std::fopen(path.c_str(), "rb");
  if (s.file == nullptr) throw Error(fmt::format("cannot open {}: {}", path, std::strerror(errno)), path, "check the file's name");
  if (s.read_input() && s.input_size >= 2 && s.input[0] == 0x1f && s.input[1] == 0x8b) {
    s.gzip = true;
    if (inflateInit2(&s.inflater, 15 + 16) != Z_OK) throw Error("cannot start zlib: out of memory");
    s.inflater_open = true;
  }
}

GzipLines::~GzipLines() {
  if (state_->inflater_open) inflateEnd(&state_->inflater);
  if (state_->file != nullptr) std::fclose(state_->file);
}

bool GzipLines::next(std::string_view* line) {
  State& s = *state_;
  while (true) {
    const char* from = s.text.data() + s.text_at;
    const size_t unread = s.text_size - s.text_at;
    const void* newline = unread > s.searched ? std::memchr(from + s.searched, '\n', unread - s.searched) : nullptr;
    size_t length = 0, step = 0;
    if (newline != nullptr) {
      length = static_cast<size_t>(static_cast<const char*>(newline) - from);
      step = length + 1;
    } else {
      s.searched = unread;
      if (s.fill()) continue;
      if (unread == 0) return false;
      if (s.end != End::complete) {
        s.partial_line = true;
        return false;
      }
      length = step = unread;
    }
    // fill() may have moved the text, but then the loop computed `from` again.
    *line = {s.text.data() + s.text_at, length};
    s.line_offset = s.text_offset;
    s.text_at += step;
    s.text_offset += step;
    s.searched = 0;
    ++s.line_number;
    return true;
  }
}

GzipLines::End GzipLines::end() const { return state_->end; }
bool GzipLines::is_gzip() const { return state_->gzip; }
uint64_t GzipLines::file_offset() const { return state_->input_taken; }
uint64_t GzipLines::line_number() const { return state_->line_number; }
uint64_t GzipLines::line_offset() const { return state_->line_offset; }
bool GzipLines::has_partial_line() const { return state_->partial_line; }

}  // namespace gpucast
