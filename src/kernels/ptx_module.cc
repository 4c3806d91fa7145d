// The text of a module: variables and kernels.
#include <algorithm>

#include "gpucast/error.h"
#include "src/kernels/kernel_counts.h"
#include "src/kernels/ptx_flow.h"
#include "src/kernels/ptx_parser.h"

namespace gpucast {
namespace ptx {
namespace {

constexpr uint64_t kMostVariableBytes = uint64_t{1} << 26;

struct Module {
  std::map<std::string, Variable, std::less<>> variables;
  uint64_t shared_bytes = 0, variable_bytes = 0;
  std::vector<std::string> open_arrays;  // .extern .shared: after all other shared variables
};

// = { 1, 2, 3 } of elements of some bytes.
void set_initial(const Words& words, const Declaration& d, uint64_t offset, std::string* variables) {
  uint64_t at = offset;
  for (size_t i = d.initial; i < words.size() && at + d.element_bytes <= variables->size(); ++i) {
    if (words[i] == "{" || words[i] == "}" || words[i] == "," || words[i] == "-") continue;
    const uint64_t sign = i > 0 && words[i - 1] == "-" ? ~0ULL : 1;
    const uint64_t value = sign * number_from(words[i]);
    for (uint64_t b = 0; b < std::min<uint64_t>(d.element_bytes, 8); ++b) (*variables)[at + b] = static_cast<char>(value >> (8 * b));
    at += d.element_bytes;
  }
}

void declare_variable(const Words& words, Module* module, PtxModule* out) {
  size_t at = 0;
  while (at < words.size() && (words[at] == ".visible" || words[at] == ".extern" || words[at] == ".weak" || words[at] == ".common")) ++at;
  if (at >= words.size()) return;
  const bool shared = words[at] == ".shared", global = words[at] == ".global", constant = words[at] == ".const";
  if (!shared && !global && !constant) return;
  const Declaration d = read_declaration(words, at + 1, words.size());
  uint64_t& used = shared ? module->shared_bytes : module->variable_bytes;
  used = (used + d.align - 1) / d.align * d.align;
  if (shared && d.open_array) module->open_arrays.emplace_back(d.name);
  module->variables.insert_or_assign(std::string(d.name), Variable{used, shared     ? Space::shared
                                                                         : constant ? Space::constant
                                                                                    : Space::global});
  const uint64_t bytes =
      d.open_array && d.initial > 0 ? words.size() * d.element_bytes : std::min(d.element_bytes * d.elements, uint64_t{1} << 40);
  if (!shared && used + bytes <= kMostVariableBytes) {
    out->variables.resize(used + bytes);
    if (d.initial > 0) set_initial(words, d, used, &out->variables);
  }
  used = std::min(used + bytes, uint64_t{1} << 40);
}

}  // namespace
}  // namespace ptx

namespace {

std::shared_ptr<const PtxModule> parse(std::string_view text, ptx::Follow follow) {
  auto out = std::make_shared<PtxModule>();
  out->follows_numbers = follow == ptx::Follow::numbers;
  ptx::Module module;
  ptx::PtxText reader(text);
  ptx::Words words;
  for (;;) {
    const ptx::Part part = reader.next(&words);
    if (part == ptx::Part::end) break;
    if (part == ptx::Part::statement && words.front()[0] == '.') ptx::declare_variable(words, &module, out.get());
    if (part != ptx::Part::header) continue;
    if (std::find(words.begin(), words.end(), ".entry") == words.end()) {
      reader.skip_body();
      continue;
    }
    for (const std::string& name : module.open_arrays) module.variables[name].address = (module.shared_bytes + 15) / 16 * 16;
    ptx::KernelParser parser(module.variables, module.shared_bytes);
    parser.read_header(words);
    parser.read_body(&reader);
    ptx::Kernel kernel = parser.finish();
    ptx::find_flow(&kernel, follow);
    std::string name = kernel.name;
    out->kernels.insert_or_assign(std::move(name), std::move(kernel));
  }
  if (out->kernels.empty()) throw Error("the text has no kernel in PTX", "", "a kernel begins with .entry");
  return out;
}

}  // namespace

std::shared_ptr<const PtxModule> parse_ptx(std::string_view text) { return parse(text, ptx::Follow::addresses); }
std::shared_ptr<const PtxModule> parse_ptx_with_stored_numbers(std::string_view text) { return parse(text, ptx::Follow::numbers); }

}  // namespace gpucast
