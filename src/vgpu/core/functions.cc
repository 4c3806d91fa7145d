#include "src/vgpu/core/functions.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/text_hash.h"
#include "src/occupancy/cubin.h"
#include "src/occupancy/fatbin.h"
#include "src/vgpu/core/process.h"

namespace gpucast::vgpu {
namespace {

// NVIDIA's headers do not show this layout. Tools that read fat binaries agree on these fields.
constexpr uint32_t kWrapperMagic = 0x466243b1;
struct Wrapper {
  uint32_t magic, version;
  const void* data;
};
struct EntryHeader {
  uint16_t kind;  // 1 PTX, 2 machine code
  uint16_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;
  uint32_t unused[3];
  uint32_t arch;
};

struct Fatbin {
  const Wrapper* wrapper = nullptr;
  bool chosen = false;
  FatbinChoice choice;
  std::vector<const void*> handles;
  bool unpacked = false;
  std::map<std::string, KernelResources> resources;
};

struct Registered {
  Fatbin* fatbin;
  const void* handle;
  const char* name;
  int thread_limit;
};

struct Variable {
  Fatbin* fatbin;
  size_t size_bytes;
  uint64_t address = 0;
};

struct Module {
  FatbinChoice choice;
  const KernelCode* code = nullptr;
  std::map<std::string, KernelResources> resources;
  ParametersByKernel parameters;
  std::map<std::string, std::unique_ptr<char>> functions;  // the char's address is the handle
  std::map<std::string, uint64_t> variables;
};

struct Known {
  const char* name;
  int thread_limit;
  Fatbin* fatbin;
  uint64_t module;
};

struct Functions {
  std::mutex mutex;
  std::unordered_map<std::string, const KernelCode*, TextHash, std::equal_to<>> codes;  // by PTX
  std::unordered_map<std::string, const KernelCode*, TextHash, std::equal_to<>> noted;  // by machine code that may be loaded later
  std::vector<Registered> waiting;                                                      // registered, but not yet in `known`
  std::unordered_map<const void*, Known> known;
  std::unordered_map<const void*, Variable> variables;
  std::map<Fatbin*, std::unique_ptr<Fatbin>> fatbins;
  std::map<uint64_t, Module> modules;
  uint64_t next_module = 0x5d0000001000;

  void index() {
    if (waiting.empty()) return;
    known.reserve(known.size() + waiting.size());
    for (const Registered& r : waiting) {
      known[r.handle] = {r.name, r.thread_limit, r.fatbin, 0};
      r.fatbin->handles.push_back(r.handle);
    }
    waiting.clear();
  }
};

Functions& functions() {
  static Functions* const kFunctions = new Functions;  // never destroyed: libraries unregister after our own end
  return *kFunctions;
}

using Lock = std::lock_guard<std::mutex>;

// With the lock held.
const KernelCode* code_of(Functions& f, std::string_view ptx) {
  const auto known = f.codes.find(ptx);
  if (known != f.codes.end()) return known->second;
  const auto number = static_cast<uint32_t>(f.codes.size() + 1);
  return f.codes.emplace(ptx, new KernelCode{number, TextHash{}(ptx), std::string(ptx)}).first->second;
}

// The bytes of an ELF file, as far as its header says; none: it is no such file.
std::string_view elf_file(const void* image) {
  if (image == nullptr || std::strncmp(static_cast<const char*>(image), ELFMAG, SELFMAG) != 0) return {};
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  const uint64_t size = std::max({uint64_t{sizeof header}, header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize,
                                  header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize});
  return {static_cast<const char*>(image), size};
}

// With the lock held. nullptr: its PTX was not noted.
const KernelCode* noted_code(Functions& f, const void* image) {
  const auto found = f.noted.find(elf_file(image));
  return found != f.noted.end() ? found->second : nullptr;
}

constexpr size_t kUnknownVariableBytes = 8;  // modules do not show us the sizes of their variables

}  // namespace

FatbinChoice choose_fatbin(const void* fatbin_data, int major, int minor) {
  FatbinChoice best, best_ptx;
  FatbinHeader header;
  if (fatbin_data == nullptr) return best;
  std::memcpy(&header, fatbin_data, sizeof header);
  if (header.magic != kFatbinMagic) return best;
  const int arch = major * 10 + minor;
  bool has_any = false;
  const char* entry = static_cast<const char*>(fatbin_data) + header.header_bytes;
  const char* const end = entry + header.entries_bytes;
  while (entry + sizeof(EntryHeader) <= end) {
    EntryHeader e;
    std::memcpy(&e, entry, sizeof e);
    if (e.header_bytes < sizeof e) break;
    const int entry_arch = static_cast<int>(e.arch);
    if (e.kind == 1 || e.kind == 2) has_any = true;
    if (e.kind == 2 && entry_arch / 10 == major && entry_arch <= arch && entry_arch > best.binary_arch)
      best = {entry_arch, entry_arch, true};
    if (e.kind == 1 && entry_arch <= arch && entry_arch > best_ptx.ptx_arch) best_ptx = {arch, entry_arch, true};
    entry += e.header_bytes + e.payload_bytes;
  }
  FatbinChoice choice = best.binary_arch != 0 ? best : best_ptx;
  choice.has_any = has_any;
  return choice;
}

void** register_fatbin(const void* wrapper) {
  Functions& f = functions();
  const Lock lock(f.mutex);
  auto fatbin = std::make_unique<Fatbin>();
  fatbin->wrapper = static_cast<const Wrapper*>(wrapper);
  Fatbin* const handle = fatbin.get();
  f.fatbins[handle] = std::move(fatbin);
  return reinterpret_cast<void**>(handle);
}

void unregister_fatbin(void** fatbin) {
  Functions& f = functions();
  const Lock lock(f.mutex);
  const auto found = f.fatbins.find(reinterpret_cast<Fatbin*>(fatbin));
  if (found == f.fatbins.end()) return;
  f.index();
  for (const void* handle : found->second->handles) {
    f.known.erase(handle);
    f.variables.erase(handle);
  }
  f.fatbins.erase(found);
}

void register_function(void** fatbin, const void* handle, const char* name, int thread_limit) {
  Functions& f = functions();
  const Lock lock(f.mutex);
  const auto found = f.fatbins.find(reinterpret_cast<Fatbin*>(fatbin));
  if (found == f.fatbins.end() || name == nullptr) return;
  f.waiting.push_back({found->first, handle, name, thread_limit > 0 ? thread_limit : 0});
}

void register_variable(void** fatbin, const void* handle, const char* name, size_t size_bytes) {
  Functions& f = functions();
  const Lock lock(f.mutex);
  const auto found = f.fatbins.find(reinterpret_cast<Fatbin*>(fatbin));
  if (found == f.fatbins.end() || name == nullptr) return;
  f.variables[handle] = {found->first, size_bytes};
  found->second->handles.push_back(handle);
}

bool find_function(const void* handle, Function* function) {
  const DeviceProfile& card = profile();
  Functions& f = functions();
  const Lock lock(f.mutex);
  f.index();
  const auto found = f.known.find(handle);
  if (found == f.known.end()) return false;
  const Known& known = found->second;
  FatbinChoice choice;
  KernelResources resources;
  const std::vector<KernelParameter>* parameters = nullptr;
  const KernelCode* code = nullptr;
  if (known.fatbin != nullptr) {
    Fatbin& fatbin = *known.fatbin;
    if (!fatbin.chosen && fatbin.wrapper != nullptr && fatbin.wrapper->magic == kWrapperMagic)
      fatbin.choice = choose_fatbin(fatbin.wrapper->data, card.compute_major, card.compute_minor);
    fatbin.chosen = true;
    choice = fatbin.choice;
  } else if (const auto module = f.modules.find(known.module); module != f.modules.end()) {
    choice = module->second.choice;
    code = module->second.code;
    if (const auto entry = module->second.parameters.find(known.name); entry != module->second.parameters.end())
      parameters = &entry->second;
    if (const auto entry = module->second.resources.find(known.name); entry != module->second.resources.end()) resources = entry->second;
  }
  const int arch = card.compute_major * 10 + card.compute_minor;
  *function = {known.name,
               known.thread_limit,
               choice.binary_arch != 0 ? choice.binary_arch : arch,
               choice.ptx_arch != 0 ? choice.ptx_arch : arch,
               resources,
               parameters,
               code,
               choice.binary_arch != 0 || !choice.has_any};
  return true;
}

KernelResources kernel_resources(const void* handle) {
  const DeviceProfile& card = profile();
  Function function;
  if (!find_function(handle, &function)) return {};
  Functions& f = functions();
  const Lock lock(f.mutex);
  const auto found = f.known.find(handle);
  if (found == f.known.end() || found->second.fatbin == nullptr) return function.resources;
  Fatbin& fatbin = *found->second.fatbin;
  if (!fatbin.unpacked && fatbin.wrapper != nullptr && fatbin.wrapper->magic == kWrapperMagic && fatbin.wrapper->data != nullptr) {
    const auto* const data = static_cast<const char*>(fatbin.wrapper->data);
    FatbinHeader header;
    std::memcpy(&header, data, sizeof header);
    if (header.magic == kFatbinMagic)
      kernels_of_fatbin({data, header.header_bytes + header.entries_bytes}, card.compute_major, card.compute_minor,
                        [&](std::string_view image) { fatbin.resources = kernels_of_cubin(image.data(), image.size()); });
  }
  fatbin.unpacked = true;
  const auto kernel = fatbin.resources.find(found->second.name);
  return kernel == fatbin.resources.end() ? KernelResources() : kernel->second;
}

bool find_variable(const void* handle, uint64_t* address, size_t* size_bytes) {
  Functions& f = functions();
  const Lock lock(f.mutex);
  const auto found = f.variables.find(handle);
  if (found == f.variables.end()) return false;
  if (found->second.address == 0) found->second.address = module_memory(found->second.size_bytes);
  *address = found->second.address;
  *size_bytes = found->second.size_bytes;
  return found->second.address != 0;
}

uint64_t module_load(const void* image) {
  const DeviceProfile& card = profile();
  Functions& f = functions();
  const Lock lock(f.mutex);
  Module& module = f.modules[f.next_module += 16];
  uint32_t magic = 0;
  if (image != nullptr) std::memcpy(&magic, image, sizeof magic);
  if (magic == kWrapperMagic) image = static_cast<const Wrapper*>(image)->data;
  if (magic == kWrapperMagic || magic == kFatbinMagic) module.choice = choose_fatbin(image, card.compute_major, card.compute_minor);
  module.resources = kernels_of_cubin(image, kUnknownSize, &module.parameters);
  module.code = noted_code(f, image);
  return f.next_module;
}

uint64_t module_load_file(std::string_view image, std::string_view ptx) {
  Functions& f = functions();
  const Lock lock(f.mutex);
  Module& module = f.modules[f.next_module += 16];
  module.resources = kernels_of_cubin(image.data(), image.size(), &module.parameters);
  module.code = ptx.empty() ? nullptr : code_of(f, ptx);
  return f.next_module;
}

bool module_unload(uint64_t module) {
  Functions& f = functions();
  const Lock lock(f.mutex);
  const auto found = f.modules.find(module);
  if (found == f.modules.end()) return false;
  for (const auto& [name, handle] : found->second.functions) f.known.erase(handle.get());
  for (const auto& [name, address] : found->second.variables) module_memory_free(address);
  f.modules.erase(found);
  return true;
}

bool module_function(uint64_t module, const char* name, const void** handle) {
  Functions& f = functions();
  const Lock lock(f.mutex);
  const auto found = f.modules.find(module);
  if (found == f.modules.end() || name == nullptr) return false;
  const auto entry = found->second.functions.try_emplace(name).first;
  if (entry->second == nullptr) entry->second = std::make_unique<char>();
  f.known[entry->second.get()] = {entry->first.c_str(), 0, nullptr, module};
  *handle = entry->second.get();
  return true;
}

bool module_variable(uint64_t module, const char* name, uint64_t* address, size_t* size_bytes) {
  Functions& f = functions();
  const Lock lock(f.mutex);
  const auto found = f.modules.find(module);
  if (found == f.modules.end() || name == nullptr) return false;
  uint64_t& place = found->second.variables[name];
  if (place == 0) place = module_memory(kUnknownVariableBytes);
  *address = place;
  *size_bytes = kUnknownVariableBytes;
  return place != 0;
}

void note_code(std::string_view image, std::string_view ptx) {
  Functions& f = functions();
  const Lock lock(f.mutex);
  const std::string_view file = image.size() > sizeof(Elf64_Ehdr) ? elf_file(image.data()) : std::string_view();
  if (!file.empty() && file.size() <= image.size()) f.noted.try_emplace(std::string(file), code_of(f, ptx));
}

void lock_functions() { functions().mutex.lock(); }
void unlock_functions() { functions().mutex.unlock(); }

}  // namespace gpucast::vgpu

void gpucast_vgpu_note_code(const void* image, uint64_t size_bytes, const char* ptx, uint64_t ptx_bytes) {
  gpucast::vgpu::note_code({static_cast<const char*>(image), size_bytes}, {ptx, ptx_bytes});
}
