// The output of `gpucast explain` for an Explanation that the test fills by hand.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "gpucast/explain.h"
#include "src/base/bytes.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

Place place(const std::string& phase, int32_t step, const std::string& module, std::vector<std::string> stack) {
  Place out;
  out.phase = phase;
  out.step = step;
  out.module = module;
  out.stack = std::move(stack);
  return out;
}

AlikeBlocks alike(int64_t size_bytes, int64_t count, const std::string& category, const std::string& op, const std::string& module) {
  AlikeBlocks out;
  out.size_bytes = size_bytes;
  out.count = count;
  out.category = category;
  out.op = op;
  out.module = module;
  out.born = place("forward", 2, module, {"/env/torch/nn/functional.py:2140 softmax", "/home/user/job/model.py:31 forward"});
  return out;
}

Remedy remedy(RemedyBy by, const std::string& name, const std::string& what, int64_t reserved_bytes, int64_t saved_bytes, Verdict verdict) {
  Remedy out;
  out.by = by;
  out.name = name;
  out.what = what;
  out.computed = true;
  out.peak_allocated_bytes = reserved_bytes - kGiB;
  out.peak_reserved_bytes = reserved_bytes;
  out.saved_allocated_bytes = out.saved_reserved_bytes = saved_bytes;
  out.verdict = verdict;
  return out;
}

Explanation explanation() {
  Explanation e;
  e.folder = "/home/user/job";
  Prediction& p = e.prediction;
  p.source = "vgpu";
  p.gpu_id = "rtx3060";
  p.gpu_total_bytes = 12 * kGiB;
  p.gpu_chosen = true;
  p.verdict = Verdict::does_not_fit;
  p.verdict_reason = "its tensors alone exceed the card by 1.00 GiB";
  p.min_capacity_bytes = 14 * kGiB;
  p.min_capacity_expandable_bytes = 13 * kGiB;
  p.peak_allocated = {12 * kGiB, 12 * kGiB, 13 * kGiB, place("backward", 2, "blocks.5.attention (Attention)", {})};
  p.peak_reserved.bytes = 13 * kGiB;
  e.last = alike(kGiB, 1, "intermediate_gradients", "SoftmaxBackward0", "");
  e.categories = {{"activations", 9 * kGiB}, {"parameters", 2 * kGiB}, {"gradients", kGiB - kMiB}, {"inputs", kMiB}};
  e.operators = {{"nn.functional.softmax", "Attention", 9 * kGiB / 2}, {"nn.Linear", "Block", 9 * kGiB / 2}};
  e.blocks = {alike(256 * kMiB, 12, "activations", "nn.functional.softmax", "blocks.*.attention (Attention)"),
              alike(64 * kMiB, 1, "activations", "nn.Linear", "blocks.3.mlp.0 (Linear)")};
  e.blocks[1].born.stack.clear();
  e.free.place = place("backward", 1, "", {});
  e.free.reserved_bytes = 13 * kGiB;
  e.free.allocated_bytes = 12 * kGiB - 224 * kMiB;
  e.free.whole_segments = 1;
  e.free.whole_bytes = 200 * kMiB;
  e.free.pieces = 5;
  e.free.piece_bytes = kGiB + 24 * kMiB;
  e.free.sizes = {{kGiB, 2, 3, kGiB}, {20 * kMiB, 2, 2, 24 * kMiB}};
  e.free.holes = {{900 * kMiB, kGiB, 2, alike(100 * kMiB, 1, "optimizer_state", "optim.adamw", "")}};
  e.free.holes[0].held_by.tensor = "head.weight.exp_avg";
  e.settings_tried = 11;
  e.run_s = 8.4;
  e.remedies = {remedy(RemedyBy::replay, "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", 12 * kGiB, kGiB,
                       Verdict::tight)};
  return e;
}

Remedy waiting(const std::string& name, const std::string& what, const std::string& note) {
  Remedy out;
  out.by = RemedyBy::rerun;
  out.name = name;
  out.what = what;
  out.note = note;
  return out;
}

TEST(ExplainText, SaysWhyAndWhatToChange) {
  Explanation e = explanation();
  e.remedies.push_back(waiting("half-batch", "half the batch", ""));
  e.remedies.push_back(waiting("bf16", "autocast with bfloat16", ""));
  e.reruns_left = 3;
  EXPECT_EQ(explain_text(e, "train.gpucast", false), R"(DOES NOT FIT on rtx3060 (12.00 GiB)
  its tensors alone exceed the card by 1.00 GiB

The peak: 12.00 GiB allocated
  It is in backward of step 2, in blocks.5.attention (Attention), with 1.00 GiB for
  SoftmaxBackward0.
  Activations are three quarters (75 %) of it, 9.00 GiB; of these nn.functional.softmax in Attention
  made half (50 %). The others: parameters 17 %, gradients 8 %.

Reserved but free: 1.22 GiB of 13.00 GiB
  When it is fullest, in backward of step 1:
   200.0 MiB  in 1 segment without a block: kept for reuse, given back when the card is full
    1.02 GiB  in 5 pieces between the blocks of 4 segments, which cannot be given back:
                  1.00 GiB  in 3 pieces, 2 segments of 1.00 GiB
                  24.0 MiB  in 2 pieces, 2 segments of 20.0 MiB
  The largest piece, 900.0 MiB, is in a segment of 1.00 GiB held by 2 blocks, the largest of
  100.0 MiB: optimizer state: head.weight.exp_avg, by optim.adamw, at model.py:31 forward.

The largest blocks at the peak, alike ones in one line
        each  count     in all
   256.0 MiB     12   3.00 GiB  activations: blocks.*.attention (Attention), by
                                nn.functional.softmax, at model.py:31 forward
    64.0 MiB      1   64.0 MiB  activations: blocks.3.mlp.0 (Linear)

What would reduce it
       saves   reserved  allocated  on rtx3060
    1.00 GiB  12.00 GiB  11.00 GiB  tight         PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
  Saved at the peak of reserved; allocator settings replayed (11 were tried).
  As it is, it runs on a card of 14.00 GiB, with expandable_segments:True on one of 13.00 GiB
  (replayed, cached memory given back as it goes).
  not computed: half the batch, autocast with bfloat16

next, run the script 3 times (about 8 s each):
  gpucast explain train.gpucast --rerun
)");
}

TEST(ExplainText, ShowsTheSavingOfARerun) {
  Explanation e = explanation();
  e.baseline = "Run again as it is, the script reserves more.";
  e.remedies.push_back(remedy(RemedyBy::rerun, "half-batch", "half the batch", 7 * kGiB, 6 * kGiB, Verdict::fits));
  e.remedies.back().note = "--batch 64 became 32";
  e.remedies.push_back(remedy(RemedyBy::rerun, "bf16", "autocast with bfloat16", 14 * kGiB, -kGiB, Verdict::does_not_fit));
  e.remedies.push_back(waiting("checkpoint:Block", "checkpoint each Block", "the script raised ValueError: no"));
  const std::string text = explain_text(e, "train.gpucast", false);
  EXPECT_NE(text.find("  Run again as it is, the script reserves more.\n"), std::string::npos) << text;
  EXPECT_NE(text.find("    6.00 GiB   7.00 GiB   6.00 GiB  fits          half the batch (--batch 64 became 32)\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("  saves nothing: autocast with bfloat16 (takes 1.00 GiB more)\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("None of this makes it fit"), std::string::npos) << text;
  EXPECT_NE(text.find("allocator settings replayed (11 were tried), for the others the\n  script run again.\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  left out: checkpoint each Block: the script raised ValueError: no\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("--rerun"), std::string::npos) << "nothing is left to run";
}

TEST(ExplainText, SaysThatNothingMakesItFit) {
  Explanation e = explanation();
  e.reruns_tried = true;
  e.prediction.source = "vgpu";
  e.prediction.command = {"python", "train.py"};
  e.remedies = {remedy(RemedyBy::rerun, "half-batch", "half the batch", 12 * kGiB, kGiB, Verdict::does_not_fit)};
  const std::string text = explain_text(e, "train.gpucast", false);
  EXPECT_NE(text.find("  None of this makes it fit on rtx3060.\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  gpucast advise --gpu rtx3060 -- python train.py\n"), std::string::npos) << text;
}

TEST(ExplainText, BeginsWithWhereItRanOut) {
  Explanation e = explanation();
  OomPlace oom;
  oom.place = place("other", 1, "", {"/home/user/job/train.py:9 main"});
  oom.requested_bytes = 2 * kGiB;
  oom.free_bytes = kGiB;
  oom.ended_run = true;
  e.prediction.oom = oom;
  e.out_of_memory = OutOfMemoryExplained{"", 12 * kGiB, 11, {"expandable_segments:True"}, 900 * kMiB};
  const std::string text = explain_text(e, "train.gpucast", false);
  EXPECT_LT(text.find("Where it ran out of memory"), text.find("The peak")) << text;
  EXPECT_NE(text.find("  2.00 GiB were requested outside of forward, backward and the optimizer of step 1, at\n  train.py:9 main.\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  1 of 11 other allocator settings gets past this"), std::string::npos) << text;
  e.out_of_memory->gets_past.clear();
  EXPECT_NE(explain_text(e, "train.gpucast", false).find("No allocator setting gets past this (11 were replayed)"), std::string::npos);
}

TEST(ExplainText, NamesItsWhatIfsAndLeavesUselessSettingsOut) {
  Explanation e = explanation();
  e.prediction.what_if = {{"bf16", "GPT and its loss ran under autocast with bfloat16", true}};
  e.remedies[0].saved_reserved_bytes = 0;
  for (int i = 0; i < 6; ++i) e.prediction.warnings.push_back({"code", "Something " + std::to_string(i) + "."});
  const std::string text = explain_text(e, "", false);
  EXPECT_NE(text.find("  what if: bf16: GPT and its loss ran under autocast with bfloat16\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  None of 11 other allocator settings saves anything (replayed).\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("PYTORCH_CUDA_ALLOC_CONF"), std::string::npos) << text;
  EXPECT_NE(text.find("\nwarning: Something 3.\n  ... and 2 more (--format json)\n"), std::string::npos) << text;
}

TEST(ExplainText, FitsTheTerminal) {
  Explanation e = explanation();
  e.blocks[0].module = std::string(120, 'm') + " (" + std::string(90, 'T') + ")";
  e.blocks[0].born.stack = {"/home/elsewhere/" + std::string(150, 'd') + "/train.py:10 main"};
  e.remedies.push_back(waiting("checkpoint:" + std::string(150, 'B'), "checkpoint each " + std::string(150, 'B'), "because\x1b[31m"));
  std::istringstream lines(explain_text(e, "train.gpucast", false));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(width(line), kColumns) << line;
    EXPECT_EQ(line.find('\x1b'), std::string::npos) << line;
    EXPECT_EQ(line.find('\x01'), std::string::npos) << line;
  }
}

TEST(ExplainJson, HoldsEveryFigure) {
  Explanation e = explanation();
  e.remedies.push_back(waiting("bf16", "autocast with bfloat16", ""));
  e.reruns_left = 2;
  const auto json = nlohmann::json::parse(explain_json(e));
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["verdict"], "does_not_fit");
  EXPECT_EQ(json["oom"], nullptr);
  EXPECT_EQ(json["peak"]["at"]["module"], "blocks.5.attention (Attention)");
  EXPECT_EQ(json["operators"][0],
            (nlohmann::json{{"operator", "nn.functional.softmax"}, {"module_type", "Attention"}, {"bytes", 9 * kGiB / 2}}));
  const auto& free = json["free_but_reserved"];
  EXPECT_EQ(free["bytes"].get<int64_t>(), free["reserved_bytes"].get<int64_t>() - free["allocated_bytes"].get<int64_t>());
  EXPECT_EQ(free["whole_segments_bytes"].get<int64_t>() + free["pieces_bytes"].get<int64_t>(), free["bytes"].get<int64_t>());
  EXPECT_EQ(json["largest_blocks"][0]["total_bytes"], 12 * 256 * kMiB);
  EXPECT_EQ(json["largest_blocks"][0]["user_frame"], "/home/user/job/model.py:31 forward");
  EXPECT_EQ(json["remedies"][0]["saved"]["reserved_bytes"], kGiB);
  EXPECT_EQ(json["remedies"][0]["by"], "replay");
  EXPECT_EQ(json["remedies"][1]["computed"], false);
  EXPECT_FALSE(json["remedies"][1].contains("saved"));
  EXPECT_EQ(json["reruns_left"], 2);
}

}  // namespace
}  // namespace gpucast
