// For tests: the capture of a program that the test writes call by call.
#pragma once

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/trace.h"
#include "src/base/bytes.h"

namespace gpucast {

inline constexpr uint64_t kProgramBase = 0x7f0000000000;

// Writes the capture that a program would give: allocations by name, and marks between them.
class Program {
 public:
  Trace trace;
  std::map<std::string, uint64_t> at;

  Program() {
    trace.events.push_back({EventKind::segment_alloc, StackId(), kProgramBase, 2048 * kMiB, 0, 0});
    trace.end.reason = "steps";
    trace.modules.resize(4);
    for (const char* name : {"", "", "fc1", "fc2"}) trace.modules[next_module_++].name = trace.strings.intern(name);
  }

  void alloc(const std::string& name, int64_t bytes, StackId stack = {}) {
    at[name] = next_;
    trace.events.push_back({EventKind::alloc, stack, next_, bytes, 0, 0});
    size_[name] = bytes;
    next_ += static_cast<uint64_t>((bytes + 2 * kMiB - 1) / (2 * kMiB) *
                                   (2 * kMiB));  // addresses are never reused, so each one belongs to one name
    ++allocs_;
  }
  void alloc_again(const std::string& name, const std::string& place_of) {  // reuses a freed block
    at[name] = at[place_of];
    size_[name] = size_[place_of];
    trace.events.push_back({EventKind::alloc, StackId(), at[name], size_[name], 0, 0});
    ++allocs_;
  }
  void free(const std::string& name) {
    trace.events.push_back({EventKind::free_requested, StackId(), at[name], size_[name], 0, 0});
    trace.events.push_back({EventKind::free_completed, StackId(), at[name], size_[name], 0, 0});
    ++frees_;
  }
  int64_t mark(MarkKind kind, MarkedPhase phase = MarkedPhase::unknown, int64_t module_or_step = -1) {
    Mark mark;
    mark.kind = kind;
    mark.phase = phase;
    if (kind == MarkKind::step) {
      mark.step = module_or_step;
    } else {
      mark.module = ModuleId(module_or_step);
    }
    mark.sequence = ++sequence_;
    mark.allocs = allocs_;
    mark.frees = frees_;
    trace.marks.push_back(mark);
    trace.vgpu_events.push_back({VgpuEventKind::mark, StringId(), StringId(), static_cast<uint64_t>(sequence_), 0});
    return sequence_;
  }
  // One of autograd's nodes begins.
  void node(const std::string& name, int64_t module) {
    mark(MarkKind::module_backward, MarkedPhase::unknown, module);
    trace.marks.back().text = trace.strings.intern(name);
  }
  // A stack of (file, function), innermost first; each at line 7.
  StackId stack(const std::vector<std::pair<std::string, std::string>>& frames) {
    trace.stacks.push_back({static_cast<uint32_t>(trace.stack_frames.size()), static_cast<uint32_t>(frames.size())});
    for (const auto& [file, function] : frames) {
      trace.stack_frames.emplace_back(static_cast<int64_t>(trace.frames.size()));
      trace.frames.push_back({trace.strings.intern(file), trace.strings.intern(function), 7});
    }
    return StackId(static_cast<int64_t>(trace.stacks.size()) - 1);
  }
  void begin(MarkedPhase phase) { mark(MarkKind::phase_begin, phase); }
  void end(MarkedPhase phase) { mark(MarkKind::phase_end, phase); }
  void tensor(TensorKind kind, const std::string& name, int64_t module = -1, uint64_t offset = 0) {
    trace.tensors.push_back({kind, mark(MarkKind::tensors), at[name] + offset, size_[name], trace.strings.intern(name), ModuleId(module)});
  }
  void copy_to(const std::string& name) {
    trace.vgpu_events.push_back({VgpuEventKind::copy_to_device, StringId(), StringId(), at[name], size_[name]});
  }
  void workspace(const std::string& name, int64_t bytes = -1) {
    trace.vgpu_events.push_back({VgpuEventKind::workspace, StringId(), StringId(), at[name], bytes < 0 ? size_[name] : bytes});
  }

 private:
  size_t next_module_ = 0;
  uint64_t next_ = kProgramBase;
  int64_t allocs_ = 0, frees_ = 0, sequence_ = 0;
  std::map<std::string, int64_t> size_;
};

// One step of a two-layer network, as PyTorch runs it.
inline Program training_step() {
  Program p;
  p.begin(MarkedPhase::model_to_device);
  p.alloc("weight", 4 * kMiB);
  p.alloc("running_mean", 512);
  p.copy_to("weight");
  p.end(MarkedPhase::model_to_device);
  p.tensor(TensorKind::parameter, "weight", 2);
  p.tensor(TensorKind::buffer, "running_mean", 2);
  p.alloc("batch", 3 * kMiB);
  p.copy_to("batch");
  p.alloc("scratch", kMiB);
  p.free("scratch");
  p.begin(MarkedPhase::forward);
  p.mark(MarkKind::module_begin, MarkedPhase::unknown, 1);
  p.mark(MarkKind::module_begin, MarkedPhase::unknown, 2);
  p.alloc("cublas", 8 * kMiB);
  p.workspace("cublas");
  p.alloc("hidden", 6 * kMiB);
  p.mark(MarkKind::module_end, MarkedPhase::unknown, 2);
  p.mark(MarkKind::module_begin, MarkedPhase::unknown, 3);
  p.alloc("short", 2 * kMiB);
  p.free("short");
  p.mark(MarkKind::module_end, MarkedPhase::unknown, 3);
  p.mark(MarkKind::module_end, MarkedPhase::unknown, 1);
  p.end(MarkedPhase::forward);
  p.alloc("loss", 512);
  p.begin(MarkedPhase::backward);
  p.mark(MarkKind::module_backward, MarkedPhase::unknown, 3);
  p.alloc("grad_of_hidden", 6 * kMiB);
  p.mark(MarkKind::module_backward, MarkedPhase::unknown, 2);
  p.alloc("grad", 4 * kMiB);
  p.free("grad_of_hidden");
  p.free("hidden");
  p.end(MarkedPhase::backward);
  p.tensor(TensorKind::gradient, "grad", 2);
  p.begin(MarkedPhase::optimizer_step);
  p.alloc("exp_avg", 4 * kMiB);
  p.tensor(TensorKind::optimizer_state, "exp_avg");
  p.alloc("update", 4 * kMiB);
  p.free("update");
  p.mark(MarkKind::step, MarkedPhase::unknown, 1);
  p.end(MarkedPhase::optimizer_step);
  p.begin(MarkedPhase::zero_grad);
  p.free("grad");
  p.end(MarkedPhase::zero_grad);
  p.alloc("kept", kMiB);
  return p;
}

// Marks, tensors, allocations and frees in random order, including orders that no real program has.
inline Program random_program(unsigned seed) {
  std::mt19937 random(seed);
  Program p;
  std::vector<std::string> live;
  for (int i = 0; i < 300; ++i) {
    const auto phase = static_cast<MarkedPhase>(random() % 7);
    switch (random() % 9) {
      case 0:
        p.begin(phase);
        break;
      case 1:
        p.end(phase);
        break;
      case 2:
        p.mark(random() % 2 == 0 ? MarkKind::module_begin : MarkKind::module_end, phase, static_cast<int64_t>(random() % 6));
        break;
      case 3:
        if (!live.empty()) p.tensor(static_cast<TensorKind>(random() % 7), live[random() % live.size()]);
        break;
      case 4:
        if (!live.empty()) {
          const std::string& name = live[random() % live.size()];
          random() % 2 == 0 ? p.copy_to(name) : p.workspace(name);
        }
        break;
      case 5:
        if (!live.empty()) {
          const size_t victim = random() % live.size();
          p.free(live[victim]);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
        }
        break;
      case 6:
        p.mark(random() % 10 == 0 ? MarkKind::exception : MarkKind::step, phase, i);
        break;
      default:
        live.push_back("t" + std::to_string(i));
        p.alloc(live.back(), 1 + static_cast<int64_t>(random() % (4 * kMiB)));
    }
  }
  return p;
}

}  // namespace gpucast
