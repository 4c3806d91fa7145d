// The code of a kernel in the form that is run: registers and immediate values are numbers of one table, labels are block numbers.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/time/operation.h"

namespace gpucast::ptx {

enum class Op : uint8_t {
  nothing,  // counted, without an effect on values that decide an address or a branch
  // integers and bits
  move,
  convert,
  add,
  sub,
  mul_low,
  mul_high,
  mul_wide,
  mad_low,
  mad_high,
  mad_wide,
  divide,
  remainder,
  minimum,
  maximum,
  absolute,
  negate,
  bit_not,
  bit_and,
  bit_or,
  bit_xor,
  logical_not,
  shift_left,
  shift_right,
  funnel_left,
  funnel_right,
  extract,
  insert,
  find_high,
  reverse,
  population,
  leading_zeros,
  absolute_difference,
  lop3,
  permute,
  compare,
  compare_bool,
  select,
  select_sign,
  pack,
  unpack,
  sign_extend,
  // between the lanes of a warp
  shuffle,
  vote,
  active_lanes,
  elect,
  reduce_lanes,
  match,
  // memory
  load,
  store,
  atomic,
  reduce,
  copy_async,
  copy_async_commit,
  copy_async_wait,
  copy_bulk,
  matrix_load,
  matrix_store,
  barrier,
  barrier_arrive,
  fence,  // of memory, beyond the block
  wait_true,
  expect_bytes,
  box_dimension,
  copy_descriptor,
  in_space,
  tensor,
  tensor_wgmma,
  tensor_descriptor,
  unknown_value,  // its results are not known
  // control
  branch,
  branch_table,
  leave,
  stop,
};

enum class Kind : uint8_t { bits, unsigned_integer, signed_integer, floating, predicate };
struct Type {
  Kind kind = Kind::bits;
  uint8_t bits = 32;
  uint8_t pieces = 1;  // f16x2: 2
};

enum class Comparison : uint8_t { eq, ne, lt, le, gt, ge, ordered, unordered, count_ };
enum class Space : uint8_t { generic, global, shared, constant, parameter, local };
// division, long_division: of whole numbers of up to 32 and of 64 bits.
enum class Work : uint8_t { none, fp32, fp16, fp64, integer, division, long_division, special, control, memory, count_ };
inline constexpr size_t kWorks = static_cast<size_t>(Work::count_);

// How a modifier changes an operation: of shuffles the mode, of votes, reductions and boolean compares the function.
enum class Mode : uint8_t {
  none,
  up,
  down,
  butterfly,
  index,
  all,
  any,
  uniform,
  ballot,
  both,
  either,
  exclusive,
  lowest,
  highest,
  sum,
  exchange,
  compare_exchange,
};

using Register = uint32_t;
inline constexpr Register kNoRegister = 0;  // written where a result is dropped

struct Address {
  Register base = kNoRegister;
  int64_t offset = 0;
};

struct Instruction {
  Op op = Op::nothing;
  Type type, source_type;
  Comparison comparison = Comparison::eq;
  Space space = Space::generic;
  Mode mode = Mode::none;
  Work work = Work::none;
  bool gathers = false;  // a load whose address something that was loaded decides
  bool hands = false;    // a store to shared memory of a number that follows from arguments and constants alone
  bool shares = false;   // in a kernel with loops: numbers that warps give each other through shared memory follow from it (ptx_shared.h)
  bool carry_out = false, carry_in = false, wraps = false, saturates = false, negated_source = false, relevant = false,
       asynchronous = false, whole_warp = false, unordered_too = false;
  bool releases = false, acquires = false;  // of memory beyond the block: what came before is waited for; what follows waits
  uint8_t results = 0, sources = 0, addresses = 0;
  Register guard = kNoRegister;
  bool guard_negated = false;
  uint32_t first_operand = 0, first_address = 0;  // in Kernel::operands: results, then sources
  uint32_t first_wait = 0, waits = 0;             // in Kernel::waits
  uint32_t flops = 0;                             // of a thread
  uint32_t bytes = 0;                             // of a thread's access; of a matrix instruction the matrices of 8 rows
  uint32_t value = 0;                             // a table of lop3, a block number, a number of groups, a message's number
  uint32_t latency = 0;                           // cycles from issue to result; of a load, as from shared memory
  uint32_t request = 0;                           // the number of an instruction that asks for memory, from 0
  double tensor_flops = 0;
  Precision precision = Precision::fp32;
};

// Cycles from issue to result, of cards since 2017: Jia et al. 2018 (Volta, section 4), Luo et al. 2024 (Ampere to
// Hopper, tables 4 to 6).
inline constexpr uint32_t kArithmeticCycles = 5, kSpecialCycles = 20, kDoubleCycles = 8, kSharedCycles = 28, kLoadCycles = 500,
                          kTensorCycles = 33, kBarrierCycles = 25;
// Instructions that the assembler makes of a division of whole numbers. 32 bits: int_div of eval/truth/h100/kernels_time.jsonl; 64 bits:
// assumed.
inline constexpr uint32_t kDivisionInstructions = 34, kLongDivisionInstructions = 120;
inline constexpr uint32_t kIssueCycles = 2;  // a scheduler's 16 lanes take two for a warp

struct Block {
  uint32_t first = 0, end = 0;  // instructions
  uint32_t after = 0;           // the block where all paths meet again; the number of blocks: at the end
  std::array<uint32_t, kWorks> works = {};
  uint32_t instructions = 0, flops = 0;  // flops: of instructions without a guard
  bool has_short_ways = false;           // nothing that is counted for itself depends on its branch
  bool fails = false;                    // all its ways end in a trap: an assertion does not hold
  bool may_end_loop = false;             // its branch is in a loop, forward, and its ways meet outside
  bool has_barriers = false;             // between its branch and where the ways meet again, where numbers are shared
};

struct Parameter {
  std::string name;
  uint32_t offset = 0, bytes = 0;
};

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes = 0, static_shared_bytes = 0;
  uint32_t registers = 1;
  std::vector<uint8_t> is_predicate;                       // by register
  std::vector<std::pair<Register, uint64_t>> immediates;   // registers that hold a constant
  std::vector<std::pair<Register, std::string>> specials;  // registers that hold %tid.x, ...
  std::vector<Instruction> instructions;
  std::vector<Register> operands;
  std::vector<Address> addresses;
  std::vector<Register> waits;                // what an instruction reads and another one writes, each register once
  std::vector<std::vector<uint32_t>> tables;  // of brx.idx, block numbers
  std::vector<Block> blocks;
  std::vector<uint32_t> block_of;     // by instruction
  uint32_t requests = 0;              // instructions that ask for memory
  uint32_t relevant_registers = 1;    // those below it decide an address, a branch or a count; the values of others are not computed
  std::vector<std::string> messages;  // of instructions that are not understood
  bool shared_decides = false;        // values in shared memory decide addresses or branches; there are no loops
  bool hands_numbers = false;         // some warps give others numbers through shared memory, in a kernel with loops (handed_numbers.h)
  bool shares_numbers = false;        // warps give each other numbers through shared memory, in a kernel with loops (ptx_shared.h)
  // Of each store of whole numbers: its loads (ptx_numbers.h). Each load is a set of parameters, by bit; one of them must lead to known
  // values.
  std::vector<std::vector<uint64_t>> stored_numbers;

  bool fails(uint32_t block) const { return block < blocks.size() && blocks[block].fails; }
};

// Windows of the generic address space. Real pointers are below all of them.
inline constexpr uint64_t kSharedWindow = 0x0100'0000'0000'0000, kLocalWindow = 0x0200'0000'0000'0000,
                          kParameterWindow = 0x0300'0000'0000'0000, kVariableWindow = 0x0400'0000'0000'0000,
                          kWindowMask = 0xff00'0000'0000'0000;

}  // namespace gpucast::ptx

namespace gpucast {

class PtxModule {
 public:
  std::map<std::string, ptx::Kernel, std::less<>> kernels;
  bool follows_numbers = false;
  std::string variables;  // initial values of .global and .const variables
  uint64_t constant_begin = 0, constant_end = 0;
};

}  // namespace gpucast
