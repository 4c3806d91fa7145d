// The plain data of a Python pickle (protocols 2 to 5), plain or gzip, in one pass. Nothing in the file is ever executed:
// None, bool, int (64 bits), float, str, list, tuple and dict are read, anything else is refused with its byte offset.
//
// Whole pickles of Python objects would take many times the file's size. So a container is shown to a folder as soon as it is
// complete, which is when it is put into another one, and the folder may keep something smaller in its place:
//
//   {'filename': 'train.py', 'line': 17, 'name': 'main'}   -> folded to frame 3
//   [frame 0, frame 3]                                     -> folded to stack 1
//
// Memory stays below kMemoryBase + kMemoryFactor times the bytes read, whatever the file holds, as long as the folder reports
// what it keeps (charge); a file that would take more is refused.
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
  // A container that is complete; of a dict key, value, key, value. Returns what stands for it from now on (below 2^60), or
  // nothing: then it is kept as it is. Each container is shown once.
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

  // What a value is; nothing when it is something else, or does not fit.
  std::optional<int64_t> integer(PickleValue value) const;
  std::optional<uint64_t> address(PickleValue value) const;
  std::optional<double> real(PickleValue value) const;  // an int too
  std::optional<StringId> text(PickleValue value) const;
  std::optional<bool> boolean(PickleValue value) const;
  std::optional<uint64_t> folded(PickleValue value) const;                                           // what the folder returned
  std::optional<std::span<const PickleValue>> items(PickleValue value, PickleContainer kind) const;  // what it did not fold

  void charge(uint64_t bytes);  // `bytes` more are kept
  std::string here() const;     // "train.pickle, byte 17"

 private:
  struct Source;
  struct Machine;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Machine> machine_;
};

// Does the file begin as a pickle of protocol 2 or later does? False for what is no regular file: that can be read only once.
bool looks_like_pickle(const std::string& path);

}  // namespace gpucast
