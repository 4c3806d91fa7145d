// The data that the ranks of one communicator exchange when they run in one session.
//
// Each rank appends its data to its own file, SESSION/ranks/COMMUNICATOR/RANK, and reads the other ranks' files when it needs them. A rank
// holds a lock on its file. The kernel releases it when the process ends in any way, so a locked file means a living rank. The folder is
// deleted with the session's folder. Without a session there is no board and no exchange.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

constexpr int kEveryone = -1;

// A call whose arguments must be the same on all ranks.
struct Shape {
  char call[24];
  int32_t type, operation, root;
  uint64_t count;
  bool operator==(const Shape&) const = default;
};

struct Post {
  Shape shape;
  bool known;  // false: the contents are unknown and read as zeros
  std::vector<char> contents;
};

enum class Answer {
  posted,
  elsewhere,  // it runs in no process of this session
  coming,     // not posted yet, and the caller does not wait
  silent,     // it ended, hangs or missed the limit: a warning in the log, once
};

class GPUCAST_VGPU_API Board {
 public:
  // nullptr: without a session, or in a world of one rank.
  // `here`: the ranks that run in this session, if the caller knows them.
  static std::shared_ptr<Board> join(const std::string& communicator, int rank, int world, std::optional<std::set<int>> here = {});
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Posts data for one rank or for everyone. Returns its number: this is the n-th post of this rank to `whom`.
  uint64_t post(int whom, const Shape& shape, const char* contents, size_t size_bytes);  // nullptr: contents not known
  // The number of the next post that a rank addresses to this rank alone.
  uint64_t expect(int from);
  // Waits for post `number` of rank `from` to `whom` (this rank or everyone). `mine`: this rank's own call, for a warning when the other
  // rank makes a different one. `post` may be null.
  Answer get(int from, int whom, uint64_t number, const Shape& mine, Post* post, bool wait = true);
  // The same for the posts of all ranks. False: at least one is still missing.
  bool get_all(uint64_t number, const Shape& mine, bool wait);

  // The process in which a rank runs. 0: not known.
  int process_of(int rank);

  int rank() const { return rank_; }
  int world() const { return world_; }
  bool failed();  // a rank died before it posted what another waited for
  void leave();   // this rank posts nothing more

 private:
  struct Peer;
  Board() = default;
  Peer& peer(int rank);
  bool read_posts(Peer& peer);
  bool may_still_start(int rank);
  void warn(Peer& peer, const char* code, const std::string& text);

  std::string folder_, session_;
  std::optional<std::set<int>> here_;
  int rank_ = 0, world_ = 1, file_ = -1, process_ = 0, supervisor_ = 0;
  bool left_ = false, failed_ = false, differs_ = false;
  int64_t joined_ns_ = 0;
  std::mutex mutex_;
  std::map<int, uint64_t> posted_, expected_;
  std::map<int, std::unique_ptr<Peer>> peers_;
};

// What a stream waits for: post `number` of a rank (or of every rank) to `whom`.
struct Arrival {
  std::shared_ptr<Board> board;
  int from, whom;
  uint64_t number;
  Shape shape;
  // Whether this is PyTorch's barrier: an all-reduce of one element. PyTorch queries an event after it, and waits only if the event is not
  // done.
  bool barrier() const { return from == kEveryone && shape.count == 1; }
  bool has_arrived(bool wait) const;
};

}  // namespace gpucast::vgpu
