#include "src/kernels/ptx_decode.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpucast::ptx {
namespace {

using Words = std::vector<std::string_view>;

bool has(const Words& words, std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); }
bool has_prefix(const Words& words, std::string_view prefix) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return word.substr(0, prefix.size()) == prefix; });
}

Words split_opcode(std::string_view opcode) {
  Words out;
  for (size_t begin = 0; begin <= opcode.size();) {
    const size_t dot = std::min(opcode.find('.', begin), opcode.size());
    out.push_back(opcode.substr(begin, dot - begin));
    begin = dot + 1;
  }
  return out;
}

const std::unordered_map<std::string_view, Type>& types() {
  static const auto& table = *new const std::unordered_map<std::string_view, Type>([] {
    std::unordered_map<std::string_view, Type> out;
    const auto add = [&](std::string_view name, Kind kind, int bits, int pieces = 1) {
      out[name] = {kind, static_cast<uint8_t>(bits), static_cast<uint8_t>(pieces)};
    };
    add("pred", Kind::predicate, 1);
    add("b8", Kind::bits, 8), add("b16", Kind::bits, 16), add("b32", Kind::bits, 32), add("b64", Kind::bits, 64),
        add("b128", Kind::bits, 128);
    add("u8", Kind::unsigned_integer, 8), add("u16", Kind::unsigned_integer, 16), add("u32", Kind::unsigned_integer, 32);
    add("u64", Kind::unsigned_integer, 64), add("u16x2", Kind::unsigned_integer, 32, 2);
    add("s8", Kind::signed_integer, 8), add("s16", Kind::signed_integer, 16), add("s32", Kind::signed_integer, 32);
    add("s64", Kind::signed_integer, 64), add("s16x2", Kind::signed_integer, 32, 2);
    add("f16", Kind::floating, 16), add("bf16", Kind::floating, 16), add("f32", Kind::floating, 32), add("f64", Kind::floating, 64);
    add("tf32", Kind::floating, 32), add("f16x2", Kind::floating, 32, 2), add("bf16x2", Kind::floating, 32, 2),
        add("f32x2", Kind::floating, 64, 2);
    add("b32x2", Kind::bits, 64, 2);
    for (const char* name : {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "ue8m0", "ue4m3", "s4", "u4", "b1", "b4", "b6"})
      add(name, Kind::bits, 8);
    for (const char* name : {"e4m3x2", "e5m2x2", "e3m2x2", "e2m3x2", "ue8m0x2", "s2f6x2"}) add(name, Kind::bits, 16, 2);
    for (const char* name : {"e4m3x4", "e5m2x4", "e3m2x4", "e2m3x4"}) add(name, Kind::bits, 32, 4);
    add("e2m1x2", Kind::bits, 8, 2), add("e2m1x4", Kind::bits, 16, 4);
    return out;
  }());
  return table;
}

Work work_of_type(Type type) {
  if (type.kind != Kind::floating) return Work::integer;
  if (type.bits == 64 && type.pieces == 1) return Work::fp64;
  return type.bits == 16 || (type.bits == 32 && type.pieces == 2) ? Work::fp16 : Work::fp32;
}

std::vector<Type> types_of(const Words& words) {
  std::vector<Type> out;
  for (size_t i = 1; i < words.size(); ++i) {
    if (Type type; type_from_name(words[i], &type)) out.push_back(type);
  }
  return out;
}

Space space_of(const Words& words) {
  for (const std::string_view word : words) {
    if (word == "global") return Space::global;
    if (word.substr(0, 6) == "shared") return Space::shared;
    if (word == "const") return Space::constant;
    if (word.substr(0, 5) == "param") return Space::parameter;
    if (word == "local") return Space::local;
  }
  return Space::generic;
}

// m16n8k16 gives 16 x 8 x 16.
double multiplications(const Words& words) {
  for (const std::string_view word : words) {
    if (word.size() < 6 || word[0] != 'm' || word[1] < '0' || word[1] > '9') continue;
    double product = 1, number = 0;
    for (const char c : word.substr(1)) {
      if (c >= '0' && c <= '9') {
        number = number * 10 + (c - '0');
      } else {
        product *= number, number = 0;
      }
    }
    return product * number;
  }
  return 0;
}

Precision matrix_precision(const Words& words) {
  std::vector<std::string_view> named;
  for (size_t i = 1; i < words.size(); ++i) {
    if (Type type; type_from_name(words[i], &type)) named.push_back(words[i]);
  }
  if (named.empty()) return Precision::fp16;
  const std::string_view a = named[named.size() > 1 ? 1 : 0];
  if (a == "f64") return Precision::fp64;
  if (a == "tf32" || a == "f32") return Precision::tf32;
  if (a == "bf16") return Precision::bf16;
  if (a == "f16") return Precision::fp16;
  if (a[0] == 'e') return Precision::fp8;
  return Precision::int8;
}

struct Simple {
  Op op;
  Op float_op;  // for floating types
};
const std::unordered_map<std::string_view, Simple>& arithmetic() {
  static const auto& table = *new const std::unordered_map<std::string_view, Simple>{
      {"add", {Op::add, Op::unknown_value}},
      {"addc", {Op::add, Op::unknown_value}},
      {"sub", {Op::sub, Op::unknown_value}},
      {"subc", {Op::sub, Op::unknown_value}},
      {"mul", {Op::mul_low, Op::unknown_value}},
      {"mad", {Op::mad_low, Op::unknown_value}},
      {"madc", {Op::unknown_value, Op::unknown_value}},
      {"mul24", {Op::unknown_value, Op::unknown_value}},
      {"mad24", {Op::unknown_value, Op::unknown_value}},
      {"div", {Op::divide, Op::unknown_value}},
      {"rem", {Op::remainder, Op::unknown_value}},
      {"min", {Op::minimum, Op::unknown_value}},
      {"max", {Op::maximum, Op::unknown_value}},
      {"abs", {Op::absolute, Op::unknown_value}},
      {"neg", {Op::negate, Op::unknown_value}},
      {"not", {Op::bit_not, Op::bit_not}},
      {"and", {Op::bit_and, Op::bit_and}},
      {"or", {Op::bit_or, Op::bit_or}},
      {"xor", {Op::bit_xor, Op::bit_xor}},
      {"cnot", {Op::logical_not, Op::logical_not}},
      {"shl", {Op::shift_left, Op::shift_left}},
      {"shr", {Op::shift_right, Op::shift_right}},
      {"shf", {Op::funnel_left, Op::funnel_left}},
      {"bfe", {Op::extract, Op::extract}},
      {"bfi", {Op::insert, Op::insert}},
      {"bfind", {Op::find_high, Op::find_high}},
      {"brev", {Op::reverse, Op::reverse}},
      {"popc", {Op::population, Op::population}},
      {"clz", {Op::leading_zeros, Op::leading_zeros}},
      {"sad", {Op::absolute_difference, Op::absolute_difference}},
      {"lop3", {Op::lop3, Op::lop3}},
      {"prmt", {Op::permute, Op::permute}},
      {"slct", {Op::select_sign, Op::select_sign}},
      {"fma", {Op::unknown_value, Op::unknown_value}},
      {"szext", {Op::sign_extend, Op::sign_extend}},
      {"bmsk", {Op::unknown_value, Op::unknown_value}},
      {"fns", {Op::unknown_value, Op::unknown_value}},
      {"dp4a", {Op::unknown_value, Op::unknown_value}},
      {"dp2a", {Op::unknown_value, Op::unknown_value}},
      {"copysign", {Op::unknown_value, Op::unknown_value}},
      {"testp", {Op::unknown_value, Op::unknown_value}},
      {"ex2", {Op::unknown_value, Op::unknown_value}},
      {"lg2", {Op::unknown_value, Op::unknown_value}},
      {"sin", {Op::unknown_value, Op::unknown_value}},
      {"cos", {Op::unknown_value, Op::unknown_value}},
      {"rcp", {Op::unknown_value, Op::unknown_value}},
      {"rsqrt", {Op::unknown_value, Op::unknown_value}},
      {"sqrt", {Op::unknown_value, Op::unknown_value}},
      {"tanh", {Op::unknown_value, Op::unknown_value}},
  };
  return table;
}

bool decode_arithmetic(const Words& words, Decoded* out) {
  const auto found = arithmetic().find(words[0]);
  if (found == arithmetic().end()) return false;
  static const auto& special = *new const std::unordered_map<std::string_view, int>{{"ex2", 1}, {"lg2", 1},   {"sin", 1},  {"cos", 1},
                                                                                    {"rcp", 1}, {"rsqrt", 1}, {"sqrt", 1}, {"tanh", 1}};
  Instruction& i = out->instruction;
  const std::vector<Type> named = types_of(words);
  if (!named.empty()) i.type = i.source_type = named.front();
  const bool is_float = i.type.kind == Kind::floating;
  i.op = is_float ? found->second.float_op : found->second.op;
  i.work = special.contains(words[0]) || (words[0] == "div" && is_float && i.type.bits != 64) ? Work::special : work_of_type(i.type);
  if (!is_float && (i.op == Op::divide || i.op == Op::remainder)) i.work = i.type.bits == 64 ? Work::long_division : Work::division;
  if (is_float) {
    const bool free_of_flops = words[0] == "neg" || words[0] == "abs" || words[0] == "copysign" || words[0] == "testp";
    const uint32_t each = free_of_flops ? 0 : words[0] == "fma" || words[0] == "mad" ? 2 : 1;
    i.flops = each * i.type.pieces;
    return true;
  }
  if (i.type.pieces > 1 || i.type.bits > 64) i.op = Op::unknown_value;
  if (has(words, "wide")) i.op = i.op == Op::mul_low ? Op::mul_wide : Op::mad_wide;
  if (has(words, "hi")) i.op = i.op == Op::mul_low ? Op::mul_high : Op::mad_high;
  i.carry_in = words[0] == "addc" || words[0] == "subc";
  i.carry_out = has(words, "cc");
  i.saturates = has(words, "sat");
  if ((i.carry_out || i.saturates) && i.op != Op::add && i.op != Op::sub) i.op = Op::unknown_value;
  i.wraps = has(words, "wrap");
  if (words[0] == "shf" && has(words, "r")) i.op = Op::funnel_right;
  if (words[0] == "bfind" && has(words, "shiftamt")) i.wraps = true;
  if (words[0] == "lop3" && (has(words, "or") || has(words, "and"))) i.op = Op::unknown_value;
  if (words[0] == "prmt" && words.size() > 2) i.op = Op::unknown_value;
  return true;
}

Comparison comparison_from(std::string_view word, bool* unordered_too) {
  static const auto& table = *new const std::unordered_map<std::string_view, std::pair<Comparison, bool>>{
      {"eq", {Comparison::eq, false}}, {"ne", {Comparison::ne, false}},       {"lt", {Comparison::lt, false}},
      {"le", {Comparison::le, false}}, {"gt", {Comparison::gt, false}},       {"ge", {Comparison::ge, false}},
      {"lo", {Comparison::lt, false}}, {"ls", {Comparison::le, false}},       {"hi", {Comparison::gt, false}},
      {"hs", {Comparison::ge, false}}, {"equ", {Comparison::eq, true}},       {"neu", {Comparison::ne, true}},
      {"ltu", {Comparison::lt, true}}, {"leu", {Comparison::le, true}},       {"gtu", {Comparison::gt, true}},
      {"geu", {Comparison::ge, true}}, {"num", {Comparison::ordered, false}}, {"nan", {Comparison::unordered, true}}};
  const auto found = table.find(word);
  if (found == table.end()) return Comparison::count_;
  *unordered_too = found->second.second;
  return found->second.first;
}

bool decode_moves(const Words& words, Decoded* out) {
  Instruction& i = out->instruction;
  const std::vector<Type> named = types_of(words);
  if (!named.empty()) i.type = i.source_type = named.front();
  const std::string_view base = words[0];
  if (base == "mov") {
    i.op = Op::move;
  } else if (base == "cvta") {
    i.op = has(words, "to") ? Op::sub : Op::add;  // the window of the space is the second source
    i.space = space_of(words);
  } else if (base == "cvt") {
    i.op = Op::convert;
    if (named.size() > 1) i.source_type = named[1];
    const bool to = i.type.kind == Kind::floating || i.type.pieces > 1,
               from = i.source_type.kind == Kind::floating || i.source_type.pieces > 1;
    if (to || from) i.op = Op::unknown_value;
    i.work = to && from ? Work::fp32 : to || from ? Work::special : Work::integer;
    if (i.type.bits == 64 && to && from) i.work = Work::fp64;
    i.saturates = has(words, "sat");
  } else if (base == "selp") {
    i.op = Op::select;
    i.work = Work::integer;
  } else if (base == "setp" || base == "set") {
    i.op = Op::compare;
    if (words.size() > 1) i.comparison = comparison_from(words[1], &i.unordered_too);
    i.work = work_of_type(named.empty() ? i.type : named.back());
    i.source_type = named.empty() ? i.type : named.back();
    i.type = base == "setp" ? Type{Kind::predicate, 1, 1} : i.type;
    if (i.comparison == Comparison::count_ || i.source_type.pieces > 1 || i.source_type.bits > 64) i.op = Op::unknown_value;
    for (const auto& [word, mode] : {std::pair{"and", Mode::both}, {"or", Mode::either}, {"xor", Mode::exclusive}}) {
      if (has(words, word)) i.mode = mode, i.op = i.op == Op::compare ? Op::compare_bool : i.op;
    }
  } else if (base == "isspacep") {
    i.op = Op::in_space, i.work = Work::integer, i.space = space_of(words);
  } else {
    return false;
  }
  return true;
}

bool decode_warp(const Words& words, Decoded* out) {
  static const auto& ops = *new const std::unordered_map<std::string_view, Op>{
      {"shfl", Op::shuffle}, {"vote", Op::vote},          {"activemask", Op::active_lanes},
      {"elect", Op::elect},  {"redux", Op::reduce_lanes}, {"match", Op::unknown_value}};
  static const auto& modes = *new const std::unordered_map<std::string_view, Mode>{
      {"up", Mode::up},         {"down", Mode::down},   {"bfly", Mode::butterfly}, {"idx", Mode::index}, {"all", Mode::all},
      {"any", Mode::any},       {"uni", Mode::uniform}, {"ballot", Mode::ballot},  {"and", Mode::both},  {"or", Mode::either},
      {"xor", Mode::exclusive}, {"min", Mode::lowest},  {"max", Mode::highest},    {"add", Mode::sum}};
  const auto found = ops.find(words[0]);
  if (found == ops.end()) return false;
  Instruction& i = out->instruction;
  i.op = found->second;
  i.work = i.op == Op::shuffle || i.op == Op::reduce_lanes || words[0] == "match" ? Work::memory : Work::integer;
  if (const std::vector<Type> named = types_of(words); !named.empty()) i.type = i.source_type = named.front();
  for (const std::string_view word : words) {
    if (const auto mode = modes.find(word); mode != modes.end()) i.mode = mode->second;
  }
  if (i.op == Op::reduce_lanes && i.type.kind == Kind::floating) i.op = Op::unknown_value;
  return true;
}

bool decode_memory(const Words& words, Decoded* out) {
  Instruction& i = out->instruction;
  const std::string_view base = words[0];
  static const auto& ops = *new const std::unordered_map<std::string_view, Op>{{"ld", Op::load},
                                                                               {"ldu", Op::load},
                                                                               {"st", Op::store},
                                                                               {"atom", Op::atomic},
                                                                               {"red", Op::reduce},
                                                                               {"ldmatrix", Op::matrix_load},
                                                                               {"stmatrix", Op::matrix_store}};
  const auto found = ops.find(base);
  if (found == ops.end()) return false;
  i.op = found->second;
  i.work = Work::memory;
  i.space = base == "ldmatrix" || base == "stmatrix" ? Space::shared : space_of(words);
  const std::vector<Type> named = types_of(words);
  if (!named.empty()) i.type = i.source_type = named.back();
  out->has_result = i.op == Op::load || i.op == Op::atomic || i.op == Op::matrix_load;
  out->vector_width = has(words, "v8") ? 8 : has(words, "v4") ? 4 : has(words, "v2") ? 2 : 1;
  i.bytes = i.type.bits / 8 * out->vector_width;
  if (i.op == Op::matrix_load || i.op == Op::matrix_store) {
    i.bytes = has(words, "x4") ? 4 : has(words, "x2") ? 2 : 1;
    if (has(words, "m16n16")) i.bytes *= 2;
  }
  static const auto& functions = *new const std::unordered_map<std::string_view, Mode>{
      {"add", Mode::sum},   {"min", Mode::lowest},    {"max", Mode::highest},   {"and", Mode::both},
      {"or", Mode::either}, {"xor", Mode::exclusive}, {"exch", Mode::exchange}, {"cas", Mode::compare_exchange}};
  for (size_t w = 1; (i.op == Op::atomic || i.op == Op::reduce) && w < words.size(); ++w) {
    if (const auto function = functions.find(words[w]); function != functions.end()) i.mode = function->second;
  }
  i.wraps = (i.op == Op::matrix_load || i.op == Op::matrix_store) && has(words, "trans");
  if (i.op == Op::load && i.space == Space::parameter) i.work = Work::none;
  if ((base == "st" || base == "red") && has(words, "async")) i.op = Op::nothing;
  i.saturates = has(words, "volatile") || has(words, "acquire") || has(words, "relaxed");
  const bool beyond = i.space != Space::shared && !has(words, "cta");
  i.releases = beyond && (has(words, "release") || has(words, "acq_rel"));
  i.acquires = beyond && (has(words, "acquire") || has(words, "acq_rel"));
  return true;
}

bool decode_copies(const Words& words, Decoded* out) {
  Instruction& i = out->instruction;
  if (words[0] != "cp") return false;
  out->has_result = false;
  i.work = Work::memory;
  if (has(words, "commit_group") || has(words, "wait_group") || has(words, "wait_all") || has(words, "mbarrier")) {
    i.op = has(words, "commit_group") ? Op::copy_async_commit : has(words, "mbarrier") ? Op::nothing : Op::copy_async_wait;
    i.mode = has(words, "wait_all") ? Mode::all : Mode::none;
    if (has(words, "bulk")) i.op = Op::nothing;
    i.work = Work::control;
  } else if (has(words, "bulk")) {
    i.op = has(words, "prefetch") ? Op::nothing : Op::copy_bulk;
    // The destination is named before the source.
    size_t global = 0, shared = 0;
    for (size_t w = 0; w < words.size(); ++w) {
      if (words[w] == "global") global = w;
      if (words[w].substr(0, 6) == "shared" && shared == 0) shared = w;
    }
    i.asynchronous = global > shared;  // a load
    i.wraps = has(words, "tensor") || has(words, "reduce");
    i.saturates = has(words, "tensor");
    if (global == 0) i.op = Op::nothing;
  } else {
    i.op = Op::copy_async;
    i.saturates = has_prefix(words, "L2::cache_hint");
    if (!has(words, "global")) i.op = Op::unknown_value;
  }
  return true;
}

bool decode_matrix(const Words& words, Decoded* out) {
  Instruction& i = out->instruction;
  const std::string_view base = words[0];
  const double halves = has(words, "sp") || has_prefix(words, "sp::") ? 1 : 2;
  if (base == "mma" || (base == "wmma" && has(words, "mma"))) {
    i.op = Op::tensor;
    i.tensor_flops = halves * multiplications(words);
    i.precision = matrix_precision(words);
    return true;
  }
  if (base == "wmma") {
    i.op = Op::unknown_value, i.work = Work::memory;
    out->understood = false;  // its loads and stores of matrices are not counted
    out->has_result = has(words, "load");
    return true;
  }
  if (base == "wgmma") {
    if (has(words, "mma_async")) {
      i.op = Op::tensor_wgmma;
      i.tensor_flops = halves * multiplications(words) / 4;  // each of the four warps of a warpgroup
      i.precision = matrix_precision(words);
    } else {
      i.op = Op::nothing, i.work = Work::control, out->has_result = false;
    }
    return true;
  }
  if (base != "tcgen05") return false;
  i.work = Work::memory;
  i.op = Op::nothing;
  out->has_result = false;
  if (has(words, "mma")) {
    i.op = Op::tensor_descriptor, i.work = Work::none;
    i.precision = has_prefix(words, "kind::tf32")  ? Precision::tf32
                  : has_prefix(words, "kind::f16") ? Precision::fp16
                  : has_prefix(words, "kind::i8")  ? Precision::int8
                                                   : Precision::fp8;
    i.tensor_flops = halves * (i.precision == Precision::tf32    ? 8
                               : i.precision == Precision::fp16  ? 16
                               : has_prefix(words, "kind::mxf4") ? 64
                                                                 : 32);
    i.wraps = has_prefix(words, "kind::mx");
  } else if (has(words, "ld")) {
    i.op = Op::unknown_value, out->has_result = true;
  } else if (has(words, "wait") || has(words, "commit") || has_prefix(words, "fence")) {
    i.work = Work::control;
  }
  return true;
}

bool decode_barriers(const Words& words, Decoded* out) {
  Instruction& i = out->instruction;
  const std::string_view base = words[0];
  i.work = Work::control;
  if (base == "bar" || base == "barrier") {
    i.op = has(words, "arrive") || has(words, "cluster") ? Op::barrier_arrive : Op::barrier;
    if (has(words, "warp")) i.op = Op::nothing;
    if (has(words, "wait")) i.op = Op::barrier;
    out->has_result = has(words, "red");
    return true;
  }
  if (base == "mbarrier") {
    i.work = Work::memory;
    const bool waits = has(words, "try_wait") || has(words, "test_wait");
    i.op = waits                                       ? Op::wait_true
           : has(words, "expect_tx")                   ? Op::expect_bytes
           : has(words, "init") || has(words, "inval") ? Op::nothing
                                                       : Op::unknown_value;
    out->has_result = waits || i.op == Op::unknown_value || has(words, "arrive");
    return true;
  }
  if (base == "tensormap") {
    i.work = Work::memory, out->has_result = false;
    i.op = has(words, "box_dim") ? Op::box_dimension : has_prefix(words, "cp_fenceproxy") ? Op::copy_descriptor : Op::nothing;
    i.mode = has(words, "elemtype") ? Mode::sum : Mode::none;
    if (has(words, "elemtype")) i.op = Op::box_dimension;
    return true;
  }
  return false;
}

bool decode_control(const Words& words, Decoded* out) {
  Instruction& i = out->instruction;
  const std::string_view base = words[0];
  i.work = Work::control;
  out->has_result = false;
  if (base == "bra") return i.op = Op::branch, true;
  if (base == "brx") return i.op = Op::branch_table, true;
  if (base == "ret" || base == "exit") return i.op = Op::leave, true;
  if (base == "trap" || base == "brkpt") return i.op = Op::stop, true;
  static const auto& quiet = *new const std::unordered_map<std::string_view, Work>{
      {"membar", Work::control},    {"fence", Work::control},        {"griddepcontrol", Work::control}, {"setmaxnreg", Work::control},
      {"nanosleep", Work::control}, {"pmevent", Work::control},      {"prefetch", Work::memory},        {"prefetchu", Work::memory},
      {"discard", Work::memory},    {"applypriority", Work::memory}, {"stackrestore", Work::none}};
  if (const auto found = quiet.find(base); found != quiet.end()) {
    const bool orders = base == "membar" || (base == "fence" && (has(words, "acq_rel") || has(words, "sc")));
    i.op = orders && (has(words, "gl") || has(words, "gpu") || has(words, "sys")) ? Op::fence : Op::nothing;
    i.work = found->second;
    return true;
  }
  static const auto& unknown = *new const std::unordered_map<std::string_view, Work>{
      {"createpolicy", Work::integer}, {"mapa", Work::integer},     {"getctarank", Work::integer},
      {"stacksave", Work::none},       {"movmatrix", Work::memory}, {"clusterlaunchcontrol", Work::memory},
      {"istypep", Work::integer},      {"call", Work::control}};
  if (const auto found = unknown.find(base); found != unknown.end()) {
    i.op = Op::unknown_value, i.work = found->second, out->has_result = true;
    return true;
  }
  return false;
}

}  // namespace

bool type_from_name(std::string_view name, Type* out) {
  const auto found = types().find(name);
  if (found == types().end()) return false;
  *out = found->second;
  return true;
}

Decoded decode(std::string_view opcode) {
  const Words words = split_opcode(opcode);
  for (const auto& family :
       {decode_arithmetic, decode_moves, decode_warp, decode_memory, decode_copies, decode_matrix, decode_barriers, decode_control}) {
    Decoded out;
    if (family(words, &out)) return out;
  }
  Decoded out;
  out.instruction.op = Op::unknown_value;
  out.understood = false;
  return out;
}

}  // namespace gpucast::ptx
