#include "src/vgpu/core/clock_ranks.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "src/time/gpu_timeline.h"
#include "src/vgpu/core/clock_state.h"
#include "src/vgpu/core/host_time.h"
#include "src/vgpu/core/rank_positions.h"

namespace gpucast::vgpu {
namespace {

constexpr double kNever = GpuTimeline::kNever;
constexpr int64_t kLookNs = 30'000;                  // the others' posts are read at most this often
constexpr int64_t kLongestWaitNs = 300'000'000'000;  // then a rank goes on alone

// The addressees of arrivals on a board. Contents have ranks and kEveryone.
constexpr int kArrivals = -2, kSends = 1 << 20, kReceives = 1 << 21;
const Shape kArrivalShape{"arrival", 0, 0, -1, 0};

std::atomic<int> g_waiting{0};  // threads in wait_for_ranks()

uint64_t post_arrival(const RankWork& work, int whom, double at_ns) {
  char bytes[sizeof at_ns];
  std::memcpy(bytes, &at_ns, sizeof at_ns);
  return work.board->post(whom, kArrivalShape, bytes, sizeof bytes);
}

// Posts that this rank has come. Returns for whom it waits.
std::vector<RankGates::Awaited> arrive(const RankWork& work, double at_ns) {
  const int me = work.board->rank();
  std::vector<RankGates::Awaited> out;
  if (work.messages.empty()) {
    const uint64_t number = post_arrival(work, kArrivals, at_ns);
    for (int rank = 0; rank < work.board->world(); ++rank)
      if (rank != me) out.push_back({rank, kArrivals, number, 0});
  }
  for (const RankWork::Message& message : work.messages) {
    const uint64_t number = post_arrival(work, (message.receives ? kReceives : kSends) + message.peer, at_ns);
    // The buffers are free again when the receiver has got an earlier message.
    const auto ahead = message.receives ? 0 : static_cast<uint64_t>(work.buffered_bytes / std::max<int64_t>(1, message.size_bytes));
    if (number >= ahead) out.push_back({message.peer, (message.receives ? kSends : kReceives) + me, number - ahead, 0});
  }
  return out;
}

void open_reached(Clock& clock) {
  for (const GpuTimeline::Gate& gate : clock.gpu.take_reached()) {
    auto node = clock.gates.entered.extract(gate.work);
    if (node.empty()) continue;
    const double at_ns = static_cast<double>(clock.host.start_ns) + gate.at_ns;
    auto awaited = arrive(*node.mapped(), at_ns);
    clock.gates.open.push_back({gate.stream, std::move(node.mapped()), at_ns, std::move(awaited)});
    clock.gates.looked_ns = 0;
  }
}

double position_of_rank(const Clock& clock, Board& board, int rank) {
  const pid_t process = board.process_of(rank);
  return process == getpid() ? static_cast<double>(clock.host.start_ns) + clock.gpu.now_ns() : static_cast<double>(position_of(process));
}

// True: it has come, or will never come. Its position is read before its posts: what is not posted then comes later.
bool has_come(const Clock& clock, RankGates::Open* gate, RankGates::Awaited* other) {
  RankGates::Awaited& awaited = *other;
  awaited.position_ns = position_of_rank(clock, *gate->work->board, awaited.from);
  Post post{};
  const Answer answer = gate->work->board->get(awaited.from, awaited.whom, awaited.number, kArrivalShape, &post, false);
  double at_ns = 0;
  if (answer == Answer::posted && post.contents.size() == sizeof at_ns) {
    std::memcpy(&at_ns, post.contents.data(), sizeof at_ns);
    gate->came_ns = std::max(gate->came_ns, at_ns);
  }
  return answer != Answer::coming;
}

// Whether a gate's end is known now.
bool look_for_others(Clock& clock) {
  const auto waits = [](const RankGates::Open& gate) { return gate.end_ns < 0; };
  if (std::ranges::none_of(clock.gates.open, waits)) return false;
  const int64_t begin_ns = machine_ns(CLOCK_MONOTONIC);
  if (begin_ns - clock.gates.looked_ns < kLookNs) return false;
  bool found = false;
  for (RankGates::Open& gate : clock.gates.open) {
    if (!waits(gate)) continue;
    std::erase_if(gate.awaited, [&](RankGates::Awaited& awaited) { return has_come(clock, &gate, &awaited); });
    if (!gate.awaited.empty()) continue;
    found = true;
    gate.end_ns = gate.came_ns + gate.work->duration_ns;
    clock.gpu.end_gate_at(gate.stream, gate.end_ns - static_cast<double>(clock.host.start_ns));
  }
  clock.gates.looked_ns = machine_ns(CLOCK_MONOTONIC);
  host_was_interrupted(clock.host, clock.gates.looked_ns - begin_ns);
  return found;
}

// Forgets gates that are over, and lets those use memory whose last rank has come. Returns when the next one's comes.
double next_move_ns(Clock& clock) {
  const double now_ns = static_cast<double>(clock.host.start_ns) + clock.gpu.now_ns();
  std::erase_if(clock.gates.open, [&](const RankGates::Open& gate) { return gate.end_ns >= 0 && gate.end_ns <= now_ns; });
  double next_ns = kNever;
  for (RankGates::Open& gate : clock.gates.open) {
    if (gate.end_ns < 0 || gate.moves) continue;
    if (gate.came_ns <= now_ns) {
      gate.moves = true;
      clock.gpu.use_card(gate.stream, gate.work->moving, gate.work->memory);
    } else {
      next_ns = std::min(next_ns, gate.came_ns - static_cast<double>(clock.host.start_ns));
    }
  }
  return next_ns;
}

// ---- The thread that goes on while the script's threads do not call the card ---------------------------------------------------------

constexpr std::chrono::microseconds kGoOnRealTime{300}, kGoOnWarp{2000};
constexpr int64_t kWorksNs = 100'000;  // a process that used the processor this long in the meantime is not asleep

bool is_running(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  // Where the thread has ended since, reading fails: read() says so, a stream's iterator would throw.
  std::string text(512, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const size_t end_of_name = text.rfind(')');
  return end_of_name != text.npos && end_of_name + 2 < text.size() && text[end_of_name + 2] == 'R';
}

// Whether all other threads of this process sleep: they wait for another process, a lock or a disk. A thread that waits for the processor
// does not sleep.
bool others_sleep() {
  DIR* const threads = opendir("/proc/self/task");
  if (threads == nullptr) return false;
  const auto me = static_cast<pid_t>(syscall(SYS_gettid));
  bool out = true;
  while (const dirent* entry = readdir(threads)) {
    const int thread = std::atoi(entry->d_name);
    if (thread > 0 && thread != me && is_running(thread)) out = false;
  }
  closedir(threads);
  return out;
}

void go_on(Clock& clock) {
  const ClockLock lock(clock.mutex);
  advance_clock(clock, host_now_ns(clock.host));
}

[[noreturn]] void keep_going(Clock& clock) {
  const bool warp = clock.host.mode == ClockMode::warp;
  for (int64_t process_ns = 0, own_ns = 0;;) {
    std::this_thread::sleep_for(warp ? kGoOnWarp : kGoOnRealTime);
    const int64_t now_ns = machine_ns(CLOCK_PROCESS_CPUTIME_ID);
    const bool worked = now_ns - std::exchange(process_ns, now_ns) > kWorksNs;
    if (!warp || (!worked && g_waiting == 0 && others_sleep())) go_on(clock);
    const int64_t own_now_ns = machine_ns(CLOCK_THREAD_CPUTIME_ID);
    leave_out_work(own_now_ns - std::exchange(own_ns, own_now_ns));
  }
}

}  // namespace

size_t enter_gate(Clock& clock, uint32_t stream, double ready_ns, size_t card, const std::shared_ptr<const RankWork>& work) {
  const size_t number = clock.gpu.add_gate(stream, ready_ns, work->multiprocessors, card);
  clock.gates.entered.emplace(number, work);
  if (!std::exchange(clock.gates.keeps_going, true)) std::thread([&clock] { keep_going(clock); }).detach();
  return number;
}

double advance_limit_ns(const Clock& clock) {
  double out = kNever;
  const auto start_ns = static_cast<double>(clock.host.start_ns);
  for (const RankGates::Open& gate : clock.gates.open) {
    if (gate.end_ns >= 0) continue;
    double from_ns = gate.came_ns;
    for (const RankGates::Awaited& awaited : gate.awaited) from_ns = std::max(from_ns, awaited.position_ns);
    out = std::min(out, from_ns + gate.work->duration_ns - start_ns);
  }
  return out;
}

void advance_clock(Clock& clock, double to_ns) {
  if (!clock.gates.any()) {
    clock.gpu.advance(to_ns);
  } else {
    for (;;) {
      (void)clock.gpu.next_ns();  // begins what can begin
      open_reached(clock);
      if (look_for_others(clock)) continue;
      const double limit_ns = std::min(to_ns, advance_limit_ns(clock));
      const double now_ns = clock.gpu.now_ns(), moves_ns = next_move_ns(clock), next_ns = clock.gpu.next_ns();
      if (next_ns > now_ns && limit_ns <= now_ns) break;
      clock.gpu.go_to(std::max(now_ns, std::min({limit_ns, next_ns, moves_ns})));
    }
  }
  if (clock.gates.keeps_going) set_position(clock.host.start_ns + static_cast<int64_t>(clock.gpu.now_ns()));
}

void wait_for_ranks(Clock& clock, int64_t* waited_ns) {
  constexpr std::chrono::microseconds kPause{50};
  const int64_t begin_ns = machine_ns(CLOCK_MONOTONIC);
  ++g_waiting;
  std::this_thread::sleep_for(kPause);
  --g_waiting;
  const int64_t took_ns = machine_ns(CLOCK_MONOTONIC) - begin_ns;
  host_was_interrupted(clock.host, took_ns);
  *waited_ns += took_ns;
  if (*waited_ns < kLongestWaitNs) return;
  const ClockLock lock(clock.mutex);
  std::fprintf(stderr, "gpucast: a rank did not come to a collective within %lld s; this rank goes on without it\n",
               static_cast<long long>(kLongestWaitNs / 1'000'000'000));
  for (RankGates::Open& gate : clock.gates.open) gate.awaited.clear();
  *waited_ns = 0;
}

}  // namespace gpucast::vgpu
