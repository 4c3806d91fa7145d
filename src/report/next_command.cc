#include "src/report/next_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "gpucast/gpu.h"
#include "src/base/command_words.h"

namespace gpucast {
namespace {

// The smallest card that is larger than this one and that the job fits with certainty; of equal sizes, one of the same capability.
std::string larger_card(const Prediction& p) {
  const Gpu* best = nullptr;
  int own_major = 0;
  for (const Gpu& gpu : gpu_table()) {
    if (gpu.id == p.gpu_id) own_major = gpu.compute_major;
  }
  for (const Gpu& gpu : gpu_table()) {
    const auto total = static_cast<int64_t>(gpu.total_memory_bytes);
    if (!runs_pytorch(gpu)) continue;
    if (total <= p.gpu_total_bytes || total < p.device.request_bytes) continue;
    const auto rank = [&](const Gpu& g) { return std::make_pair(g.total_memory_bytes, g.compute_major == own_major ? 0 : 1); };
    if (best == nullptr || rank(gpu) < rank(*best)) best = &gpu;
  }
  return best == nullptr ? "" : best->id;
}

}  // namespace

std::vector<NextCommand> next_commands(const Prediction& p, const std::string& capture_path) {
  std::vector<NextCommand> next;
  if (p.partial) return next;
  const std::string command = p.command.empty() ? "COMMAND" : shell_quote(p.command);
  std::string what_ifs;
  for (const WhatIf& what_if : p.what_if) what_ifs += fmt::format(" --what-if {}", shell_quote({what_if.name}));
  const auto run_on = [&](const std::string& gpu, const char* more = "") {
    return fmt::format("gpucast run --gpu {}{}{}{} -- {}", gpu, p.rank_options, more, what_ifs, command);
  };
  const auto judge_by = [&](const std::string& gpu) {
    return capture_path.empty() ? run_on(gpu) : fmt::format("gpucast analyze {} --gpu {}", shell_quote({capture_path}), gpu);
  };
  if (!capture_path.empty() && (p.verdict == Verdict::tight || p.verdict == Verdict::grows || p.verdict == Verdict::does_not_fit)) {
    next.push_back({"why, and what would reduce it:", fmt::format("gpucast explain {}", shell_quote({capture_path}))});
  }
  if (p.source == "snapshot") {
    // A snapshot does not contain the command.
    const auto smallest = std::find_if(p.cards.begin(), p.cards.end(), [](const CardFit& card) { return card.verdict == Verdict::fits; });
    const std::string larger = p.verdict == Verdict::does_not_fit ? larger_card(p) : "";
    if (smallest != p.cards.end()) next.push_back({"for one card:", judge_by(smallest->gpu)});
    if (p.gpu_chosen && !larger.empty()) next.push_back({"on the next larger card:", judge_by(larger)});
  } else if (!p.gpu_chosen) {
    // The smallest card that the job fits, because there the error of using another card's capture matters most.
    for (const CardFit& card : p.cards) {
      if (card.verdict != Verdict::fits && card.verdict != Verdict::grows) continue;
      next.push_back({"exact for one card:", run_on(card.gpu)});
      break;
    }
  } else if (p.verdict == Verdict::tight && p.needs_reclaim && !p.enforced_capacity) {
    next.push_back({"exact, with the card's limit enforced:", run_on(p.gpu_id, " --enforce-capacity")});
  } else if (p.oom && p.oom->ended_run && p.enforced_capacity) {
    next.push_back({"the whole need, without the card's limit:", run_on(p.gpu_id)});
  } else if (p.verdict == Verdict::does_not_fit) {
    const std::string larger = larger_card(p);
    if (!larger.empty()) next.push_back({"on the next larger card:", judge_by(larger)});
  } else if (p.gpu_id != p.captured_gpu_id) {
    next.push_back({"captured as this card:", run_on(p.gpu_id)});
  }
  if (next.empty() && !capture_path.empty()) {
    const std::string page = std::filesystem::path(capture_path).replace_extension(".html").string();
    next.push_back({"where it all goes, in a browser:", "gpucast export " + shell_quote({capture_path, "--to", "html", "-o", page})});
  }
  if (next.empty()) next.push_back({"keep the capture, to look again:", run_on(p.gpu_id, " -o train.gpucast")});
  return next;
}

}  // namespace gpucast
