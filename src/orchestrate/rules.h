// The rules that turn a CPU run's allocations into those that CUDA would make. Each rule has its file; rules.cc lists them in order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/profile_summary.h"
#include "src/orchestrate/profile_facts.h"
#include "src/orchestrate/sequence.h"

namespace gpucast {

struct OrchestrateOptions {
  std::string method = "gpucast";            // gpucast, xmem, veritasest, dnnmem
  std::vector<std::string> without;          // names of rules left out
  std::optional<int64_t> batch_size;         // the batch size to predict; unset: the traced one
  std::optional<int64_t> traced_batch_size;  // unset: the trace's
  std::string dtype;                         // "", "bf16", "fp16": the type of floating-point computations
  bool amp = false;                          // with autocast: parameters stay fp32
  std::string torch;                         // the release to predict for; "": the trace's
};

struct Rule {
  const char* name;
  const char* what;  // one line
  bool paper;        // whether xMem has it: its five rules (section 3.3) and its filter
  void (*apply)(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
};
const std::vector<Rule>& all_rules();

// The rules of one method, in order. Throws Error for an unknown method, with a "did you mean".
std::vector<Rule> method_rules(const std::string& method);

// Returns each rule's changes. Throws Error for an unknown rule, with a "did you mean".
std::vector<ProfileRuleLine> apply_rules(const ProfileFacts& facts, const OrchestrateOptions& options, Sequence* sequence);

// The user's value, or the note of `gpucast profile`, or else the first dimension of forward's input; unset: not known.
std::optional<int64_t> traced_batch_size(const ProfileFacts& facts, const OrchestrateOptions& options);

// Makes a block for each parameter from the gradients of the first step, in the opposite order: backward goes from the last layer to the
// first (VeritasEst, section III.C.1). The blocks have no times yet.
std::vector<GpuBlock> parameters_from_gradients(const ProfileFacts& facts, const Sequence& sequence);
// Adds blocks that were allocated before the trace, in their order.
void add_before_trace(std::vector<GpuBlock> blocks, Sequence* sequence);

// The rules, in the order they run.
void drop_host_data(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void place_model(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void place_batch(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void drop_outside_operators(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void place_gradients(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void place_optimizer_state(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void drop_kernel_scratch(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void use_foreach(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void use_cuda_attention(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void use_cudnn_rnn(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void use_lower_precision(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void use_cuda_dropout(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void add_cuda_scratch(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void add_cublas_workspaces(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void add_reduction_buffers(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
void scale_batch(const ProfileFacts&, const OrchestrateOptions&, Sequence*);

// The size of the buffer for a sum of [rows, columns] over the rows, and the size of its counters; 0: none.
int64_t sum_buffer_bytes(const Gpu& gpu, int64_t rows, int64_t columns, int64_t accumulator_bytes, int64_t* semaphore_bytes);

}  // namespace gpucast
