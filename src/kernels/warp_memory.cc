// Loads, stores, atomics and copies of a warp.
#include <algorithm>
#include <bit>

#include "src/kernels/lane_bits.h"
#include "src/kernels/launch_memory.h"
#include "src/kernels/warp.h"

namespace gpucast::ptx {
namespace {

constexpr uint64_t kAssumedIndices = 4096;

// Loaded integers whose value is not known are mostly indices of rows. The index depends on its address alone (splitmix64).
uint64_t assumed_index(uint64_t address) {
  uint64_t x = address + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return (x ^ (x >> 31)) % kAssumedIndices;
}

// Atomics of a warp on one place are done one after another.
int most_at_one_place(const LaneValues& addresses, LaneMask lanes) {
  std::array<uint64_t, kLanes> places;
  size_t count = 0;
  for (LaneMask left = lanes; left != 0; left &= left - 1) places[count++] = addresses[static_cast<size_t>(std::countr_zero(left))];
  std::sort(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(count));
  int most = 0, same = 0;
  for (size_t n = 0; n < count; ++n) most = std::max(most, same = n > 0 && places[n] == places[n - 1] ? same + 1 : 1);
  return most;
}

}  // namespace

bool Warp::addresses_of(const Instruction& i, uint32_t number, LaneMask lanes, LaneValues* out) {
  const Address& address = kernel_.addresses[i.first_address + number];
  const LaneValues& base = values(address.base);
#pragma GCC ivdep
  for (uint32_t lane = 0; lane < kLanes; ++lane) (*out)[lane] = base[lane] + static_cast<uint64_t>(address.offset);
  const bool assumed = (assumed_[address.base] & lanes) != 0;
  counts_.assumed = counts_.assumed || assumed;
  return !assumed;
}

uint64_t Warp::read_parameter(uint64_t offset, uint32_t bytes, bool* is_known) const {
  const auto found = integer_in(launch_.parameters, offset, bytes);
  *is_known = found.has_value();
  return found.value_or(0);
}

void Warp::load(const Instruction& i, LaneMask lanes, const LaneValues& addresses) {
  const bool is_signed = i.type.kind == Kind::signed_integer;
  const uint32_t bytes = std::max(i.type.bits / 8, 1);
  const bool same = lanes == kAllLanes && has_one_value(kernel_.addresses[i.first_address].base);
  for (uint32_t r = 0; r < i.results; ++r) {
    const Register to = result(i, r);
    if (to == kNoRegister || to >= kernel_.relevant_registers) continue;
    LaneValues loaded = {};
    LaneMask assumed = 0;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if ((lanes >> lane & 1) == 0) continue;
      const uint64_t address = addresses[lane] + uint64_t{r} * bytes, window = address & kWindowMask;
      bool is_known = false;
      uint64_t value = 0;
      if (i.space == Space::parameter || window == kParameterWindow) {
        value = read_parameter(address & ~kWindowMask, bytes, &is_known);
      } else if (window == kVariableWindow) {
        const uint64_t at = address & ~kWindowMask;
        const auto found = i.space != Space::shared ? integer_in(module_.variables, at, bytes) : std::nullopt;
        value = found.value_or(0), is_known = found.has_value();
      } else if ((i.space == Space::global || i.space == Space::generic) && window == 0 && known_ && bytes <= 8) {
        // What the host knows of memory is from before the launch.
        const auto found = written_.touches({address, address + bytes}) ? std::nullopt : known_(address, static_cast<int>(bytes));
        if (found) value = *found, is_known = reads_values = true;
      }
      if (!is_known && bytes >= 4 && window == 0) value = assumed_index(address);
      if (is_signed && bytes < 8) value = static_cast<uint64_t>(static_cast<int64_t>(value << (64 - 8 * bytes)) >> (64 - 8 * bytes));
      loaded[lane] = value;
      if (!is_known) assumed |= 1U << lane;
      if (same) {
        loaded.fill(value);
        if (assumed != 0) assumed = kAllLanes;
        break;
      }
    }
    write(to, lanes, loaded, assumed);
    same_[to] = same;
  }
}

// Sectors of device memory; the bytes are logged.
int Warp::touch(const Instruction& i, const LaneValues& addresses, LaneMask lanes) {
  Footprint& last = footprints_[i.request];
  if (last.open.empty()) open_.push_back(&i);
  const bool is_atomic = i.op == Op::atomic || i.op == Op::reduce;
  const auto before = static_cast<std::ptrdiff_t>(counts_.loads.size());
  const int out = count_sectors(addresses, lanes, i.bytes, &last, i.op == Op::store ? &counts_.stores : &counts_.loads);
  if (is_atomic) counts_.stores.insert(counts_.stores.end(), counts_.loads.begin() + before, counts_.loads.end());
  return out;
}

void Warp::close_log() {
  for (const Instruction* i : open_) {
    std::vector<ByteRange>& open = footprints_[i->request].open;
    const bool is_atomic = i->op == Op::atomic || i->op == Op::reduce;
    if (i->op == Op::store || is_atomic) counts_.stores.insert(counts_.stores.end(), open.begin(), open.end());
    if (i->op != Op::store) counts_.loads.insert(counts_.loads.end(), open.begin(), open.end());
    open.clear();
  }
  open_.clear();
}

void Warp::drop_open() {
  for (const Instruction* i : open_) footprints_[i->request].open.clear();
  open_.clear();
}

void Warp::memory(const Instruction& i, LaneMask lanes) {
  LaneValues addresses;
  if (i.space == Space::parameter && i.op == Op::load) {
    if (!i.relevant) return;
    addresses_of(i, 0, lanes, &addresses);
    return load(i, lanes, addresses);
  }
  if (i.space == Space::parameter || i.space == Space::local || i.space == Space::constant) {
    if (i.op == Op::load && i.relevant) addresses_of(i, 0, lanes, &addresses), load(i, lanes, addresses);
    return;
  }
  const bool places_are_known = addresses_of(i, 0, lanes, &addresses);
  // A generic address says by its window where it leads.
  LaneMask shared = i.space == Space::shared ? lanes : 0, global = i.space == Space::global ? lanes : 0;
  if (i.space == Space::generic) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t window = addresses[lane] & kWindowMask;
      if (window == kSharedWindow) shared |= 1U << lane;
      if (window == 0 || window == kVariableWindow) global |= 1U << lane;
    }
    shared &= lanes, global &= lanes;
  }
  if (shared != 0) {
    const bool matrix = i.op == Op::matrix_load || i.op == Op::matrix_store;
    Footprint* last = &shared_footprints_[i.request];
    counts_.wavefronts +=
        matrix ? count_matrix_wavefronts(addresses, shared, i.bytes, last) : count_wavefronts(addresses, shared, i.bytes, last);
  }
  if (global != 0 && i.releases) wait_for(arrival()), now_ = begin_;
  if (global != 0) {
    double* sectors = i.op == Op::store ? &counts_.store_sectors : i.op == Op::load ? &counts_.load_sectors : &counts_.atomic_sectors;
    const int touched = touch(i, addresses, global);
    *sectors += touched;
    if (i.gathers) counts_.gathered_sectors += touched;
    if (places_are_known && (i.op == Op::atomic || i.op == Op::reduce)) {
      counts_.atomic_passes += most_at_one_place(addresses, global);
      counts_.atomics.push_back(footprints_[i.request].extent);
    }
    if (i.op != Op::load && known_) written_.add(footprints_[i.request].extent);
    if (i.op == Op::load) in_flight_ += static_cast<double>(i.bytes) * std::popcount(global);
  }
  if (i.hands && is_first_) hand_numbers(i, lanes, addresses);
  if (memory_ != nullptr && i.space == Space::shared && follow_shared(i, lanes)) {
    // its results are known, or not, by what is there
  } else if (i.shares && i.op == Op::load && take_shared(i, lanes)) {
    // its results are what was stored there
  } else if (kernel_.hands_numbers && i.op == Op::load && i.relevant && i.space == Space::shared && take_handed(i, lanes, addresses)) {
    // its results are known
  } else if (i.op == Op::load && i.relevant) {
    load(i, lanes, addresses);
  } else if (i.op == Op::atomic || i.op == Op::matrix_load) {
    unknown_results(i, lanes);
  }
  for (uint32_t r = 0; r < i.results; ++r) {
    const Register to = result(i, r);
    if (to == kNoRegister) continue;
    load_level_[to] = global != 0 ? load_now_ + 1 : 0;
    shared_level_[to] = shared != 0 ? shared_now_ + 1 : 0;
    if (global != 0) ready_[to] = now_ + kLoadCycles, from_memory_[to] = 1;
  }
  if (global != 0 && i.acquires) wait_for(arrival());
}

void Warp::hand_numbers(const Instruction& i, LaneMask lanes, const LaneValues& addresses) {
  const uint32_t bytes = std::max(i.type.bits / 8, 1);
  for (LaneMask left = lanes; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    for (uint32_t s = 0; s < i.sources; ++s) {
      if (const auto value = known_value(source(i, s), lane)) handed_.write(addresses[lane] + uint64_t{s} * bytes, bytes, *value);
    }
    if (has_one_value(kernel_.addresses[i.first_address].base)) break;  // all lanes store to one place: it is one number
  }
}

// False: something that is read is not known.
bool Warp::take_handed(const Instruction& i, LaneMask lanes, const LaneValues& addresses) {
  const uint32_t bytes = std::max(i.type.bits / 8, 1);
  std::vector<LaneValues> loaded(i.results);
  for (uint32_t r = 0; r < i.results; ++r) {
    for (LaneMask left = lanes; left != 0; left &= left - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(left));
      const uint64_t place = addresses[lane] + uint64_t{r} * bytes;
      const auto times = reads_.find(place);
      const auto value = handed_.read(place, bytes, is_first_ ? ~0U : times == reads_.end() ? 0 : times->second);
      if (!value) return false;
      const bool is_signed = i.type.kind == Kind::signed_integer;
      loaded[r][lane] = is_signed ? static_cast<uint64_t>(with_sign(*value, 8 * bytes)) : *value;
    }
  }
  std::vector<uint64_t> places;
  for (LaneMask left = lanes; left != 0; left &= left - 1) places.push_back(addresses[static_cast<size_t>(std::countr_zero(left))]);
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  for (uint32_t r = 0; r < i.results; ++r) {
    for (const uint64_t place : places) ++reads_[place + uint64_t{r} * bytes];
    if (const Register to = result(i, r); to != kNoRegister && to < kernel_.relevant_registers) write(to, lanes, loaded[r], 0);
  }
  return true;
}

// False: they are not known.
bool Warp::take_shared(const Instruction& i, LaneMask lanes) {
  if (known_loads_ == nullptr || i.space != Space::shared) return false;
  const std::vector<SharedLoad>& all = (*known_loads_)[i.request];
  const uint32_t number = shared_loads_[i.request]++;
  if (number >= all.size() || all[number].lanes != lanes) return false;
  const SharedLoad& load = all[number];
  for (uint32_t r = 0; r < i.results; ++r) {
    const Register to = result(i, r);
    if (to == kNoRegister || to >= kernel_.relevant_registers) continue;
    const LaneValues& values = load.values[r];
    write(to, lanes, values, load.assumed[r]);
    same_[to] = lanes == kAllLanes && std::all_of(values.begin(), values.end(), [&](uint64_t value) { return value == values[0]; });
  }
  return true;
}

uint64_t Warp::first_address(const Instruction& i, uint32_t number, LaneMask lanes) {
  LaneValues addresses;
  addresses_of(i, number, lanes, &addresses);
  return addresses[static_cast<size_t>(std::countr_zero(lanes))];
}

void Warp::copy(const Instruction& i, LaneMask lanes) {
  LaneValues to, from;
  if (lanes == 0) return;
  if (i.op == Op::copy_bulk) {
    if (i.asynchronous && i.addresses > 2) {
      Arrival& copies = bulk_[first_address(i, 2, lanes)];
      const Arrival now = arrival();
      copies = {std::max(copies.level, now.level), std::max(copies.ready, now.ready)};
    }
    if (i.saturates) return;  // a tensor map's box; its barrier expects the bytes
    // [destination], [source], bytes
    const LaneValues& bytes = values(source(i, 0));
    addresses_of(i, i.asynchronous ? 1 : 0, lanes, &from);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if ((lanes >> lane & 1) == 0) continue;
      const uint64_t length = bytes[lane] & 0xffffffff;
      (i.asynchronous ? counts_.async_load : counts_.async_store) += static_cast<double>(length);
      (i.asynchronous ? counts_.loads : counts_.stores).push_back({from[lane], from[lane] + length});
    }
    return;
  }
  addresses_of(i, 0, lanes, &to);
  addresses_of(i, 1, lanes, &from);
  counts_.wavefronts += count_wavefronts(to, lanes, i.bytes, &shared_footprints_[i.request]);
  if (memory_ != nullptr) memory_->begin_block();  // what is copied is not followed
  LaneMask reads = lanes;
  if (i.wraps) {  // 0 or a part is read, the rest filled with zeros
    const LaneValues& size = values(source(i, 1));
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if ((size[lane] & 0xffffffff) == 0) reads &= ~(1U << lane);
    }
  }
  counts_.async_load += static_cast<double>(i.bytes) * std::popcount(reads);
  touch(i, from, reads);
  in_flight_ += static_cast<double>(i.bytes) * std::popcount(reads);
  open_group_ = arrival();
}

}  // namespace gpucast::ptx
