#include "src/vgpu/core/running_operators.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "src/vgpu/core/launch_values.h"
#include "src/vgpu/core/operator_launches.h"

namespace gpucast::vgpu {
namespace {

// ---- PyTorch's side ------------------------------------------------------------------------------------------------------------------

// The only virtual functions of at::ObserverContext are its destructors. We never make one.
struct Context {
  virtual ~Context() = default;
};

// at::RecordFunctionCallback of all releases since 1.12.
struct Callback {
  static constexpr size_t kFunctions = 0, kBackwardFunctions = 1, kScopes = 10;

  std::unique_ptr<Context> (*start)(const void* record);
  void (*end)(const void* record, Context*);
  double probability = 1;
  std::array<bool, kScopes> scopes = {};
  bool needs_inputs = true, needs_outputs = false, needs_ids = false;
};
static_assert(sizeof(Callback) == 40);

constexpr size_t kPointerBytes = 8;

// c10::IValue
struct Value {
  union {
    int64_t integer;
    bool boolean;
    const char* object;
  };
  uint32_t tag;
};
static_assert(sizeof(Value) == 16);

template <class T>
T at(const void* object, size_t offset) {
  T out;
  std::memcpy(&out, static_cast<const char*>(object) + offset, sizeof(T));
  return out;
}

constexpr size_t kInlineDimensions = 5;  // more sizes and strides lie outside the tensor
constexpr size_t kMostDimensions = 64;
enum class Where : char { host, card, card_again };  // again: the elements of a tensor before it
constexpr size_t kMostValues = 100'000;              // of one list

gpucast_vgpu_operator_layout g_layout;
std::atomic<bool> g_checking{false};
const char* (*g_name)(const void* record) = nullptr;
void (*g_probe)(const void* record, const char* name) = nullptr;
pthread_t g_probing_thread;

// ---- A thread's operators ----------------------------------------------------------------------------------------------------------

struct Call {
  const void* record;
  uint64_t number;
  size_t begin;  // in Operators::written
};

struct Operators {
  std::vector<Call> running;
  std::string written;  // of all running operators, one after the other
  std::string last;     // see gpucast_vgpu_last_operator
  uint64_t calls = 0;
};

// The tensors of the operator that begins.
class Tensors {
 public:
  // True: an earlier one of them is the same elements. `begin`: where its type and sizes begin in `written`.
  bool has_again(const char* tensor, const std::string& written, size_t begin) {
    const One one{at<uint64_t>(tensor, g_layout.storage), at<uint64_t>(tensor, g_layout.offset), begin, written.size() - begin};
    const std::string_view text(written);
    for (size_t i = 0; i < count_; ++i)
      if (tensors_[i].storage == one.storage && tensors_[i].offset == one.offset &&
          text.substr(tensors_[i].begin, tensors_[i].size) == text.substr(one.begin, one.size))
        return true;
    if (count_ < tensors_.size()) tensors_[count_++] = one;
    return false;
  }

 private:
  struct One {
    uint64_t storage, offset;
    size_t begin, size;
  };
  std::array<One, 8> tensors_;  // of a long list, the first ones
  size_t count_ = 0;
};

pthread_key_t operators_key() {
  static const pthread_key_t kKey = [] {
    pthread_key_t key{};
    pthread_key_create(&key, [](void* made) { delete static_cast<Operators*>(made); });
    return key;
  }();
  return kKey;
}

// Operators also run while a thread ends, when objects of C++ that belong to it are gone.
thread_local Operators* t_operators = nullptr;

Operators& operators() {
  if (t_operators == nullptr || pthread_getspecific(operators_key()) == nullptr) {
    t_operators = new Operators;
    pthread_setspecific(operators_key(), t_operators);
  }
  return *t_operators;
}

// ---- Writing arguments: a letter, then the bytes of numbers
// ------------------------------------------------------------------------------

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

struct Sizes {  // arrays of 8 bytes
  const char *sizes, *strides;
};

Sizes sizes_of(const char* tensor, uint64_t dimensions) {
  const char* const inside = tensor + g_layout.sizes + sizeof(uint64_t);
  const bool outside = dimensions > kInlineDimensions;
  const char* const sizes = outside ? at<const char*>(inside, 0) : inside;
  return {sizes, sizes + (outside ? dimensions : kInlineDimensions) * sizeof(int64_t)};
}

void write_tensor(std::string& out, const char* tensor, Tensors* tensors) {
  const auto keys = tensor == nullptr ? 0 : at<uint64_t>(tensor, g_layout.keys);
  const bool on_card = (keys & g_layout.cuda_key) == g_layout.cuda_key, on_host = (keys & g_layout.cpu_key) == g_layout.cpu_key;
  const auto dimensions = keys == 0 ? 0 : at<uint64_t>(tensor, g_layout.sizes);
  if (on_card == on_host || (keys & ~g_layout.plain_keys) != 0 || dimensions > kMostDimensions) {
    out += 'n';
    return;
  }
  out += 't';
  const size_t begin = out.size();
  out += static_cast<char>(at<uint16_t>(tensor, g_layout.type));
  out += static_cast<char>(dimensions);
  const Sizes shape = sizes_of(tensor, dimensions);
  out.append(shape.sizes, dimensions * sizeof(int64_t));
  out.append(shape.strides, dimensions * sizeof(int64_t));
  const bool again = on_card && tensors->has_again(tensor, out, begin);
  out += static_cast<char>(!on_card ? Where::host : again ? Where::card_again : Where::card);
}

void write_value(std::string& out, const Value& value, bool in_list, Tensors* tensors) {
  if (value.tag == g_layout.tensor_tag) {
    write_tensor(out, value.object, tensors);
  } else if (value.tag == g_layout.integer_tag) {
    out += 'i';
    put(out, value.integer);
  } else if (value.tag == g_layout.boolean_tag) {
    out += value.boolean ? '1' : '0';
  } else if (value.tag == g_layout.list_tag && !in_list) {
    const auto* begin = at<const Value*>(value.object, g_layout.list_values);
    const auto* const end = at<const Value*>(value.object, g_layout.list_values + kPointerBytes);
    const auto count = static_cast<uint32_t>(std::min<size_t>(static_cast<size_t>(end - begin), kMostValues));
    out += 'l';
    put(out, count);
    for (uint32_t i = 0; i < count; ++i) write_value(out, begin[i], true, tensors);
  } else {
    out += 'n';
  }
}

// By its name. Those listed change a tensor's sizes or flags, not its memory.
bool writes_in_place(std::string_view name) {
  constexpr std::array<std::string_view, 13> kOthers = {"squeeze_",      "unsqueeze_", "t_",         "transpose_", "swapaxes_", "swapdims_",
                                                        "as_strided_",   "resize_",    "resize_as_", "set_",       "detach_",   "rename_",
                                                        "requires_grad_"};
  const std::string_view own = name.substr(name.rfind(':') + 1);
  return own.ends_with('_') && !own.ends_with("__") && std::find(kOthers.begin(), kOthers.end(), own) == kOthers.end();
}

// What compiled kernels may read of the operator's first tensor is not known any more, until someone notes it again.
void forget_written(const Value& first) {
  if (first.tag != g_layout.tensor_tag || first.object == nullptr) return;
  const char* const tensor = first.object;
  const auto keys = at<uint64_t>(tensor, g_layout.keys), dimensions = at<uint64_t>(tensor, g_layout.sizes);
  const uint64_t bytes = g_layout.whole_bytes[std::min<size_t>(at<uint16_t>(tensor, g_layout.type), std::size(g_layout.whole_bytes) - 1)];
  const bool on_card = (keys & g_layout.cuda_key) == g_layout.cuda_key && (keys & g_layout.cpu_key) != g_layout.cpu_key;
  if (!on_card || (keys & ~g_layout.plain_keys) != 0 || dimensions > kMostDimensions || bytes == 0) return;
  const Sizes shape = sizes_of(tensor, dimensions);
  uint64_t last = 0;
  for (size_t d = 0; d < dimensions; ++d) {
    const auto size = at<uint64_t>(shape.sizes, d * sizeof(uint64_t));
    if (size == 0) return;
    last += (size - 1) * at<uint64_t>(shape.strides, d * sizeof(uint64_t));
  }
  const char* const storage = at<const char*>(tensor, g_layout.storage);
  if (storage == nullptr) return;
  forget_values(at<uint64_t>(storage, g_layout.memory) + at<uint64_t>(tensor, g_layout.offset) * bytes, (last + 1) * bytes);
}

std::unique_ptr<Context> operator_begins(const void* record) {
  const char* name = g_name(record);
  if (name == nullptr) name = "";
  if (g_probe != nullptr) {
    if (pthread_equal(g_probing_thread, pthread_self()) != 0) g_probe(record, name);
    return nullptr;
  }
  Operators& of_thread = operators();
  of_thread.running.push_back({record, ++of_thread.calls, of_thread.written.size()});
  of_thread.written.append(name, std::strlen(name) + 1);
  const auto* const inputs = at<const Value*>(record, g_layout.inputs);
  const auto count = at<size_t>(record, g_layout.inputs + kPointerBytes);
  if (count > 0 && writes_in_place(name)) forget_written(inputs[0]);
  Tensors tensors;
  for (size_t i = 0; i < std::min(count, kMostValues); ++i) write_value(of_thread.written, inputs[i], false, &tensors);
  return nullptr;
}

void operator_ends(const void* record, Context*) { end_operator(record); }

// ---- Reading them again
// ------------------------------------------------------------------------------------------------------------------

template <class T>
T take(std::string_view& written) {
  T out{};
  std::memcpy(&out, written.data(), std::min(sizeof out, written.size()));
  written.remove_prefix(std::min(sizeof out, written.size()));
  return out;
}

void append_numbers(std::string& out, std::string_view& written, size_t count) {
  out += '[';
  for (size_t i = 0; i < count; ++i) (out += i == 0 ? "" : ", ") += std::to_string(take<int64_t>(written));
  out += ']';
}

void append_value(std::string& out, std::string_view& written) {
  switch (take<char>(written)) {
    case 't': {
      const auto type = take<uint8_t>(written);
      const auto dimensions = take<uint8_t>(written);
      ((out += "{\"") += g_layout.type_names[std::min<size_t>(type, std::size(g_layout.type_names) - 1)]) += "\": [";
      append_numbers(out, written, dimensions);
      out += ", ";
      append_numbers(out, written, dimensions);
      const auto where = static_cast<Where>(take<char>(written));
      out += where == Where::host ? ", \"cpu\"]}" : where == Where::card_again ? ", \"again\"]}" : "]}";
      return;
    }
    case 'i': {
      const auto value = take<int64_t>(written);
      constexpr int64_t kMost = int64_t{1} << 62;
      out += value > -kMost && value < kMost ? std::to_string(value) : "null";
      return;
    }
    case 'l': {
      const auto count = take<uint32_t>(written);
      out += '[';
      for (uint32_t i = 0; i < count && !written.empty(); ++i) {
        if (i > 0) out += ", ";
        append_value(out, written);
      }
      out += ']';
      return;
    }
    case '1':
      out += "true";
      return;
    case '0':
      out += "false";
      return;
    default:
      out += "null";
  }
}

}  // namespace

RunningOperator running_operator() {
  if (t_operators == nullptr || pthread_getspecific(operators_key()) == nullptr || t_operators->running.empty()) return {};
  const Call& call = t_operators->running.back();
  return {call.number, std::string_view(t_operators->written).substr(call.begin)};
}

std::string operator_text(std::string_view written) {
  const size_t name = std::min(written.find('\0'), written.size());
  std::string out(written.substr(0, name));
  out += " [";
  written.remove_prefix(std::min(name + 1, written.size()));
  for (bool first = true; !written.empty(); first = false) {
    if (!first) out += ", ";
    append_value(out, written);
  }
  return out += ']';
}

void begin_operator(const void* record, std::string_view written) {
  Operators& of_thread = operators();
  of_thread.running.push_back({record, ++of_thread.calls, of_thread.written.size()});
  of_thread.written.append(written);
}

// Operators that are still running inside this one ended elsewhere: an asynchronous one may end in another thread.
void end_operator(const void* record) {
  if (g_probe != nullptr) return;
  Operators& of_thread = operators();
  const auto found =
      std::find_if(of_thread.running.rbegin(), of_thread.running.rend(), [&](const Call& call) { return call.record == record; });
  if (found == of_thread.running.rend()) return;
  submit_held_launches();
  if (g_checking.load(std::memory_order_relaxed)) of_thread.last.assign(of_thread.written, found->begin);
  of_thread.written.resize(found->begin);
  of_thread.running.erase(std::prev(found.base()), of_thread.running.end());
}

}  // namespace gpucast::vgpu

using namespace gpucast::vgpu;

uint64_t gpucast_vgpu_watch_operators(void* add_callback, void* name, const gpucast_vgpu_operator_layout* layout,
                                      void (*probe)(const void* record, const char* name)) {
  if (add_callback == nullptr || name == nullptr || (layout == nullptr) == (probe == nullptr)) return 0;
  if (layout != nullptr) g_layout = *layout;
  g_checking = layout != nullptr;
  g_name = reinterpret_cast<const char* (*)(const void*)>(name);
  g_probe = probe;
  g_probing_thread = pthread_self();
  Callback callback{operator_begins, operator_ends};
  callback.scopes[Callback::kFunctions] = callback.scopes[Callback::kBackwardFunctions] = true;
  return reinterpret_cast<uint64_t (*)(Callback)>(add_callback)(callback);
}

size_t gpucast_vgpu_last_operator(char* text, size_t size_bytes) {
  const std::string all = operator_text(operators().last);
  if (text == nullptr) {
    g_checking = false;
  } else {
    std::copy_n(all.data(), std::min(size_bytes, all.size()), text);
  }
  return all.size();
}
