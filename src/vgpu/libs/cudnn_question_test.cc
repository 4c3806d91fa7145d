#include "src/vgpu/libs/cudnn_question.h"

#include <gtest/gtest.h>

namespace gpucast::vgpu::cudnn {
namespace {

TEST(CudnnAnswer, EnginesInOrder) {
  const auto engines = parse_answer("34,75392,,,;12,409856,5.6,1,12=3.27=0;19,x,0,,");
  ASSERT_TRUE(engines);
  ASSERT_EQ(engines->size(), 3U);
  EXPECT_EQ((*engines)[0].engine, 34);
  EXPECT_EQ((*engines)[0].workspace_bytes, 75392);
  EXPECT_TRUE((*engines)[0].numerical_notes.empty());
  EXPECT_EQ((*engines)[1].numerical_notes, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ((*engines)[1].behaviour_notes, (std::vector<int32_t>{1}));
  EXPECT_EQ((*engines)[1].knobs, "12=3.27=0");
  EXPECT_FALSE((*engines)[2].workspace_bytes);
}

TEST(CudnnAnswer, NoEnginesIsAnAnswer) {
  const auto engines = parse_answer("");
  ASSERT_TRUE(engines);
  EXPECT_TRUE(engines->empty());
}

TEST(CudnnAnswer, WhatIsNone) {
  for (const char* text : {"failed ask for engines: CUDNN_STATUS_NOT_SUPPORTED", "34", "34,", "34,-5,,,", "34,1x,,,", "a,1,,,",
                           "34,1,5..6,,", "34,99999999999999999999,,,", "34,1,99999999999,,", ";"})
    EXPECT_FALSE(parse_answer(text)) << text;
}

TEST(CudnnAnswerLine, ComesBack) {
  const std::string line = answer_line("0 15{801:15=10{};}", "34,75392,,,");
  ASSERT_EQ(line.front(), '\n');
  std::string_view question, answer;
  ASSERT_TRUE(parse_answer_line(std::string_view(line).substr(1), &question, &answer));
  EXPECT_EQ(question, "0 15{801:15=10{};}");
  EXPECT_EQ(answer, "34,75392,,,");
}

// A line that is cut off, or has one changed character, is not valid.
TEST(CudnnAnswerLine, DamageIsSeen) {
  const std::string line = answer_line("0 15{}", "34,75392,,,;1,588,,,").substr(1);
  std::string_view question, answer;
  for (size_t size = 0; size < line.size(); ++size) EXPECT_FALSE(parse_answer_line(line.substr(0, size), &question, &answer)) << size;
  for (size_t i = 0; i < line.size(); ++i) {
    std::string changed = line;
    changed[i] = changed[i] == '7' ? '8' : '7';
    EXPECT_FALSE(parse_answer_line(changed, &question, &answer)) << changed;
  }
}

TEST(CudnnAttributes, SizesAsInItsHeader) {
  EXPECT_EQ(element_bytes(3), 8U);    // CUDNN_TYPE_INT64
  EXPECT_EQ(element_bytes(4), 4U);    // CUDNN_TYPE_FLOAT
  EXPECT_EQ(element_bytes(5), 8U);    // CUDNN_TYPE_DOUBLE
  EXPECT_EQ(element_bytes(2), 1U);    // CUDNN_TYPE_BOOLEAN
  EXPECT_EQ(element_bytes(26), 16U);  // CUDNN_TYPE_FRACTION
}

}  // namespace
}  // namespace gpucast::vgpu::cudnn
