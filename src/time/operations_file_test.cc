#include "src/time/operations_file.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "gpucast/error.h"

namespace gpucast {
namespace {

Operation read(std::string line) {
  const size_t size = line.size();
  line.resize(size + 64);
  return read_operation(std::string_view(line).substr(0, size), [] { return std::string("line 7"); });
}

std::string error_of(const std::string& line) {
  try {
    (void)read(line);
    return "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.where, "line 7");
    EXPECT_FALSE(error.hint.empty());
    return error.what();
  }
}

TEST(OperationsFile, EachFieldIsRead) {
  const Operation gemm =
      read(R"({"kind":"gemm","precision":"bf16","element_bytes":2,"bytes_read":3,"bytes_written":4,"flops":5.5,"launches":2,)"
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
      read(R"({"kind":"convolution","convolution":{"pass":"weight_gradient","batch":2,"in":[5,6],"window":[3],"channels_last":true}})");
  EXPECT_EQ(convolution.convolution.pass, Pass::weight_gradient);
  EXPECT_EQ(convolution.convolution.in[1], 6);
  EXPECT_EQ(convolution.convolution.in[2], 1);  // what is not given stays 1
  EXPECT_EQ(read(R"({"kind":"attention","attention":{"window":128,"causal":true}})").attention.window, 128);
}

TEST(OperationsFile, SaysWhatIsWrong) {
  EXPECT_EQ(error_of("{}"), "this is no operation: it has no 'kind'");
  EXPECT_EQ(error_of("[1]"), "this is no operation: it is no JSON object");
  EXPECT_EQ(error_of(R"({"kind":"gem"})"), "this is no operation: no kind of operation is named 'gem'");
  EXPECT_EQ(error_of(R"({"kind":"gemm","precision":"fp33"})"), "this is no operation: no precision is named 'fp33'");
  EXPECT_EQ(error_of(R"({"kind":"gemm","gemm":{"m":-1}})"), "this is no operation: 'm' is no whole number from 0 to 2^50");
  EXPECT_EQ(error_of(R"({"kind":"gemm","gemm":{"m":1.5}})"), "this is no operation: 'm' is no whole number from 0 to 2^50");
  EXPECT_EQ(error_of(R"({"kind":"gemm","gemm":3})"), "this is no operation: 'gemm' is no object");
  EXPECT_EQ(error_of(R"({"kind":"gemm","gemm":{"x":1}})"), "this is no operation: 'gemm' has no field 'x'");
  EXPECT_EQ(error_of(R"({"kind":"gemm","flops":-1})"), "this is no operation: 'flops' is no finite number from 0");
  EXPECT_EQ(error_of(R"({"kind":"convolution","convolution":{"in":[1,2,3,4]}})"),
            "this is no operation: 'in' is no list of up to 3 whole numbers");
  EXPECT_EQ(error_of(R"({"kind":"copy","size":1})"), "this is no operation: an operation has no field 'size'");
  EXPECT_EQ(error_of(R"({"kind":"gemm")").rfind("this is no operation: it is no JSON", 0), 0U);
}

// Damaged lines either read or throw Error; nothing else.
TEST(OperationsFile, GarbageIsAnError) {
  const std::string whole =
      R"({"kind":"attention","precision":"fp16","flops":1e9,"rows":12,"attention":{"pass":"backward","batch":8,"causal":true},"gemm":{"m":5}})";
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same each time
  int errors = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string line = whole.substr(0, i % 5 == 0 ? random() % whole.size() : whole.size());
    for (int change = static_cast<int>(random() % 4); change > 0 && !line.empty(); --change) {
      line[random() % line.size()] = static_cast<char>(random() % 256);
    }
    try {
      (void)read(line);
    } catch (const Error&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 2000);
  EXPECT_LT(errors, 5000);
}

}  // namespace
}  // namespace gpucast
