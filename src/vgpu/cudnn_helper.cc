// Asks the user's own cuDNN which engines it would choose for a card that is not here, and how much scratch memory each needs: cuDNN's
// "deviceless ahead-of-time compilation" (since 9.8). It is a separate process because some releases crash on some cards.
//
//   cudnn_helper LIBCUDNN DEVICE_JSON LIBCUBLASLT...
//
// It detaches from its parent at once, so that the script never meets a child process it does not know. Then it writes to standard output
// "started PID", and "ready VERSION" (as cudnnGetVersion()) or "failed REASON". After that, each input line is a question
// (libs/cudnn_question.h), and each output line is its answer or "failed REASON", until standard input ends.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/vgpu/libs/cudnn_question.h"

namespace {

using gpucast::vgpu::cudnn::element_bytes;
using Descriptor = void*;

// The parts of cudnn_graph.h used here, by their numbers there.
constexpr int kEngine = 2, kEngineConfig = 3, kHeuristics = 4, kPlan = 5, kKnobChoice = 7, kDeviceProperties = 38;
constexpr int kTypeBoolean = 2, kTypeInt64 = 3, kTypeHeuristicMode = 8, kTypeKnob = 9, kTypeNumericalNote = 11, kTypeDescriptor = 15,
              kTypeBehaviourNote = 19, kTypeChar = 24;
constexpr int kHeuristicsMode = 200, kHeuristicsGraph = 201, kHeuristicsResults = 202, kHeuristicsDevice = 204;
constexpr int kConfigEngine = 300, kConfigKnobs = 302;
constexpr int kPlanConfig = 401, kPlanWorkspace = 402, kPlanDevice = 407;
constexpr int kKnobType = 600, kKnobValue = 601;
constexpr int kEngineIndex = 1301, kEngineNumericalNotes = 1303, kEngineBehaviourNotes = 1305;
constexpr int kDeviceJson = 2702;
constexpr int64_t kMostConfigs = 256, kMostNotes = 64, kMostKnobs = 32;

struct Cudnn {
  size_t (*version)();
  const char* (*error_string)(int status);
  int (*create)(int type, Descriptor* descriptor);
  int (*destroy)(Descriptor descriptor);
  int (*set)(Descriptor descriptor, int name, int type, int64_t count, const void* elements);
  int (*get)(Descriptor descriptor, int name, int type, int64_t requested, int64_t* count, void* elements);
  int (*finalize)(Descriptor descriptor);
};
Cudnn cudnn;

std::runtime_error problem(const char* doing, int status) {
  return std::runtime_error(std::string(doing) + ": " + cudnn.error_string(status));
}
void check(int status, const char* doing) {
  if (status != 0) throw problem(doing, status);
}

// A cuDNN descriptor that is destroyed with its owner.
class Owned {
 public:
  explicit Owned(int type) { check(cudnn.create(type, &descriptor_), "create a descriptor"); }
  Owned(Owned&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (descriptor_) cudnn.destroy(descriptor_);
  }
  Descriptor get() const { return descriptor_; }
  void set(int name, int type, int64_t count, const void* elements) {
    check(cudnn.set(descriptor_, name, type, count, elements), "set an attribute");
  }
  void set(int name, const Owned& other) { set(name, kTypeDescriptor, 1, &other.descriptor_); }

 private:
  Descriptor descriptor_ = nullptr;
};

template <class Function>
void load(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (!*function) throw std::runtime_error(std::string("it has no ") + name);
}

// cuDNN looks for cuBLASLt by its SONAME and finds the library that is already loaded: ours. NVIDIA's own offers fewer engines without a
// GPU.
void load_cudnn(const char* cudnn_path, char** cublas_paths) {
  for (; *cublas_paths; ++cublas_paths) {
    if (!dlopen(*cublas_paths, RTLD_NOW | RTLD_GLOBAL)) throw std::runtime_error(dlerror());
  }
  void* library = dlopen(cudnn_path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) throw std::runtime_error(dlerror());
  load(library, "cudnnGetVersion", &cudnn.version);
  load(library, "cudnnGetErrorString", &cudnn.error_string);
  load(library, "cudnnBackendCreateDescriptor", &cudnn.create);
  load(library, "cudnnBackendDestroyDescriptor", &cudnn.destroy);
  load(library, "cudnnBackendSetAttribute", &cudnn.set);
  load(library, "cudnnBackendGetAttribute", &cudnn.get);
  load(library, "cudnnBackendFinalize", &cudnn.finalize);
  if (cudnn.version() < 90800)
    throw std::runtime_error("this release (" + std::to_string(cudnn.version()) + ") answers only on a GPU; 9.8 and newer do without");
}

Owned device_properties(const char* json) {
  Owned device(kDeviceProperties);
  device.set(kDeviceJson, kTypeChar, static_cast<int64_t>(std::strlen(json)), json);
  check(cudnn.finalize(device.get()), "take the card's properties");
  return device;
}

// ---- A question -------------------------------------------------------------------------------------------------------------

class GraphReader {
 public:
  explicit GraphReader(std::string_view text) : rest_(text) {}

  // Makes a node and all below it, and finalizes them. `owned` keeps them, children first.
  Descriptor read(std::vector<Owned>* owned) {
    const auto type = static_cast<int>(number());
    Owned node(type);
    expect('{');
    while (!skip('}')) {
      const auto name = static_cast<int>(number());
      expect(':');
      const auto value_type = static_cast<int>(number());
      expect('=');
      std::vector<char> bytes;
      int64_t count = 0;
      do {
        if (value_type == kTypeDescriptor) {
          append(&bytes, read(owned), sizeof(Descriptor));
        } else {
          append(&bytes, number(), element_bytes(value_type));
        }
        ++count;
      } while (skip(','));
      expect(';');
      node.set(name, value_type, count, bytes.data());
    }
    check(cudnn.finalize(node.get()), ("finalize descriptor " + std::to_string(type)).c_str());
    owned->push_back(std::move(node));
    return owned->back().get();
  }

 private:
  template <class T>
  static void append(std::vector<char>* bytes, T value, size_t size) {
    char buffer[sizeof(T) > 16 ? sizeof(T) : 16] = {};
    std::memcpy(buffer, &value, sizeof value);
    bytes->insert(bytes->end(), buffer, buffer + size);
  }
  bool skip(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!skip(c)) throw std::runtime_error(std::string("the question has no '") + c + "' where one belongs");
  }
  int64_t number() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) throw std::runtime_error("the question has no number where one belongs");
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }

  std::string_view rest_;
};

std::string joined(Descriptor engine, int name, int type) {
  int32_t notes[kMostNotes];
  int64_t count = 0;
  if (cudnn.get(engine, name, type, kMostNotes, &count, notes) != 0) return "";
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += (text.empty() ? "" : ".") + std::to_string(notes[i]);
  return text;
}

std::string knobs(Descriptor config) {
  std::vector<Owned> choices;
  std::vector<Descriptor> pointers;
  choices.reserve(kMostKnobs);
  pointers.reserve(kMostKnobs);
  for (int64_t i = 0; i < kMostKnobs; ++i) pointers.push_back(choices.emplace_back(kKnobChoice).get());
  int64_t count = 0;  // with a request for 0 knobs, cuDNN counts none
  if (cudnn.get(config, kConfigKnobs, kTypeDescriptor, kMostKnobs, &count, pointers.data()) != 0) return "";
  std::string text;
  for (int64_t i = 0; i < std::min(count, kMostKnobs); ++i) {
    const Owned& choice = choices[static_cast<size_t>(i)];
    int32_t type = 0;
    int64_t value = 0, unused = 0;
    if (cudnn.get(choice.get(), kKnobType, kTypeKnob, 1, &unused, &type) != 0) continue;
    if (cudnn.get(choice.get(), kKnobValue, kTypeInt64, 1, &unused, &value) != 0) continue;
    text += (text.empty() ? "" : ".") + std::to_string(type) + "=" + std::to_string(value);
  }
  return text;
}

std::string workspace(const Owned& config, const Owned& device) {
  Owned plan(kPlan);
  plan.set(kPlanConfig, config);
  plan.set(kPlanDevice, device);
  int64_t bytes = 0, count = 0;
  if (cudnn.finalize(plan.get()) != 0) return "x";
  if (cudnn.get(plan.get(), kPlanWorkspace, kTypeInt64, 1, &count, &bytes) != 0) return "x";
  return std::to_string(bytes);
}

std::string answer(std::string_view question, const Owned& device) {
  const size_t space = question.find(' ');
  int32_t mode = 0;
  const auto parsed = std::from_chars(question.data(), question.data() + std::min(space, question.size()), mode);
  if (space == std::string_view::npos || parsed.ec != std::errc()) throw std::runtime_error("the question names no mode");
  std::vector<Owned> owned;
  GraphReader(question.substr(space + 1)).read(&owned);
  Owned heuristics(kHeuristics);
  heuristics.set(kHeuristicsGraph, owned.back());
  heuristics.set(kHeuristicsMode, kTypeHeuristicMode, 1, &mode);
  heuristics.set(kHeuristicsDevice, device);
  check(cudnn.finalize(heuristics.get()), "ask for engines");
  int64_t count = 0;
  check(cudnn.get(heuristics.get(), kHeuristicsResults, kTypeDescriptor, 0, &count, nullptr), "count the engines");
  count = std::min(count, kMostConfigs);
  std::vector<Owned> configs;
  std::vector<Descriptor> pointers;
  configs.reserve(static_cast<size_t>(count));
  pointers.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) pointers.push_back(configs.emplace_back(kEngineConfig).get());
  if (count > 0) check(cudnn.get(heuristics.get(), kHeuristicsResults, kTypeDescriptor, count, &count, pointers.data()), "get the engines");
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    const Owned& config = configs[static_cast<size_t>(i)];
    Owned engine(kEngine);
    Descriptor pointer = engine.get();
    int64_t index = 0, unused = 0;
    check(cudnn.get(config.get(), kConfigEngine, kTypeDescriptor, 1, &unused, &pointer), "get an engine");
    check(cudnn.get(engine.get(), kEngineIndex, kTypeInt64, 1, &unused, &index), "get an engine's number");
    if (i > 0) text += ';';
    text += std::to_string(index) + "," + workspace(config, device) + "," +
            joined(engine.get(), kEngineNumericalNotes, kTypeNumericalNote) + "," +
            joined(engine.get(), kEngineBehaviourNotes, kTypeBehaviourNote) + "," + knobs(config.get());
  }
  return text;
}

// Descriptors of the script are closed here, so that the script's pipes end when the script ends.
void close_inherited() {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, 3u, ~0u, 0u) == 0) return;
#endif
  for (int fd = 3; fd < 4096; ++fd) close(fd);
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: cudnn_helper LIBCUDNN DEVICE_JSON LIBCUBLASLT...\n");
    return 2;
  }
  if (const pid_t child = fork(); child != 0) return child > 0 ? 0 : 1;
  close_inherited();
  std::cout << "started " << getpid() << std::endl;
  try {
    load_cudnn(argv[1], argv + 3);
    const Owned device = device_properties(argv[2]);
    std::cout << "ready " << cudnn.version() << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      std::string reply;
      try {
        reply = answer(line, device);
      } catch (const std::exception& error) {
        reply = std::string("failed ") + one_line(error.what());
      }
      std::cout << reply << std::endl;
    }
  } catch (const std::exception& error) {
    std::cout << "failed " << one_line(error.what()) << std::endl;
    return 1;
  }
  return 0;
}
