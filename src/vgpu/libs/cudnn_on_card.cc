#include "src/vgpu/libs/cudnn_on_card.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

namespace gpucast::vgpu::cudnn {
namespace {

constexpr int kHopper = 9, kFp32 = 0, kFp16 = 2, kBf16 = 9;                        // cudnnDataType_t
constexpr int kTileKnob = 2, kWorkspaceKnob = 25, kClusterM = 27, kClusterN = 28;  // cudnnBackendKnobType_t

struct Knobs {
  std::optional<int64_t> tile, workspace, cluster_m, cluster_n;
};

Knobs read_knobs(std::string_view text) {
  Knobs knobs;
  while (!text.empty()) {
    std::string_view part = detail::take_until(&text, '.');
    int type = 0;
    int64_t value = 0;
    if (!detail::read_number(detail::take_until(&part, '='), &type) || !detail::read_number(part, &value)) continue;
    if (type == kTileKnob) knobs.tile = value;
    if (type == kWorkspaceKnob) knobs.workspace = value;
    if (type == kClusterM) knobs.cluster_m = value;
    if (type == kClusterN) knobs.cluster_n = value;
  }
  return knobs;
}

bool may_segment(const Knobs& knobs) { return knobs.tile && knobs.workspace && knobs.cluster_m && knobs.cluster_n; }

// Rows and columns of the tile, by the knob's value: read off the names of the kernels that ran. Nothing: not seen yet.
std::optional<std::array<int64_t, 2>> tile_shape(int64_t knob) {
  using Shape = std::array<int64_t, 2>;
  switch (knob) {
    case 0:
      return Shape{128, 128};
    case 1:
      return Shape{128, 64};
    case 3:
      return Shape{256, 128};
    case 4:
      return Shape{256, 64};
    case 5:
      return Shape{64, 64};
    default:
      return std::nullopt;
  }
}

// Clusters that run at once, a block on a multiprocessor. A cluster lies within one group of multiprocessors (GPC), so that some stay
// without one: measured with clusters of 3 and 8 on 132 multiprocessors.
int64_t clusters_at_once(int64_t blocks, int multiprocessors) {
  constexpr int kNotInAGroup = 12;
  return blocks <= 2 ? multiprocessors / blocks : std::max(0, multiprocessors - kNotInAGroup) / blocks;
}

int64_t product(const std::vector<int64_t>& values, size_t from) {
  return std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(from), values.end(), int64_t{1}, std::multiplies<>());
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The matrix product that a pass of a convolution is: rows x columns, each the sum of `depth` products.
struct Product {
  int64_t rows, columns, depth;
};
Product as_product(const ConvolutionProblem& problem) {
  const int64_t inputs_and_window = product(problem.w, 1), outputs = problem.w[0], window = product(problem.w, 2);
  const int64_t y_places = problem.y[0] * product(problem.y, 2);
  if (problem.kind == ConvolutionKind::forward) return {y_places, outputs, inputs_and_window};
  if (problem.kind == ConvolutionKind::backward_filter) return {outputs, inputs_and_window, y_places};
  return {problem.x[0] * product(problem.x, 2), problem.w[1], outputs * window};
}

// Bytes for the parts of tiles. Only tiles of the last wave are cut. Each part is a tile in fp32 and a flag.
int64_t segment_bytes(const ConvolutionProblem& problem, const Knobs& knobs, const Card& card) {
  constexpr int64_t kFewestSteps = 7;  // in a segment, measured
  const int64_t cluster = *knobs.cluster_m * *knobs.cluster_n;
  if (*knobs.cluster_m <= 0 || *knobs.cluster_n <= 0) return 0;
  const int64_t at_once = clusters_at_once(cluster, card.multiprocessors);
  if (at_once == 0) return 0;
  const Product sums = as_product(problem);
  const auto tile = tile_shape(*knobs.tile);
  if (!tile) return 0;
  const auto [rows, columns] = *tile;
  const int64_t clusters =
      ceil_div(ceil_div(sums.rows, rows), *knobs.cluster_m) * ceil_div(ceil_div(sums.columns, columns), *knobs.cluster_n);
  const int64_t last_wave = clusters % at_once;
  if (last_wave == 0) return 0;
  const int64_t steps = sums.depth / (problem.type == kFp32 ? 32 : 64);
  const int64_t segments = std::min(at_once / last_wave, steps / kFewestSteps);
  return segments < 2 ? 0 : last_wave * segments * cluster * (rows * columns + 1) * 4;
}

void answer_segments(const ConvolutionProblem& problem, const Card& card, std::vector<EngineAnswer>* engines) {
  constexpr int64_t kPlaceForFlags = 131;
  struct Answer {
    EngineAnswer* engine;
    Knobs knobs;
  };
  std::vector<Answer> answers;
  // What is left without segments: copies into another layout. The smallest answer of the same engine and knob WORKSPACE.
  std::map<std::pair<int64_t, int64_t>, int64_t> without_segments;
  for (EngineAnswer& engine : *engines) {
    const Knobs knobs = read_knobs(engine.knobs);
    if (!engine.workspace_bytes || !may_segment(knobs)) continue;
    answers.push_back({&engine, knobs});
    int64_t& least = without_segments.try_emplace({engine.engine, *knobs.workspace}, *engine.workspace_bytes).first->second;
    least = std::min(least, *engine.workspace_bytes);
  }
  const bool one_group = problem.x[1] == problem.w[1];
  for (const auto& [engine, knobs] : answers) {
    int64_t& bytes = engine->workspace_bytes.emplace(without_segments.at({engine->engine, *knobs.workspace}));
    const int64_t parts = one_group && *knobs.workspace == 0 ? segment_bytes(problem, knobs, card) : 0;
    if (parts == 0) continue;
    // A place for the flags, aligned; the answers of some configurations have it already.
    if (bytes % 16 != kPlaceForFlags % 16) bytes += kPlaceForFlags;
    bytes += parts;
  }
}

// The gradient of the filter: 8 sums a sample, of channels in multiples of 32, in fp32. Exact on all 12 measured rows.
void answer_depthwise(const ConvolutionProblem& problem, std::vector<EngineAnswer>* engines) {
  constexpr int64_t kSums = 8, kChannels = 32;
  const auto own = std::find_if(engines->begin(), engines->end(), [](const EngineAnswer& answer) { return answer.engine == 0; });
  if (own == engines->end()) return;
  std::rotate(engines->begin(), own, own + 1);
  if (problem.kind == ConvolutionKind::backward_filter)
    engines->front().workspace_bytes = problem.x[0] * kSums * ceil_div(problem.w[0], kChannels) * kChannels * product(problem.w, 2) * 4;
}

}  // namespace

void answer_as_on_card(const ConvolutionProblem& problem, const Card& card, std::vector<EngineAnswer>* engines) {
  if (card.compute_major != kHopper || problem.x.size() < 3 || problem.w.size() != problem.x.size() || problem.y.size() != problem.x.size())
    return;
  const bool narrow = problem.type == kFp16 || problem.type == kBf16;
  const bool channels_last = problem.x_strides.size() > 1 && problem.x_strides[1] == 1;
  const bool depthwise = problem.w[1] == 1 && problem.x[1] > 1 && problem.w[0] == problem.x[1];
  if (narrow && channels_last && depthwise && problem.x.size() == 4) return answer_depthwise(problem, engines);
  answer_segments(problem, card, engines);
}

}  // namespace gpucast::vgpu::cudnn
