// NVML: what monitoring tools query about the machine's cards. It agrees with cudaMemGetInfo. Cards have the machine's numbers, not the
// numbers of CUDA_VISIBLE_DEVICES.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iterator>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/device_attributes.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/libs/nvml_types.h"

#define NVML_API extern "C" GPUCAST_VGPU_API
// One function under the names of several releases.
#define NVML_ALSO(name, target, ...) NVML_API int name(__VA_ARGS__) __attribute__((alias(#target)))

using namespace gpucast::vgpu;

namespace {

enum Nvml : int { kOk = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7 };

// The handles of the cards. Any other handle is wrong.
char g_cards[kMostDevices];
// The machine's number of a card; -1: a wrong handle.
int card(const void* handle) {
  const auto* const at = static_cast<const char*>(handle);
  return at >= g_cards && at < g_cards + physical_device_count() ? static_cast<int>(at - g_cards) : -1;
}
int give_handle(int physical, void** device) {
  if (physical < 0) return kNotFound;
  *device = &g_cards[physical];
  return kOk;
}

int text(char* out, unsigned room, const char* value) {
  if (out == nullptr) return kInvalidArgument;
  if (room <= std::strlen(value)) return kInsufficientSize;
  std::strcpy(out, value);
  return kOk;
}

template <typename T, typename V>
int answer_for_card(void* device, T* out, V value) {
  if (card(device) < 0 || out == nullptr) return kInvalidArgument;
  *out = static_cast<T>(value);
  return kOk;
}

void uuid_text(int physical, char out[48]) {
  unsigned char u[16];
  device_uuid(physical, u);
  std::snprintf(out, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4], u[5],
                u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

}  // namespace

// ---- Library --------------------------------------------------------------------------------------------------------------------

NVML_API int nvmlInit_v2() { return kOk; }
NVML_ALSO(nvmlInit, nvmlInit_v2);
NVML_API int nvmlInitWithFlags(unsigned) { return kOk; }
NVML_API int nvmlShutdown() { return kOk; }
NVML_API const char* nvmlErrorString(int code) {
  static const char* const kTexts[] = {
      "Success",   "Uninitialized",    "Invalid Argument", "Not Supported", "Insufficient Permissions", "Already Initialized",
      "Not Found", "Insufficient Size"};
  return code >= 0 && code < static_cast<int>(std::size(kTexts)) ? kTexts[code] : "Unknown Error";
}
NVML_API int nvmlSystemGetDriverVersion(char* out, unsigned room) { return text(out, room, profile().driver_version_text); }
NVML_API int nvmlSystemGetNVMLVersion(char* out, unsigned room) {
  char version[64];
  std::snprintf(version, sizeof version, "%d.%s", profile().driver_version / 1000, profile().driver_version_text);
  return text(out, room, version);
}
NVML_API int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return kInvalidArgument;
  *version = profile().driver_version;
  return kOk;
}
NVML_ALSO(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2, int*);
NVML_API int nvmlSystemGetProcessName(unsigned pid, char* out, unsigned room) {
  char path[32], name[256] = "";
  std::snprintf(path, sizeof path, "/proc/%u/comm", pid);
  FILE* file = std::fopen(path, "re");
  if (file == nullptr) return kNotFound;
  const bool read = std::fgets(name, sizeof name, file) != nullptr;
  std::fclose(file);
  name[std::strcspn(name, "\n")] = '\0';
  return read ? text(out, room, name) : static_cast<int>(kNotFound);
}

// ---- The card -------------------------------------------------------------------------------------------------------------------

NVML_API int nvmlDeviceGetCount_v2(unsigned* count) {
  if (count == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned>(physical_device_count());
  return kOk;
}
NVML_ALSO(nvmlDeviceGetCount, nvmlDeviceGetCount_v2, unsigned*);
NVML_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (device == nullptr || index >= static_cast<unsigned>(physical_device_count())) return kInvalidArgument;
  return give_handle(static_cast<int>(index), device);
}
NVML_ALSO(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2, unsigned, void**);
NVML_API int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (uuid == nullptr || device == nullptr) return kInvalidArgument;
  for (int physical = 0; physical < physical_device_count(); ++physical) {
    char own[48];
    uuid_text(physical, own);
    if (std::strcmp(uuid, own) == 0) return give_handle(physical, device);
  }
  return kNotFound;
}
NVML_API int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  if (bus_id == nullptr || device == nullptr) return kInvalidArgument;
  return give_handle(physical_by_pci_bus_id(bus_id), device);
}
NVML_ALSO(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2, const char*, void**);
NVML_API int nvmlDeviceGetIndex(void* device, unsigned* index) { return answer_for_card(device, index, card(device)); }
NVML_API int nvmlDeviceGetMinorNumber(void* device, unsigned* minor) { return answer_for_card(device, minor, card(device)); }
NVML_API int nvmlDeviceGetName(void* device, char* out, unsigned room) {
  return card(device) >= 0 ? text(out, room, profile().name) : static_cast<int>(kInvalidArgument);
}
NVML_API int nvmlDeviceGetUUID(void* device, char* out, unsigned room) {
  if (card(device) < 0) return kInvalidArgument;
  char own[48];
  uuid_text(card(device), own);
  return text(out, room, own);
}
NVML_API int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  if (card(device) < 0 || major == nullptr || minor == nullptr) return kInvalidArgument;
  *major = profile().compute_major;
  *minor = profile().compute_minor;
  return kOk;
}
NVML_API int nvmlDeviceGetPciInfo_v3(void* device, nvml::PciInfo* info) {
  if (card(device) < 0 || info == nullptr) return kInvalidArgument;
  *info = {};
  pci_bus_id(card(device), info->busIdLegacy);
  std::snprintf(info->busId, sizeof info->busId, "0000%s", info->busIdLegacy);
  info->bus = static_cast<unsigned>(pci_bus(card(device)));
  return kOk;
}
NVML_ALSO(nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v3, void*, nvml::PciInfo*);
NVML_ALSO(nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo_v3, void*, nvml::PciInfo*);

namespace {
// As far as this process knows: a card that it does not see is empty.
MemoryInfo memory_of(int physical) { return memory_info(visible_device(physical)); }
}  // namespace

// ---- Memory ---------------------------------------------------------------------------------------------------------------------

NVML_API int nvmlDeviceGetMemoryInfo(void* device, nvml::Memory* memory) {
  if (card(device) < 0 || memory == nullptr) return kInvalidArgument;
  const MemoryInfo info = memory_of(card(device));
  *memory = {info.total_bytes, info.free_bytes, info.total_bytes - info.free_bytes};
  return kOk;
}
NVML_API int nvmlDeviceGetMemoryInfo_v2(void* device, nvml::MemoryV2* memory) {
  if (card(device) < 0 || memory == nullptr) return kInvalidArgument;
  const MemoryInfo info = memory_of(card(device));
  *memory = {memory->version, info.total_bytes, 0, info.free_bytes, info.total_bytes - info.free_bytes};
  return kOk;
}
NVML_API int nvmlDeviceGetBAR1MemoryInfo(void* device, nvml::Memory* memory) {
  constexpr unsigned long long kBar1Bytes = 256 << 20;
  return answer_for_card(device, memory, nvml::Memory{kBar1Bytes, kBar1Bytes, 0});
}
NVML_API int nvmlDeviceGetMemoryBusWidth(void* device, unsigned* bits) {
  return answer_for_card(device, bits, profile().memory_bus_width_bits);
}

namespace {
// Only this process, once it uses the card: other processes of a real machine do not exist here.
template <typename Process>
int own_process(void* device, unsigned* count, Process* processes) {
  if (card(device) < 0 || count == nullptr) return kInvalidArgument;
  const unsigned room = *count;
  *count = context_active(visible_device(card(device))) ? 1 : 0;
  if (*count == 0) return kOk;
  if (room == 0) return kInsufficientSize;
  if (processes == nullptr) return kInvalidArgument;
  const MemoryInfo info = memory_of(card(device));
  processes[0] = {};
  processes[0].pid = static_cast<unsigned>(getpid());
  processes[0].usedGpuMemory = info.total_bytes - info.free_bytes;
  return kOk;
}
int no_process(void* device, unsigned* count) { return answer_for_card(device, count, 0); }
}  // namespace

NVML_API int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, nvml::ProcessInfoV2* processes) {
  return own_process(device, count, processes);
}
NVML_ALSO(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3, void*, unsigned*, nvml::ProcessInfoV2*);
NVML_API int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, nvml::ProcessInfoV1* processes) {
  return own_process(device, count, processes);
}
NVML_API int nvmlDeviceGetGraphicsRunningProcesses_v3(void* device, unsigned* count, void*) { return no_process(device, count); }
NVML_ALSO(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3, void*, unsigned*, void*);
NVML_ALSO(nvmlDeviceGetGraphicsRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses_v3, void*, unsigned*, void*);
NVML_API int nvmlDeviceGetMPSComputeRunningProcesses_v3(void* device, unsigned* count, void*) { return no_process(device, count); }
NVML_ALSO(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetMPSComputeRunningProcesses_v3, void*, unsigned*, void*);
NVML_ALSO(nvmlDeviceGetMPSComputeRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses_v3, void*, unsigned*, void*);

// ---- Load, clocks, power: an idle card --------------------------------------------------------------------------------------------

NVML_API int nvmlDeviceGetUtilizationRates(void* device, nvml::Utilization* rates) {
  return answer_for_card(device, rates, nvml::Utilization{0, 0});
}
NVML_API int nvmlDeviceGetEncoderUtilization(void* device, unsigned* percent, unsigned* period_us) {
  if (period_us != nullptr) *period_us = 0;
  return answer_for_card(device, percent, 0);
}
NVML_API int nvmlDeviceGetDecoderUtilization(void* device, unsigned* percent, unsigned* period_us) {
  return nvmlDeviceGetEncoderUtilization(device, percent, period_us);
}
NVML_API int nvmlDeviceGetTemperature(void* device, int, unsigned* celsius) { return answer_for_card(device, celsius, 30); }
NVML_API int nvmlDeviceGetPerformanceState(void* device, int* state) { return answer_for_card(device, state, 0); }
NVML_API int nvmlDeviceGetClockInfo(void* device, int kind, unsigned* mhz) {
  constexpr int kMemory = 2;
  return answer_for_card(device, mhz, (kind == kMemory ? profile().memory_clock_khz : profile().clock_khz) / 1000);
}
NVML_API int nvmlDeviceGetMaxClockInfo(void* device, int kind, unsigned* mhz) { return nvmlDeviceGetClockInfo(device, kind, mhz); }
NVML_API int nvmlDeviceGetClock(void* device, int kind, int, unsigned* mhz) { return nvmlDeviceGetClockInfo(device, kind, mhz); }
NVML_API int nvmlDeviceGetApplicationsClock(void* device, int kind, unsigned* mhz) { return nvmlDeviceGetClockInfo(device, kind, mhz); }
NVML_API int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) { return answer_for_card(device, milliwatts, 0); }
NVML_API int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  return answer_for_card(device, millijoules, 0);
}
NVML_API int nvmlDeviceGetPersistenceMode(void* device, int* mode) { return answer_for_card(device, mode, 0); }
NVML_API int nvmlDeviceGetDisplayActive(void* device, int* active) { return answer_for_card(device, active, 0); }
NVML_API int nvmlDeviceGetDisplayMode(void* device, int* mode) { return answer_for_card(device, mode, 0); }
NVML_API int nvmlDeviceGetComputeMode(void* device, int* mode) { return answer_for_card(device, mode, 0); }
NVML_API int nvmlDeviceGetMultiGpuBoard(void* device, unsigned* several) { return answer_for_card(device, several, 0); }
NVML_API int nvmlDeviceGetNumGpuCores(void* device, unsigned* cores) {
  const int major = profile().compute_major, minor = profile().compute_minor;
  const int per_multiprocessor = (major == 8 && minor == 0) || major == 7 || (major == 6 && minor == 0) ? 64 : 128;
  return answer_for_card(device, cores, per_multiprocessor * profile().multiprocessors);
}
NVML_API int nvmlDeviceGetBrand(void* device, int* brand) {
  constexpr int kGeForce = 5, kNvidia = 14;
  return answer_for_card(device, brand, std::strstr(profile().name, "GeForce") != nullptr ? kGeForce : kNvidia);
}
NVML_API int nvmlDeviceIsMigDeviceHandle(void* device, unsigned* is) { return answer_for_card(device, is, 0); }
NVML_API int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* count) { return answer_for_card(device, count, 0); }
// As on a card without these features: a plain answer, not a gap that needs a warning.
NVML_API int nvmlDeviceGetMigMode(void*, unsigned*, unsigned*) { return kNotSupported; }
NVML_API int nvmlDeviceGetFanSpeed(void*, unsigned*) { return kNotSupported; }
NVML_API int nvmlDeviceGetEccMode(void*, int*, int*) { return kNotSupported; }
NVML_API int nvmlDeviceGetNvLinkState(void*, unsigned, int*) { return kNotSupported; }
NVML_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, nvml::PciInfo*) { return kNotSupported; }
NVML_API int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int*) { return kNotSupported; }
// The fields that all versions of nvmlGpuFabricInfoV_t have after the version number: no fabric. PyTorch 2.13 needs an answer.
NVML_API int nvmlDeviceGetGpuFabricInfoV(void* device, void* info) {
  constexpr size_t kVersionBytes = 4, kCommonBytes = 36;
  if (card(device) < 0 || info == nullptr) return kInvalidArgument;
  std::memset(static_cast<char*>(info) + kVersionBytes, 0, kCommonBytes - kVersionBytes);
  return kOk;
}
NVML_API int nvmlDeviceGetP2PStatus(void* device, void* other, int, int* status) {
  if (card(other) < 0) return kInvalidArgument;
  return answer_for_card(device, status, 0);
}
NVML_API int nvmlUnitGetCount(unsigned* count) {
  if (count == nullptr) return kInvalidArgument;
  *count = 0;
  return kOk;
}
