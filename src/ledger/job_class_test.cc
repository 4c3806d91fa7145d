#include "src/ledger/job_class.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/json.h"

namespace gpucast {
namespace {

JobClass class_of(const Convolutions& convolutions) {
  const auto classes = job_classes(convolutions, false);
  EXPECT_EQ(classes.size(), 1u);
  return classes[0];
}

TEST(JobClass, IsThatOfItsMostUnusualConvolutions) {
  Convolutions c;
  EXPECT_EQ(class_of(c), JobClass::no_convolutions);
  c.few_channels = 3;
  EXPECT_EQ(class_of(c), JobClass::first_layer_only);
  c.pointwise = 90;
  EXPECT_EQ(class_of(c), JobClass::pointwise);
  c.dense = 3;
  EXPECT_EQ(class_of(c), JobClass::dense);
  c.grouped = 1;
  EXPECT_EQ(class_of(c), JobClass::grouped);
  c.depthwise = 1;
  EXPECT_EQ(class_of(c), JobClass::depthwise);
  c.unknown = 1;
  EXPECT_EQ(class_of(c), JobClass::convolutions);
  c.asked = c.count() - 1;
  EXPECT_EQ(class_of(c), JobClass::convolutions);
  c.asked = c.count();
  EXPECT_EQ(class_of(c), JobClass::workspaces_asked);
}

TEST(JobClass, VaryingLengthsAndConvolutionsAreTwoClasses) {
  EXPECT_EQ(job_classes({}, true), std::vector{JobClass::varying_lengths});
  Convolutions c;
  c.dense = 1;
  EXPECT_EQ(job_classes(c, true), (std::vector{JobClass::dense, JobClass::varying_lengths}));
}

// Shapes by step: {{"x [8, 16]", "y [8]"}, {"x [8, 32]"}}; each step is complete.
Trace trace_of(const std::vector<std::vector<std::string>>& steps) {
  Trace trace;
  int64_t sequence = 0;
  for (size_t step = 0; step < steps.size(); ++step) {
    for (const std::string& input : steps[step]) {
      TensorMark tensor;
      tensor.kind = TensorKind::input;
      tensor.sequence = ++sequence;
      tensor.name = trace.strings.intern(input.substr(0, input.find(' ')));
      for (const Json& size : Json::parse(input.substr(input.find(' ') + 1))) tensor.shape.push_back(size.get<int64_t>());
      trace.tensors.push_back(tensor);
    }
    Mark mark;
    mark.kind = MarkKind::step;
    mark.sequence = ++sequence;
    trace.marks.push_back(mark);
  }
  return trace;
}

TEST(VaryingInput, SaysTheSmallestAndTheLargest) {
  const auto found = varying_input(trace_of({{"ids [8, 87]", "mask [8, 87]"}, {"ids [8, 128]", "mask [8, 128]"}, {"ids [8, 90]"}}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "ids");
  EXPECT_EQ(found->smallest, "[8, 87]");
  EXPECT_EQ(found->largest, "[8, 128]");
}

TEST(VaryingInput, OfASmallerLastBatchIsNone) { EXPECT_FALSE(varying_input(trace_of({{"ids [8, 128]"}, {"ids [3, 128]"}}))); }

TEST(VaryingInput, OfAForwardThatOneStepHasMoreIsNone) {
  // A generator and a discriminator with inputs of the same name; a first forward that creates lazy layers.
  EXPECT_FALSE(varying_input(trace_of({{"0 [8, 100]", "0 [8, 3, 64, 64]"}, {"0 [8, 100]", "0 [8, 3, 64, 64]"}})));
  EXPECT_FALSE(varying_input(trace_of({{"0 [1, 10]", "0 [8, 100]"}, {"0 [8, 100]"}})));
}

TEST(VaryingInput, OfStepsThatWereNotCompletedIsNone) {
  Trace trace = trace_of({{"ids [8, 128]"}, {"ids [8, 64]"}});
  trace.marks.pop_back();
  EXPECT_FALSE(varying_input(trace));
}

TEST(VaryingInput, OfMicroBatchesThatDifferIsFound) {
  EXPECT_TRUE(varying_input(trace_of({{"ids [4, 10]", "ids [4, 20]"}, {"ids [4, 10]", "ids [4, 30]"}})));
}

}  // namespace
}  // namespace gpucast
