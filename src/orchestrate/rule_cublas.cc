// Workspaces of cuBLAS. PyTorch allocates one for each handle and stream, at the first matrix product of a thread, and keeps it. Autograd
// runs backward in its own thread. cuBLASLt, which adds the bias in the same kernel, gets one for each call (ATen/cuda/CUDABlas.cpp,
// CublasHandlePool.cpp).

#include <unordered_set>

#include "src/base/bytes.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

// at::cuda::getChosenWorkspaceSize(): ":4096:2:16:8", and on Hopper 32 MiB.
int64_t handle_workspace_bytes(const Gpu& gpu) { return gpu.compute_major == 9 ? 32768 * kKiB : (2 * 4096 + 8 * 16) * kKiB; }

bool is_product(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
      "aten::mm",   "aten::bmm",    "aten::addmm", "aten::baddbmm",          "aten::mv", "aten::addmv", "aten::dot",
      "aten::vdot", "aten::addbmm", "aten::addr",  "aten::_addmm_activation"};
  return kNames.contains(name);
}

// addmm with a bias of one dimension and more than one row and column: the epilogue of cuBLASLt.
bool is_biased(const ProfileFacts& facts, SpanIndex op) {
  if (facts.name(op) != "aten::addmm" && facts.name(op) != "aten::_addmm_activation") return false;
  const auto& inputs = facts.dims(op).inputs;
  if (inputs.size() < 3 || inputs[0].size() != 1 || inputs[1].size() != 2 || inputs[2].size() != 2) return false;
  const auto& mat2 = inputs[2];
  return inputs[0][0] == mat2[1] && mat2[0] > 1 && mat2[1] > 1;
}

}  // namespace

void add_cublas_workspaces(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  bool made[2] = {false, false};  // [0] by the script's thread, [1] by autograd's
  const auto add = [&](SpanIndex op, int64_t bytes, bool for_good) {
    const int64_t end_ns = facts.span(op).end_ns, order = INT64_MAX / 2;
    sequence->add(bytes, {end_ns, order + (for_good ? 1 : 0)}, for_good ? kNeverFreed : Moment{end_ns, order + 2}, op, "cublas",
                  Role::workspace);
  };
  for (SpanIndex i = 0; i < facts.trace.spans.size(); ++i) {
    if (!facts.is_op(i) || !is_product(facts.name(i))) continue;
    const PhaseWindow* window = facts.phases.window_at(facts.span(i).begin_ns);
    if (facts.span(i).begin_ns < facts.phases.loop_begin_ns || (window != nullptr && window->phase == Phase::data)) continue;
    if (sequence->in_other_kernel(facts.span(i).begin_ns)) continue;
    bool& has = made[facts.node_around(i) != kNoSpan ? 1 : 0];
    if (!has) add(i, handle_workspace_bytes(facts.gpu), true);
    has = true;
    if (is_biased(facts, i)) add(i, 1024 * kKiB, false);
  }
}

}  // namespace gpucast
