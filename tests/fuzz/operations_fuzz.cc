// Any bytes at all as a file of operations, as a machine, then as a file of constants: an error, or figures that are finite and in order,
// never a crash.
// Built with clang and -DGPUCAST_FUZZ=ON:
//   build/fuzz/bin/operations_fuzz -max_len=4096 -timeout=10 CORPUS tests/fuzz/corpus/operations

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "gpucast/error.h"
#include "gpucast/machine.h"
#include "src/time/duration.h"
#include "src/time/operations_file.h"

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
    require(!std::string(error.what()).starts_with("internal error"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const CardRates card = card_rates(find_gpu("a100-80"));
  const int file = memfd_create("operations", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) return -1;
  error_or([&] {
    read_operations("/proc/self/fd/" + std::to_string(file), [](const Operation& operation) {
      const Duration duration = operation_duration(operation, card);
      require(std::isfinite(duration.expected_ns) && duration.low_ns > 0);
      require(duration.low_ns <= duration.expected_ns && duration.expected_ns <= duration.high_ns);
    });
  });
  error_or([&] {
    const Links links = read_machine("/proc/self/fd/" + std::to_string(file)).links;
    require(links.cards > 0 && std::isfinite(links.card_bytes_per_s) && links.card_bytes_per_s > 0 && links.oversubscription >= 1);
    require(links.network_cards == 0 || links.network_card_bytes_per_s > 0);
  });
  close(file);
  error_or([&] { (void)card_rates(find_gpu("a100-80"), std::string(reinterpret_cast<const char*>(data), size)); });
  return 0;
}
