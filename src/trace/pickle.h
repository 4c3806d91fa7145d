// Reads the plain data of a Python pickle (protocols 2 to 5), plain or gzip, in one pass. Nothing in the file is ever executed: None, bool,
// int (64 bits), float, str, list, tuple and dict are read, and everything else is refused with its byte offset.
//
// Keeping all objects of a pickle would need many times the file's size. So each container is passed to a folder as soon as it is complete,
// which is when it is put into another one. The folder may return a smaller value, which replaces the container:
//
//   {'filename': 'train.py', 'line': 17, 'name': 'main'}   -> folded to frame 3
//   [frame 0, frame 3]                                     -> folded to stack 1
//
// Memory stays below kMemoryBase + kMemoryFactor times the bytes read, for any file, if the folder reports the memory that it keeps
// (charge). A file that would need more is refused.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpucast/trace.h"

namespace gpucast {

// Eight bytes: a kind, and the value or an index into the reader's tables.
class PickleValue {
 public:
  enum class Kind : uint8_t { none, boolean, integer, wide_integer, real, text, container };
  PickleValue() = default;
  PickleValue(Kind kind, uint64_t payload) : bits_(payload << 4 | static_cast<uint64_t>(kind)) {}
  Kind kind() const { return static_cast<Kind>(bits_ & 15); }
  uint64_t payload() const { return bits_ >> 4; }
  int64_t signed_payload() const { return static_cast<int64_t>(bits_) >> 4; }

 private:
  uint64_t bits_ = 0;
};

enum class PickleContainer : uint8_t { list, tuple, dict };

class PickleFolder {
 public:
  virtual ~PickleFolder() = default;
  // Called once for each complete container; the items of a dict are key, value, key, value. Returns the value (below 2^60) that replaces
  // the container, or nothing to keep the container.
  virtual std::optional<uint64_t> fold(PickleContainer kind, std::span<const PickleValue> items) = 0;
};

class PickleReader {
 public:
  static constexpr uint64_t kMemoryBase = uint64_t{64} << 20, kMemoryFactor = 3;

  // Texts go to `strings` (not owned). Throws Error when the file cannot be opened.
  PickleReader(const std::string& path, StringTable* strings);
  ~PickleReader();
  PickleReader(const PickleReader&) = delete;
  PickleReader& operator=(const PickleReader&) = delete;

  // The pickled value. Throws Error with the byte offset for what is cut off, damaged, not plain data, or too large.
  PickleValue read(PickleFolder* folder);

  // The value as one type; nothing when it has another type, or does not fit.
  std::optional<int64_t> integer(PickleValue value) const;
  std::optional<uint64_t> address(PickleValue value) const;
  std::optional<double> real(PickleValue value) const;  // also converts an int
  std::optional<StringId> text(PickleValue value) const;
  std::optional<bool> boolean(PickleValue value) const;
  std::optional<uint64_t> folded(PickleValue value) const;                                           // the value that the folder returned
  std::optional<std::span<const PickleValue>> items(PickleValue value, PickleContainer kind) const;  // of a container that was not folded

  void charge(uint64_t bytes);            // reports that the folder keeps `bytes` more
  std::string describe_position() const;  // "train.pickle, byte 17"

 private:
  struct Source;
  struct Machine;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Machine> machine_;
};

// Whether the file begins like a pickle of protocol 2 or later. False for anything but a regular file: a pipe can be read only once.
bool looks_like_pickle(const std::string& path);

}  // namespace gpucast
