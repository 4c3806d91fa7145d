#include "src/cli/write_output.h"

#include <fstream>

#include "gpucast/error.h"
#include "src/base/gzip_stream.h"

namespace gpucast::cli {

std::string write_output(const std::string& name, run::CaptureFile* target, const std::function<void(std::ostream&)>& write) {
  {
    std::ofstream out(target->path(), std::ios::binary);
    if (!out) throw Error("the output cannot be written", target->path(), "choose another folder");
    if (name.ends_with(".gz")) {
      GzipBuffer compressed(out);
      std::ostream packed(&compressed);
      write(packed);
      if (!compressed.finish()) throw Error("the output cannot be written", name, "is the disk full?");
    } else {
      write(out);
    }
  }
  return target->keep();
}

}  // namespace gpucast::cli
