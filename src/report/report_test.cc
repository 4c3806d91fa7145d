#include "gpucast/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "src/report/next_command.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

Prediction example() {
  Prediction p;
  p.source = "vgpu";
  p.gpu_id = p.captured_gpu_id = "rtx3060";
  p.gpu_name = "NVIDIA GeForce RTX 3060";
  p.gpu_total_bytes = 12622168064;
  p.gpu_chosen = true;
  p.command = {"python", "train.py", "--name", "it's"};
  p.steps = 3;
  p.steps_requested = 3;
  p.torch = "2.14.1+cu130";
  p.peak_allocated = {3000000000, 3000000000, 3200000000, {10, "backward", 2, "fc (Linear)", {"train.py:9 main"}}};
  p.peak_reserved = {3200000000, 2900000000, 3200000000, {9, "forward", 1, "", {}}};
  p.free_but_reserved_bytes = 200000000;
  p.device = {3300000000, 3350000000, 3400000000, 3500000000};
  p.confidence = 0.999;
  p.request_source = "60 measured runs";
  p.job_classes = {"no_convolutions"};
  p.ledger = {{"CUDA context", "", 100000000, 150000000, 200000000, "measured: by hand"}};
  p.categories = {{"parameters", 1000000000}, {"activations", 2000000000}, {"gradients", 0}};
  for (int step = 0; step <= 12; ++step) p.step_peaks.push_back({step, true, 1000000000 + step, 2000000000});
  p.phase_peaks = {{"forward", 2900000000, 3200000000}};
  p.warnings = {
      {"timeout",
       "A long sentence that has to be broken over several lines because it is longer than the hundred columns that a report may have."}};
  return p;
}

TEST(TextReport, KeepsToItsColumnsAndLines) {
  Prediction p = example();
  for (int i = 0; i < 20; ++i) p.warnings.push_back(p.warnings[0]);
  std::istringstream lines(text_report(p, {}));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    ++count;
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
  }
  EXPECT_LE(count, 54);
}

TEST(TextReport, SaysWhereTheNumbersAreFromOnceAndWhole) {
  Prediction p = example();
  p.request_source = "half the range of convolutions without a measured workspace, on any card, by eleven runs and more";
  p.ledger.push_back(
      {"convolution workspaces", "cudnn", 0, 1, 2, "asked of cuDNN; " + p.request_source + "; with a long remark at the end"});
  const std::string text = text_report(p, {});
  EXPECT_NE(text.find("remark at the end"), std::string::npos);
  EXPECT_NE(text.find("from the same rows as convolution workspaces, above"), std::string::npos);
  EXPECT_EQ(text.find("half the range"), text.rfind("half the range"));
}

TEST(TextWriter, BreaksALongNameAfterAPart) {
  TextWriter out;
  const std::string module = "encoder.layers." + std::string(70, 'a') + ".attention.projection";
  out.wrapped("  in ", module);
  EXPECT_EQ(out.take(), "  in encoder.layers." + std::string(70, 'a') + ".\n     attention.projection\n");
}

TEST(TextWriter, BreaksAWordWithoutParts) {
  TextWriter out;
  out.wrapped("", std::string(kColumns + 1, 'a'));
  EXPECT_EQ(out.take(), std::string(kColumns, 'a') + "\na\n");
}

TEST(TextWriter, BeginsNoLineWithAComma) {
  TextWriter out;
  out.wrapped("", std::string(kColumns, 'a') + ", b");
  EXPECT_EQ(out.take(), std::string(kColumns, 'a') + ",\nb\n");
}

TEST(TextReport, VerdictFirstAndNoColourUnlessAsked) {
  Prediction p = example();
  EXPECT_EQ(text_report(p, {}).rfind("FITS on rtx3060 (NVIDIA GeForce RTX 3060, 11.76 GiB)\n", 0), 0u);
  EXPECT_EQ(text_report(p, {}).find('\x1b'), std::string::npos);
  EXPECT_NE(text_report(p, {true, ""}).find("\x1b[1;32mFITS"), std::string::npos);
  p.verdict = Verdict::does_not_fit;
  EXPECT_EQ(text_report(p, {}).rfind("DOES NOT FIT", 0), 0u);
  EXPECT_EQ(text_report(p, {}).find("GB"), std::string::npos);
}

TEST(TextReport, SaysWhatToRequestAndWithWhichConfidence) {
  const std::string text = text_report(example(), {});
  EXPECT_NE(
      text.find("What to ask for                                3337.86 MiB   so that 99.9 % of such jobs run\n      60 measured runs\n"),
      std::string::npos)
      << text;
}

TEST(JsonReport, KeepsTheContract) {
  const auto json = nlohmann::json::parse(json_report(example()));
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["source"], "vgpu");
  EXPECT_EQ(json["gpu"]["name"], "rtx3060");
  EXPECT_EQ(json["gpu"]["capacity_bytes"], 12622168064);
  EXPECT_EQ(json["steps"], 3);
  EXPECT_EQ(json["verdict"], "fits");
  EXPECT_EQ(json["peak"]["allocated_bytes"], 3000000000);
  EXPECT_EQ(json["peak"]["reserved_bytes"], 3200000000);
  EXPECT_EQ(json["peak"]["allocated_at"]["module"], "fc (Linear)");
  EXPECT_EQ(json["device"]["low_bytes"], 3300000000);
  EXPECT_EQ(json["device"]["request_bytes"], 3500000000);
  EXPECT_EQ(json["device"]["confidence"], 0.999);
  EXPECT_EQ(json["device"]["classes"][0], "no_convolutions");
  EXPECT_EQ(json["convolutions"]["dense"], 0);
  EXPECT_TRUE(json["varying_input"].is_null());
  EXPECT_EQ(json["ledger"][0]["source"], "measured: by hand");
  EXPECT_TRUE(json["min_capacity_bytes"].is_null());
  EXPECT_EQ(json["categories"].size(), 3u);
  EXPECT_TRUE(json["oom"].is_null());
  EXPECT_EQ(json["warnings"][0]["code"], "timeout");
}

TEST(JsonReport, SurvivesBytesThatAreNotUtf8) {
  Prediction p = example();
  p.command = {"python", "\xff\xfe.py"};
  EXPECT_NO_THROW({ auto json = nlohmann::json::parse(json_report(p)); });
}

TEST(NextCommand, NamesTheCaptureOnlyWhenItIsKept) {
  Prediction p = example();
  p.rank_options = " --gpus 4";
  EXPECT_EQ(next_commands(p, "")[0].command, "gpucast run --gpu rtx3060 --gpus 4 -o train.gpucast -- python train.py --name 'it'\\''s'");
  p.rank_options.clear();
  EXPECT_EQ(next_commands(p, "my capture.gpucast")[0].command, "gpucast export 'my capture.gpucast' --to html -o 'my capture.html'");
  EXPECT_EQ(next_commands(p, "")[0].command, "gpucast run --gpu rtx3060 -o train.gpucast -- python train.py --name 'it'\\''s'");
  p.verdict = Verdict::tight;
  p.needs_reclaim = true;
  EXPECT_EQ(next_commands(p, "a.gpucast")[0].command, "gpucast explain a.gpucast");
  EXPECT_EQ(next_commands(p, "a.gpucast")[1].command, "gpucast run --gpu rtx3060 --enforce-capacity -- python train.py --name 'it'\\''s'");
}

TEST(NextCommand, SuggestsALargerCardThatFits) {
  Prediction p = example();
  p.verdict = Verdict::does_not_fit;
  p.device = {15000000000, 15100000000, 15200000000, 15300000000};
  const std::string command = next_commands(p, "a.gpucast")[1].command;
  EXPECT_EQ(command.rfind("gpucast analyze a.gpucast --gpu ", 0), 0u);
  p.device.request_bytes = int64_t{1} << 50;  // more than any card has
  EXPECT_EQ(next_commands(p, "a.gpucast").size(), 1u);
  EXPECT_EQ(next_commands(p, "a.gpucast")[0].command, "gpucast explain a.gpucast");
}

}  // namespace
}  // namespace gpucast
