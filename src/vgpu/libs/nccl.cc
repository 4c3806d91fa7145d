// Virtual NCCL: one process plays one rank of a world whose other ranks do not exist.
//
// Model of the others: every rank holds the same data as this one. So small contents that the core still knows take part
// in a collective (all_reduce of 3 in a world of 8 gives 24), which is what frameworks compare on the host when they set
// up; unknown contents stay zeros. What NCCL itself would take from the device is the ledger's business.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <random>

#include "src/vgpu/libs/call.h"

namespace {

using gpucast::vgpu::Field;
using gpucast::vgpu::number;

enum Result : int { kSuccess = 0, kUnhandledCudaError = 1, kInvalidArgument = 4 };
enum Operation : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4, kFirstCustom = 5 };
constexpr size_t kSmallBytes = 65536;  // what the core keeps of one copy

struct UniqueId {
  char bytes[128];
};

struct Communicator {
  int rank, world, device;
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

// Factors of ncclRedOpCreatePreMulSum, which stay valid until the process ends; NaN: the factor lies in device memory.
std::mutex factors_mutex;
std::vector<double>& factors() {
  static std::vector<double> all;
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

template <typename T>
void reduce_values(char* bytes, size_t count, int operation, int world) {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;  // wraps as the card does
      auto result = static_cast<Unsigned>(value);
      if (operation == kSum) result = static_cast<Unsigned>(result * static_cast<Unsigned>(world));
      if (operation == kProduct) {
        for (int rank = 1; rank < world; ++rank) result = static_cast<Unsigned>(result * static_cast<Unsigned>(value));
      }
      if (operation >= kFirstCustom)
        result = static_cast<Unsigned>(static_cast<T>(static_cast<double>(value) * factor_of(operation) * world));
      value = static_cast<T>(result);
    } else {
      auto result = static_cast<double>(value);
      if (operation == kSum) result *= world;
      if (operation == kProduct) result = std::pow(result, world);
      if (operation >= kFirstCustom) result *= factor_of(operation) * world;
      value = static_cast<T>(result);
    }
    std::memcpy(bytes + i * sizeof(T), &value, sizeof(T));
  }
}

// What all ranks' equal contributions reduce to. False: not known.
bool reduce(char* bytes, size_t count, int type, int operation, int world) {
  if (operation == kMax || operation == kMin || operation == kAverage) return true;
  if (operation >= kFirstCustom && std::isnan(factor_of(operation))) return false;
  switch (type) {
    case 0:
      reduce_values<int8_t>(bytes, count, operation, world);
      return true;
    case 1:
      reduce_values<uint8_t>(bytes, count, operation, world);
      return true;
    case 2:
      reduce_values<int32_t>(bytes, count, operation, world);
      return true;
    case 3:
      reduce_values<uint32_t>(bytes, count, operation, world);
      return true;
    case 4:
      reduce_values<int64_t>(bytes, count, operation, world);
      return true;
    case 5:
      reduce_values<uint64_t>(bytes, count, operation, world);
      return true;
    case 6:
      reduce_values<Half>(bytes, count, operation, world);
      return true;
    case 7:
      reduce_values<float>(bytes, count, operation, world);
      return true;
    case 8:
      reduce_values<double>(bytes, count, operation, world);
      return true;
    case 9:
      reduce_values<BFloat16>(bytes, count, operation, world);
      return true;
    default:
      return false;
  }
}

// The contents of device memory where small and known.
bool known(const void* address, size_t size_bytes, std::vector<char>* contents) {
  if (size_bytes == 0 || size_bytes > kSmallBytes) return false;
  contents->resize(size_bytes);
  return gpucast::vgpu::read_small(number(address), contents->data(), size_bytes);
}

// A collective writes `size_bytes` at `to`: these contents, or (nullptr) something not known.
void store(void* to, size_t size_bytes, const std::vector<char>* contents) {
  if (size_bytes == 0) return;
  if (contents) {
    gpucast::vgpu::write_small(number(to), contents->data(), size_bytes);
  } else if (size_bytes <= kSmallBytes) {
    const std::vector<char> zeros(size_bytes);
    gpucast::vgpu::write_small(number(to), zeros.data(), size_bytes);
  } else {
    gpucast::vgpu::device_written();
  }
}

int log(const char* name, const Communicator* comm, int type, size_t count, void* stream, const char* partner_key = "rank",
        int partner = -1) {
  if (!comm || type_bytes(type) == 0) return kInvalidArgument;
  gpucast::vgpu::log_call(
      "nccl", name,
      gpucast::vgpu::json_object(
          {{"type", type_name(type)}, {"count", count}, {"world", comm->world}, {partner_key, partner < 0 ? comm->rank : partner}})
          .c_str(),
      number(stream));
  return kSuccess;
}

const char* at(const void* base, size_t offset_bytes) { return static_cast<const char*>(base) + offset_bytes; }
char* at(void* base, size_t offset_bytes) { return static_cast<char*>(base) + offset_bytes; }

// Sends and receives between ncclGroupStart and ncclGroupEnd, which happen together. In an exchange of all with all, what
// rank p sends to us is, by the model, what we send to ourselves.
struct Message {
  const Communicator* comm;
  const void* from;  // of a send
  void* to;          // of a receive
  size_t size_bytes;
  int peer;
};
thread_local int group_depth = 0;
thread_local std::vector<Message> group;

void finish_group() {
  for (const Message& receive : group) {
    if (!receive.to) continue;
    std::vector<char> contents;
    bool found = false;
    for (const Message& send : group) {
      if (send.to || send.comm != receive.comm || send.peer != send.comm->rank || send.size_bytes != receive.size_bytes) continue;
      found = known(send.from, send.size_bytes, &contents);
      break;
    }
    store(receive.to, receive.size_bytes, found ? &contents : nullptr);
  }
  group.clear();
}

int create(Communicator** comm, int world, int rank, int device) {
  if (!comm || world < 1 || rank < 0 || rank >= world) return kInvalidArgument;
  *comm = new Communicator{rank, world, device};
  return kSuccess;
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
GPUCAST_EXPORT int ncclCommInitRank(Communicator** comm, int world, UniqueId, int rank) { return create(comm, world, rank, 0); }
GPUCAST_EXPORT int ncclCommInitRankConfig(Communicator** comm, int world, UniqueId, int rank, void*) {
  return create(comm, world, rank, 0);
}
GPUCAST_EXPORT int ncclCommInitRankScalable(Communicator** comm, int world, int rank) { return create(comm, world, rank, 0); }
GPUCAST_EXPORT int ncclCommInitAll(Communicator** comms, int count, const int* devices) {
  for (int rank = 0; rank < count; ++rank) {
    if (const int result = create(comms + rank, count, rank, devices ? devices[rank] : rank)) return result;
  }
  return kSuccess;
}
// Which ranks have our colour is not known; frameworks make equal groups of `world / colours`, which cannot be told from
// one rank's arguments. The parent's world is an upper bound, and PyTorch splits only for a group it knows the size of.
GPUCAST_EXPORT int ncclCommSplit(Communicator* comm, int color, int key, Communicator** split, void*) {
  if (!comm || !split) return kInvalidArgument;
  *split = nullptr;
  if (color < 0) return kSuccess;  // takes no part
  return create(split, comm->world, key >= 0 && key < comm->world ? key : comm->rank, comm->device);
}
GPUCAST_EXPORT int ncclCommShrink(Communicator* comm, int*, int excluded, Communicator** shrunk) {
  if (!comm) return kInvalidArgument;
  const int world = comm->world - excluded;
  return create(shrunk, world, comm->rank < world ? comm->rank : world - 1, comm->device);
}
GPUCAST_EXPORT int ncclCommGrow(Communicator* comm, int world, const UniqueId*, int rank, Communicator** grown) {
  return create(grown, world, comm && rank < 0 ? comm->rank : rank, comm ? comm->device : 0);
}
GPUCAST_EXPORT int ncclCommFinalize(Communicator* comm) { return comm ? kSuccess : kInvalidArgument; }
GPUCAST_EXPORT int ncclCommDestroy(Communicator* comm) {
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
  *error = kSuccess;
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
  if (host || gpucast::vgpu::read_small(number(scalar), bytes, type_bytes(type))) {
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
  ++group_depth;
  return kSuccess;
}
GPUCAST_EXPORT int ncclGroupEnd() {
  if (group_depth > 0 && --group_depth == 0) finish_group();
  return kSuccess;
}
struct SimulationInfo {
  size_t size_bytes;
  unsigned magic, version;
  float estimated_time;
};
GPUCAST_EXPORT int ncclGroupSimulateEnd(SimulationInfo* info) {
  if (info) info->estimated_time = 0.0f;
  group.clear();
  if (group_depth > 0) --group_depth;
  return kSuccess;
}

GPUCAST_EXPORT int ncclAllReduce(const void* send, void* receive, size_t count, int type, int operation, Communicator* comm, void* stream) {
  if (const int error = log("ncclAllReduce", comm, type, count, stream)) return error;
  const size_t size_bytes = count * type_bytes(type);
  std::vector<char> contents;
  const bool ok = known(send, size_bytes, &contents) && reduce(contents.data(), count, type, operation, comm->world);
  store(receive, size_bytes, ok ? &contents : nullptr);
  return kSuccess;
}
GPUCAST_EXPORT int ncclReduce(const void* send, void* receive, size_t count, int type, int operation, int root, Communicator* comm,
                              void* stream) {
  if (const int error = log("ncclReduce", comm, type, count, stream, "root", root)) return error;
  if (root != comm->rank) return kSuccess;
  const size_t size_bytes = count * type_bytes(type);
  std::vector<char> contents;
  const bool ok = known(send, size_bytes, &contents) && reduce(contents.data(), count, type, operation, comm->world);
  store(receive, size_bytes, ok ? &contents : nullptr);
  return kSuccess;
}
GPUCAST_EXPORT int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int operation, Communicator* comm,
                                     void* stream) {
  if (const int error = log("ncclReduceScatter", comm, type, count, stream)) return error;
  const size_t size_bytes = count * type_bytes(type);
  std::vector<char> contents;
  const bool ok = known(at(send, size_bytes * static_cast<size_t>(comm->rank)), size_bytes, &contents) &&
                  reduce(contents.data(), count, type, operation, comm->world);
  store(receive, size_bytes, ok ? &contents : nullptr);
  return kSuccess;
}
GPUCAST_EXPORT int ncclAllGather(const void* send, void* receive, size_t count, int type, Communicator* comm, void* stream) {
  if (const int error = log("ncclAllGather", comm, type, count, stream)) return error;
  const size_t size_bytes = count * type_bytes(type);
  std::vector<char> contents;
  if (known(send, size_bytes, &contents)) {
    for (int rank = 0; rank < comm->world; ++rank) store(at(receive, size_bytes * static_cast<size_t>(rank)), size_bytes, &contents);
  } else {
    store(receive, size_bytes * static_cast<size_t>(comm->world), nullptr);
  }
  return kSuccess;
}
// From another rank comes what this one already holds.
GPUCAST_EXPORT int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, Communicator* comm, void* stream) {
  if (const int error = log("ncclBroadcast", comm, type, count, stream, "root", root)) return error;
  if (root != comm->rank || send == receive) return kSuccess;
  const size_t size_bytes = count * type_bytes(type);
  std::vector<char> contents;
  store(receive, size_bytes, known(send, size_bytes, &contents) ? &contents : nullptr);
  return kSuccess;
}
GPUCAST_EXPORT int ncclBcast(void* buffer, size_t count, int type, int root, Communicator* comm, void* stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
GPUCAST_EXPORT int ncclGather(const void* send, void* receive, size_t count, int type, int root, Communicator* comm, void* stream) {
  if (comm && root != comm->rank) return log("ncclGather", comm, type, count, stream, "root", root);
  return ncclAllGather(send, receive, count, type, comm, stream);
}
GPUCAST_EXPORT int ncclScatter(const void* send, void* receive, size_t count, int type, int root, Communicator* comm, void* stream) {
  if (const int error = log("ncclScatter", comm, type, count, stream, "root", root)) return error;
  const size_t size_bytes = count * type_bytes(type);
  std::vector<char> contents;
  const bool ok = root == comm->rank && known(at(send, size_bytes * static_cast<size_t>(root)), size_bytes, &contents);
  store(receive, size_bytes, ok ? &contents : nullptr);
  return kSuccess;
}
GPUCAST_EXPORT int ncclAlltoAll(const void* send, void* receive, size_t count, int type, Communicator* comm, void* stream) {
  if (const int error = log("ncclAlltoAll", comm, type, count, stream)) return error;
  const size_t size_bytes = count * type_bytes(type);
  std::vector<char> contents;
  const bool ok = known(at(send, size_bytes * static_cast<size_t>(comm->rank)), size_bytes, &contents);
  for (int rank = 0; rank < comm->world; ++rank)
    store(at(receive, size_bytes * static_cast<size_t>(rank)), size_bytes, ok ? &contents : nullptr);
  return kSuccess;
}
GPUCAST_EXPORT int ncclSend(const void* send, size_t count, int type, int peer, Communicator* comm, void* stream) {
  if (const int error = log("ncclSend", comm, type, count, stream, "peer", peer)) return error;
  group.push_back({comm, send, nullptr, count * type_bytes(type), peer});
  if (group_depth == 0) finish_group();
  return kSuccess;
}
GPUCAST_EXPORT int ncclRecv(void* receive, size_t count, int type, int peer, Communicator* comm, void* stream) {
  if (const int error = log("ncclRecv", comm, type, count, stream, "peer", peer)) return error;
  group.push_back({comm, nullptr, receive, count * type_bytes(type), peer});
  if (group_depth == 0) finish_group();
  return kSuccess;
}
GPUCAST_EXPORT int ncclPutSignal(const void*, size_t count, int type, int peer, void*, size_t, int, int, unsigned, Communicator* comm,
                                 void* stream) {
  return log("ncclPutSignal", comm, type, count, stream, "peer", peer);
}
GPUCAST_EXPORT int ncclSignal(int, int, int, unsigned, Communicator* comm, void*) { return comm ? kSuccess : kInvalidArgument; }
GPUCAST_EXPORT int ncclWaitSignal(int, void*, Communicator* comm, void*) { return comm ? kSuccess : kInvalidArgument; }
