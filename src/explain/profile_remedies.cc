#include "src/explain/profile_remedies.h"

#include <algorithm>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/profile.h"
#include "src/explain/explain.h"
#include "src/explain/what_if.h"
#include "src/orchestrate/profile_facts.h"
#include "src/orchestrate/trace_from_profile.h"

namespace gpucast {
namespace {

Remedy not_computed(const std::string& name, std::string why) {
  Remedy remedy;
  remedy.by = RemedyBy::profile;
  remedy.name = name;
  remedy.what = what_if_words(name);
  remedy.note = std::move(why);
  return remedy;
}

Remedy predict_with(const Analysis& analysis, const std::string& path, const std::string& name, const OrchestrateOptions& options) {
  const Prediction& without = analysis.prediction;
  try {
    const Gpu& gpu = find_gpu(without.gpu_id);
    return compare_remedy(RemedyBy::profile, name, without, predict(trace_from_profile(read_profile(path), gpu, options), gpu.id));
  } catch (const Error& error) {
    return not_computed(name, error.what());
  }
}

}  // namespace

std::vector<Remedy> profile_remedies(const Analysis& analysis, const std::string& path, const OrchestrateOptions& options) {
  const auto& profile = analysis.prediction.profile;
  if (!profile || profile->method != "gpucast") return {};
  std::vector<Remedy> out;
  const auto traced = traced_batch_size(gather_facts(read_profile(path), find_gpu(analysis.prediction.gpu_id)), options);
  const int64_t batch = options.batch_size.value_or(traced.value_or(0));
  if (batch >= 2) {
    OrchestrateOptions half = options;
    half.batch_size = batch / 2;
    Remedy remedy = predict_with(analysis, path, kHalfBatch, half);
    if (remedy.computed) remedy.note = "batch " + std::to_string(batch) + " became " + std::to_string(batch / 2);
    out.push_back(std::move(remedy));
  } else {
    out.push_back(
        not_computed(kHalfBatch, batch == 1 ? "the batch is 1" : "the trace does not name its batch size: give it with --traced-batch"));
  }
  if (options.dtype.empty()) {
    OrchestrateOptions bf16 = options;
    bf16.dtype = "bf16";
    bf16.amp = true;
    out.push_back(predict_with(analysis, path, "bf16", bf16));
  }
  return out;
}

}  // namespace gpucast
