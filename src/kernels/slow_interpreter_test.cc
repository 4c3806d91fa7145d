#include "src/kernels/slow_interpreter.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "src/kernels/slow_program.h"

namespace gpucast::slow {
namespace {

// Which bytes were touched.
class Bytes {
 public:
  void add(uint64_t address, uint64_t bytes) {
    for (uint64_t a = address; a < address + bytes; ++a) pages_[a >> 10].set(a & 1023);
  }
  void add(const Bytes& other) {
    for (const auto& [page, bits] : other.pages_) pages_[page] |= bits;
  }
  Bytes whole_sectors() const {
    Bytes out;
    for (const auto& [page, bits] : pages_)
      for (uint64_t byte = 0; byte < 1024; ++byte)
        if (bits[byte]) out.add((page * 1024 + byte) / 32 * 32, 32);
    return out;
  }
  double count() const {
    size_t out = 0;
    for (const auto& [page, bits] : pages_) out += bits.count();
    return static_cast<double>(out);
  }

 private:
  std::map<uint64_t, std::bitset<1024>> pages_;
};

struct Request {  // of a warp
  const Statement* statement = nullptr;
  std::vector<std::pair<int, uint64_t>> lanes;         // and addresses
  std::vector<std::pair<int, uint64_t>> shared_lanes;  // of copies: where to
};

double sectors_of(const Request& request) {
  std::set<uint64_t> sectors;
  for (const auto& [lane, address] : request.lanes) {
    for (uint64_t s = address / 32; s <= (address + request.statement->bytes - 1) / 32; ++s) sectors.insert(s);
  }
  return static_cast<double>(sectors.size());
}

double wavefronts_of(const std::vector<std::pair<int, uint64_t>>& lanes, uint64_t bytes) {
  const int together = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  double out = 0;
  for (int first = 0; first < 32; first += together) {
    std::array<std::set<uint64_t>, 32> banks;
    for (const auto& [lane, address] : lanes) {
      if (lane < first || lane >= first + together) continue;
      for (uint64_t word = address / 4; word <= (address + bytes - 1) / 4; ++word) banks[word % 32].insert(word);
    }
    size_t most = 0;
    for (const auto& bank : banks) most = std::max(most, bank.size());
    out += static_cast<double>(most);
  }
  return out;
}

struct Thread {
  int lane = 0;
  std::vector<uint64_t> registers;
  std::vector<uint32_t> rounds;  // of each loop
  size_t pc = 0;
  bool ended = false, waits = false, first = false;  // first: no lane of its warp was here in the same rounds of all loops
  bool jumped_back = false, starts = true;
  uint64_t carry = 0, key = 0;
};

class Runner {
 public:
  Runner(const std::string& text, const KernelLaunch& launch, const KnownValue& known)
      : program_(read_program(text)), launch_(launch), known_(known) {}

  Counts run() {
    const uint32_t threads = launch_.block[0] * launch_.block[1] * launch_.block[2];
    for (uint32_t z = 0; z < launch_.grid[2]; ++z) {
      for (uint32_t y = 0; y < launch_.grid[1]; ++y) {
        for (uint32_t x = 0; x < launch_.grid[0]; ++x) {
          block_ = {x, y, z};
          Bytes loads, stores;
          shared_.fill(0);
          std::vector<Warp> warps;
          for (uint32_t first = 0; first < threads; first += 32) warps.push_back(new_warp(first, std::min(threads, first + 32)));
          for (bool any = true; any;) {  // from barrier to barrier
            any = false;
            for (Warp& warp : warps) any = run_warp(&warp) || any;
          }
          for (const Warp& warp : warps) {
            for (const auto& [key, request] : warp.requests) add(request, &loads, &stores);
          }
          out_.block_load_bytes += loads.count();
          out_.block_store_bytes += stores.count();
          loads_.add(loads);
          stores_.add(stores);
          loads.add(stores);
          const Bytes touched = loads.whole_sectors();
          out_.block_touched_bytes += touched.count();
          touched_.add(touched);
        }
      }
    }
    out_.unique_load_bytes = loads_.count();
    out_.unique_store_bytes = stores_.count();
    out_.touched_bytes = touched_.count();
    return out_;
  }

 private:
  struct Warp {
    std::vector<Thread> lanes;
    std::unordered_set<uint64_t> seen;  // where a lane was, in which rounds
    std::unordered_map<uint64_t, Request> requests;
  };

  // To the next barrier. False: no thread waits there.
  bool run_warp(Warp* warp) {
    warp_ = warp;
    for (Thread& thread : warp->lanes) thread.waits = false;
    for (;;) {
      for (Thread& thread : warp->lanes) advance(&thread);
      const auto at_exchange = [](const Thread& thread) { return !thread.ended && !thread.waits; };
      if (std::none_of(warp->lanes.begin(), warp->lanes.end(), at_exchange)) break;
      if (!std::all_of(warp->lanes.begin(), warp->lanes.end(), at_exchange)) throw std::runtime_error("lanes do not meet");
      exchange(&warp->lanes);
    }
    return std::any_of(warp->lanes.begin(), warp->lanes.end(), [](const Thread& thread) { return thread.waits; });
  }

  Warp new_warp(uint32_t first, uint32_t end) {
    Warp out;
    for (uint32_t t = first; t < end; ++t) out.lanes.push_back(new_thread(t));
    return out;
  }

  Thread new_thread(uint32_t t) {
    Thread out;
    out.lane = static_cast<int>(t % 32);
    out.registers.resize(program_.widths.size());
    out.rounds.resize(program_.loops.size());
    for (const auto& [r, name] : program_.specials) out.registers[static_cast<size_t>(r)] = special(name, t);
    return out;
  }

  uint64_t special(const std::string& name, uint32_t t) const {
    const auto& b = launch_.block;
    if (name == "%laneid") return t % 32;
    const std::array<uint32_t, 3> thread = {t % b[0], t / b[0] % b[1], t / b[0] / b[1]};
    const auto axis = static_cast<size_t>(name.back() - 'x');
    return name[1] == 't'             ? thread.at(axis)
           : name[1] == 'c'           ? block_.at(axis)
           : name.starts_with("%nct") ? launch_.grid.at(axis)
                                      : b.at(axis);
  }
  uint64_t value(const Thread& thread, const Operand& operand) const {
    if (operand.is_number) return operand.number;
    uint64_t packed = 0;
    for (size_t n = operand.registers.size(); n-- > 1;) {
      const auto r = static_cast<size_t>(operand.registers[n]);
      packed |= thread.registers[r] << (static_cast<size_t>(program_.widths[r]) * n);
    }
    return (packed | thread.registers[static_cast<size_t>(operand.registers[0])]) ^ (operand.negated ? 1 : 0);
  }
  uint64_t address(const Thread& thread, const Operand& operand) const {
    return operand.number + (operand.registers.empty() ? 0 : thread.registers[static_cast<size_t>(operand.registers[0])]);
  }
  void set(Thread* thread, int r, uint64_t x) const {
    thread->registers[static_cast<size_t>(r)] = zeros_above(x, program_.widths[static_cast<size_t>(r)]);
  }

  // To the end, to a barrier, or to where the lanes of the warp meet.
  void advance(Thread* thread) {
    for (uint64_t steps = 0; !thread->ended && !thread->waits; ++steps) {
      if (steps > 200'000) throw std::runtime_error("does not end");
      if (thread->pc >= program_.statements.size()) throw std::runtime_error("no ret");
      const Statement& s = program_.statements[thread->pc];
      if (s.leads || thread->starts) enter(thread);
      if (s.does == Does::shuffle || s.does == Does::vote || s.does == Does::reduce_lanes) return;
      count(s, *thread);
      const bool runs = s.guard < 0 || (thread->registers[static_cast<size_t>(s.guard)] != 0) != s.guard_negated;
      if (runs) out_.flops += s.flops;
      if (runs && s.does == Does::leave) thread->ended = true;
      if (runs && s.does == Does::barrier) thread->waits = true;
      if (runs && s.does == Does::branch) {
        thread->jumped_back = s.target <= thread->pc;
        thread->pc = s.target;
        continue;
      }
      if (runs) step(s, thread);
      ++thread->pc;
    }
  }

  void enter(Thread* thread) {
    thread->starts = false;
    thread->key = 0;
    for (size_t l = 0; l < program_.loops.size(); ++l) {
      const Loop& loop = program_.loops[l];
      if (loop.head == thread->pc) thread->rounds[l] = thread->jumped_back ? thread->rounds[l] + 1 : 0;
      if (loop.head <= thread->pc && thread->pc <= loop.last) thread->key = thread->key * 5003 + thread->rounds[l] + 1;
    }
    thread->jumped_back = false;
    thread->first = warp_->seen.insert(thread->key * 4096 + thread->pc).second;
  }

  void count(const Statement& s, const Thread& thread) {
    if (!thread.first) return;
    const std::array<double*, 6> counts = {nullptr, &out_.integer, &out_.fp32, &out_.special, &out_.control, &out_.memory};
    if (double* at = counts[static_cast<size_t>(s.sort)]) *at += 1;
    if (s.does == Does::barrier) out_.barriers += 1;
  }

  Request& request(const Thread& thread, const Statement& s) {
    Request& out = warp_->requests[thread.key * 4096 + thread.pc];
    out.statement = &s;
    return out;
  }

  void step(const Statement& s, Thread* thread) {
    switch (s.does) {
      case Does::arithmetic: {
        const std::vector<int>& to = s.operands[0].registers;
        Sources v = {};
        for (size_t o = 1; o < s.operands.size(); ++o) v.at(o - 1) = value(*thread, s.operands[o]);
        const uint64_t x = s.rule(s.form, v);
        if (to.size() > 1) {  // mov {a, b}, c
          for (size_t n = 0; n < to.size(); ++n) set(thread, to[n], x >> (static_cast<size_t>(s.form.bits) / to.size() * n));
          return;
        }
        set(thread, to[0], s.fills ? x : zeros_above(x, s.form.bits));
        return;
      }
      case Does::compare:
        return compare(s, thread);
      case Does::carry:
        return add_with_carry(s, thread);
      case Does::load:
        return load(s, thread);
      case Does::store:
        request(*thread, s).lanes.emplace_back(thread->lane, address(*thread, s.operands[0]));
        if (s.space == 1 && s.operands[1].registers.size() == 1) {
          const uint64_t x = value(*thread, s.operands[1]);
          std::memcpy(shared_.data() + address(*thread, s.operands[0]) % shared_.size(), &x, static_cast<size_t>(s.form.bits / 8));
        }
        return;
      case Does::atomic:
        request(*thread, s).lanes.emplace_back(thread->lane, address(*thread, s.operands[s.base == "red" ? 0 : 1]));
        return;
      case Does::copy: {
        Request& r = request(*thread, s);
        r.shared_lanes.emplace_back(thread->lane, address(*thread, s.operands[0]));
        const bool reads = s.operands.size() < 4 || zeros_above(value(*thread, s.operands[3]), 32) != 0;
        if (reads) r.lanes.emplace_back(thread->lane, address(*thread, s.operands[1]));
        return;
      }
      default:
        return;
    }
  }

  void compare(const Statement& s, Thread* thread) {
    if (s.form.words.back()[0] == 'f') return;
    const bool holds =
        compared(s.form.words[1], number(s.form, value(*thread, s.operands[1])), number(s.form, value(*thread, s.operands[2])));
    const std::vector<int>& to = s.operands[0].registers;
    const auto joined = [&](bool x) -> uint64_t {
      if (s.operands.size() < 4) return x;
      const bool with = value(*thread, s.operands[3]) != 0;
      return s.form.has("and") ? x && with : s.form.has("or") ? x || with : x != with;
    };
    const uint64_t yes = joined(holds), no = joined(!holds);
    set(thread, to[0], yes);
    if (to.size() > 1) set(thread, to[1], no);
  }

  void add_with_carry(const Statement& s, Thread* thread) {
    const Wide a = zeros_above(value(*thread, s.operands[1]), s.form.bits), b = zeros_above(value(*thread, s.operands[2]), s.form.bits);
    const Wide in = s.base == "addc" || s.base == "subc" ? thread->carry : 0;
    const bool adds = s.base[0] == 'a';
    const Wide sum = adds ? a + b + in : a - b - in;
    if (s.form.has("cc")) thread->carry = sum < 0 || (sum >> s.form.bits) != 0;
    set(thread, s.operands[0].registers[0], zeros_above(static_cast<uint64_t>(sum), s.form.bits));
  }

  void load(const Statement& s, Thread* thread) {
    uint64_t from = address(*thread, s.operands[1]);
    if (s.space != 2) request(*thread, s).lanes.emplace_back(thread->lane, from);
    for (const int r : s.operands[0].registers) {
      const auto bytes = static_cast<size_t>(s.form.bits / 8);
      uint64_t x = 0;
      if (s.space == 2) {
        std::memcpy(&x, launch_.parameters.data() + from, bytes);
      } else if (s.space == 1) {
        std::memcpy(&x, shared_.data() + from % shared_.size(), bytes);
      } else if (s.space == 0 && known_) {
        x = known_(from, static_cast<int>(bytes)).value_or(0);
      }
      set(thread, r, s.form.is_signed ? static_cast<uint64_t>(sign_above(x, s.form.bits)) : zeros_above(x, s.form.bits));
      from += bytes;
    }
  }

  void exchange(std::vector<Thread>* lanes) {
    const size_t pc = lanes->front().pc;
    const Statement& s = program_.statements[pc];
    std::vector<Thread>& all = *lanes;
    for (const Thread& thread : all) {
      if (thread.pc != pc || s.guard >= 0) throw std::runtime_error("lanes do not meet");
    }
    count(s, all[0]);
    std::vector<uint64_t> from, results(all.size());
    for (const Thread& thread : all) from.push_back(value(thread, s.operands[1]));
    for (size_t lane = 0; lane < all.size(); ++lane) {
      if (s.does == Does::shuffle) {
        shuffle(s, from, &all[lane]);
        continue;
      }
      uint64_t x = s.does == Does::vote ? 0 : from[0];
      for (size_t other = 0; other < all.size(); ++other) {
        if (s.form.has("ballot")) x |= from[other] << other;
        if (s.does == Does::reduce_lanes && other > 0) {
          const Wide a = number(s.form, x), b = number(s.form, from[other]);
          x = s.form.has("add") ? x + from[other] : static_cast<uint64_t>(s.form.has("min") ? std::min(a, b) : std::max(a, b));
        }
      }
      const bool any = std::any_of(from.begin(), from.end(), [](uint64_t f) { return f != 0; });
      const bool every = std::all_of(from.begin(), from.end(), [](uint64_t f) { return f != 0; });
      if (s.form.has("any")) x = any;
      if (s.form.has("all")) x = every;
      if (s.form.has("uni")) x = any == every;
      results[lane] = x;
    }
    for (size_t lane = 0; lane < all.size(); ++lane) {
      if (s.does != Does::shuffle) set(&all[lane], s.operands[0].registers[0], results[lane]);
      ++all[lane].pc;
    }
  }

  void shuffle(const Statement& s, const std::vector<uint64_t>& from, Thread* thread) {
    const auto b = static_cast<int>(value(*thread, s.operands[2]) & 31), c = static_cast<int>(value(*thread, s.operands[3]) & 31);
    const auto segment = static_cast<int>(value(*thread, s.operands[3]) >> 8 & 31);
    const int lane = thread->lane, most = (lane & segment) | (c & ~segment), least = lane & segment;
    int j = 0;
    bool inside = false;
    if (s.form.has("up")) {
      j = lane - b, inside = j >= most;
    } else if (s.form.has("down")) {
      j = lane + b, inside = j <= most;
    } else if (s.form.has("bfly")) {
      j = lane ^ b, inside = j <= most;
    } else {
      j = least | (b & ~segment), inside = j <= most;
    }
    if (!inside) j = lane;
    set(thread, s.operands[0].registers[0], from.at(static_cast<size_t>(j)));
    if (s.operands[0].registers.size() > 1) set(thread, s.operands[0].registers[1], inside);
  }

  void add(const Request& request, Bytes* loads, Bytes* stores) {
    const Statement& s = *request.statement;
    if (s.does == Does::copy) {
      out_.async_load_bytes += static_cast<double>(s.bytes * request.lanes.size());
      out_.wavefronts += wavefronts_of(request.shared_lanes, s.bytes);
    } else if (s.space == 1) {
      out_.wavefronts += wavefronts_of(request.lanes, s.bytes);
      return;
    } else {
      (s.does == Does::load ? out_.load_sectors : s.does == Does::store ? out_.store_sectors : out_.atomic_sectors) += sectors_of(request);
    }
    for (const auto& [lane, address] : request.lanes) {
      if (s.does != Does::store) loads->add(address, s.bytes);
      if (s.does == Does::store || s.does == Does::atomic) stores->add(address, s.bytes);
    }
  }

  const Program program_;
  const KernelLaunch& launch_;
  const KnownValue& known_;
  std::array<uint32_t, 3> block_ = {};
  Counts out_;
  Bytes loads_, stores_, touched_;
  std::array<char, 16384> shared_ = {};
  Warp* warp_ = nullptr;  // that runs
};

}  // namespace

Counts count_every_thread(const std::string& text, const KernelLaunch& launch, const KnownValue& known) {
  return Runner(text, launch, known).run();
}

}  // namespace gpucast::slow
