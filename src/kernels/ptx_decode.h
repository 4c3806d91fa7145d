// What an opcode such as ld.global.v4.b32 means.
#pragma once

#include <string_view>

#include "src/kernels/ptx_code.h"

namespace gpucast::ptx {

struct Decoded {
  Instruction instruction;
  bool has_result = true;  // the first operand is written; not so where it is an address
  bool understood = true;
  uint32_t vector_width = 1;  // of loads and stores
};
Decoded decode(std::string_view opcode);
bool type_from_name(std::string_view name, Type* out);

}  // namespace gpucast::ptx
