#include "src/time/operations_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "gpucast/error.h"

namespace gpucast {
namespace {

Operation read_padded(std::string line) {
  const size_t size = line.size();
  line.resize(size + 64);
  return read_operation(std::string_view(line).substr(0, size), [] { return std::string("line 7"); });
}

std::string operation_error(const std::string& line) {
  try {
    (void)read_padded(line);
    return "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.where, "line 7");
    EXPECT_FALSE(error.hint.empty());
    return error.what();
  }
}

TEST(OperationsFile, EachFieldIsRead) {
  const Operation gemm =
      read_padded(R"({"kind":"gemm","precision":"bf16","element_bytes":2,"bytes_read":3,"bytes_written":4,"flops":5.5,"launches":2,)"
                  R"("gemm":{"batch":6,"m":7,"n":8,"k":9,"a_transposed":true,"b_transposed":true}})");
  EXPECT_EQ(gemm.kind, OperationKind::gemm);
  EXPECT_EQ(gemm.precision, Precision::bf16);
  EXPECT_EQ(gemm.element_bytes, 2);
  EXPECT_EQ(gemm.bytes_read, 3);
  EXPECT_EQ(gemm.bytes_written, 4);
  EXPECT_EQ(gemm.flops, 5.5);
  EXPECT_EQ(gemm.launches, 2);
  EXPECT_EQ(gemm.gemm.batch, 6);
  EXPECT_EQ(gemm.gemm.k, 9);
  EXPECT_TRUE(gemm.gemm.a_transposed && gemm.gemm.b_transposed);
  const Operation convolution =
      read_padded(R"({"kind":"convolution","convolution":{"pass":"weight_gradient","batch":2,"in_channels":4,"out_channels":8,"in":[5,6],)"
                  R"("window":[3],"channels_last":true}})");
  EXPECT_EQ(convolution.convolution.pass, Pass::weight_gradient);
  EXPECT_EQ(convolution.convolution.in[1], 6);
  EXPECT_EQ(convolution.convolution.in[2], 1);  // dimensions that are not given stay 1
  const Operation attention =
      read_padded(R"({"kind":"attention","attention":{"batch":1,"heads":2,"queries":3,"keys":4,"head_dim":5,"window":128,"causal":true}})");
  EXPECT_EQ(attention.attention.window, 128);
  EXPECT_EQ(attention.attention.value_dim, 0);
}

TEST(OperationsFile, SaysWhatIsWrong) {
  EXPECT_EQ(operation_error("{}"), "this is no operation: it has no 'kind'");
  EXPECT_EQ(operation_error("[1]"), "this is no operation: it is no JSON object");
  EXPECT_EQ(operation_error(R"({"kind":"gem"})"), "this is no operation: no kind of operation is named 'gem'");
  EXPECT_EQ(operation_error(R"({"kind":"gemm","precision":"fp33"})"), "this is no operation: no precision is named 'fp33'");
  EXPECT_EQ(operation_error(R"({"kind":"gemm","gemm":{"m":-1}})"), "this is no operation: 'm' is no whole number from 0 to 2^50");
  EXPECT_EQ(operation_error(R"({"kind":"gemm","gemm":{"m":1.5}})"), "this is no operation: 'm' is no whole number from 0 to 2^50");
  EXPECT_EQ(operation_error(R"({"kind":"gemm","gemm":3})"), "this is no operation: 'gemm' is no object");
  EXPECT_EQ(operation_error(R"({"kind":"gemm","gemm":{"x":1}})"), "this is no operation: 'gemm' has no field 'x'");
  EXPECT_EQ(operation_error(R"({"kind":"gemm","flops":-1})"), "this is no operation: 'flops' is no finite number from 0");
  EXPECT_EQ(operation_error(R"({"kind":"convolution","convolution":{"in":[1,2,3,4]}})"),
            "this is no operation: 'in' is no list of up to 3 whole numbers");
  EXPECT_EQ(operation_error(R"({"kind":"copy","size":1})"), "this is no operation: an operation has no field 'size'");
  EXPECT_EQ(operation_error(R"({"kind":"gemm")").rfind("this is no operation: it is no JSON", 0), 0U);
}

// The sizes that follow from a line's shape.
std::string sizes(const std::string& kind, const std::string& shape, const std::string& more = "") {
  const Operation found = read_padded(fmt::format(R"({{"kind":"{0}","element_bytes":2,"{0}":{{{1}}}{2}}})", kind, shape, more));
  return fmt::format("{} {} {}", found.flops, found.bytes_read, found.bytes_written);
}

TEST(OperationsFile, FlopsAndBytesFollowFromAShape) {
  EXPECT_EQ(sizes("gemm", R"("m":10,"n":20,"k":30)"), "12000 1800 400");  // 2 x 10 x 20 x 30; (10 + 20) x 30 x 2; 10 x 20 x 2
  EXPECT_EQ(sizes("gemm", R"("batch":3,"m":10,"n":20,"k":30,"a_transposed":true)"), "36000 5400 1200");
  EXPECT_EQ(sizes("gemm", R"("m":0,"n":20,"k":30)"), "0 0 0");
  EXPECT_EQ(sizes("gemm", R"("m":10,"n":20,"k":30)", R"(,"flops":7)"), "7 0 0");  // a size that the line gives stays
  EXPECT_EQ(sizes("gemm", R"("m":10,"n":20,"k":30)", R"(,"bytes_read":5,"bytes_written":6)"), "0 5 6");
  EXPECT_EQ(sizes("gemm", R"("m":10,"n":20,"k":30)", R"(,"flops":0)"), "0 0 0");
  const int64_t most = int64_t{1} << 50;
  const Operation huge = read_padded(fmt::format(R"({{"kind":"gemm","gemm":{{"batch":{0},"m":{0},"n":{0},"k":{0}}}}})", most));
  EXPECT_GT(huge.bytes_read, 0);
  EXPECT_GT(huge.bytes_read + huge.bytes_written, huge.bytes_read);

  // x: 2 x 4 x 36 numbers, w: 8 x 2 x 9, y: 2 x 8 x 16. 2 x 2 images x 16 places x 8 x 2 channels x 9.
  const std::string shape = R"("batch":2,"in_channels":4,"out_channels":8,"groups":2,"in":[6,6],"out":[4,4],"window":[3,3])";
  EXPECT_EQ(sizes("convolution", shape), "9216 864 512");
  EXPECT_EQ(sizes("convolution", shape + R"(,"pass":"data_gradient")"), "9216 800 576");
  EXPECT_EQ(sizes("convolution", shape + R"(,"pass":"weight_gradient")"), "9216 1088 288");
  EXPECT_EQ(sizes("convolution", shape + R"(,"pass":"backward")"), "18432 1376 864");
  // Transposed: each position of the input is spread over a window.
  EXPECT_EQ(sizes("convolution", R"("batch":2,"in_channels":8,"out_channels":4,"in":[4,4],"out":[6,6],"window":[3,3],"transposed":true)"),
            "18432 1088 576");

  // 1 x 2 heads x 64 x 32 scores, each of 16 + 8 numbers; q, k, v, out: 2048, 512, 256, 1024 numbers.
  const std::string attention = R"("batch":1,"heads":2,"kv_heads":1,"queries":64,"keys":32,"head_dim":16,"value_dim":8)";
  EXPECT_EQ(sizes("attention", attention), "196608 5632 2048");
  EXPECT_EQ(sizes("attention", attention + R"(,"causal":true)"), "98304 5632 2048");
  EXPECT_EQ(sizes("attention", attention + R"(,"window":8)"), "49152 5632 2048");
  EXPECT_EQ(sizes("attention", attention + R"(,"pass":"backward")"), "491520 9728 5632");
  EXPECT_EQ(sizes("attention", R"("batch":1,"heads":2,"kv_heads":2,"queries":64,"keys":32,"head_dim":16)"), "262144 8192 4096");
}

TEST(OperationsFile, AShapeMustBeOne) {
  EXPECT_EQ(operation_error(R"({"kind":"gemm"})"), "this is no operation: a gemm needs its shape: 'gemm' with m, n, k");
  EXPECT_EQ(operation_error(R"({"kind":"gemm","gemm":{"m":4,"n":4}})"),
            "this is no operation: a gemm needs its shape: 'gemm' with m, n, k");
  EXPECT_EQ(operation_error(R"({"kind":"gemm","flops":5,"bytes_read":4})"),
            "this is no operation: a gemm needs its shape: 'gemm' with m, n, k");
  EXPECT_EQ(operation_error(R"({"kind":"convolution"})"),
            "this is no operation: a convolution needs its shape: 'convolution' with batch, in_channels, out_channels");
  EXPECT_EQ(operation_error(R"({"attention":{"batch":4},"kind":"attention"})"),
            "this is no operation: an attention needs its shape: 'attention' with batch, heads, queries, keys, head_dim");
  const auto convolution = [](const std::string& more) {
    return operation_error(R"({"kind":"convolution","convolution":{"batch":1,"in_channels":4,"out_channels":6,)" + more + "}}");
  };
  EXPECT_EQ(convolution(R"("groups":2)"), "read");
  EXPECT_EQ(convolution(R"("groups":0)"), "this is no operation: 'groups' is 0");
  EXPECT_EQ(convolution(R"("groups":4)"), "this is no operation: 4 groups do not divide 4 channels in and 6 out");
  EXPECT_EQ(convolution(R"("groups":3)"), "this is no operation: 3 groups do not divide 4 channels in and 6 out");
  EXPECT_EQ(convolution(R"("stride":[1,0])"), "this is no operation: a 'stride' is 0");
}

// A damaged line is either read or throws Error.
TEST(OperationsFile, GarbageIsAnError) {
  const std::string whole =
      R"({"kind":"attention","precision":"fp16","flops":1e9,"rows":12,"attention":{"pass":"backward","batch":8,"heads":2,"queries":64,"keys":64,"head_dim":32,"causal":true},"gemm":{"m":5}})";
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed,cert-msc51-cpp): the same each time
  int errors = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string line = whole.substr(0, i % 5 == 0 ? random() % whole.size() : whole.size());
    for (int change = static_cast<int>(random() % 4); change > 0 && !line.empty(); --change) {
      line[random() % line.size()] = static_cast<char>(random() % 256);
    }
    try {
      (void)read_padded(line);
    } catch (const Error&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 2000);
  EXPECT_LT(errors, 5000);
}

}  // namespace
}  // namespace gpucast
