// The user's own cuDNN, asked through a helper process what it would choose on the virtual card.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/vgpu/libs/cudnn_question.h"

namespace gpucast::vgpu::cudnn {

// Whether the profile names a cuDNN to ask.
bool may_ask();

// What it answers to a question (cudnn_question.h). From memory, from the file of earlier answers, or from the helper, which the first
// question that is new starts. Nothing: it has no answer, or the helper is gone (then that is a warning in the log, once).
std::optional<std::vector<EngineAnswer>> ask(const std::string& question);

}  // namespace gpucast::vgpu::cudnn
