#include "src/base/demangled.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace gpucast {

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : name;
}

}  // namespace gpucast
