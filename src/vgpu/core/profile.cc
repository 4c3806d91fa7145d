// The device profile: `key = value` a line, from the file that GPUCAST_VGPU_PROFILE names.
#include "src/vgpu/core/profile.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace gpucast::vgpu {
namespace {

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

template <size_t n>
bool set_text(char (&field)[n], std::string_view value) {
  if (value.size() >= n) return false;
  std::memset(field, 0, n);
  std::memcpy(field, value.data(), value.size());
  return true;
}

template <typename T>
bool set_number(T& field, std::string_view value) {
  const std::string text(value);
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || text[0] == '-' || *end != '\0' || errno != 0) return false;
  field = static_cast<T>(number);
  return static_cast<unsigned long long>(field) == number && field >= 0;
}

// False: the value is wrong for the key. An unknown key is fine: a newer gpucast may write more keys.
bool set(DeviceProfile& profile, std::string_view key, std::string_view value) {
#define GPUCAST_TEXT(field) \
  if (key == #field) return set_text(profile.field, value)
#define GPUCAST_NUMBER(field) \
  if (key == #field) return set_number(profile.field, value)
  GPUCAST_TEXT(name);
  GPUCAST_TEXT(driver_version_text);
  GPUCAST_TEXT(cudnn_library);
  GPUCAST_TEXT(cudnn_asked);
  GPUCAST_TEXT(cudnn_answers);
  GPUCAST_TEXT(clock_socket);
  GPUCAST_NUMBER(compute_major);
  GPUCAST_NUMBER(compute_minor);
  GPUCAST_NUMBER(multiprocessors);
  GPUCAST_NUMBER(total_memory_bytes);
  GPUCAST_NUMBER(context_bytes);
  GPUCAST_NUMBER(capacity_bytes);
  GPUCAST_NUMBER(enforce_capacity);
  GPUCAST_NUMBER(devices);
  GPUCAST_NUMBER(l2_bytes);
  GPUCAST_NUMBER(memory_bus_width_bits);
  GPUCAST_NUMBER(memory_clock_khz);
  GPUCAST_NUMBER(clock_khz);
  GPUCAST_NUMBER(shared_memory_per_block_bytes);
  GPUCAST_NUMBER(shared_memory_per_block_optin_bytes);
  GPUCAST_NUMBER(shared_memory_per_multiprocessor_bytes);
  GPUCAST_NUMBER(registers_per_multiprocessor);
  GPUCAST_NUMBER(max_threads_per_multiprocessor);
  GPUCAST_NUMBER(max_blocks_per_multiprocessor);
  GPUCAST_NUMBER(driver_version);
  GPUCAST_NUMBER(runtime_version);
  GPUCAST_NUMBER(cudnn_version);
  GPUCAST_NUMBER(cublas_version);
  GPUCAST_NUMBER(nccl_version);
  GPUCAST_NUMBER(cusparselt_version);
  GPUCAST_NUMBER(cufft_version);
  GPUCAST_NUMBER(cusolver_version);
  GPUCAST_NUMBER(cusparse_version);
  GPUCAST_NUMBER(curand_version);
  GPUCAST_NUMBER(cupti_version);
  GPUCAST_NUMBER(ascending_addresses);
  GPUCAST_NUMBER(clock);
  GPUCAST_NUMBER(clock_call_ns);
  GPUCAST_NUMBER(clock_latency_ns);
  GPUCAST_NUMBER(clock_event_ns);
  GPUCAST_NUMBER(clock_yardstick_ns);
#undef GPUCAST_TEXT
#undef GPUCAST_NUMBER
  return true;
}

}  // namespace

DeviceProfile default_profile() {
  DeviceProfile a100{};
  set_text(a100.name, "NVIDIA A100-SXM4-80GB");
  a100.compute_major = 8;
  a100.compute_minor = 0;
  a100.multiprocessors = 108;
  a100.devices = 1;
  a100.total_memory_bytes = 85'097'971'712;
  a100.context_bytes = 440 << 20;
  a100.l2_bytes = 40 << 20;
  a100.memory_bus_width_bits = 5120;
  a100.memory_clock_khz = 1'593'000;
  a100.clock_khz = 1'410'000;
  a100.shared_memory_per_block_bytes = 48 << 10;
  a100.shared_memory_per_block_optin_bytes = 163 << 10;
  a100.shared_memory_per_multiprocessor_bytes = 164 << 10;
  a100.registers_per_multiprocessor = 65536;
  a100.max_threads_per_multiprocessor = 2048;
  a100.max_blocks_per_multiprocessor = 32;
  a100.driver_version = 13000;
  set_text(a100.driver_version_text, "580.95.05");
  return a100;
}

DeviceProfile parse_profile(std::string_view text, std::string* problems) {
  DeviceProfile profile = default_profile();
  int line_number = 0;
  while (!text.empty()) {
    ++line_number;
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + (line.size() < text.size()));
    line = trim(line);
    if (line.empty() || line[0] == '#') continue;
    const auto equals = line.find('=');
    if (equals == std::string_view::npos || !set(profile, trim(line.substr(0, equals)), trim(line.substr(equals + 1))))
      *problems += "line " + std::to_string(line_number) + ": cannot use '" + std::string(line) + "'\n";
  }
  // Without a capacity in the profile, the card's memory minus the context is the capacity.
  const uint64_t left = profile.total_memory_bytes > profile.context_bytes ? profile.total_memory_bytes - profile.context_bytes : 0;
  if (profile.capacity_bytes == 0 || profile.capacity_bytes > left) profile.capacity_bytes = left;
  return profile;
}

DeviceProfile read_profile() {
  std::string text, problems;
  const char* path = std::getenv("GPUCAST_VGPU_PROFILE");
  if (path != nullptr && *path != '\0') {
    if (FILE* file = std::fopen(path, "re")) {
      char part[4096];
      size_t got = 0;
      do {
        got = std::fread(part, 1, sizeof part, file);
        text.append(part, got);
      } while (got == sizeof part);
      std::fclose(file);
    } else {
      problems = std::string(std::strerror(errno)) + ": the virtual GPU is an A100 with 80 GB instead\n";
    }
  }
  const DeviceProfile profile = parse_profile(text, &problems);
  if (!problems.empty()) std::fprintf(stderr, "gpucast: GPUCAST_VGPU_PROFILE=%s: %s", path == nullptr ? "" : path, problems.c_str());
  return profile;
}

}  // namespace gpucast::vgpu
