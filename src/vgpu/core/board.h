// What the ranks of one communicator that run in this session tell each other.
//
// Each rank appends what it brings to a file of its own, SESSION/ranks/COMMUNICATOR/RANK, and reads those of the others when it needs them.
// A lock on the file, which the kernel lets go when the process ends however it ends, says that the rank lives. The folder goes
// with the session's. Without a session there is no board, and nobody to meet.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

constexpr int kEveryone = -1;

// A call, as all ranks must make it.
struct Shape {
  char call[24];
  int32_t type, operation, root;
  uint64_t count;
  bool operator==(const Shape&) const = default;
};

struct Post {
  Shape shape;
  bool known;  // the contents; else they are zeros
  std::vector<char> contents;
};

enum class Answer {
  posted,
  elsewhere,  // no process of this session
  coming,     // not yet, where nobody waits
  silent,     // it ended, stands still or did not come within the limit: said in the log, once
};

class GPUCAST_VGPU_API Board {
 public:
  // nullptr: no session, or a world of one.
  static std::shared_ptr<Board> join(const std::string& communicator, int rank, int world);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Brings something, for one rank or for everyone. Returns its number: the n-th that this rank brings to `whom`.
  uint64_t post(int whom, const Shape& shape, const char* contents, size_t size_bytes);  // nullptr: not known
  // The number of the next that is to come from a rank to this one alone.
  uint64_t expect(int from);
  // Waits for the number-th that `from` brings to `whom` (this rank or everyone). `mine`: what this rank calls, for a warning when that
  // rank calls something else. `post` may be null.
  Answer get(int from, int whom, uint64_t number, const Shape& mine, Post* post, bool wait = true);
  // As get() of all ranks. False: one of them is still coming.
  bool get_all(uint64_t number, const Shape& mine, bool wait);

  int rank() const { return rank_; }
  int world() const { return world_; }
  bool failed();  // a rank died before it brought what was waited for
  void leave();   // nothing more will come from this rank

 private:
  struct Peer;
  Board() = default;
  Peer& peer(int rank);
  bool read(Peer& peer);
  bool comes(int rank);
  void warn(Peer& peer, const char* code, const std::string& text);

  std::string folder_, session_;
  int rank_ = 0, world_ = 1, file_ = -1, process_ = 0, supervisor_ = 0;
  bool left_ = false, failed_ = false, differs_ = false;
  int64_t joined_ns_ = 0;
  std::mutex mutex_;
  std::map<int, uint64_t> posted_, expected_;
  std::map<int, std::unique_ptr<Peer>> peers_;
};

// What a stream waits for: the number-th post of a rank (or of every rank) to `whom`.
struct Arrival {
  std::shared_ptr<Board> board;
  int from, whom;
  uint64_t number;
  Shape shape;
  // What PyTorch's barrier is: it asks an event behind it, and only if that is not over it waits.
  bool barrier() const { return from == kEveryone && shape.count == 1; }
  bool came(bool wait) const;
};

// This process brings nothing more to any board (its capture is complete).
void leave_boards();

}  // namespace gpucast::vgpu
