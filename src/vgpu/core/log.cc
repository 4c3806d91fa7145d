#include "src/vgpu/core/log.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "src/base/hex.h"
#include "src/base/text_hash.h"
#include "src/vgpu/core/core.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/issuing_threads.h"
#include "src/vgpu/core/launch_values.h"
#include "src/vgpu/core/operator_launches.h"
#include "src/vgpu/core/process.h"
#include "src/vgpu/core/regions.h"
#include "src/vgpu/core/stream_capture.h"

namespace gpucast::vgpu {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr size_t kLimitBytes = size_t{512} << 20;  // a long run must not eat the machine's memory

constexpr std::string_view kArguments = "[\"arguments\",\"";  // the line before a compiled kernel's

// The log of one device.
struct Log {
  std::vector<std::string> chunks;  // a chunk never grows beyond its capacity, so appending moves no text
  size_t size_bytes = 0;
  uint64_t kernels = 0, dropped = 0;
  int64_t epoch_ns = 0;  // times of work count from here; 0: no time logged yet
  uint64_t thread = 0;   // the thread that logged work last
  std::unordered_map<std::string, int, TextHash, std::equal_to<>> kernel_names;
  std::set<uint32_t> codes;   // the numbers of those that are in the log
  std::set<uint64_t> values;  // same

  void append(std::string_view line) {
    if (forked_after_use()) return;
    if (line.starts_with("[\"kernel\",") || line.starts_with(kArguments)) ++kernels;
    if (size_bytes + line.size() + 1 > kLimitBytes) {
      ++dropped;
      return;
    }
    if (chunks.empty() || chunks.back().size() + line.size() + 1 > chunks.back().capacity()) {
      chunks.emplace_back();
      chunks.back().reserve(line.size() + 1 > kChunkBytes ? line.size() + 1 : kChunkBytes);
    }
    chunks.back().append(line).push_back('\n');
    size_bytes += line.size() + 1;
  }
};

int64_t unix_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);  // the clock of PyTorch's profiler
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Logs {
  std::mutex mutex;
  std::array<std::unique_ptr<Log>, kMostDevices> of_device;  // made when first written
  std::map<std::pair<std::string, std::string>, uint64_t> unsupported;

  Log& log_of(int device) {
    std::unique_ptr<Log>& log = of_device[static_cast<size_t>(device)];
    if (log == nullptr) log = std::make_unique<Log>();
    return *log;
  }
};

Logs& logs() {
  static Logs* const kLogs = new Logs;  // never destroyed: libraries call until the very end
  return *kLogs;
}

std::atomic<uint64_t> g_operations{0};

// The id of a kernel's name. The log introduces a name before its first use.
int kernel_name_id(const char* name, const KernelResources& resources, const KernelCode* code) {
  const std::lock_guard lock(logs().mutex);
  Log& log = logs().log_of(current_device());
  std::string numbers;  // compiled kernels may share a name and differ in their numbers
  if (resources.registers > 0)
    numbers = "," + std::to_string(resources.registers) + "," + std::to_string(resources.static_shared_bytes) + "," +
              std::to_string(resources.local_bytes);
  if (code != nullptr && !numbers.empty()) {
    numbers += "," + std::to_string(code->number);
    if (log.codes.insert(code->number).second) {
      std::string line = "[\"kernel_code\"," + std::to_string(code->number) + ",";
      append_json_string(line, code->ptx);
      log.append(line + "]");
    }
  }
  const std::string key = numbers.empty() ? std::string() : name + numbers;
  const auto known = log.kernel_names.find(numbers.empty() ? std::string_view(name) : std::string_view(key));
  if (known != log.kernel_names.end()) return known->second;
  const int id = static_cast<int>(log.kernel_names.size());
  log.kernel_names.emplace(numbers.empty() ? std::string(name) : key, id);
  std::string line = "[\"kernel_name\"," + std::to_string(id) + ",";
  append_json_string(line, name);
  log.append((line += numbers) + "]");
  return id;
}

void log_values(std::span<const LaunchValuesRef> values) {
  const std::lock_guard lock(logs().mutex);
  Log& log = logs().log_of(current_device());
  for (const LaunchValuesRef& one : values) {
    if (!log.values.insert(one->id).second) continue;
    std::string line = "[\"values\"," + std::to_string(one->id) + ',' + std::to_string(one->address) + ",\"";
    append_hex(one->bytes, &line);
    log.append(line + "\"]");
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      const size_t length = c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
      bool valid = length != 0 && c < 0xf5 && i + length <= text.size();
      for (size_t k = 1; valid && k < length; ++k) valid = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
      if (valid && length >= 3) {  // no overlong forms, no surrogates, nothing beyond U+10FFFF
        const unsigned char second = static_cast<unsigned char>(text[i + 1]);
        valid = !((c == 0xe0 && second < 0xa0) || (c == 0xed && second >= 0xa0) || (c == 0xf0 && second < 0x90) ||
                  (c == 0xf4 && second >= 0x90));
      }
      if (valid) {
        out.append(text.substr(i, length));
        i += length - 1;
      } else {
        out += '?';
      }
    }
  }
  out += '"';
}

void log_line(std::string_view line) { log_line_of(current_device(), line); }

void log_line_of(int device, std::string_view line) {
  const std::lock_guard lock(logs().mutex);
  logs().log_of(device).append(line);
}

void log_timed(std::string_view line, std::string_view behind) {
  const int64_t now_ns = unix_ns();
  const uint64_t thread = issuing_thread();
  const std::lock_guard lock(logs().mutex);
  Log& log = logs().log_of(current_device());
  if (log.epoch_ns == 0) {
    log.epoch_ns = now_ns;
    log.append("{\"record\":\"clock\",\"unix_ns\":" + std::to_string(now_ns) + ",\"order\":true}");
  }
  if (log.thread != thread) {
    log.thread = thread;
    log.append("[\"thread\"," + std::to_string(thread) + "]");
  }
  std::string timed(line.substr(0, line.size() - 1));
  log.append((timed += ',').append(std::to_string(now_ns - log.epoch_ns)).append(behind) += ']');
}

LogMoment log_moment() { return {unix_ns(), issuing_thread()}; }

void log_captured_at(const LogMoment& moment) {
  const std::lock_guard lock(logs().mutex);
  Log& log = logs().log_of(current_device());
  if (log.epoch_ns == 0 || moment.unix_ns < log.epoch_ns) return;
  log.append("[\"captured\"," + std::to_string(moment.unix_ns - log.epoch_ns) + ',' + std::to_string(moment.thread) + ']');
}

void log_work(std::string_view line, uint64_t stream, GraphNodeType node_type) {
  if (!capture_node(stream, node_type, line)) log_timed(line);
}

bool clock_work(const ClockWork& work, uint64_t stream, GraphNodeType node_type, const char* function, bool driver) {
  submit_held_launches();
  if (capture_node(stream, node_type, {}, &work)) return true;
  clock_submit(work, stream, function, driver);
  return false;
}

void count_operation() { g_operations.fetch_add(1, std::memory_order_relaxed); }
uint64_t operations() { return g_operations.load(std::memory_order_relaxed); }

std::string kernel_line(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes, uint64_t stream,
                        const KernelResources& resources, const CompiledLaunch& compiled) {
  char line[256];
  std::snprintf(line, sizeof line, "[\"kernel\",%d,%u,%u,%u,%u,%u,%u,%zu,%" PRIu64 "]", kernel_name_id(name, resources, compiled.code),
                grid[0], grid[1], grid[2], block[0], block[1], block[2], dynamic_shared_bytes, stream);
  std::string places;
  for (const uint64_t pointer : compiled.pointers) {
    if (in_device_region(pointer)) places.append(places.empty() ? "[" : ",").append(std::to_string(pointer));
  }
  std::string out;
  if (compiled.code != nullptr) {
    log_values(compiled.values);
    out = kArguments;
    append_hex(compiled.parameters, &out);
    out += '"';
    for (const LaunchValuesRef& one : compiled.values) out += ',' + std::to_string(one->id);
    out += "]\n";
  }
  out += line;
  if (!places.empty()) out.replace(out.size() - 1, 1, "," + places + "]]");
  return out;
}

void log_kernel(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes, uint64_t stream,
                const KernelResources& resources, const CompiledLaunch& compiled, bool driver, const void* function) {
  context_activate();
  count_operation();
  if (has_clock_now()) {
    clock_launch(name, grid, block, dynamic_shared_bytes, stream, resources, compiled, driver, function);
    return;
  }
  log_work(kernel_line(name, grid, block, dynamic_shared_bytes, stream, resources, compiled), stream, kGraphNodeKernel);
}

void log_call(const char* library, const char* name, const char* arguments_json, uint64_t stream) {
  touch();
  count_operation();
  if (arguments_json == nullptr || *arguments_json == '\0') arguments_json = "{}";
  if (has_clock_now()) {
    clock_work(clock_call(library, name, arguments_json), stream, kGraphNodeKernel, "cudaLaunchKernel");
    return;
  }
  std::string line = "[\"call\",";
  append_json_string(line, library);
  line += ',';
  append_json_string(line, name);
  line += ',';
  line += arguments_json;
  log_work(line + ',' + std::to_string(stream) + ']', stream, kGraphNodeKernel);
}

void clock_communicate(const char* name, const std::string& calls_json, RankWork ranks, uint64_t stream) {
  touch();
  count_operation();
  clock_work(clock_communication(name, calls_json, std::move(ranks)), stream, kGraphNodeKernel, "cudaLaunchKernel");
}

void log_warning(const char* code, const char* message) {
  std::string line = "{\"record\":\"warning\",\"code\":";
  append_json_string(line, code);
  line += ",\"message\":";
  append_json_string(line, message);
  log_line(line + '}');
}

void log_workspace(const char* library, uint64_t address, size_t size_bytes) {
  touch();
  std::string line = "[\"workspace\",";
  append_json_string(line, library);
  log_line(line + ',' + std::to_string(address) + ',' + std::to_string(size_bytes) + ']');
}

// Each library's own code for "not supported", from its public header.
int not_supported(const char* library, const char* name) {
  static const struct {
    const char* library;
    int code;
  } kCodes[] = {
      {"cudart", 801}, {"cuda", 801},   {"cublas", 15},   {"cublasLt", 15},   {"cudnn", 3000}, {"cufft", 16},
      {"curand", 999}, {"cusolver", 9}, {"cusparse", 10}, {"cusparseLt", 10}, {"nccl", 3},     {"nvrtc", 11},
      {"nvml", 3},     {"cupti", 27},   {"nvJitLink", 6}, {"cufile", 5003},
  };
  touch();
  {
    const std::lock_guard lock(logs().mutex);
    if (!forked_after_use()) ++logs().unsupported[{library, name}];
  }
  for (const auto& entry : kCodes)
    if (std::strcmp(entry.library, library) == 0) return entry.code;
  return 1;
}

void lock_log() { logs().mutex.lock(); }
void unlock_log() { logs().mutex.unlock(); }

void reset_log_in_child() {
  for (auto& log : logs().of_device) log.reset();
  logs().unsupported.clear();
}

}  // namespace gpucast::vgpu

using namespace gpucast::vgpu;

void gpucast_vgpu_mark(int64_t sequence) {
  const std::string line = "[\"vgpu_mark\"," + std::to_string(sequence) + "]";
  const std::lock_guard lock(logs().mutex);
  for (int device = 0; device < kMostDevices; ++device) {
    if (device == current_device() || logs().of_device[static_cast<size_t>(device)] != nullptr) logs().log_of(device).append(line);
  }
}

int gpucast_vgpu_write_log(const char* path, int device) {
  if (forked_after_use()) return EPERM;  // the log belongs to the parent
  if (!is_device(device)) return EINVAL;
  const uint64_t peak_bytes = memory_info(device).peak_bytes;
  FILE* file = std::fopen(path, "we");
  if (file == nullptr) return errno;
  const std::lock_guard lock(logs().mutex);
  Log& log = logs().log_of(device);
  bool written = true;
  for (const std::string& chunk : log.chunks) written = written && std::fwrite(chunk.data(), 1, chunk.size(), file) == chunk.size();
  for (const auto& [call, count] : logs().unsupported) {
    std::string line = "{\"record\":\"unsupported\",\"library\":";
    append_json_string(line, call.first);
    line += ",\"name\":";
    append_json_string(line, call.second);
    line += ",\"count\":" + std::to_string(count) + "}\n";
    written = written && std::fwrite(line.data(), 1, line.size(), file) == line.size();
  }
  written =
      written &&
      std::fprintf(file, "{\"record\":\"vgpu_end\",\"peak_device_bytes\":%" PRIu64 ",\"kernels\":%" PRIu64 ",\"dropped\":%" PRIu64 "}\n",
                   peak_bytes, log.kernels, log.dropped) > 0;
  const int problem = written ? 0 : errno;
  if (std::fclose(file) != 0 && problem == 0) return errno;
  return problem;
}
