#include "src/ledger/job_class.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace gpucast {
namespace {

double elements_of(const std::vector<int64_t>& shape) {
  double product = 1;
  for (const int64_t size : shape) product *= static_cast<double>(size);
  return product;
}

struct ShapesOfInput {
  std::map<size_t, std::set<std::vector<int64_t>>> by_step;  // without the first dimension
  std::vector<int64_t> smallest, largest;
};

bool differ(const ShapesOfInput& input) {
  std::set<std::set<std::vector<int64_t>>> distinct;
  for (const auto& [step, shapes] : input.by_step) distinct.insert(shapes);
  for (const auto& shapes : distinct) {
    for (const auto& others : distinct) {
      const bool inside = std::includes(others.begin(), others.end(), shapes.begin(), shapes.end());
      const bool around = std::includes(shapes.begin(), shapes.end(), others.begin(), others.end());
      if (!inside && !around) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<JobClass> job_classes(const Convolutions& convolutions, bool lengths_vary) {
  std::vector<JobClass> out;
  const Convolutions& c = convolutions;
  if (c.asked > 0 && c.asked == c.count()) {
    out.push_back(JobClass::workspaces_asked);
  } else if (c.unknown > 0) {
    out.push_back(JobClass::convolutions);
  } else if (c.depthwise > 0) {
    out.push_back(JobClass::depthwise);
  } else if (c.grouped > 0) {
    out.push_back(JobClass::grouped);
  } else if (c.dense > 0) {
    out.push_back(JobClass::dense);
  } else if (c.pointwise > 0) {
    out.push_back(JobClass::pointwise);
  } else if (c.few_channels > 0) {
    out.push_back(JobClass::first_layer_only);
  }
  if (lengths_vary) out.push_back(JobClass::varying_lengths);
  if (out.empty()) out.push_back(JobClass::no_convolutions);
  return out;
}

std::optional<VaryingInput> varying_input(const Trace& trace) {
  std::vector<int64_t> step_ends;  // the sequence numbers of the marks
  for (const Mark& mark : trace.marks) {
    if (mark.kind == MarkKind::step) step_ends.push_back(mark.sequence);
  }
  std::sort(step_ends.begin(), step_ends.end());
  std::map<StringId, ShapesOfInput> inputs;
  for (const TensorMark& tensor : trace.tensors) {
    if (tensor.kind != TensorKind::input || tensor.shape.empty()) continue;
    const auto step = static_cast<size_t>(std::upper_bound(step_ends.begin(), step_ends.end(), tensor.sequence) - step_ends.begin());
    if (step == step_ends.size()) continue;  // its step was not completed
    const std::vector<int64_t>& shape = tensor.shape;
    if (shape.size() < 2) continue;
    ShapesOfInput& input = inputs[tensor.name];
    input.by_step[step].insert({shape.begin() + 1, shape.end()});
    if (input.smallest.empty() || elements_of(shape) < elements_of(input.smallest)) input.smallest = shape;
    if (input.largest.empty() || elements_of(shape) > elements_of(input.largest)) input.largest = shape;
  }
  std::optional<VaryingInput> most;
  double most_ratio = 0;
  for (const auto& [name, input] : inputs) {
    if (!differ(input)) continue;
    const double ratio = elements_of(input.largest) / std::max(1.0, elements_of(input.smallest));
    if (most && ratio <= most_ratio) continue;
    most_ratio = ratio;
    most = VaryingInput{std::string(trace.strings.text(name)), fmt::format("{}", input.smallest), fmt::format("{}", input.largest)};
  }
  return most;
}

}  // namespace gpucast
