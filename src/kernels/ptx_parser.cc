#include "src/kernels/ptx_parser.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>

#include "src/kernels/kernel_counts.h"

namespace gpucast::ptx {
namespace {

constexpr uint32_t kMostRegisters = 1U << 20;     // of one declaration
constexpr uint64_t kCallParameters = 1ULL << 40;  // where the parameters of calls lie in the window of parameters

bool is_digit(char c) { return c >= '0' && c <= '9'; }
uint64_t round_to(uint64_t value, uint64_t align) { return align <= 1 ? value : (value + align - 1) / align * align; }

}  // namespace

uint64_t number_from(std::string_view word) {
  if (word.size() > 2 && word[0] == '0' && std::string_view("fFdD").find(word[1]) != std::string_view::npos) {
    uint64_t bits = 0;
    std::from_chars(word.data() + 2, word.data() + word.size(), bits, 16);
    return bits;
  }
  if (!word.empty() && (word.back() == 'U' || word.back() == 'u')) word.remove_suffix(1);
  int base = 10;
  if (word.size() > 2 && word[0] == '0' && (word[1] == 'x' || word[1] == 'X')) {
    base = 16, word.remove_prefix(2);
  } else if (word.size() > 2 && word[0] == '0' && (word[1] == 'b' || word[1] == 'B')) {
    base = 2, word.remove_prefix(2);
  } else if (word.size() > 1 && word[0] == '0' && is_digit(word[1])) {
    base = 8;
  } else if (word.find('.') != std::string_view::npos) {
    double value = 0;
    std::from_chars(word.data(), word.data() + word.size(), value);
    return std::bit_cast<uint64_t>(value);
  }
  uint64_t value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value, base);
  return value;
}

Declaration read_declaration(const Words& words, size_t begin, size_t end) {
  Declaration out;
  for (size_t i = begin; i < end; ++i) {
    const std::string_view word = words[i];
    if (word == ".align" || word == ".ptr" || word == ".v2" || word == ".v4") {
      if (word == ".align" && i + 1 < end) {
        // .ptr .align is of what the pointer points to.
        const bool of_pointer =
            std::find(words.begin() + static_cast<std::ptrdiff_t>(begin), words.begin() + static_cast<std::ptrdiff_t>(i), ".ptr") !=
            words.begin() + static_cast<std::ptrdiff_t>(i);
        if (!of_pointer) out.align = std::clamp<uint64_t>(number_from(words[i + 1]), 1, 4096);
        ++i;
      }
      if (word == ".v2") out.element_bytes *= 2;
      if (word == ".v4") out.element_bytes *= 4;
    } else if (word == "=") {
      out.initial = i + 1;
      break;
    } else if (word == "[") {
      if (i + 1 < end && words[i + 1] == "]") {
        out.open_array = true;
      } else if (i + 1 < end) {
        out.elements *= std::min<uint64_t>(number_from(words[i + 1]), 1ULL << 40);
        ++i;
      }
    } else if (Type type; word.size() > 1 && word[0] == '.' && type_from_name(word.substr(1), &type)) {
      out.element_bytes *= std::max(type.bits / 8, 1);
    } else if (word[0] != '.' && word != "]" && out.name.empty()) {
      out.name = word;
    }
  }
  out.elements = std::min<uint64_t>(out.elements, 1ULL << 40);
  out.align = std::max(out.align, std::min<uint64_t>(out.element_bytes, 16));
  return out;
}

KernelParser::KernelParser(const std::map<std::string, Variable, std::less<>>& variables, uint64_t shared_bytes)
    : module_variables_(variables), shared_bytes_(shared_bytes) {
  kernel_.is_predicate.push_back(0);
  scopes_.emplace_back();
}

void KernelParser::read_header(const Words& words) {
  const auto entry = std::find(words.begin(), words.end(), ".entry");
  if (entry == words.end() || entry + 1 == words.end()) return;
  kernel_.name = *(entry + 1);
  const auto open = std::find(entry, words.end(), "(");
  const auto close = std::find(open, words.end(), ")");
  uint64_t offset = 0;
  for (auto begin = open; begin != close && begin + 1 != close;) {
    const auto comma = std::find(begin + 1, close, ",");
    const Declaration d =
        read_declaration(words, static_cast<size_t>(begin + 1 - words.begin()), static_cast<size_t>(comma - words.begin()));
    offset = round_to(offset, d.align);
    const uint64_t bytes = std::min<uint64_t>(d.element_bytes * d.elements, 1U << 20);
    kernel_.parameters.push_back({std::string(d.name), static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
    scopes_[0].variables.insert_or_assign(std::string(d.name), Variable{offset, Space::parameter});
    offset = std::min<uint64_t>(offset + bytes, 1U << 30);
    begin = comma;
  }
  kernel_.parameter_bytes = static_cast<uint32_t>(offset);
}

void KernelParser::read_body(PtxText* text) {
  Words words;
  int depth = 0;
  for (;;) {
    const Part part = text->next(&words);
    if (part == Part::end || part == Part::header) return;
    if (part == Part::open) {
      if (depth++ > 0) {
        scopes_.emplace_back();
        scopes_.back().parent = scope_;
        scope_ = static_cast<int>(scopes_.size()) - 1;
        names_.clear();
      }
    } else if (part == Part::close) {
      if (--depth <= 0) return;
      scope_ = std::max(scopes_[static_cast<size_t>(scope_)].parent, 0);
      names_.clear();
    } else if (part == Part::label) {
      label(std::string(words.front()));
    } else if (words.front()[0] == '.') {
      declare(words);
    } else {
      instruction(words);
    }
  }
}

void KernelParser::label(const std::string& name) {
  scopes_[static_cast<size_t>(scope_)].labels.insert_or_assign(name, static_cast<uint32_t>(kernel_.instructions.size()));
}

void KernelParser::declare(const Words& words) {
  if (words[0] == ".reg") return declare_registers(words);
  Scope& scope = scopes_[static_cast<size_t>(scope_)];
  if (words[0] == ".branchtargets") {
    // The table's name is the label before it.
    for (auto& [name, at] : scope.labels) {
      if (at != kernel_.instructions.size() || scope.tables.contains(name)) continue;
      std::vector<std::string>& targets = scope.tables[name];
      for (size_t i = 1; i < words.size(); ++i) {
        if (words[i] != ",") targets.emplace_back(words[i]);
      }
    }
    return;
  }
  const bool is_shared = words[0] == ".shared", is_local = words[0] == ".local", is_parameter = words[0] == ".param";
  if (!is_shared && !is_local && !is_parameter) return;
  const Declaration d = read_declaration(words, 1, words.size());
  uint64_t& used = is_shared ? shared_bytes_ : is_local ? local_bytes_ : call_bytes_;
  used = round_to(used, d.align);
  scope.variables.insert_or_assign(std::string(d.name),
                                   Variable{is_parameter ? kCallParameters + used : used, is_shared  ? Space::shared
                                                                                          : is_local ? Space::local
                                                                                                     : Space::parameter});
  used = std::min<uint64_t>(used + d.element_bytes * d.elements, 1ULL << 38);
}

Register KernelParser::new_register(bool predicate) {
  kernel_.is_predicate.push_back(predicate);
  return kernel_.registers++;
}

// .reg .b32 %r<12>, %x;
void KernelParser::declare_registers(const Words& words) {
  Scope& scope = scopes_[static_cast<size_t>(scope_)];
  Type type;
  size_t at = 1;
  for (; at < words.size() && words[at][0] == '.'; ++at) type_from_name(words[at].substr(1), &type);
  const bool predicate = type.kind == Kind::predicate;
  for (; at < words.size(); ++at) {
    if (words[at] == ",") continue;
    const std::string name(words[at]);
    uint64_t count = 0;
    if (at + 2 < words.size() && words[at + 1] == "<") {
      count = std::min<uint64_t>(number_from(words[at + 2]), kMostRegisters);
      at += 3;
    }
    if (kernel_.registers + count > uint64_t{4} * kMostRegisters) return;
    const Register first = new_register(predicate);
    for (uint64_t i = 1; i < count; ++i) new_register(predicate);
    scope.registers.insert_or_assign(name, std::pair{first, static_cast<uint32_t>(count)});
  }
}

Register KernelParser::immediate(uint64_t value) {
  const auto [found, inserted] = immediates_.try_emplace(value, kNoRegister);
  if (inserted) {
    found->second = new_register(false);
    kernel_.immediates.emplace_back(found->second, value);
  }
  return found->second;
}

const Variable* KernelParser::find_variable(std::string_view name) const {
  for (int scope = scope_; scope >= 0; scope = scopes_[static_cast<size_t>(scope)].parent) {
    const auto& variables = scopes_[static_cast<size_t>(scope)].variables;
    if (const auto found = variables.find(name); found != variables.end()) return &found->second;
  }
  const auto found = module_variables_.find(name);
  return found == module_variables_.end() ? nullptr : &found->second;
}

Register KernelParser::register_of(std::string_view word) {
  if (word.empty() || word == "_") return kNoRegister;
  if (is_digit(word[0])) return immediate(number_from(word));
  const std::string name(word);
  if (const auto known = names_.find(name); known != names_.end()) return known->second.second;
  size_t digits = word.size();
  while (digits > 0 && is_digit(word[digits - 1])) --digits;
  const std::string_view stem = word.substr(0, digits);
  for (int s = scope_; s >= 0; s = scopes_[static_cast<size_t>(s)].parent) {
    const Scope& scope = scopes_[static_cast<size_t>(s)];
    if (const auto found = scope.registers.find(word); found != scope.registers.end() && found->second.second == 0) {
      return names_.insert_or_assign(name, std::pair{s, found->second.first}).first->second.second;
    }
    if (digits == word.size()) continue;
    const auto found = scope.registers.find(stem);
    const uint64_t number = number_from(word.substr(digits));
    if (found != scope.registers.end() && number < found->second.second) {
      return names_.insert_or_assign(name, std::pair{s, found->second.first + static_cast<Register>(number)}).first->second.second;
    }
  }
  if (const Variable* variable = find_variable(word)) {
    const uint64_t window = variable->space == Space::global || variable->space == Space::constant ? kVariableWindow : 0;
    return immediate(window + variable->address);
  }
  if (word[0] == '%') {
    const auto [found, inserted] = specials_.try_emplace(name, kNoRegister);
    if (inserted) {
      found->second = new_register(false);
      kernel_.specials.emplace_back(found->second, name);
    }
    return found->second;
  }
  return immediate(word == "WARP_SZ" ? 32 : 0);
}

void KernelParser::read_address(const Words& words, size_t* at, Group* out) {
  Address address;
  bool any = false;
  int sign = 1, depth = 0;
  for (++*at; *at < words.size(); ++*at) {
    const std::string_view word = words[*at];
    if (word == "]" && depth == 0) break;
    if (word == "{") {
      ++depth;
    } else if (word == "}") {
      --depth;
    } else if (word == "+") {
      sign = 1;
    } else if (word == "-") {
      sign = -1;
    } else if (word == ",") {
      continue;
    } else if (depth > 0 || (any && sign == 0)) {
      out->registers.push_back(register_of(word));  // a coordinate
    } else if (is_digit(word[0])) {
      address.offset += sign * static_cast<int64_t>(number_from(word));
      any = true, sign = 0;
    } else if (const Variable* variable = find_variable(word)) {
      const uint64_t window = variable->space == Space::global || variable->space == Space::constant ? kVariableWindow : 0;
      address.offset += static_cast<int64_t>(window + variable->address);
      any = true, sign = 0;
    } else {
      address.base = register_of(word);
      any = true, sign = 0;
    }
  }
  ++*at;
  out->addresses.push_back(address);
  out->is_address = true;
}

// Up to the comma. `a|b` and braces give several registers.
KernelParser::Group KernelParser::read_group(const Words& words, size_t* at) {
  Group out;
  int depth = 0;
  bool minus = false;
  while (*at < words.size()) {
    const std::string_view word = words[*at];
    if (word == "," && depth == 0) {
      ++*at;
      break;
    }
    if (word == "[") {
      read_address(words, at, &out);
      continue;
    }
    if (word == "{" || word == "(") {
      ++depth;
    } else if (word == "}" || word == ")") {
      --depth;
    } else if (word == "!") {
      out.negated = true;
    } else if (word == "-") {
      minus = true;
    } else if (word != "|" && word != "," && word != "+") {
      if (minus && is_digit(word[0])) {
        out.registers.push_back(immediate(0 - number_from(word)));
      } else {
        out.registers.push_back(register_of(word));
      }
      minus = false;
    }
    ++*at;
  }
  return out;
}

uint32_t KernelParser::message(std::string_view text) {
  const auto found = std::find(kernel_.messages.begin(), kernel_.messages.end(), text);
  if (found == kernel_.messages.end()) {
    kernel_.messages.emplace_back(text);
    return static_cast<uint32_t>(kernel_.messages.size());
  }
  return static_cast<uint32_t>(found - kernel_.messages.begin()) + 1;
}

void KernelParser::instruction(const Words& words) {
  size_t at = 0;
  Register guard = kNoRegister;
  bool guard_negated = false, guarded = false;
  if (words[0] == "@") {
    at = 1;
    if (at < words.size() && words[at] == "!") guard_negated = true, ++at;
    if (at < words.size()) guard = register_of(words[at++]), guarded = true;
  }
  if (at >= words.size()) return;
  const std::string_view opcode = words[at++];
  Decoded decoded = decode(opcode);
  Instruction& i = decoded.instruction;
  if (guarded && guard < kernel_.is_predicate.size() && kernel_.is_predicate[guard] != 0) i.guard = guard;
  i.guard_negated = guard_negated;
  std::vector<Group> groups;
  const std::string_view base = opcode.substr(0, opcode.find('.'));
  if (i.op == Op::branch || i.op == Op::branch_table) {
    if (i.op == Op::branch_table) groups.push_back(read_group(words, &at));
    if (at < words.size())
      jumps_.push_back({static_cast<uint32_t>(kernel_.instructions.size()), scope_, std::string(words[at]), i.op == Op::branch_table});
    decoded.has_result = false;
  } else if (base == "call") {
    // call (result), name, (arguments): the results are variables.
    if (at < words.size() && words[at] == "(")
      at = static_cast<size_t>(std::find(words.begin() + static_cast<std::ptrdiff_t>(at), words.end(), ")") - words.begin()) + 2;
    const std::string_view function = at < words.size() ? words[at] : "vprintf";
    if (function == "__assertfail") {
      i.op = Op::stop;  // it does not return
    } else if (function != "vprintf") {
      i.value = message("call " + std::string(function));
    }
    decoded.has_result = false;
  } else {
    while (at < words.size() && groups.size() < 64) groups.push_back(read_group(words, &at));
  }
  if (base == "cvta" && groups.size() == 2) {
    Group window;
    window.registers.push_back(immediate(i.space == Space::shared      ? kSharedWindow
                                         : i.space == Space::local     ? kLocalWindow
                                         : i.space == Space::parameter ? kParameterWindow
                                                                       : 0));
    groups.push_back(window);
  }
  if (!decoded.understood) i.value = message(opcode);
  add_operands(decoded, &groups);
}

void KernelParser::add_operands(const Decoded& decoded, std::vector<Group>* groups) {
  Instruction i = decoded.instruction;
  i.first_operand = static_cast<uint32_t>(kernel_.operands.size());
  i.first_address = static_cast<uint32_t>(kernel_.addresses.size());
  const bool has_result = decoded.has_result && !groups->empty() && !groups->front().is_address;
  std::vector<Register> results, sources;
  for (size_t g = 0; g < groups->size(); ++g) {
    Group& group = (*groups)[g];
    if (g == 0 && has_result) {
      results = group.registers;
      continue;
    }
    sources.insert(sources.end(), group.registers.begin(), group.registers.end());
    for (const Address& address : group.addresses) kernel_.addresses.push_back(address);
    i.negated_source = i.negated_source || group.negated;
  }
  if (results.size() > 200) results.resize(200);
  if (sources.size() > 250) sources.resize(250);
  i.results = static_cast<uint8_t>(results.size());
  i.sources = static_cast<uint8_t>(sources.size());
  i.addresses = static_cast<uint8_t>(std::min<size_t>(kernel_.addresses.size() - i.first_address, 255));
  if (i.op == Op::move && i.results > 1) i.op = Op::unpack;
  if (i.op == Op::move && i.sources > 1) i.op = Op::pack;
  if (i.type.bits > 64 && (i.op == Op::move || i.op == Op::pack || i.op == Op::unpack)) i.op = Op::unknown_value;
  kernel_.operands.insert(kernel_.operands.end(), results.begin(), results.end());
  kernel_.operands.insert(kernel_.operands.end(), sources.begin(), sources.end());
  // An operation with too few operands has no effect.
  static constexpr std::pair<Op, int> kSources[] = {
      {Op::add, 2},         {Op::sub, 2},         {Op::mul_low, 2},      {Op::mul_high, 2},      {Op::mul_wide, 2},
      {Op::mad_low, 3},     {Op::mad_high, 3},    {Op::mad_wide, 3},     {Op::divide, 2},        {Op::remainder, 2},
      {Op::minimum, 2},     {Op::maximum, 2},     {Op::absolute, 1},     {Op::negate, 1},        {Op::bit_not, 1},
      {Op::bit_and, 2},     {Op::bit_or, 2},      {Op::bit_xor, 2},      {Op::logical_not, 1},   {Op::shift_left, 2},
      {Op::shift_right, 2}, {Op::funnel_left, 3}, {Op::funnel_right, 3}, {Op::extract, 3},       {Op::insert, 4},
      {Op::find_high, 1},   {Op::reverse, 1},     {Op::population, 1},   {Op::leading_zeros, 1}, {Op::absolute_difference, 3},
      {Op::lop3, 4},        {Op::permute, 3},     {Op::compare, 2},      {Op::compare_bool, 3},  {Op::select, 3},
      {Op::select_sign, 3}, {Op::move, 1},        {Op::convert, 1},      {Op::sign_extend, 2},   {Op::in_space, 1},
      {Op::shuffle, 3},     {Op::vote, 1},        {Op::reduce_lanes, 1}, {Op::unpack, 1},        {Op::pack, 1}};
  for (const auto& [op, count] : kSources) {
    if (i.op == op && (i.sources < count || i.results == 0)) i.op = Op::unknown_value, i.value = message("operands");
  }
  const bool needs_address = i.op == Op::load || i.op == Op::store || i.op == Op::atomic || i.op == Op::reduce || i.op == Op::matrix_load ||
                             i.op == Op::matrix_store || i.op == Op::copy_bulk || i.op == Op::copy_async;
  const int addresses = i.op == Op::copy_async || i.op == Op::copy_bulk ? 2 : 1;
  if (needs_address && i.addresses < addresses) i.op = Op::unknown_value, i.value = message("operands");
  if ((i.op == Op::vote || i.op == Op::elect || i.op == Op::active_lanes || i.op == Op::wait_true) && i.results == 0) i.op = Op::nothing;
  finish_special_cases(&i);
  kernel_.instructions.push_back(i);
}

void KernelParser::finish_special_cases(Instruction* out) {
  Instruction& i = *out;
  const auto constant_source = [&](size_t s) -> uint64_t {
    if (s >= i.sources) return 0;
    const Register r = kernel_.operands[i.first_operand + i.results + s];
    const auto found =
        std::find_if(kernel_.immediates.begin(), kernel_.immediates.end(), [&](const auto& pair) { return pair.first == r; });
    return found == kernel_.immediates.end() ? 0 : found->second;
  };
  if (i.op == Op::copy_async) {
    const uint64_t bytes = constant_source(0);
    i.bytes = static_cast<uint32_t>(std::min<uint64_t>(bytes, 16));
    const int with_policy = i.saturates ? 1 : 0;
    i.wraps = i.sources - with_policy >= 2;  // the second source is the size that is read
    if (i.wraps && kernel_.is_predicate[kernel_.operands[i.first_operand + 1]] != 0) i.wraps = false;
  }
  if (i.op == Op::copy_async_wait) i.value = static_cast<uint32_t>(i.mode == Mode::all ? 0 : std::min<uint64_t>(constant_source(0), 1000));
  if (i.op == Op::lop3) i.value = static_cast<uint32_t>(constant_source(3) & 0xff);
  if (i.op == Op::tensor_descriptor) i.value = i.addresses > 1 ? 1 : 2;  // the source with the shape
}

void KernelParser::resolve_jumps() {
  const auto find_label = [&](const std::string& name, int from) {
    for (int s = from; s >= 0; s = scopes_[static_cast<size_t>(s)].parent) {
      const auto& labels = scopes_[static_cast<size_t>(s)].labels;
      if (const auto found = labels.find(name); found != labels.end()) return found->second;
    }
    return static_cast<uint32_t>(kernel_.instructions.size());
  };
  for (const Jump& jump : jumps_) {
    Instruction& i = kernel_.instructions[jump.instruction];
    if (!jump.table) {
      i.value = find_label(jump.label, jump.scope);
      continue;
    }
    i.value = static_cast<uint32_t>(kernel_.tables.size());
    kernel_.tables.emplace_back();
    for (int s = jump.scope; s >= 0; s = scopes_[static_cast<size_t>(s)].parent) {
      const auto& tables = scopes_[static_cast<size_t>(s)].tables;
      const auto found = tables.find(jump.label);
      if (found == tables.end()) continue;
      for (const std::string& name : found->second) kernel_.tables.back().push_back(find_label(name, jump.scope));
      break;
    }
  }
}

Kernel KernelParser::finish() {
  resolve_jumps();
  kernel_.static_shared_bytes = static_cast<uint32_t>(std::min<uint64_t>(shared_bytes_, 1U << 30));
  return std::move(kernel_);
}

}  // namespace gpucast::ptx
