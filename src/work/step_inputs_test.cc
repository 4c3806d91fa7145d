#include "src/work/step_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/work/test_step.h"

namespace gpucast {
namespace {

// Phases in the order in which they begin: "f" is a forward with an input of [8, 128], "b" a backward, "o" an optimizer's step.
StepInputs inputs_of(const std::string& phases) {
  std::vector<std::string> lines;
  for (const std::string& line : kLines) {
    const bool inside = line.starts_with(R"(["mark",3)") || line.starts_with(R"(["mark",4)") || line.starts_with(R"(["tensor")") ||
                        line.starts_with(R"(["mark",5)") || line.starts_with(R"(["mark",6)") || line.starts_with(R"(["mark",7)") ||
                        line.starts_with(R"(["mark",8)") || line.starts_with(R"(["vgpu_mark")") || line.starts_with(R"(["mark",9)");
    if (!inside) lines.push_back(line);
  }
  const auto place = std::find(lines.begin(), lines.end(), R"(["mark",2,0,0,999990,"other",""])") + 1;
  std::vector<std::string> marks;
  int64_t sequence = 2;
  const auto mark = [&](const std::string& kind, const std::string& what) {
    ++sequence;
    marks.push_back("[\"mark\"," + std::to_string(sequence) + ",0,0," + std::to_string(1'000'000 + sequence) + ",\"" + kind + "\"," + what +
                    "]");
  };
  for (const char phase : phases) {
    const std::string name = phase == 'f' ? "\"forward\"" : phase == 'b' ? "\"backward\"" : "\"optimizer_step\"";
    mark("phase_begin", name);
    if (phase == 'f') marks.push_back("[\"tensor\"," + std::to_string(sequence) + ",\"input\",5,64,\"0\",-1,\"int64\",[8,128]]");
    mark("phase_end", name);
  }
  mark("step", "2");
  for (std::string& line : lines) {
    const size_t marks_of_step = line.find("\"marks\":[2,9]");
    if (marks_of_step != std::string::npos) line.replace(marks_of_step, 13, "\"marks\":[2," + std::to_string(sequence) + "]");
  }
  lines.insert(place, marks.begin(), marks.end());
  return step_inputs(trace_of(lines));
}

TEST(StepInputs, AStepWithOneBatch) {
  EXPECT_EQ(inputs_of("fbo").samples, 8);
  EXPECT_EQ(inputs_of("fbo").tokens, 8 * 128);
  EXPECT_EQ(inputs_of("f").samples, 8) << "without a backward: an inference";
  EXPECT_EQ(inputs_of("").samples, 0);
}

TEST(StepInputs, AccumulationCountsEachBatch) {
  EXPECT_EQ(inputs_of("fbfbfbfbo").samples, 4 * 8);
  EXPECT_EQ(inputs_of("fbfbfbfbo").tokens, 4 * 8 * 128);
  EXPECT_EQ(inputs_of("ffbffbo").samples, 2 * 8) << "two forwards share a backward, as two encoders do";
}

TEST(StepInputs, StepsWithoutAccumulationCountOneBatch) {
  EXPECT_EQ(inputs_of("ffbo").samples, 8) << "a contrastive loss of two forwards";
  EXPECT_EQ(inputs_of("fbbo").samples, 8) << "two losses of one forward";
  EXPECT_EQ(inputs_of("fbfbofbo").samples, 8) << "a GAN: two optimizers";
}

// Two stages on one rank, each with an optimizer; a rank that runs in the middle of the pipeline looks the same.
TEST(StepInputs, APipelineCountsTheMicroBatchesOfOneStage) {
  std::vector<std::string> lines;
  for (const std::string& line : kLines) {
    if (line.starts_with(R"(["mark",3)")) break;
    lines.push_back(line);
  }
  int64_t sequence = 2;
  const auto mark = [&](const std::string& what) {
    ++sequence;
    const std::string number = std::to_string(sequence);
    lines.push_back("[\"mark\"," + number + ",0,0," + std::to_string(1'000'000 + sequence) + "," + what + "]");
    return number;
  };
  for (const std::string module : {"1", "2", "1", "2", "1", "2"}) {
    mark(R"("phase_begin","forward")");
    lines.push_back("[\"tensor\"," + mark(R"("tensors","")") + R"(,"input",5,64,"0",-1,"int64",[8,128]])");
    mark("\"module_begin\"," + module);
    mark("\"module_end\"," + module);
    mark(R"("phase_end","forward")");
  }
  const std::string last = mark(R"("step",2)");
  for (std::string& line : lines)
    if (const size_t at = line.find("[2,9]"); at != std::string::npos) line.replace(at, 5, "[2," + last + "]");
  lines.insert(lines.begin() + 3, R"({"record":"module","id":2,"parent":-1,"name":"net2","type":"Net"})");
  lines.emplace_back(R"({"record":"end","reason":"steps","exit_code":0,"optimizer_steps":3})");
  lines.emplace_back(R"({"record":"clock","unix_ns":999999000})");
  lines.emplace_back(R"(["thread",1])");
  lines.emplace_back(R"(["vgpu_mark",4])");
  lines.emplace_back(R"(["call","nccl","ncclSend",{"type":"float32","count":64,"world":2,"peer":1,"bytes":256,"group":"a"},7,10100])");
  const StepInputs inputs = step_inputs(trace_of(lines));
  EXPECT_EQ(inputs.samples, 3 * 8);
  EXPECT_EQ(inputs.tokens, 3 * 8 * 128);
}

}  // namespace
}  // namespace gpucast
