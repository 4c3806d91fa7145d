// What cuDNN does on a Hopper card and does not say without one ("deviceless"). Measured on an H200 with cuDNN 9.19 (eval/truth/h200,
// convolutions.jsonl): without TF32 its answers are equal, with tensor cores they differ in two ways.
//
// 1. Kernels of wgmma (their configuration has the knobs TILE_SIZE, WORKSPACE, TILE_CGA_M and TILE_CGA_N) may cut the sum of a tile into
//    segments, so that all multiprocessors have work ("segment_k_on" in their names). The parts of a tile are added up in the workspace.
//    How many segments there are depends on how many clusters run at once, which cuDNN does not know without a card.
// 2. A depthwise convolution of 16-bit data in channels-last has kernels of its own, engine 0. On the card it comes first, and its gradient
//    of the filter needs a workspace.
#pragma once

#include <vector>

#include "src/vgpu/libs/cudnn_question.h"
#include "src/vgpu/libs/cudnn_workspace.h"

namespace gpucast::vgpu::cudnn {

struct Card {
  int compute_major = 0, multiprocessors = 0;
};

// Changes cuDNN's answer to what the card itself would say. Cards other than Hopper's: nothing.
void answer_as_on_card(const ConvolutionProblem& problem, const Card& card, std::vector<EngineAnswer>* engines);

}  // namespace gpucast::vgpu::cudnn
