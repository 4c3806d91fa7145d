#include "src/attribution/attribution.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

namespace gpucast {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr uint64_t kBase = 0x7f0000000000;

// Writes a capture as a program would: allocations by name, marks between them.
class Program {
 public:
  Trace trace;
  std::map<std::string, uint64_t> at;

  Program() {
    trace.events.push_back({EventKind::segment_alloc, StackId(), kBase, 2048 * kMiB, 0, 0});
    trace.end.reason = "steps";
    trace.modules.resize(4);
    for (const char* name : {"", "", "fc1", "fc2"}) trace.modules[next_module_++].name = trace.strings.intern(name);
  }

  void alloc(const std::string& name, int64_t bytes) {
    at[name] = next_;
    trace.events.push_back({EventKind::alloc, StackId(), next_, bytes, 0, 0});
    size_[name] = bytes;
    next_ += static_cast<uint64_t>((bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB));  // never reused: addresses stay names
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
  uint64_t next_ = kBase;
  int64_t allocs_ = 0, frees_ = 0, sequence_ = 0;
  std::map<std::string, int64_t> size_;
};

struct Result {
  Lifetimes lifetimes;
  Attribution attribution;
  Problems problems;
};

Result attribute_program(const Program& program) {
  Result result;
  result.lifetimes = follow_blocks(program.trace.events, AllocConf(), &result.problems);
  result.attribution = attribute(program.trace, result.lifetimes, &result.problems);
  return result;
}

void expect_totals_match(const Result& result) {
  for (uint32_t event = 0; event < result.lifetimes.allocated.size(); ++event) {
    const CategoryBytes bytes = categories_after(result.lifetimes, result.attribution, event);
    ASSERT_EQ(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}), result.lifetimes.allocated[event]) << "after event " << event;
  }
  // Spans tile the history.
  uint32_t at = 0;
  for (const Span& span : result.attribution.spans) {
    ASSERT_EQ(span.begin, at);
    at = span.end;
  }
  ASSERT_EQ(at, result.lifetimes.allocated.size());
}

const BlockAttribution& block(const Result& result, const Program& program, const std::string& name, size_t nth = 0) {
  for (size_t i = 0; i < result.lifetimes.blocks.size(); ++i) {
    if (result.lifetimes.blocks[i].address == program.at.at(name) && nth-- == 0) return result.attribution.blocks[i];
  }
  ADD_FAILURE() << "no block " << name;
  static BlockAttribution none;
  return none;
}

// One step of a two-layer network, as PyTorch runs it.
Program training_step() {
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

TEST(Attribution, EveryBlockOfATrainingStepHasItsCategory) {
  const Program p = training_step();
  const Result r = attribute_program(p);
  expect_totals_match(r);
  EXPECT_EQ(block(r, p, "weight").category, Category::parameters);
  EXPECT_EQ(block(r, p, "weight").phase, Phase::model_to_device);
  EXPECT_EQ(block(r, p, "weight").step, 0);
  EXPECT_EQ(block(r, p, "weight").module, ModuleId(2));
  EXPECT_EQ(block(r, p, "running_mean").category, Category::buffers);
  EXPECT_EQ(block(r, p, "batch").category, Category::inputs);
  EXPECT_EQ(block(r, p, "batch").phase, Phase::data);
  EXPECT_EQ(block(r, p, "batch").step, 1);
  EXPECT_EQ(block(r, p, "scratch").category, Category::temporaries);
  EXPECT_EQ(block(r, p, "cublas").category, Category::workspaces);
  EXPECT_EQ(block(r, p, "hidden").category, Category::activations);
  EXPECT_EQ(block(r, p, "hidden").module, ModuleId(2));
  EXPECT_EQ(block(r, p, "short").category, Category::temporaries);
  EXPECT_EQ(block(r, p, "short").module, ModuleId(3));
  EXPECT_EQ(block(r, p, "loss").category, Category::activations);
  EXPECT_EQ(block(r, p, "loss").phase, Phase::loss);
  EXPECT_EQ(block(r, p, "grad_of_hidden").category, Category::temporaries);
  EXPECT_EQ(block(r, p, "grad_of_hidden").module, ModuleId(3));
  EXPECT_EQ(block(r, p, "grad").category, Category::gradients);
  EXPECT_EQ(block(r, p, "grad").module, ModuleId(2));
  EXPECT_EQ(block(r, p, "exp_avg").category, Category::optimizer_state);
  EXPECT_EQ(block(r, p, "update").category, Category::temporaries);
  EXPECT_EQ(block(r, p, "update").step, 1);
  EXPECT_EQ(block(r, p, "kept").category, Category::unattributed);
  EXPECT_EQ(block(r, p, "kept").phase, Phase::data);
  EXPECT_EQ(block(r, p, "kept").step, 2);
  EXPECT_EQ(r.attribution.steps_completed, 1);
  EXPECT_EQ(r.problems[Problem::phase_unbalanced].count, 0);
  EXPECT_EQ(r.problems[Problem::mark_misplaced].count, 0);
  EXPECT_EQ(r.problems[Problem::tensor_without_block].count, 0);
}

TEST(Attribution, CategoriesAtThePeakByHand) {
  const Program p = training_step();
  const Result r = attribute_program(p);
  // Peak: after "grad" in backward. weight 4, running_mean 512 B, batch 3, cublas 8, hidden 6, loss 512 B, grad_of_hidden 6, grad 4.
  EXPECT_EQ(r.lifetimes.peak_allocated.bytes, 31 * kMiB + 1024);
  const CategoryBytes bytes = categories_after(r.lifetimes, r.attribution, r.lifetimes.peak_allocated.event);
  const auto of = [&](Category category) { return bytes[static_cast<size_t>(category)]; };
  EXPECT_EQ(of(Category::parameters), 4 * kMiB);
  EXPECT_EQ(of(Category::buffers), 512);
  EXPECT_EQ(of(Category::inputs), 3 * kMiB);
  EXPECT_EQ(of(Category::workspaces), 8 * kMiB);
  EXPECT_EQ(of(Category::activations), 6 * kMiB + 512);
  EXPECT_EQ(of(Category::temporaries), 6 * kMiB);
  EXPECT_EQ(of(Category::gradients), 4 * kMiB);
  EXPECT_EQ(of(Category::optimizer_state), 0);
  EXPECT_EQ(of(Category::unattributed), 0);
}

TEST(Attribution, ATensorMarkHoldsForItsBlockOnlyNotForTheAddress) {
  Program p;
  p.begin(MarkedPhase::backward);
  p.alloc("grad", 4 * kMiB);
  p.end(MarkedPhase::backward);
  p.tensor(TensorKind::gradient, "grad");
  p.free("grad");
  p.begin(MarkedPhase::forward);
  p.alloc_again("other", "grad");
  p.end(MarkedPhase::forward);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "grad", 0).category, Category::gradients);
  EXPECT_EQ(block(r, p, "grad", 1).category, Category::temporaries);
}

TEST(Attribution, TensorsInsideAFlatBufferNameIt) {
  Program p;
  p.alloc("flat", 4 * kMiB);
  p.tensor(TensorKind::parameter, "flat", -1, 3 * kMiB);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "flat").category, Category::parameters);
}

TEST(Attribution, WorkspacesAreFoundByTheirWindow) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.alloc("scratch", 4 * kMiB);
  p.workspace("scratch");
  p.free("scratch");
  p.end(MarkedPhase::forward);
  p.begin(MarkedPhase::backward);
  p.alloc_again("tensor", "scratch");  // same place and size, later
  p.free("tensor");
  p.end(MarkedPhase::backward);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "scratch", 0).category, Category::workspaces);
  EXPECT_EQ(block(r, p, "scratch", 1).category, Category::temporaries);
}

TEST(Attribution, ALibraryMayUseAPartOfAWorkspace) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.alloc("shared", 8 * kMiB);
  p.workspace("shared", kMiB);
  p.end(MarkedPhase::forward);
  p.begin(MarkedPhase::backward);
  p.end(MarkedPhase::backward);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "shared").category, Category::workspaces);
}

TEST(Attribution, CopiesInForwardAreNotInputs) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.alloc("mask", 4 * kMiB);
  p.copy_to("mask");
  p.end(MarkedPhase::forward);
  p.begin(MarkedPhase::backward);
  p.end(MarkedPhase::backward);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "mask").category, Category::activations);
}

TEST(Attribution, RecomputedActivationsBelongToBackward) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.alloc("checkpoint", 2 * kMiB);
  p.end(MarkedPhase::forward);
  p.begin(MarkedPhase::backward);
  p.begin(MarkedPhase::forward);
  p.alloc("again", 4 * kMiB);
  p.alloc("short", 4 * kMiB);
  p.free("short");
  p.end(MarkedPhase::forward);
  p.free("again");
  p.end(MarkedPhase::backward);
  const Result r = attribute_program(p);
  expect_totals_match(r);
  EXPECT_EQ(block(r, p, "checkpoint").category, Category::activations);
  EXPECT_EQ(block(r, p, "again").category, Category::activations);
  EXPECT_EQ(block(r, p, "again").phase, Phase::backward);
  EXPECT_EQ(block(r, p, "short").category, Category::temporaries);
}

TEST(Attribution, WithoutBackwardWhatForwardLeavesIsActivations) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.alloc("short", 2 * kMiB);
  p.free("short");
  p.alloc("output", 2 * kMiB);
  p.end(MarkedPhase::forward);
  p.alloc("after", 2 * kMiB);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "short").category, Category::temporaries);
  EXPECT_EQ(block(r, p, "output").category, Category::activations);
  EXPECT_EQ(block(r, p, "after").phase, Phase::other);
}

TEST(Attribution, ARunThatDiedBeforeBackwardHadActivationsToo) {
  Program p;
  p.trace.end.reason = "exception";
  p.begin(MarkedPhase::forward);
  p.alloc("hidden", 2 * kMiB);
  p.end(MarkedPhase::forward);
  p.alloc("loss", kMiB);
  p.trace.events.push_back({EventKind::oom, StackId(), 0, 5 * kMiB, 0, 0});
  p.free("loss");  // the stack is unwound
  p.mark(MarkKind::exception);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "hidden").category, Category::activations);
  EXPECT_EQ(block(r, p, "loss").category, Category::activations);
  EXPECT_EQ(block(r, p, "loss").phase, Phase::loss);
}

TEST(Attribution, AnExceptionClosesWhatIsOpen) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.mark(MarkKind::module_begin, MarkedPhase::unknown, 2);
  p.alloc("a", kMiB);
  p.mark(MarkKind::exception);
  p.alloc("b", kMiB);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "a").phase, Phase::forward);
  EXPECT_EQ(block(r, p, "b").phase, Phase::other);
  EXPECT_FALSE(block(r, p, "b").module.valid());
}

// Whatever the marks say, nothing is lost and nothing counted twice.
TEST(Attribution, TotalsMatchForRandomPrograms) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    Program p;
    std::vector<std::string> live;
    for (int i = 0; i < 300; ++i) {
      const auto phase = static_cast<MarkedPhase>(random() % 6);
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
          if (!live.empty()) p.tensor(static_cast<TensorKind>(random() % 6), live[random() % live.size()]);
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
    expect_totals_match(attribute_program(p));
  }
}

}  // namespace
}  // namespace gpucast
