#include "src/vgpu/core/board.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <thread>

#include "src/vgpu/core/log.h"

namespace gpucast::vgpu {
namespace {

namespace fs = std::filesystem;
using Seconds = std::chrono::seconds;

constexpr Seconds kLimit{300};      // for a rank that is known to run in this session
constexpr Seconds kStartLimit{60};  // for a rank that may run here or elsewhere, while other processes of the session live
constexpr Seconds kShortLimit{5};   // for a rank that may run here or elsewhere, if the launcher runs some ranks elsewhere

// Stands before each post in the file. The contents follow it.
struct Header {
  enum Kind : uint32_t { kPost = 1, kLeft = 2 };
  uint32_t kind;
  int32_t whom;
  Shape shape;
  uint64_t size_bytes;
  uint64_t known;
};

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

int environment_number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::atoi(text) : otherwise;
}

// Reads the environment variables of torchrun, which other launchers set too.
bool all_run_here() {
  if (std::getenv("GPUCAST_RANKS_HERE") != nullptr) return false;
  const int local = environment_number("LOCAL_WORLD_SIZE", 0);
  return local > 0 && local >= environment_number("WORLD_SIZE", 0);
}

// The boards of this process. F_GETLK does not show a process its own locks, so the boards of this process are listed here.
struct Boards {
  std::mutex mutex;
  std::map<std::string, Board*> by_file;
};
Boards& boards() {
  static Boards* const kBoards = new Boards;
  return *kBoards;
}
bool in_this_process(const std::string& file) {
  const std::lock_guard lock(boards().mutex);
  return boards().by_file.contains(file);
}

// The process that holds the lock on a rank's file. 0: none; unset: the system does not say.
std::optional<int> owner_of(int file) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  if (fcntl(file, F_GETLK, &lock) != 0) return std::nullopt;
  return lock.l_type != F_UNLCK ? lock.l_pid : 0;
}
bool rank_lives(int file) { return owner_of(file) != 0; }

// Whether another process of the session has imported PyTorch and is still running.
bool others_live(const std::string& session) {
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(session, problem)) {
    const fs::path name = entry.path().filename();
    if (name.extension() != ".torch") continue;
    const int process = std::atoi(name.stem().c_str());
    if (process > 0 && process != getpid() && kill(process, 0) == 0) return true;
  }
  return false;
}

// 0: not known.
int supervisor_of(const std::string& session) {
  std::ifstream file(session + "/session.json");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  constexpr std::string_view kKey = "\"supervisor_pid\":";
  const size_t at = text.find(kKey);
  return at == text.npos ? 0 : std::atoi(text.c_str() + at + kKey.size());
}

}  // namespace

struct Board::Peer {
  struct Entry {
    Shape shape;
    bool known;
    uint64_t offset, size_bytes;
  };
  int rank = 0, file = -1, process = 0;
  std::string path;
  uint64_t read_bytes = 0;
  std::map<int, std::vector<Entry>> posts;  // by receiver
  bool left = false, elsewhere = false, missing = false, warned = false;
};

std::shared_ptr<Board> Board::join(const std::string& communicator, int rank, int world, std::optional<std::set<int>> here) {
  const char* const session = std::getenv("GPUCAST_SESSION");
  if (session == nullptr || *session == '\0' || world < 2) return nullptr;
  std::shared_ptr<Board> board(new Board);
  board->session_ = session;
  board->folder_ = board->session_ + "/ranks/" + communicator;
  board->here_ = std::move(here);
  board->rank_ = rank;
  board->world_ = world;
  board->process_ = getpid();
  board->joined_ns_ = now_ns();
  board->supervisor_ = supervisor_of(board->session_);
  std::error_code problem;
  fs::create_directories(board->folder_, problem);
  // The file is locked before it gets its name, so no rank ever sees it unlocked.
  const std::string path = board->folder_ + '/' + std::to_string(rank), unnamed = path + ".new" + std::to_string(getpid());
  board->file_ = open(unnamed.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (board->file_ < 0) return nullptr;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  const bool locked = fcntl(board->file_, F_SETLK, &lock) == 0;
  {
    const std::lock_guard guard(boards().mutex);
    boards().by_file[path] = board.get();
  }
  if (!locked || rename(unnamed.c_str(), path.c_str()) != 0) return nullptr;
  return board;
}

Board::~Board() {
  leave();
  {
    const std::lock_guard lock(boards().mutex);
    std::erase_if(boards().by_file, [this](const auto& entry) { return entry.second == this; });
  }
  // Closing any descriptor of a file releases the process's lock on it. So files of other ranks in this process stay open.
  for (const auto& [rank, peer] : peers_)
    if (peer->file >= 0 && !in_this_process(peer->path)) close(peer->file);
  if (file_ >= 0) close(file_);
}

uint64_t Board::post(int whom, const Shape& shape, const char* contents, size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = posted_[whom]++;
  if (left_ || process_ != getpid()) return number;
  if (contents == nullptr) size_bytes = 0;
  Header header{};
  header.kind = Header::kPost;
  header.whom = whom;
  header.shape = shape;
  header.size_bytes = size_bytes;
  header.known = contents != nullptr ? 1 : 0;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  if (size_bytes > 0) bytes.append(contents, size_bytes);
  if (write(file_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    left_ = true;  // a full disk: as if this rank had stopped
  return number;
}

uint64_t Board::expect(int from) {
  const std::lock_guard lock(mutex_);
  return expected_[from]++;
}

void Board::leave() {
  const std::lock_guard lock(mutex_);
  if (left_ || file_ < 0 || process_ != getpid()) return;
  left_ = true;
  Header header{};
  header.kind = Header::kLeft;
  [[maybe_unused]] const ssize_t written = write(file_, &header, sizeof header);
}

bool Board::failed() {
  const std::lock_guard lock(mutex_);
  return failed_;
}

Board::Peer& Board::peer(int rank) {
  std::unique_ptr<Peer>& found = peers_[rank];
  if (!found) {
    found = std::make_unique<Peer>();
    found->rank = rank;
    found->path = folder_ + '/' + std::to_string(rank);
  }
  return *found;
}

int Board::process_of(int rank) {
  const std::lock_guard lock(mutex_);
  Peer& peer = this->peer(rank);
  if (peer.process != 0) return peer.process;
  if (in_this_process(peer.path)) return peer.process = getpid();
  return peer.file < 0 ? 0 : peer.process = owner_of(peer.file).value_or(0);
}

// Reads what a rank has posted since the last call. False: the rank has no file yet.
bool Board::read_posts(Peer& peer) {
  if (peer.file < 0) peer.file = open(peer.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (peer.file < 0) return false;
  struct stat status {};
  if (fstat(peer.file, &status) != 0) return true;
  const auto end = static_cast<uint64_t>(status.st_size);
  Header header;
  while (peer.read_bytes + sizeof header <= end) {
    if (pread(peer.file, &header, sizeof header, static_cast<off_t>(peer.read_bytes)) != sizeof header) break;
    if (peer.read_bytes + sizeof header + header.size_bytes > end) break;
    if (header.kind == Header::kLeft) peer.left = true;
    if (header.kind == Header::kPost)
      peer.posts[header.whom].push_back({header.shape, header.known != 0, peer.read_bytes + sizeof header, header.size_bytes});
    peer.read_bytes += sizeof header + header.size_bytes;
  }
  return true;
}

// Whether a rank without a file may still start. A wrong answer costs a wait or a value and never causes a hang: each wait has a limit.
bool Board::may_still_start(int rank) {
  const std::chrono::nanoseconds waited(now_ns() - joined_ns_);
  if (here_) return here_->contains(rank) && waited < kLimit;
  if (const char* const here = std::getenv("GPUCAST_RANKS_HERE"); here != nullptr) {  // the only ranks that run: "0,8"
    const std::string_view ranks(here);
    if (ranks.find(',') == ranks.npos) return false;
    if (world_ != environment_number("WORLD_SIZE", 0)) return waited < kShortLimit;
    return (',' + std::string(ranks) + ',').find(',' + std::to_string(rank) + ',') != std::string::npos && waited < kLimit;
  }
  if (all_run_here()) return waited < kLimit;
  const int world = environment_number("WORLD_SIZE", 0), local = environment_number("LOCAL_WORLD_SIZE", 0);
  if (world > 0 && local > 0) {
    // The group of all ranks numbers them as the launcher does: the ranks of a node are consecutive.
    const int first = environment_number("RANK", 0) - environment_number("LOCAL_RANK", 0);
    if (world_ == world) return rank >= first && rank < first + local && waited < kLimit;
    return waited < kShortLimit;
  }
  return waited < kStartLimit && others_live(session_);
}

void Board::warn(Peer& peer, const char* code, const std::string& text) {
  if (peer.warned) return;
  peer.warned = true;
  log_warning(code, text.c_str());
}

Answer Board::get(int from, int whom, uint64_t number, const Shape& mine, Post* post, bool wait) {
  const int64_t began_ns = now_ns();
  std::chrono::microseconds pause{50};
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      Peer& peer = this->peer(from);
      if (peer.elsewhere) return Answer::elsewhere;
      const bool here = read_posts(peer);
      const bool alive = here && (in_this_process(peer.path) || rank_lives(peer.file));
      if (here && !alive) read_posts(peer);  // what it wrote before it ended
      const std::vector<Peer::Entry>& posts = peer.posts[whom];
      if (number < posts.size()) {
        const Peer::Entry& entry = posts[number];
        if (post != nullptr) {
          post->shape = entry.shape;
          post->known = entry.known;
          post->contents.resize(entry.size_bytes);
          if (entry.size_bytes > 0 && pread(peer.file, post->contents.data(), entry.size_bytes, static_cast<off_t>(entry.offset)) !=
                                          static_cast<ssize_t>(entry.size_bytes))
            post->known = false;
        }
        if (!(entry.shape == mine) && !differs_) {
          differs_ = true;
          const auto say = [](int rank, const Shape& shape) {
            return "rank " + std::to_string(rank) + " calls " + shape.call + " of " + std::to_string(shape.count) + " elements";
          };
          log_warning("collectives_differ", (say(rank_, mine) + " where " + say(from, entry.shape) +
                                             " (of another type, operation or root where these are equal), collective " +
                                             std::to_string(number) + " of a group of " + std::to_string(world_) + ": on GPUs this hangs")
                                                .c_str());
        }
        return Answer::posted;
      }
      const std::string what = std::string(" before ") + mine.call + " of " + std::to_string(mine.count) + " elements in a group of " +
                               std::to_string(world_) + "; what it would have brought reads as zeros";
      const auto rank_that = [from, &what](const std::string& did) {
        std::string text = "rank " + std::to_string(from);
        text.append(did).append(what);
        return text;
      };
      if (peer.left) {
        warn(peer, "rank_ended", rank_that(" ended"));
        return Answer::silent;
      }
      if (here && !alive) {
        failed_ = true;
        warn(peer, "rank_died", rank_that(" died"));
        return Answer::silent;
      }
      if (process_ != getpid()) return Answer::silent;
      if (!here && !may_still_start(from)) {
        if (!all_run_here()) {
          peer.elsewhere = true;
          return Answer::elsewhere;
        }
        warn(peer, "rank_missing", rank_that(" did not come within " + std::to_string(kLimit.count()) + " s,"));
        return Answer::silent;
      }
      if (here && (peer.missing || now_ns() - began_ns > std::chrono::nanoseconds(kLimit).count())) {
        peer.missing = true;  // later calls do not wait for it
        warn(peer, "rank_missing", rank_that(" brought nothing within " + std::to_string(kLimit.count()) + " s,"));
        return Answer::silent;
      }
    }
    if (!wait) return Answer::coming;
    // The supervisor was killed. Nothing else would end this process (as in gpucast_vgpu_hold).
    if (supervisor_ > 0 && kill(supervisor_, 0) != 0 && errno == ESRCH) {
      std::error_code ignored;
      fs::remove_all(session_ + "/ranks", ignored);
      _exit(0);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(2000));
  }
}

bool Board::get_all(uint64_t number, const Shape& mine, bool wait) {
  bool came = true;
  for (int rank = 0; rank < world_ && came; ++rank)
    if (rank != rank_) came = get(rank, kEveryone, number, mine, nullptr, wait) != Answer::coming;
  return came;
}

bool Arrival::has_arrived(bool wait) const {
  if (from == kEveryone) return board->get_all(number, shape, wait);
  return board->get(from, whom, number, shape, nullptr, wait) != Answer::coming;
}

}  // namespace gpucast::vgpu

void gpucast_vgpu_leave_ranks() {
  using gpucast::vgpu::boards;
  const std::lock_guard lock(boards().mutex);
  for (const auto& [file, board] : boards().by_file) board->leave();
}
