// Any bytes at all as a capture: an error or a prediction, never a crash. Built with clang and -DGPUCAST_FUZZ=ON:
//   build/fuzz/bin/capture_fuzz -max_len=65536 CORPUS tests/fuzz/corpus/capture     (and tests/cases/*/input.jsonl)

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/predict.h"
#include "gpucast/report.h"
#include "gpucast/step_time.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int file = memfd_create("capture", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) return -1;
  try {
    gpucast::Trace trace = gpucast::read_trace("/proc/self/fd/" + std::to_string(file));
    if (trace.observed.step > 0) {
      gpucast::StepTimeOptions options;
      options.gpus = {gpucast::find_gpu("a100-80"), gpucast::find_gpu("rtx3060")};
      try {
        const gpucast::StepTimes times = gpucast::step_times(trace, options);
        gpucast::step_times_text(times, false);
        gpucast::step_times_json(times);
      } catch (const gpucast::Error&) {
      }
    }
    const gpucast::Prediction prediction = gpucast::predict(std::move(trace), std::nullopt);
    gpucast::text_report(prediction, {});
    gpucast::json_report(prediction);
  } catch (const gpucast::Error& error) {
    if (std::string(error.what()).find("internal error") != std::string::npos) __builtin_trap();
  }
  close(file);
  return 0;
}
