// A kernel's body: declarations, operands, labels. Used by parse_ptx.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/kernels/ptx_code.h"
#include "src/kernels/ptx_decode.h"
#include "src/kernels/ptx_text.h"

namespace gpucast::ptx {

using Words = std::vector<std::string_view>;

struct Variable {
  uint64_t address = 0;
  Space space = Space::global;
};
// .align, the type and the size of one declaration.
struct Declaration {
  std::string_view name;
  uint64_t align = 1, element_bytes = 1, elements = 1;
  bool open_array = false;  // x[]
  size_t initial = 0;       // the word after "=", 0: none
};
Declaration read_declaration(const Words& words, size_t begin, size_t end);
uint64_t number_from(std::string_view word);

class KernelParser {
 public:
  explicit KernelParser(const std::map<std::string, Variable, std::less<>>& variables, uint64_t shared_bytes);
  void read_header(const Words& words);
  void read_body(PtxText* text);
  Kernel finish();

 private:
  struct Scope {
    int parent = -1;
    std::map<std::string, std::pair<Register, uint32_t>, std::less<>> registers;  // a name and how many follow; 0: a name alone
    std::map<std::string, Variable, std::less<>> variables;
    std::map<std::string, uint32_t, std::less<>> labels;  // instructions
    std::map<std::string, std::vector<std::string>, std::less<>> tables;
  };
  struct Group {  // an operand
    std::vector<Register> registers;
    std::vector<Address> addresses;
    bool is_address = false, negated = false;
  };
  struct Jump {
    uint32_t instruction = 0;
    int scope = 0;
    std::string label;
    bool table = false;
  };
  void declare(const Words& words);
  void declare_registers(const Words& words);
  void label(const std::string& name);
  void instruction(const Words& words);
  Group read_group(const Words& words, size_t* at);
  void read_address(const Words& words, size_t* at, Group* out);
  void add_operands(const Decoded& decoded, std::vector<Group>* groups);
  void finish_special_cases(Instruction* out);
  Register register_of(std::string_view word);
  Register immediate(uint64_t value);
  const Variable* find_variable(std::string_view name) const;
  Register new_register(bool predicate);
  uint32_t message(std::string_view text);
  void resolve_jumps();

  const std::map<std::string, Variable, std::less<>>& module_variables_;
  Kernel kernel_;
  std::vector<Scope> scopes_;
  int scope_ = 0;
  std::map<uint64_t, Register> immediates_;
  std::map<std::string, Register, std::less<>> specials_;
  std::unordered_map<std::string, std::pair<int, Register>> names_;  // of this scope's registers, as they were found
  std::vector<Jump> jumps_;
  uint64_t shared_bytes_ = 0, local_bytes_ = 0, call_bytes_ = 0;
};

}  // namespace gpucast::ptx
