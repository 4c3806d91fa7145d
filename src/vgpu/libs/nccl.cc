// Virtual NCCL: the ranks of a communicator that run in this session exchange small contents (core/board.h).
//
// A rank that runs elsewhere is assumed to hold the same data as the first rank that runs here. So small contents that the core still knows
// take part in a collective (all_reduce of 3 in a world of 8 gives 24); frameworks compare such values on the host when they set up.
// Unknown contents stay zeros. As with NCCL, a call does not block the host: the wait comes where the host or another call needs the
// result.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "src/base/nvlink.h"
#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/communicators.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/stream_capture.h"
#include "src/vgpu/core/streams.h"
#include "src/vgpu/libs/call.h"
#include "src/vgpu/libs/checksum.h"

namespace {

using gpucast::vgpu::Answer;
using gpucast::vgpu::Board;
using gpucast::vgpu::Field;
using gpucast::vgpu::kEveryone;
using gpucast::vgpu::number;
using gpucast::vgpu::Shape;

enum Result : int { kSuccess = 0, kUnhandledCudaError = 1, kInvalidArgument = 4, kRemoteError = 6 };
enum Operation : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4, kFirstCustom = 5 };
struct UniqueId {
  char bytes[128];
};

struct Communicator {
  int rank, world, device;
  std::string name;                                // the same on all ranks
  std::shared_ptr<Board> board;                    // none: all other ranks run elsewhere
  unsigned children = 0;                           // the number of communicators made from this one
  bool connected = false;                          // whether connections for collectives exist
  std::set<std::pair<int, bool>> connected_peers;  // for messages: a rank, and whether it receives
  int64_t memory_bytes = 0;
};

const char* type_name(int type) {
  static const char* const names[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",       "uint64",
                                      "float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
  return type >= 0 && type < 12 ? names[type] : "other";
}
size_t type_bytes(int type) {
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < 12 ? bytes[type] : 0;
}

// The factors of ncclRedOpCreatePreMulSum, valid until the process ends. NaN: the factor lies in device memory.
std::mutex factors_mutex;
std::vector<double>& factors() {
  static auto& all = *new std::vector<double>;
  return all;
}
double factor_of(int operation) {
  const std::lock_guard lock(factors_mutex);
  const auto index = static_cast<size_t>(operation - kFirstCustom);
  return index < factors().size() ? factors()[index] : std::nan("");
}

struct BFloat16 {
  uint16_t bits;
  explicit BFloat16(double value) {
    const auto single = static_cast<float>(value);
    uint32_t all;
    std::memcpy(&all, &single, 4);
    bits = static_cast<uint16_t>((all + 0x7fff + ((all >> 16) & 1)) >> 16);  // to nearest, ties to even
  }
  BFloat16() = default;
  explicit operator double() const {
    const uint32_t all = static_cast<uint32_t>(bits) << 16;
    float single;
    std::memcpy(&single, &all, 4);
    return single;
  }
};

struct Half {
  uint16_t bits;
  Half() = default;
  explicit Half(double value) {
    const unsigned sign = std::signbit(value) ? 0x8000 : 0;
    unsigned magnitude = 0x7e00;  // not a number
    if (value == 0) {
      magnitude = 0;
    } else if (std::fabs(value) >= 65520) {
      magnitude = 0x7c00;  // infinite
    } else if (!std::isnan(value)) {
      int exponent = 0;
      std::frexp(value, &exponent);
      exponent = std::max(exponent - 1, -14);  // below: subnormal
      magnitude =
          (static_cast<unsigned>(exponent + 14) << 10) + static_cast<unsigned>(std::nearbyint(std::ldexp(std::fabs(value), 10 - exponent)));
    }
    bits = static_cast<uint16_t>(sign | magnitude);
  }
  explicit operator double() const {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
    if (exponent == 31) magnitude = mantissa ? std::nan("") : HUGE_VAL;
    return bits & 0x8000 ? -magnitude : magnitude;
  }
};

// Reduces the same element of all ranks into each element of `out`. Integers wrap as on the card.
template <typename T>
void reduce_values(const std::vector<const char*>& parts, size_t count, int operation, char* out) {
  using Wide = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  const double factor = operation >= kFirstCustom ? factor_of(operation) : 1;
  for (size_t i = 0; i < count; ++i) {
    Wide result = 0;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      T element;
      std::memcpy(&element, parts[rank] + i * sizeof(T), sizeof(T));
      auto value = static_cast<Wide>(element);
      if (operation >= kFirstCustom) value = static_cast<Wide>(static_cast<double>(element) * factor);
      if (rank == 0) {
        result = value;
      } else if (operation == kProduct) {
        if constexpr (std::is_integral_v<T>) {
          result = static_cast<Wide>(static_cast<uint64_t>(result) * static_cast<uint64_t>(value));
        } else {
          result *= value;
        }
      } else if (operation == kMax || operation == kMin) {
        const bool more = std::is_same_v<T, uint64_t> ? static_cast<uint64_t>(value) > static_cast<uint64_t>(result) : value > result;
        if (more == (operation == kMax)) result = value;
      } else if constexpr (std::is_integral_v<T>) {
        result = static_cast<Wide>(static_cast<uint64_t>(result) + static_cast<uint64_t>(value));
      } else {
        result += value;
      }
    }
    if (operation == kAverage) result /= static_cast<Wide>(parts.size());
    const auto value = static_cast<T>(result);
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
}

// False: not known.
bool reduce(const std::vector<const char*>& parts, size_t count, int type, int operation, char* out) {
  if (operation >= kFirstCustom && std::isnan(factor_of(operation))) return false;
  switch (type) {
    case 0:
      reduce_values<int8_t>(parts, count, operation, out);
      return true;
    case 1:
      reduce_values<uint8_t>(parts, count, operation, out);
      return true;
    case 2:
      reduce_values<int32_t>(parts, count, operation, out);
      return true;
    case 3:
      reduce_values<uint32_t>(parts, count, operation, out);
      return true;
    case 4:
      reduce_values<int64_t>(parts, count, operation, out);
      return true;
    case 5:
      reduce_values<uint64_t>(parts, count, operation, out);
      return true;
    case 6:
      reduce_values<Half>(parts, count, operation, out);
      return true;
    case 7:
      reduce_values<float>(parts, count, operation, out);
      return true;
    case 8:
      reduce_values<double>(parts, count, operation, out);
      return true;
    case 9:
      reduce_values<BFloat16>(parts, count, operation, out);
      return true;
    default:
      return false;
  }
}

// The contents of device memory if they are small and at least partly known: an object's bytes lie in a buffer with the length of the
// longest object.
bool read_small_contents(const void* address, size_t size_bytes, std::vector<char>* contents) {
  if (size_bytes == 0 || size_bytes > gpucast::vgpu::kSmallCopyBytes) return false;
  contents->resize(size_bytes);
  return gpucast::vgpu::read_small(number(address), contents->data(), size_bytes) > 0;
}

char* offset_by(void* base, size_t offset_bytes) { return static_cast<char*>(base) + offset_bytes; }

thread_local int group_depth = 0;
thread_local int calls_in_group = 0;

// Calls between ncclGroupStart and ncclGroupEnd of one communicator on one stream, in a run with a clock: one kernel.
struct ClockedCalls {
  void* stream;
  const char* name;  // of the first
  std::string json;
  gpucast::vgpu::RankWork ranks;
};
thread_local std::vector<ClockedCalls> clocked_calls;

void submit_clocked_calls() {
  for (ClockedCalls& calls : std::exchange(clocked_calls, {}))
    gpucast::vgpu::clock_communicate(calls.name, calls.json + ']', std::move(calls.ranks), number(calls.stream));
}

void clock_call(const char* name, const Communicator& comm, const std::string& arguments_json, void* stream,
                std::optional<gpucast::vgpu::RankWork::Message> message) {
  const auto same = [&](const ClockedCalls& calls) { return calls.ranks.board == comm.board && calls.stream == stream; };
  auto calls = std::find_if(clocked_calls.begin(), clocked_calls.end(), same);
  if (calls == clocked_calls.end()) {
    calls = clocked_calls.insert(calls, {stream, name, "[", {}});
    calls->ranks.board = comm.board;
  }
  if (calls->json.size() > 1) calls->json += ',';
  ((calls->json += "[\"") += name) += "\",";
  (calls->json += arguments_json) += ']';
  if (message && message->peer != comm.rank) calls->ranks.messages.push_back(*message);
  if (group_depth == 0) submit_clocked_calls();
}

void log(const char* name, const Communicator& comm, int type, size_t count, void* stream, const char* partner_key, int partner) {
  const auto bytes = count * type_bytes(type);
  std::vector<Field> fields = {{"type", type_name(type)}, {"count", count}, {"world", comm.world}, {"rank", comm.rank}};
  if (partner_key != nullptr) fields.emplace_back(partner_key, partner);
  fields.emplace_back("bytes", bytes);
  fields.emplace_back("group", comm.name.c_str());
  if (group_depth > 0 && ++calls_in_group > 1) fields.emplace_back("joins", 1);
  const std::string arguments_json = gpucast::vgpu::json_object(fields);
  if (comm.board == nullptr || !gpucast::vgpu::has_clock())
    return gpucast::vgpu::log_call("nccl", name, arguments_json.c_str(), number(stream));
  std::optional<gpucast::vgpu::RankWork::Message> message;
  if (partner_key != nullptr && std::strcmp(partner_key, "peer") == 0)
    message = {partner, std::strcmp(name, "ncclRecv") == 0, static_cast<int64_t>(bytes)};
  clock_call(name, comm, arguments_json, stream, message);
}

bool captured(void* stream) {
  gpucast::vgpu::CaptureInfo info{};
  return gpucast::vgpu::capture_info(number(stream), &info) == 0 && info.status != gpucast::vgpu::kCaptureNone;
}

// ---- NCCL's memory on the card ------------------------------------------------------------------------------------------------------
// For each channel of each connection, a receiver keeps one buffer for the three protocols (Simple: NCCL_BUFFSIZE; LL128; LL; sizes of
// NCCL's init.cc): 10 MiB in steps of 2 MiB (measured: NVIDIA/nccl issue 1685). A sender keeps one step. docs/reference/ledger.md gives the
// error of this model.
constexpr int64_t kStepBytes = 2 << 20;

int64_t environment_number(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  char* end = nullptr;
  const int64_t value = text ? std::strtoll(text, &end, 10) : 0;
  return text && end != text && *end == '\0' && value >= 0 ? value : otherwise;
}
int64_t receiver_bytes() {
  constexpr int64_t kSimple = 4 << 20, kLL128 = 120 * 640 * 8 * 8, kLL = 8 * 512 * 8 * 16;
  const int64_t bytes = environment_number("NCCL_BUFFSIZE", kSimple) + kLL128 + kLL;
  return (bytes + kStepBytes - 1) / kStepBytes * kStepBytes;
}
bool has_nvlink() { return gpucast::has_nvlink(gpucast::vgpu::profile().name); }
int64_t channels() {
  const int major = gpucast::vgpu::profile().compute_major;
  const int64_t usual = !has_nvlink() ? 4 : major == 8 ? 24 : 16;
  const int64_t least = environment_number("NCCL_MIN_NCHANNELS", 0), most = environment_number("NCCL_MAX_NCHANNELS", 32);
  return std::max<int64_t>(1, std::min(std::max(usual, least), most));
}

int take_memory(Communicator* comm, int64_t size_bytes) {
  if (gpucast::vgpu::library_memory("nccl", "NCCL's buffers", size_bytes) != gpucast::vgpu::Status::ok) return kUnhandledCudaError;
  comm->memory_bytes += size_bytes;
  return kSuccess;
}
// Connects the neighbours in a ring, and in a tree the same ones in both directions.
int connect(Communicator* comm) {
  if (comm->connected || comm->world < 2) return kSuccess;
  comm->connected = true;
  return take_memory(comm, channels() * (comm->world > 2 ? 2 : 1) * (receiver_bytes() + kStepBytes));
}
int connect(Communicator* comm, int peer, bool receives) {
  if (peer == comm->rank || !comm->connected_peers.emplace(peer, receives).second) return kSuccess;
  const int64_t count = std::min<int64_t>(has_nvlink() ? 32 : 2, environment_number("NCCL_MAX_NCHANNELS", 32));
  return take_memory(comm, std::max<int64_t>(1, count) * (receives ? receiver_bytes() : kStepBytes));
}

// One collective: this rank's contribution, and the place of the others' contributions.
struct Call {
  std::shared_ptr<Board> board;
  int rank, world;
  Shape shape;
  uint64_t number;
  bool known;
  std::vector<char> mine;
  size_t size_bytes;

  // Gets the contribution of a rank, and waits for it. False: not known.
  bool contribution(int from, std::vector<char>* contents) const {
    if (from == rank || !board) {
      *contents = mine;
      return known;
    }
    gpucast::vgpu::Post post;
    Answer answer = board->get(from, kEveryone, number, shape, &post);
    for (int first = 0; answer == Answer::elsewhere; ++first) {
      if (first == rank) return contribution(rank, contents);
      answer = board->get(first, kEveryone, number, shape, &post);
    }
    contents->swap(post.contents);
    return answer == Answer::posted && post.known && contents->size() == size_bytes;
  }
};
using CallPtr = std::shared_ptr<const Call>;

enum class Waits { no, root, all };

// Logs and posts the call. `from`, `size_bytes`: this rank's contribution. *out stays null after an error, and on a stream that is being
// captured: it runs nothing now, and all ranks capture it in the same way.
int begin_collective(CallPtr* out, const char* name, Communicator* comm, void* stream, int type, size_t count, int operation, int root,
                     const void* from, size_t size_bytes, Waits waits) {
  if (!comm || type_bytes(type) == 0) return kInvalidArgument;
  if (const int error = connect(comm)) return error;
  log(name, *comm, type, count, stream, root < 0 ? nullptr : "root", root);
  if (captured(stream)) return kSuccess;
  auto call = std::make_shared<Call>();
  call->board = comm->board;
  call->rank = comm->rank;
  call->world = comm->world;
  std::snprintf(call->shape.call, sizeof call->shape.call, "%s", name);
  call->shape.type = type;
  call->shape.operation = operation < kFirstCustom ? operation : kFirstCustom;
  call->shape.root = root;
  call->shape.count = count;
  call->size_bytes = size_bytes;
  call->known = from != nullptr && read_small_contents(from, size_bytes, &call->mine);
  if (comm->board) {
    call->number = comm->board->post(kEveryone, call->shape, call->known ? call->mine.data() : nullptr, size_bytes);
    if (waits != Waits::no)
      gpucast::vgpu::stream_awaits(number(stream),
                                   {comm->board, waits == Waits::root ? root : kEveryone, kEveryone, call->number, call->shape});
  }
  *out = std::move(call);
  return kSuccess;
}

// Brings to `to` the part of rank `from`'s contribution that begins at `offset_bytes`.
void receive_part(const CallPtr& call, int from, size_t offset_bytes, void* to, size_t size_bytes) {
  gpucast::vgpu::write_later(number(to), size_bytes, [=](unsigned char* bytes) {
    std::vector<char> contents;
    if (!call->contribution(from, &contents)) return false;
    std::memcpy(bytes, contents.data() + offset_bytes, size_bytes);
    return true;
  });
}

// Brings to `to` the reduction over all ranks; each rank's part begins at `offset_bytes`.
void receive_reduced(const CallPtr& call, int operation, size_t offset_bytes, void* to, size_t count) {
  const int type = call->shape.type;
  gpucast::vgpu::write_later(number(to), count * type_bytes(type), [=](unsigned char* bytes) {
    std::vector<std::vector<char>> contents(static_cast<size_t>(call->world));
    std::vector<const char*> parts;
    bool ok = true;
    for (int rank = 0; rank < call->world; ++rank) ok = call->contribution(rank, &contents[static_cast<size_t>(rank)]) && ok;
    if (!ok) return false;
    for (const std::vector<char>& part : contents) parts.push_back(part.data() + offset_bytes);
    return reduce(parts, count, type, operation, reinterpret_cast<char*>(bytes));
  });
}

// The messages of a rank to itself between ncclGroupStart and ncclGroupEnd. In an all-to-all exchange the model assumes that a rank that
// runs elsewhere sends us what we send to ourselves.
struct MessagesToSelf {
  std::vector<std::pair<const Communicator*, std::vector<char>>> sent;
};
thread_local std::shared_ptr<MessagesToSelf> group;

Shape message_shape(size_t size_bytes) { return {"ncclSend", 1, 0, -1, size_bytes}; }

int create(Communicator** comm, int world, int rank, int device, std::string_view id, int color = gpucast::vgpu::kNoColor,
           std::optional<std::set<int>> here = {}) {
  if (!comm || world < 1 || rank < 0 || rank >= world) return kInvalidArgument;
  char name[17];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(gpucast::vgpu::checksum(id)));
  *comm = new Communicator{rank, world, device, name, Board::join(name, rank, world, std::move(here)), 0, false, {}, 0};
  gpucast::vgpu::note_communicator(name, color);
  constexpr int kConnectsLate = 22200;  // from this release on, the first collective makes the connections
  return gpucast::vgpu::profile().nccl_version < kConnectsLate ? connect(*comm) : kSuccess;
}
int create(Communicator** comm, int world, int rank, int device, const UniqueId& id) {
  return create(comm, world, rank, device, std::string_view(id.bytes, sizeof id.bytes));
}
// The name of a communicator made from another.
std::string child_id(Communicator& parent, int color) {
  return parent.name + '/' + std::to_string(++parent.children) + '/' + std::to_string(color);
}

}  // namespace

// ---- Communicators --------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int ncclGetVersion(int* version) {
  if (!version) return kInvalidArgument;
  *version = gpucast::vgpu::profile().nccl_version;
  return kSuccess;
}
GPUCAST_EXPORT int ncclGetUniqueId(UniqueId* id) {
  if (!id) return kInvalidArgument;
  std::random_device random;
  for (char& byte : id->bytes) byte = static_cast<char>(random());
  return kSuccess;
}
GPUCAST_EXPORT int ncclCommGetUniqueId(Communicator*, UniqueId* id) { return ncclGetUniqueId(id); }
GPUCAST_EXPORT int ncclCommInitRank(Communicator** comm, int world, UniqueId id, int rank) {
  return create(comm, world, rank, gpucast::vgpu::current_device(), id);
}
GPUCAST_EXPORT int ncclCommInitRankConfig(Communicator** comm, int world, UniqueId id, int rank, void*) {
  return create(comm, world, rank, gpucast::vgpu::current_device(), id);
}
GPUCAST_EXPORT int ncclCommInitRankScalable(Communicator** comm, int world, int rank, int ids, const UniqueId* id) {
  return ids > 0 && id ? create(comm, world, rank, gpucast::vgpu::current_device(), *id) : kInvalidArgument;
}
GPUCAST_EXPORT int ncclCommInitAll(Communicator** comms, int count, const int* devices) {
  UniqueId id;
  ncclGetUniqueId(&id);
  for (int rank = 0; rank < count; ++rank) {
    if (const int result = create(comms + rank, count, rank, devices ? devices[rank] : rank, id)) return result;
  }
  return kSuccess;
}
// Waits for the colours of the other ranks, as NCCL does. If a rank runs elsewhere, the members of our colour are not known: frameworks
// make equal groups of `world / colours`, which one rank's arguments do not show. The parent's world is then an upper bound. PyTorch splits
// only for a group with a known size.
GPUCAST_EXPORT int ncclCommSplit(Communicator* comm, int color, int key, Communicator** split, void*) {
  if (!comm || !split) return kInvalidArgument;
  *split = nullptr;
  const std::string id = child_id(*comm, color);
  int world = comm->world, rank = key >= 0 && key < comm->world ? key : comm->rank;
  std::optional<std::set<int>> here;  // of the new ranks, if some run elsewhere
  if (comm->board) {
    const Shape shape{"ncclCommSplit", 0, 0, -1, 0};
    const int mine[2] = {color, key};
    const uint64_t turn = comm->board->post(kEveryone, shape, reinterpret_cast<const char*>(mine), sizeof mine);
    std::vector<std::pair<int, int>> members;  // by key, then by rank in the parent
    bool all_here = true;
    for (int other = 0; other < comm->world; ++other) {
      int said[2] = {color, key};
      if (other != comm->rank) {
        gpucast::vgpu::Post post{};
        const Answer answer = comm->board->get(other, kEveryone, turn, shape, &post);
        if (answer == Answer::silent) return kRemoteError;
        all_here = all_here && answer == Answer::posted;
        if (answer != Answer::posted || post.contents.size() != sizeof said) continue;
        std::memcpy(said, post.contents.data(), sizeof said);
      }
      if (said[0] == color) members.emplace_back(said[1], other);
    }
    std::sort(members.begin(), members.end());
    if (all_here) {
      world = static_cast<int>(members.size());
      rank = static_cast<int>(std::find(members.begin(), members.end(), std::pair(key, comm->rank)) - members.begin());
    } else {
      here.emplace();
      for (const auto& [of_member, other] : members) here->insert(of_member);
    }
  }
  if (color == gpucast::vgpu::kNoColor) return kSuccess;  // this rank is in no group
  return create(split, world, rank, comm->device, id, color, std::move(here));
}
GPUCAST_EXPORT int ncclCommShrink(Communicator* comm, const int* excluded, int count, Communicator** shrunk) {
  if (!comm || !excluded || count < 0) return kInvalidArgument;
  const int rank = comm->rank - static_cast<int>(std::count_if(excluded, excluded + count, [&](int other) { return other < comm->rank; }));
  return create(shrunk, comm->world - count, rank, comm->device, child_id(*comm, -count));
}
GPUCAST_EXPORT int ncclCommGrow(Communicator* comm, int world, const UniqueId* id, int rank, Communicator** grown) {
  if (!id) return kInvalidArgument;
  return create(grown, world, comm && rank < 0 ? comm->rank : rank, comm ? comm->device : 0, *id);
}
GPUCAST_EXPORT int ncclCommFinalize(Communicator* comm) { return comm ? kSuccess : kInvalidArgument; }
GPUCAST_EXPORT int ncclCommDestroy(Communicator* comm) {
  if (comm && comm->board) comm->board->leave();
  if (comm && comm->memory_bytes > 0) gpucast::vgpu::library_memory("nccl", "NCCL's buffers", -comm->memory_bytes);
  delete comm;
  return kSuccess;
}
GPUCAST_EXPORT int ncclCommAbort(Communicator* comm) { return ncclCommDestroy(comm); }
GPUCAST_EXPORT int ncclCommRevoke(Communicator* comm) { return comm ? kSuccess : kInvalidArgument; }
GPUCAST_EXPORT int ncclCommSuspend(Communicator* comm) { return comm ? kSuccess : kInvalidArgument; }
GPUCAST_EXPORT int ncclCommResume(Communicator* comm) { return comm ? kSuccess : kInvalidArgument; }
GPUCAST_EXPORT int ncclCommMemStats(Communicator* comm, int, uint64_t* value) {
  if (!comm || !value) return kInvalidArgument;
  *value = 0;
  return kSuccess;
}
GPUCAST_EXPORT int ncclCommGetAsyncError(Communicator* comm, int* error) {
  if (!comm || !error) return kInvalidArgument;
  *error = comm->board && comm->board->failed() ? kRemoteError : kSuccess;
  return kSuccess;
}
#define COMM_NUMBER(Name, member)                           \
  GPUCAST_EXPORT int Name(Communicator* comm, int* value) { \
    if (!comm || !value) return kInvalidArgument;           \
    *value = comm->member;                                  \
    return kSuccess;                                        \
  }
COMM_NUMBER(ncclCommCount, world)
COMM_NUMBER(ncclCommUserRank, rank)
COMM_NUMBER(ncclCommCuDevice, device)

GPUCAST_EXPORT const char* ncclGetErrorString(int result) {
  static const char* const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress",
                                      "timeout"};
  return result >= 0 && result < 9 ? texts[result] : "unknown result code";
}
GPUCAST_EXPORT const char* ncclGetLastError(Communicator*) { return ""; }
GPUCAST_EXPORT void ncclResetDebugInit() {}

// ---- Memory and registration -------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int ncclMemAlloc(void** pointer, size_t size_bytes) {
  if (!pointer) return kInvalidArgument;
  uint64_t address = 0;
  if (gpucast::vgpu::device_alloc(size_bytes, &address) != gpucast::vgpu::Status::ok) return kUnhandledCudaError;
  *pointer = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  return kSuccess;
}
GPUCAST_EXPORT int ncclMemFree(void* pointer) {
  if (!pointer) return kSuccess;
  return gpucast::vgpu::device_free(number(pointer)) == gpucast::vgpu::Status::ok ? kSuccess : kInvalidArgument;
}
GPUCAST_EXPORT int ncclCommRegister(Communicator* comm, void* buffer, size_t, void** handle) {
  if (!comm || !handle) return kInvalidArgument;
  *handle = buffer;
  return kSuccess;
}
GPUCAST_EXPORT int ncclCommDeregister(Communicator* comm, void*) { return comm ? kSuccess : kInvalidArgument; }
GPUCAST_EXPORT int ncclCommWindowRegister(Communicator* comm, void* buffer, size_t, void** window, int) {
  if (!comm || !window) return kInvalidArgument;
  *window = buffer;
  return kSuccess;
}
GPUCAST_EXPORT int ncclCommWindowDeregister(Communicator* comm, void*) { return comm ? kSuccess : kInvalidArgument; }
GPUCAST_EXPORT int ncclWinGetUserPtr(Communicator* comm, void* window, void** pointer) {
  if (!comm || !pointer) return kInvalidArgument;
  *pointer = window;
  return kSuccess;
}

GPUCAST_EXPORT int ncclRedOpCreatePreMulSum(int* operation, const void* scalar, int type, int residence, Communicator* comm) {
  if (!operation || !scalar || !comm) return kInvalidArgument;
  double factor = std::nan("");
  char bytes[8] = {};
  const bool host = residence == 1;
  if (host) std::memcpy(bytes, scalar, type_bytes(type));
  if (host || gpucast::vgpu::read_small(number(scalar), bytes, type_bytes(type)) == type_bytes(type)) {
    float single;
    double real;
    Half half;
    BFloat16 brain;
    std::memcpy(&single, bytes, 4);
    std::memcpy(&real, bytes, 8);
    std::memcpy(&half, bytes, 2);
    std::memcpy(&brain, bytes, 2);
    if (type == 6) factor = static_cast<double>(half);
    if (type == 7) factor = single;
    if (type == 8) factor = real;
    if (type == 9) factor = static_cast<double>(brain);
  }
  const std::lock_guard lock(factors_mutex);
  factors().push_back(factor);
  *operation = kFirstCustom + static_cast<int>(factors().size()) - 1;
  return kSuccess;
}
GPUCAST_EXPORT int ncclRedOpDestroy(int, Communicator*) { return kSuccess; }

// ---- Collectives --------------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int ncclGroupStart() {
  if (group_depth++ > 0) return kSuccess;
  group = std::make_shared<MessagesToSelf>();
  calls_in_group = 0;
  return kSuccess;
}
GPUCAST_EXPORT int ncclGroupEnd() {
  if (group_depth == 0 || --group_depth > 0) return kSuccess;
  group.reset();
  submit_clocked_calls();
  return kSuccess;
}
struct SimulationInfo {
  size_t size_bytes;
  unsigned magic, version;
  float estimated_time;
};
GPUCAST_EXPORT int ncclGroupSimulateEnd(SimulationInfo* info) {
  if (info) info->estimated_time = 0.0f;
  return ncclGroupEnd();
}

GPUCAST_EXPORT int ncclAllReduce(const void* send, void* receive, size_t count, int type, int operation, Communicator* comm, void* stream) {
  CallPtr call;
  const int error =
      begin_collective(&call, "ncclAllReduce", comm, stream, type, count, operation, -1, send, count * type_bytes(type), Waits::all);
  if (call) receive_reduced(call, operation, 0, receive, count);
  return error;
}
GPUCAST_EXPORT int ncclReduce(const void* send, void* receive, size_t count, int type, int operation, int root, Communicator* comm,
                              void* stream) {
  CallPtr call;
  const bool receives = comm && root == comm->rank;
  const int error = begin_collective(&call, "ncclReduce", comm, stream, type, count, operation, root, send, count * type_bytes(type),
                                     receives ? Waits::all : Waits::no);
  if (call && receives) receive_reduced(call, operation, 0, receive, count);
  return error;
}
GPUCAST_EXPORT int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int operation, Communicator* comm,
                                     void* stream) {
  CallPtr call;
  const size_t size_bytes = count * type_bytes(type);
  const int error = begin_collective(&call, "ncclReduceScatter", comm, stream, type, count, operation, -1, send,
                                     comm ? size_bytes * static_cast<size_t>(comm->world) : 0, Waits::all);
  if (call) receive_reduced(call, operation, size_bytes * static_cast<size_t>(comm->rank), receive, count);
  return error;
}
GPUCAST_EXPORT int ncclAllGather(const void* send, void* receive, size_t count, int type, Communicator* comm, void* stream) {
  CallPtr call;
  const size_t size_bytes = count * type_bytes(type);
  const int error = begin_collective(&call, "ncclAllGather", comm, stream, type, count, 0, -1, send, size_bytes, Waits::all);
  if (!call) return error;
  for (int rank = 0; rank < comm->world; ++rank)
    receive_part(call, rank, 0, offset_by(receive, size_bytes * static_cast<size_t>(rank)), size_bytes);
  return error;
}
// A root that runs elsewhere is assumed to send what this rank already holds.
GPUCAST_EXPORT int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, Communicator* comm, void* stream) {
  CallPtr call;
  const size_t size_bytes = count * type_bytes(type);
  const bool receives = comm && root != comm->rank;
  const int error = begin_collective(&call, "ncclBroadcast", comm, stream, type, count, 0, root, receives ? receive : send, size_bytes,
                                     receives ? Waits::root : Waits::no);
  if (call && (receives || send != receive)) receive_part(call, root, 0, receive, size_bytes);
  return error;
}
GPUCAST_EXPORT int ncclBcast(void* buffer, size_t count, int type, int root, Communicator* comm, void* stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
GPUCAST_EXPORT int ncclGather(const void* send, void* receive, size_t count, int type, int root, Communicator* comm, void* stream) {
  CallPtr call;
  const size_t size_bytes = count * type_bytes(type);
  const bool receives = comm && root == comm->rank;
  const int error =
      begin_collective(&call, "ncclGather", comm, stream, type, count, 0, root, send, size_bytes, receives ? Waits::all : Waits::no);
  for (int rank = 0; call && receives && rank < comm->world; ++rank)
    receive_part(call, rank, 0, offset_by(receive, size_bytes * static_cast<size_t>(rank)), size_bytes);
  return error;
}
GPUCAST_EXPORT int ncclScatter(const void* send, void* receive, size_t count, int type, int root, Communicator* comm, void* stream) {
  CallPtr call;
  const size_t size_bytes = count * type_bytes(type);
  const bool receives = comm && root != comm->rank;
  const int error = begin_collective(&call, "ncclScatter", comm, stream, type, count, 0, root, receives ? nullptr : send,
                                     comm ? size_bytes * static_cast<size_t>(comm->world) : 0, receives ? Waits::root : Waits::no);
  if (call) receive_part(call, root, size_bytes * static_cast<size_t>(comm->rank), receive, size_bytes);
  return error;
}
GPUCAST_EXPORT int ncclAlltoAll(const void* send, void* receive, size_t count, int type, Communicator* comm, void* stream) {
  CallPtr call;
  const size_t size_bytes = count * type_bytes(type);
  const int error = begin_collective(&call, "ncclAlltoAll", comm, stream, type, count, 0, -1, send,
                                     comm ? size_bytes * static_cast<size_t>(comm->world) : 0, Waits::all);
  if (!call) return error;
  for (int rank = 0; rank < comm->world; ++rank)
    receive_part(call, rank, size_bytes * static_cast<size_t>(comm->rank), offset_by(receive, size_bytes * static_cast<size_t>(rank)),
                 size_bytes);
  return error;
}
// Both ends of a message must agree on its bytes; the types may differ.
GPUCAST_EXPORT int ncclSend(const void* send, size_t count, int type, int peer, Communicator* comm, void* stream) {
  const size_t size_bytes = count * type_bytes(type);
  if (!comm || size_bytes == 0 || peer < 0 || peer >= comm->world) return size_bytes == 0 && comm ? kSuccess : kInvalidArgument;
  if (const int error = connect(comm, peer, false)) return error;
  log("ncclSend", *comm, type, count, stream, "peer", peer);
  if (captured(stream)) return kSuccess;
  std::vector<char> contents;
  const bool ok = read_small_contents(send, size_bytes, &contents);
  if (peer == comm->rank) {
    if (ok && group) group->sent.emplace_back(comm, std::move(contents));
  } else if (comm->board) {
    comm->board->post(peer, message_shape(size_bytes), ok ? contents.data() : nullptr, size_bytes);
  }
  return kSuccess;
}
GPUCAST_EXPORT int ncclRecv(void* receive, size_t count, int type, int peer, Communicator* comm, void* stream) {
  const size_t size_bytes = count * type_bytes(type);
  if (!comm || size_bytes == 0 || peer < 0 || peer >= comm->world) return size_bytes == 0 && comm ? kSuccess : kInvalidArgument;
  if (const int error = connect(comm, peer, true)) return error;
  log("ncclRecv", *comm, type, count, stream, "peer", peer);
  if (captured(stream)) return kSuccess;
  const auto board = peer == comm->rank ? nullptr : comm->board;
  const Shape shape = message_shape(size_bytes);
  const uint64_t turn = board ? board->expect(peer) : 0;
  const int rank = comm->rank;
  if (board) gpucast::vgpu::stream_awaits(number(stream), {board, peer, rank, turn, shape});
  gpucast::vgpu::write_later(number(receive), size_bytes, [=, to_self = group](unsigned char* bytes) {
    gpucast::vgpu::Post post{};
    const Answer answer = board ? board->get(peer, rank, turn, shape, &post) : Answer::elsewhere;
    if (answer == Answer::elsewhere && to_self) {
      for (const auto& [by, contents] : to_self->sent) {
        if (by != comm || contents.size() != size_bytes) continue;
        post.known = true;
        post.contents = contents;
        break;
      }
    }
    if (!post.known || post.contents.size() != size_bytes) return false;
    std::memcpy(bytes, post.contents.data(), size_bytes);
    return true;
  });
  return kSuccess;
}
GPUCAST_EXPORT int ncclPutSignal(const void*, size_t count, int type, int peer, void*, size_t, int, int, unsigned, Communicator* comm,
                                 void* stream) {
  if (!comm) return kInvalidArgument;
  log("ncclPutSignal", *comm, type, count, stream, "peer", peer);
  return kSuccess;
}
GPUCAST_EXPORT int ncclSignal(int, int, int, unsigned, Communicator* comm, void*) { return comm ? kSuccess : kInvalidArgument; }
GPUCAST_EXPORT int ncclWaitSignal(int, void*, Communicator* comm, void*) { return comm ? kSuccess : kInvalidArgument; }
