// Asks the user's own cuDNN, through a helper process, what it would choose on the virtual card.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/vgpu/libs/cudnn_question.h"

namespace gpucast::vgpu::cudnn {

// Whether the profile names a cuDNN to ask.
bool may_ask();

// cuDNN's answer to a question (cudnn_question.h). It comes from memory, from the file of earlier answers, or from the helper, which starts
// at the first new question. Nothing: cuDNN has no answer, or the helper is gone (then the log gets one warning).
std::optional<std::vector<EngineAnswer>> ask(const std::string& question);

}  // namespace gpucast::vgpu::cudnn
