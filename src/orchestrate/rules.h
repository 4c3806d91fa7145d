// The rules that turn what a CPU allocated into what CUDA would allocate. One file a rule; rules.cc lists them in order.
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
  std::optional<int64_t> batch_size;         // predict for this one; unset: the traced one
  std::optional<int64_t> traced_batch_size;  // unset: as the trace says
  std::string dtype;                         // "", "bf16", "fp16": what floating point is computed in
  bool amp = false;                          // with autocast: parameters stay fp32
  std::string torch;                         // release to predict for; "": as the trace says
};

struct Rule {
  const char* name;
  const char* what;  // one line
  bool paper;        // of xMem's five (section 3.3) and its filter
  void (*apply)(const ProfileFacts&, const OrchestrateOptions&, Sequence*);
};
const std::vector<Rule>& all_rules();

// Those of one method, in order. Throws Error for a method nobody knows, with a "did you mean".
std::vector<Rule> method_rules(const std::string& method);

// Returns what each did. Throws Error for a rule nobody knows, with a "did you mean".
std::vector<ProfileRuleLine> apply_rules(const ProfileFacts& facts, const OrchestrateOptions& options, Sequence* sequence);

// As the user says, as `gpucast profile` noted, else the first dimension of what forward gets; unset: no telling.
std::optional<int64_t> traced_batch_size(const ProfileFacts& facts, const OrchestrateOptions& options);

// Every gradient of the first step stands for its parameter, in the opposite order: backward goes from the last layer to the first
// (VeritasEst, section III.C.1). The blocks have no places in time yet.
std::vector<GpuBlock> parameters_from_gradients(const ProfileFacts& facts, const Sequence& sequence);
// Adds blocks that were there before the trace, in their order.
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

// The buffer of a sum of [rows, columns] over the rows, and its counters; 0: none.
int64_t sum_buffer_bytes(const Gpu& gpu, int64_t rows, int64_t columns, int64_t accumulator_bytes, int64_t* semaphore_bytes);

}  // namespace gpucast
