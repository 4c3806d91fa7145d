#include "src/kernels/random_kernel.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>
#include <vector>

namespace gpucast {
namespace {

constexpr uint64_t kReadBuffer = 0x7f0000000000, kIndexBuffer = 0x7f1000000000, kWrittenBuffer = 0x7f2000000000;

class KernelWriter {
 public:
  explicit KernelWriter(uint32_t seed) : random_(seed) {}

  RandomKernel write() {
    RandomKernel out;
    const bool flat = chance(70);
    out.launch.block = flat ? std::array<uint32_t, 3>{pick({32, 32, 33, 64, 64, 100}), 1, 1} : std::array<uint32_t, 3>{pick({8, 16}), 4, 1};
    out.launch.grid = {pick({1, 1, 1, 2, 3}), chance(8) ? 2U : 1U, 1};
    block_ = out.launch.block;
    whole_warps_ = out.launch.block[0] * out.launch.block[1] % 32 == 0;
    for (const uint64_t pointer : {kReadBuffer, kIndexBuffer, kWrittenBuffer}) add_parameter(pointer, 8, &out.launch.parameters);
    add_parameter(below(200), 4, &out.launch.parameters);
    add_parameter(random_(), 4, &out.launch.parameters);
    start();
    const uint32_t statements = 3 + below(8);
    for (uint32_t s = 0; s < statements; ++s) statement(0);
    line("ret;");
    out.text =
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(\n.param .u64 p_read,\n.param .u64 p_index,\n.param .u64 "
        "p_written,\n.param .u32 p_n,\n.param .u32 p_m)\n{\n.reg .pred %p<8>;\n.reg .b16 %h<5>;\n.reg .b32 %r<16>;\n.reg .b32 %c<" +
        std::to_string(counters_ + 1) + ">;\n.reg .b32 %t<8>;\n.reg .b32 %f<4>;\n.reg .b64 %d<4>;\n.reg .b64 %a<8>;\n" +
        ".shared .align 16 .b8 shared_bytes[16384];\n" + body_ + "}\n";
    return out;
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool chance(uint32_t percent) { return below(100) < percent; }
  template <class T = uint32_t>
  T pick(const std::vector<T>& from) {
    return from[below(static_cast<uint32_t>(from.size()))];
  }
  std::string one_of(const std::vector<std::string>& from) { return pick(from); }
  void line(const std::string& text) { body_ += text + "\n"; }
  static void add_parameter(uint64_t value, size_t bytes, std::string* to) {
    for (size_t b = 0; b < bytes; ++b) to->push_back(static_cast<char>(value >> (8 * b)));
  }

  std::string number_register() { return "%r" + std::to_string(below(12)); }
  std::string long_register() { return "%d" + std::to_string(below(4)); }
  std::string short_register() { return "%h" + std::to_string(below(4)); }
  std::string predicate() { return "%p" + std::to_string(below(6)); }
  std::string guard() { return chance(25) ? (chance(30) ? "@!" : "@") + predicate() + " " : ""; }
  std::string integer(uint32_t most = 0) {
    if (most > 0) return std::to_string(below(most));
    return one_of({std::to_string(below(40)), "-" + std::to_string(1 + below(9)), "0x" + std::to_string(below(9000)), "2147483647",
                   "4294967295", "65535"});
  }
  std::string source() { return chance(30) ? integer() : number_register(); }

  void start() {
    line("ld.param.u64 %a0, [p_read];");
    line("cvta.to.global.u64 %a0, %a0;");
    line("ld.param.u64 %a1, [p_index];");
    line("ld.param.u64 %a2, [p_written];");
    line("ld.param.u32 %r0, [p_n];");
    line("ld.param.u32 %r1, [p_m];");
    line("mov.u32 %r2, %tid.x;");
    line("mov.u32 %r3, %ctaid.x;");
    line("mov.u32 %r4, %ntid.x;");
    line("mad.lo.s32 %r5, %r3, %r4, %r2;");
    line("mov.u32 %r6, %laneid;");
    line("mov.u32 %r7, %tid.y;");
    line("mov.u32 %r8, %ctaid.y;");
    line("setp.lt.u32 %p0, %r5, %r0;");
    line("setp.eq.s32 %p1, %r6, " + integer(32) + ";");
    line("cvt.u64.u32 %d0, %r5;");
    line("cvt.u16.u32 %h0, %r2;");
  }

  void statement(int depth) {
    const uint32_t what = below(100);
    if (what < 42) return arithmetic();
    if (what < 50) return compare();
    if (what < 66) return global_access();
    if (what < 75) return shared_access();
    if (what < 79) return floating();
    if (what < 81) return line(guard() + "ret;"), void(may_exchange_ = false);
    if (what < 85) return depth == 0 ? exchange() : compare();
    if (what < 86) return depth == 0 ? line("bar.sync 0;") : arithmetic();
    if (what < 87) return depth > 0 || !may_exchange_ ? arithmetic() : chance(50) ? loop_of_shared_numbers() : share_number();
    if (depth >= 3 || budget_ == 0) return arithmetic();
    --budget_;
    return what < 94 ? branch(depth) : loop(depth);
  }

  void arithmetic() {
    const uint32_t width = below(100);
    if (width < 12) return arithmetic_of_64();
    if (width < 22) return arithmetic_of_16();
    if (width < 32) return conversion();
    const std::string to = guard(), d = number_register(), a = number_register(), s = one_of({"s32", "u32"});
    switch (below(28)) {
      case 0:
        return line(to + "mad" + one_of({".lo.", ".hi."}) + s + " " + d + ", " + a + ", " + source() + ", " + source() + ";");
      case 1:
        return line(to + "bfe." + s + " " + d + ", " + a + ", " + integer(40) + ", " + source() + ";");
      case 2:
        return line(to + "bfi.b32 " + d + ", " + a + ", " + source() + ", " + integer(40) + ", " + integer(40) + ";");
      case 3:
        return line(to + "shl.b32 " + d + ", " + a + ", " + one_of({integer(36), source()}) + ";");
      case 4:
        return line(to + "shr." + s + " " + d + ", " + a + ", " + one_of({integer(36), source()}) + ";");
      case 5:
        return line(to + "selp.b32 " + d + ", " + source() + ", " + source() + ", " + predicate() + ";");
      case 6:
        return line(to + "slct.b32.s32 " + d + ", " + source() + ", " + source() + ", " + a + ";");
      case 7:
        return line(to + one_of({"min.", "max."}) + s + " " + d + ", " + a + ", " + source() + ";");
      case 8:
        return line(to + one_of({"and", "or", "xor"}) + ".b32 " + d + ", " + a + ", " + source() + ";");
      case 9:
        return line(to + one_of({"not.b32 ", "neg.s32 ", "abs.s32 ", "brev.b32 ", "cnot.b32 ", "popc.b32 ", "clz.b32 "}) + d + ", " + a +
                    ";");
      case 10:
        return line(to + "bfind" + one_of({".", ".shiftamt."}) + s + " " + d + ", " + a + ";");
      case 11:
        return line(to + "sad." + s + " " + d + ", " + a + ", " + source() + ", " + source() + ";");
      case 12:
        return line(to + "lop3.b32 " + d + ", " + a + ", " + source() + ", " + source() + ", " + integer(256) + ";");
      case 13:
        return line(to + "prmt.b32 " + d + ", " + a + ", " + source() + ", " + source() + ";");
      case 14:
        return line(to + "szext" + one_of({".clamp.", ".wrap."}) + s + " " + d + ", " + a + ", " + source() + ";");
      case 15:
        return line(to + "shf" + one_of({".l", ".r"}) + one_of({".clamp", ".wrap"}) + ".b32 " + d + ", " + a + ", " + source() + ", " +
                    source() + ";");
      case 16:
        line("or.b32 %t0, " + number_register() + ", 1;");
        line("and.b32 %t0, %t0, 65535;");
        return line(to + one_of({"div.", "rem."}) + s + " " + d + ", " + a + ", %t0;");
      case 17:
        line("add.cc.u32 %t0, " + a + ", " + source() + ";");
        return line("addc.u32 " + d + ", " + source() + ", 0;");
      case 18:
        line("sub.cc.u32 %t0, " + a + ", " + source() + ";");
        return line("subc.u32 " + d + ", " + source() + ", 0;");
      case 19:
        return line(to + one_of({"add", "sub"}) + ".sat.s32 " + d + ", " + a + ", " + source() + ";");
      case 20:
        return line(to + "mul" + one_of({".lo.", ".hi."}) + s + " " + d + ", " + a + ", " + source() + ";");
      case 21:
        return line(to + "set." + one_of({"lt", "ne", "ge"}) + ".u32." + s + " " + d + ", " + a + ", " + source() + ";");
      default:
        return line(to + one_of({"add.", "add.", "sub."}) + s + " " + d + ", " + a + ", " + source() + ";");
    }
  }

  void arithmetic_of_64() {
    const std::string to = guard(), d = long_register(), a = long_register(), b = long_register(), s = one_of({"s64", "u64"});
    switch (below(8)) {
      case 0:
        return line(to + "mad" + one_of({".lo.", ".hi."}) + s + " " + d + ", " + a + ", " + b + ", " + integer() + ";");
      case 1:
        return line(to + one_of({"shl.b64 ", "shr.s64 ", "shr.u64 "}) + d + ", " + a + ", " + one_of({integer(70), number_register()}) +
                    ";");
      case 2:
        return line(to + "mul.wide." + one_of({"s32 ", "u32 "}) + d + ", " + number_register() + ", " + source() + ";");
      case 3:
        return line(to + "mad.wide." + one_of({"s32 ", "u32 "}) + d + ", " + number_register() + ", " + source() + ", " + a + ";");
      case 4:
        return line(to + "bfe." + s + " " + d + ", " + a + ", " + integer(70) + ", " + integer(70) + ";");
      case 5:
        return line(to + one_of({"popc.b64 ", "clz.b64 "}) + number_register() + ", " + a + ";");
      case 6:
        return line(to + one_of({"min.", "max.", "add.", "sub."}) + s + " " + d + ", " + a + ", " + b + ";");
      default:
        return line(to + one_of({"and", "or", "xor"}) + ".b64 " + d + ", " + a + ", " + b + ";");
    }
  }

  void arithmetic_of_16() {
    const std::string d = short_register(), a = short_register(), b = short_register(), s = one_of({"s16 ", "u16 "});
    switch (below(6)) {
      case 0:
        return line("mul.wide." + s + number_register() + ", " + a + ", " + b + ";");
      case 1:
        return line("setp." + one_of({"lt.", "ge.", "eq."}) + s + predicate() + ", " + a + ", " + b + ";");
      case 2:
        return line("shr." + s + d + ", " + a + ", " + integer(20) + ";");
      case 3:
        return line("selp.b16 " + d + ", " + a + ", " + b + ", " + predicate() + ";");
      default:
        return line(one_of({"add.", "sub.", "mul.lo.", "min."}) + s + d + ", " + a + ", " + b + ";");
    }
  }

  void conversion() {
    static const std::vector<std::pair<std::string, int>> kTypes = {{"s8", 8},   {"u8", 8},   {"s16", 16}, {"u16", 16},
                                                                    {"s32", 32}, {"u32", 32}, {"s64", 64}, {"u64", 64}};
    const auto to = pick(kTypes), from = pick(kTypes);
    const auto holder = [&](int bits) {
      if (bits <= 8) bits = chance(50) ? 16 : 32;
      return bits == 16 ? short_register() : bits == 32 ? number_register() : long_register();
    };
    if (chance(15)) {
      const bool packs = chance(50);
      return packs ? line("mov.b64 " + long_register() + ", {" + number_register() + ", " + number_register() + "};")
                   : line("mov.b32 {" + short_register() + ", " + short_register() + "}, " + number_register() + ";");
    }
    line(guard() + "cvt" + (chance(30) && to.second < from.second ? ".sat." : ".") + to.first + "." + from.first + " " + holder(to.second) +
         ", " + holder(from.second) + ";");
  }

  void compare() {
    const std::string how = one_of({"eq", "ne", "lt", "le", "gt", "ge"}), s = one_of({"s32 ", "u32 "});
    if (chance(30)) {
      return line(guard() + one_of({"and", "or", "xor"}) + ".pred " + predicate() + ", " + predicate() + ", " + predicate() + ";");
    }
    if (chance(15)) return line("not.pred " + predicate() + ", " + predicate() + ";");
    const std::string sources = number_register() + ", " + source();
    if (chance(25)) {
      return line(guard() + "setp." + how + one_of({".and.", ".or.", ".xor."}) + s + predicate() + (chance(50) ? "" : "|%p6") + ", " +
                  sources + ", " + (chance(30) ? "!" : "") + predicate() + ";");
    }
    line(guard() + "setp." + how + "." + s + predicate() + (chance(15) ? "|%p7" : "") + ", " + sources + ";");
  }

  void global_access() {
    const std::string type = one_of({"b8", "b16", "b32", "b32", "b64"});
    const uint32_t vector = type == "b8" ? 1 : type == "b64" ? pick({1, 2}) : pick({1, 1, 2, 4});
    const uint32_t bytes = static_cast<uint32_t>(std::stoi(type.substr(1))) / 8 * vector;
    const bool spread = chance(25);
    const std::string p = guard();
    // A line of lanes, or any order.
    line("and.b32 %t1, " + one_of({"%r2", "%r5", number_register()}) + ", " + one_of({"255", "63", "1023"}) + ";");
    line("mul.wide.u32 %a5, %t1, " + std::to_string(bytes * (spread ? pick({2, 3, 5, 33}) : 1)) + ";");
    const std::string offset = std::to_string(bytes * below(5));
    const auto at = [&](const std::string& base) {
      line("add.s64 %a4, " + base + ", %a5;");
      return "[%a4" + (chance(50) ? "+" + offset : "") + "]";
    };
    const std::string holder = type == "b64" ? "%a6" : type == "b32" ? "%t3" : "%h4";
    std::string held = holder;
    if (vector > 1) {
      held = "{" + holder;
      for (uint32_t v = 1; v < vector; ++v) held += ", " + holder;
      held += '}';
    }
    const std::string width = (vector > 1 ? ".v" + std::to_string(vector) : "") + "." + type + " ";
    switch (below(8)) {
      case 0:
      case 1: {  // an index
        const std::string narrow = chance(20) ? one_of({"s8", "u8", "s16", "u16"}) : "b32";
        line("and.b32 %t1, %t1, 255;");
        line("mul.wide.u32 %a5, %t1, 4;");
        line("add.s64 %a4, %a1, %a5;");
        return line(p + "ld.global." + narrow + " " + number_register() + ", [%a4+" + std::to_string(4 * below(3)) + "];");
      }
      case 2:
        if (type == "b32" && vector == 1) {
          const std::string where = at("%a2");
          return chance(50) ? line(p + "red.global.add.u32 " + where + ", %t2;") : line(p + "atom.global.add.u32 %t3, " + where + ", %t2;");
        }
        [[fallthrough]];
      case 3:
      case 4: {
        const std::string where = at("%a2");
        return line(p + "st.global" + width + where + ", " + held + ";");
      }
      case 5:
        if (bytes >= 4) return copy(bytes, p);
        [[fallthrough]];
      default: {
        const std::string where = at("%a0");
        // What is loaded is not used: its value is not known.
        return line(p + "ld.global" + width + (vector == 1 && bytes < 4 ? "%t3" : held) + ", " + where + ";");
      }
    }
  }

  void copy(uint32_t bytes, const std::string& p) {
    line("add.s64 %a4, %a0, %a5;");
    line("and.b32 %t1, " + number_register() + ", 255;");
    line("mad.lo.u32 %t1, %t1, " + std::to_string(bytes) + ", 1024;");
    const bool some = chance(40);
    if (some) line("selp.b32 %t4, " + std::to_string(bytes) + ", 0, " + predicate() + ";");
    line(p + "cp.async.ca.shared.global [%t1], [%a4], " + std::to_string(bytes) + (some ? ", %t4;" : ";"));
    if (chance(40)) line("cp.async.commit_group;");
    if (chance(20)) line("cp.async.wait_group 0;");
  }

  void shared_access() {
    const std::string type = one_of({"b8", "b16", "b32", "b32", "b64"});
    const uint32_t vector = type == "b32" ? pick({1, 1, 2, 4}) : type == "b64" ? pick({1, 2}) : 1;
    const uint32_t bytes = static_cast<uint32_t>(std::stoi(type.substr(1))) / 8 * vector;
    line("and.b32 %t1, " + one_of({"%r2", "%r6", number_register()}) + ", " + one_of({"31", "63", "127"}) + ";");
    line("mad.lo.u32 %t1, %t1, " + std::to_string(bytes * pick({1, 1, 2, 3, 4})) + ", " + std::to_string(bytes * below(9)) + ";");
    const std::string base = type == "b64" ? "%a6" : "%t3";
    const std::string held = vector == 1   ? base
                             : vector == 2 ? "{" + base + ", " + base + "}"
                                           : "{" + base + ", " + base + ", " + base + ", " + base + "}";
    const std::string width = (vector > 1 ? ".v" + std::to_string(vector) : "") + "." + type + " ";
    if (chance(50)) return line(guard() + "ld.shared" + width + held + ", [%t1];");
    line(guard() + "st.shared" + width + "[%t1], " + held + ";");
  }

  void floating() {
    line(guard() + one_of({"fma.rn.f32 %f0, %f1, %f2, %f3;", "add.f32 %f1, %f0, %f2;", "mul.f32 %f2, %f1, %f0;", "ex2.approx.f32 %f3, %f1;",
                           "cvt.rn.f32.s32 %f0, " + number_register() + ";", "neg.f32 %f1, %f2;", "max.f32 %f0, %f1, %f2;"}));
  }

  void exchange() {
    if (!whole_warps_ || !may_exchange_) return arithmetic();
    switch (below(4)) {
      case 0:
        return line("vote.sync.ballot.b32 " + number_register() + ", " + predicate() + ", 0xffffffff;");
      case 1:
        return line("vote.sync." + one_of({"any", "all", "uni"}) + ".pred " + predicate() + ", " + (chance(30) ? "!" : "") + predicate() +
                    ", 0xffffffff;");
      case 2:
        return line("redux.sync." + one_of({"add", "min", "max"}) + "." + one_of({"s32", "u32"}) + " " + number_register() + ", " +
                    number_register() + ", 0xffffffff;");
      default: {
        const std::string mode = one_of({"up", "down", "bfly", "idx"}), segment = one_of({"0", "4096", "7168"});
        const uint32_t clamp = mode == "up" ? 0 : 31;
        return line("shfl.sync." + mode + ".b32 " + number_register() + (chance(40) ? "|" + predicate() : "") + ", " + number_register() +
                    ", " + one_of({integer(32), number_register()}) + ", " +
                    std::to_string(std::stoul(segment) + (segment == "0" || mode != "up" ? clamp : 0)) + ", 0xffffffff;");
      }
    }
  }

  void branch(int depth) {
    const std::string p = predicate(), n = std::to_string(labels_++);
    const bool has_else = chance(50);
    line("@" + std::string(chance(50) ? "!" : "") + p + " bra " + (has_else ? "ELSE_" : "END_") + n + ";");
    statements(depth + 1, 1 + below(4));
    if (has_else) {
      line("bra END_" + n + ";");
      line("ELSE_" + n + ":");
      statements(depth + 1, 1 + below(3));
    }
    line("END_" + n + ":");
  }

  void loop(int depth) {
    const std::string n = std::to_string(labels_++), c = "%c" + std::to_string(++counters_);
    const bool tests_first = chance(50), by_register = chance(60), is_long = budget_ == 2 && chance(30);
    // The bound is a register's low bits: it may differ between lanes.
    if (by_register) line("and.b32 %t5, " + number_register() + ", " + (is_long ? "31" : one_of({"3", "7"})) + ";");
    line("mov.u32 " + c + ", 0;");
    const std::string bound = "%c" + std::to_string(++counters_);
    line("mov.u32 " + bound + ", " + (by_register ? "%t5" : integer(is_long ? 70 : 6)) + ";");
    if (!tests_first) line("max.u32 " + bound + ", " + bound + ", 1;");
    line("LOOP_" + n + ":");
    if (tests_first) {
      line("setp.ge.u32 %p6, " + c + ", " + bound + ";");
      line("@%p6 bra EXIT_" + n + ";");
    }
    statements(depth + 1, 1 + below(3));
    if (chance(20)) line("@" + predicate() + " bra EXIT_" + n + ";");
    if (chance(15)) line("@" + predicate() + " bra NEXT_" + n + ";");
    statements(depth + 1, below(3));
    line("NEXT_" + n + ":");
    if (chance(40)) line("add.s32 " + number_register() + ", " + number_register() + ", " + c + ";");
    line("add.s32 " + c + ", " + c + ", 1;");
    if (tests_first) {
      line("bra LOOP_" + n + ";");
    } else {
      line("setp." + one_of({"lt", "ne"}) + ".u32 %p7, " + c + ", " + bound + ";");
      line("@%p7 bra LOOP_" + n + ";");
    }
    line("EXIT_" + n + ":");
  }

  // All threads make the same rounds. In each, every thread reads what another one stored.
  void loop_of_shared_numbers() {
    const std::string n = std::to_string(labels_++), c = "%c" + std::to_string(++counters_);
    line("mov.u32 " + c + ", 0;");
    line("SHARED_" + n + ":");
    const auto some = [&] {
      for (uint32_t s = below(3); s > 0; --s) chance(60) ? arithmetic() : chance(70) ? global_access() : shared_access();
    };
    some();
    share_number();
    some();
    if (chance(30)) share_number();
    line("add.s32 " + c + ", " + c + ", 1;");
    line("setp.lt.u32 %p7, " + c + ", " + std::to_string(1 + below(chance(30) ? 60 : 6)) + ";");
    line("@%p7 bra SHARED_" + n + ";");
  }

  void share_number() {
    constexpr uint32_t kRoom = 12288;  // no other access is there
    const uint32_t threads = block_[0] * block_[1];
    line("mov.u32 %t6, %tid.x;");
    line("mov.u32 %t7, %tid.y;");
    line("mad.lo.s32 %t6, %t7, " + std::to_string(block_[0]) + ", %t6;");
    line("mad.lo.s32 %t7, %t6, 4, " + std::to_string(kRoom) + ";");
    line("bar.sync 0;");
    line("st.shared.b32 [%t7], " + number_register() + ";");
    line("bar.sync 0;");
    line("mad.lo.s32 %t6, %t6, " + std::to_string(1 + below(5)) + ", " + std::to_string(below(100)) + ";");
    line("rem.u32 %t6, %t6, " + std::to_string(threads) + ";");
    line("mad.lo.s32 %t7, %t6, 4, " + std::to_string(kRoom) + ";");
    line("ld.shared.b32 " + number_register() + ", [%t7];");
  }

  void statements(int depth, uint32_t count) {
    for (uint32_t s = 0; s < count; ++s) statement(depth);
  }

  std::mt19937 random_;
  std::string body_;
  uint32_t labels_ = 0, counters_ = 0, budget_ = 3;  // budget_: branches and loops left
  std::array<uint32_t, 3> block_ = {};
  bool whole_warps_ = false, may_exchange_ = true;
};

}  // namespace

RandomKernel random_kernel(uint32_t seed) { return KernelWriter(seed).write(); }

KnownValue values_of_seed(uint32_t seed) {
  return [seed](uint64_t address, int bytes) -> std::optional<uint64_t> {
    if (address < kIndexBuffer || address >= kWrittenBuffer) return std::nullopt;
    uint64_t x = (address / 4 * 4 + seed) * 0x9e3779b97f4a7c15ULL;
    x ^= x >> 29;
    x = (x * 0xbf58476d1ce4e5b9ULL) >> 32;
    if (x % 3 != 0) x %= 100;  // small numbers as real indices are
    return bytes >= 8 ? x : (x & ((1ULL << (8 * bytes)) - 1));
  };
}

std::string ptx_file(const std::string& name) {
  std::ifstream in(std::string(GPUCAST_SOURCE_DIR) + "/tests/ptx/" + name + ".ptx");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string damaged(std::string text, int round, std::mt19937* random) {
  if (round % 3 == 0) text.resize((*random)() % text.size());
  for (int change = 0; change < round; ++change) {
    const size_t at = (*random)() % std::max<size_t>(text.size(), 1);
    if (at < text.size()) text[at] = "%[]{};,.@0r$\n"[(*random)() % 13];
  }
  return text;
}

}  // namespace gpucast
