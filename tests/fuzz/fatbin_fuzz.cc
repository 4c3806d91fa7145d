// Any bytes at all as a library with GPU code, as a cubin, as a cache of kernels and as a file of launches: an error or an answer within
// bounds, never a crash. Built with clang and -DGPUCAST_FUZZ=ON:
//   build/fuzz/bin/fatbin_fuzz -max_len=16384 -timeout=10 CORPUS tests/fuzz/corpus/fatbin

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/occupancy/cubin.h"
#include "src/occupancy/fatbin.h"
#include "src/occupancy/launches_file.h"
#include "src/occupancy/occupancy_card.h"
#include "src/occupancy/wheel.h"

using namespace gpucast;

namespace {

void require(bool holds) {
  if (!holds) __builtin_trap();
}

template <class Run>
void error_or(Run&& run) {
  try {
    run();
  } catch (const Error& error) {
    require(!std::string(error.what()).starts_with("internal error"));  // the input may have the words
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const OccupancyCard card = occupancy_card(find_gpu("a100-80"));
  const int file = memfd_create("library", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) return -1;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  error_or([&] {
    (void)read_fatbins(path, 8, 0, [](std::string_view image) {
      for (const auto& [name, kernel] : kernels_of_cubin(image.data(), image.size()))
        require(kernel.static_shared_bytes >= 0 || !name.empty());
    });
  });
  error_or([&] {
    read_launches(path, [](const KernelLaunch& launch) {
      const Occupancy of = occupancy(card, launch.kernel, launch.launch);
      require(of.theoretical >= 0 && of.theoretical <= 1 && of.achieved >= 0 && of.achieved <= of.theoretical);
      require(of.sm_active >= 0 && of.sm_active <= 1);
    });
  });
  close(file);
  (void)kernels_of_cubin(data, size);
  KernelTable table;
  if (table.from_bytes({reinterpret_cast<const char*>(data), size}))
    for (const KernelTable::Row& row : table.rows()) (void)table.name(row);
  return 0;
}
