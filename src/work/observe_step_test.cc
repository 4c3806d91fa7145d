#include "src/work/observe_step.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "src/base/json.h"
#include "src/schedule/step_schedule.h"
#include "src/trace/read_arguments.h"
#include "src/work/library_call.h"
#include "src/work/operator_table.h"
#include "src/work/test_step.h"

namespace gpucast {
namespace {

Operation of(const char* name, const char* inputs) {
  const auto found = operator_operation(name, operator_arguments(Json::parse(inputs)));
  EXPECT_TRUE(found) << name;
  return found.value_or(Operation{});
}
Operation call(const char* library, const char* name, const char* arguments, CallSettings settings = {}) {
  const auto found = library_call(library, name, call_arguments(Json::parse(arguments)), settings);
  EXPECT_TRUE(found) << name;
  return found.value_or(Operation{});
}

// ---- operators, computed by hand
// ---------------------------------------------------------------------------------------------------------------

TEST(OperatorTable, ElementwiseReadsItsInputsAndWritesTheirBroadcastShape) {
  const Operation add = of("aten::add", R"([{"float32": [[8, 64], [64, 1]]}, {"float32": [[64], [1]]}, 1])");
  EXPECT_EQ(add.kind, OperationKind::elementwise);
  EXPECT_EQ(add.bytes_read, (8 * 64 + 64) * 4);
  EXPECT_EQ(add.bytes_written, 8 * 64 * 4);
  const Operation in_place = of("aten::add_", R"([{"float16": [[8, 64], [64, 1]]}, {"float16": [[8, 64], [64, 1]]}, 1])");
  EXPECT_EQ(in_place.bytes_read, 2 * 8 * 64 * 2);
  EXPECT_EQ(in_place.bytes_written, 8 * 64 * 2);
  const Operation compared = of("aten::eq", R"([{"int64": [[100], [1]]}, 3])");
  EXPECT_EQ(compared.bytes_written, 100);
}

TEST(OperatorTable, OperatorsOnListsThatWriteIntoAGivenTensor) {
  // FSDP2: gradients are cast and cut into the parts of the ranks.
  const Operation cut = of("aten::_chunk_cat", R"([[{"bfloat16": [[100, 8], [8, 1]]}, {"bfloat16": [[60], [1]]}], 0, 2,
                                                   {"float32": [[2, 430], [430, 1]]}])");
  EXPECT_EQ(cut.kind, OperationKind::copy);
  EXPECT_EQ(cut.bytes_read, 860 * 2);
  EXPECT_EQ(cut.bytes_written, 860 * 4);
  const Operation split = of("aten::split_with_sizes_copy", R"([{"float32": [[2, 430], [430, 1]]}, [400, 30], 1,
                                                   [{"float32": [[2, 400], [400, 1]]}, {"float32": [[2, 30], [30, 1]]}]])");
  EXPECT_EQ(split.bytes_read, 860 * 4);
  EXPECT_EQ(split.bytes_written, 860 * 4);
  const Operation cat = of("aten::cat", R"([[{"float32": [[100], [1]]}, {"float32": [[60], [1]]}], 0])");
  EXPECT_EQ(cat.bytes_written, 160 * 4);
}

TEST(OperatorTable, ABackwardWithWeightsSumsTheirGradients) {
  const std::string x = R"({"float32": [[8, 64], [64, 1]]})", statistic = R"({"float32": [[8, 1], [1, 1]]})",
                    weight = R"({"float32": [[64], [1]]})";
  const auto backward = [&](const std::string& weights) {
    return of("aten::native_layer_norm_backward",
              ("[" + x + ", " + x + ", [64], " + statistic + ", " + statistic + weights + ", [true, true, true]]").c_str());
  };
  EXPECT_TRUE(backward(", " + weight + ", " + weight).sums_weights);
  EXPECT_FALSE(backward(", null, null").sums_weights);
}

TEST(OperatorTable, TheBiasOfAProductIsCopiedToItsResult) {
  const Operation bias = of("aten::addmm", R"([{"float32": [[512], [1]]}, {"float32": [[64, 256], [256, 1]]},
                                              {"float32": [[256, 512], [1, 256]]}, 1, 1])");
  EXPECT_EQ(bias.bytes_read, 512 * 4);
  EXPECT_EQ(bias.bytes_written, 64 * 512 * 4);
}

TEST(OperatorTable, GroupedProductsAreDividedEvenly) {
  const char* ends = R"({"int32": [[8], [1]]})";
  const auto product = [&](const std::string& a, const std::string& b) {
    return of("aten::_grouped_mm", ("[" + a + ", " + b + ", " + ends + "]").c_str());
  };
  const std::string rows = R"({"bfloat16": [[1000, 64], [64, 1]]})", groups = R"({"bfloat16": [[8, 64, 32], [2048, 1, 64]]})";
  const Operation forward = product(rows, groups);
  EXPECT_EQ(forward.kind, OperationKind::gemm);
  EXPECT_EQ(forward.precision, Precision::bf16);
  EXPECT_EQ(forward.gemm, (GemmShape{8, 125, 32, 64}));
  EXPECT_DOUBLE_EQ(forward.flops, 2.0 * 1000 * 64 * 32);
  const Operation of_weights = product(R"({"bfloat16": [[64, 1000], [1, 64]]})", R"({"bfloat16": [[1000, 32], [32, 1]]})");
  EXPECT_EQ(of_weights.gemm, (GemmShape{8, 64, 32, 125}));
  EXPECT_DOUBLE_EQ(of_weights.flops, 2.0 * 1000 * 64 * 32);
  const Operation each = product(R"({"bfloat16": [[8, 16, 64], [1024, 64, 1]]})", groups);
  EXPECT_EQ(each.gemm, (GemmShape{8, 16, 32, 64}));
  EXPECT_DOUBLE_EQ(each.flops, 2.0 * 8 * 16 * 64 * 32);
  EXPECT_TRUE(operator_is_known("aten::_scaled_grouped_mm"));
}

TEST(OperatorTable, BitsandbytesUnpacksAndMultipliesAndUpdates) {
  const Operation unpacking = of("bitsandbytes::dequantize_4bit", R"([{"uint8": [[65536, 1], [1, 1]]}, {"float32": [[2048], [1]]}, 64])");
  EXPECT_EQ(unpacking.bytes_read, 65536 + 2048 * 4);
  EXPECT_EQ(unpacking.bytes_written, 2 * 65536 * 2);
  const Operation to_fp32 =
      of("bitsandbytes::dequantize_4bit", R"([{"uint8": [[8, 1], [1, 1]]}, {"float32": [[1], [1]]}, 64, null, null, 6])");
  EXPECT_EQ(to_fp32.bytes_written, 2 * 8 * 4);
  const Operation product =
      of("bitsandbytes::gemm_4bit", R"([{"bfloat16": [[4, 64, 256], [16384, 256, 1]]}, {"uint8": [[32768, 1], [1, 1]]},
                                                              null, {"float32": [[1024], [1]]}, 64])");
  EXPECT_EQ(product.gemm.m, 4 * 64);
  EXPECT_EQ(product.gemm.n, 256);
  EXPECT_EQ(product.gemm.k, 256);
  EXPECT_EQ(product.flops, 2.0 * 256 * 256 * 256);
  const Operation update = of("bitsandbytes::optimizer_update_8bit_blockwise",
                              R"([null, {"float32": [[1000], [1]]}, {"float32": [[1000], [1]]}, {"uint8": [[1000], [1]]},
                                  {"uint8": [[1000], [1]]}, 0.9])");
  EXPECT_EQ(update.bytes_read, 1000 * 10);
  EXPECT_EQ(update.bytes_written, 1000 * 6);
}

TEST(OperatorTable, SparseTensorsAreLeftToTheirKernelsThreads) {
  EXPECT_FALSE(operator_operation("aten::_coalesce", operator_arguments(Json::parse(R"([{"float32": [[50000, 64], []]}])"))));
  EXPECT_TRUE(operator_is_known("aten::_coalesce"));
}

// A loss over a vocabulary takes one element of each row; the zeros of its backward's result are an operator of their own.
TEST(OperatorTable, ALossByIndexTakesAnElementOfEachRow) {
  const std::string x = R"({"float32": [[2048, 32768], [32768, 1]]})", target = R"({"int64": [[2048], [1]]})",
                    one = R"({"float32": [[], []]})";
  const Operation forward = of("aten::nll_loss_forward", ("[" + x + ", " + target + ", null, 1, -100]").c_str());
  EXPECT_EQ(forward.bytes_read, 2048 * (4 + 8));
  EXPECT_EQ(forward.bytes_written, 4);
  const Operation backward =
      of("aten::nll_loss_backward", ("[" + one + ", " + x + ", " + target + ", null, 1, -100, " + one + "]").c_str());
  EXPECT_EQ(backward.bytes_read, 2048 * (4 + 8));
  EXPECT_EQ(backward.bytes_written, 2048 * 4);
  EXPECT_TRUE(operator_is_known("aten::nll_loss_backward"));
}

// PyTorch 2.6 records null instead of normalized_shape.
TEST(OperatorTable, ALayerNormsRowsFollowFromItsWeight) {
  const std::string x = R"({"float32": [[8, 512, 1024], [524288, 1024, 1]]})", weight = R"({"float32": [[1024], [1]]})";
  const std::string statistics = R"({"float32": [[8, 512, 1], [512, 1, 1]]})";
  std::string inputs = "[" + x + ", null, " + weight + ", " + weight + ", 1e-05]";
  EXPECT_EQ(of("aten::native_layer_norm", inputs.c_str()).rows, 8 * 512);
  inputs = "[" + x + ", " + x + ", null, " + statistics + ", " + statistics + ", " + weight + ", " + weight + ", [true, true, true]]";
  EXPECT_EQ(of("aten::native_layer_norm_backward", inputs.c_str()).columns, 1024);
  inputs = "[" + x + ", null, null, null, 1e-05]";
  EXPECT_EQ(of("aten::native_layer_norm", inputs.c_str()).columns, 1024);
}

// With known statistics a batch norm is elementwise: no block of threads has to read a whole channel.
TEST(OperatorTable, BatchNormInEvaluationIsElementwise) {
  const std::string x = R"([{"float16": [[4, 16, 8, 8], [1024, 64, 8, 1]]}, {"float32": [[16], [1]]}, {"float32": [[16], [1]]}, )";
  const std::string statistics = R"({"float32": [[16], [1]]}, {"float32": [[16], [1]]}, )";
  const Operation known = of("aten::cudnn_batch_norm", (x + statistics + "false, 0.1, 1e-05]").c_str());
  EXPECT_EQ(known.kind, OperationKind::elementwise);
  EXPECT_EQ(known.rows, 0);
  const Operation training = of("aten::cudnn_batch_norm", (x + statistics + "true, 0.1, 1e-05]").c_str());
  EXPECT_EQ(training.kind, OperationKind::normalization);
  EXPECT_EQ(training.rows, 16);
  const Operation called = call("cudnn", "cudnnBatchNormalizationForwardInference",
                                R"({"type": "float16", "shape": [4, 16, 8, 8], "strides": [1024, 64, 8, 1], "mode": 1})");
  EXPECT_EQ(called.kind, OperationKind::elementwise);
  EXPECT_EQ(called.rows, 0);
}

TEST(OperatorTable, ExpandedDimensionsHaveOneElement) {
  EXPECT_EQ(of("aten::mul", R"([{"float32": [[16, 1000], [0, 1]]}, 2.0])").bytes_read, 1000 * 4);
}

TEST(OperatorTable, AddressesAreComputedForRepeatAndCat) {
  const std::string gate = R"([{"float16": [[8, 64, 7, 7], [3136, 49, 7, 1]]}, {"float16": [[8, 64, 1, 1], [64, 1, 1, 1]]}])";
  EXPECT_TRUE(of("aten::mul", gate.c_str()).indexed);
  EXPECT_FALSE(of("aten::mul", R"([{"float16": [[8, 64], [64, 1]]}, {"float16": [[8, 64], [64, 1]]}])").indexed);
  EXPECT_FALSE(of("aten::mul", R"([{"float16": [[8, 64], [64, 1]]}, {"float32": [[], []]}])").indexed);  // one number
  EXPECT_TRUE(of("aten::cat", R"([[{"float16": [[8, 64], [64, 1]]}, {"float16": [[8, 32], [32, 1]]}], 1])").indexed);
}

TEST(OperatorTable, DepthwiseConvolutionsOfPyTorchAreNotALibrarys) {
  const Operation own = of(
      "aten::_conv_depthwise2d",
      R"([{"float16": [[8, 24, 56, 56], [75264, 3136, 56, 1]]}, {"float16": [[24, 1, 3, 3], [9, 9, 3, 1]]}, [3, 3], null, [1, 1], [1, 1], [1, 1]])");
  EXPECT_EQ(own.convolution.groups, 24);
  EXPECT_FALSE(own.convolution.by_library);
}

TEST(OperatorTable, NumbersOnTheHostAreNotRead) {
  EXPECT_EQ(of("aten::add_", R"([{"int64": [[], []]}, {"int64": [[], [], "cpu"]}, 1])").bytes_read, 8);
  EXPECT_FALSE(operator_operation("aten::add_", operator_arguments(Json::parse(R"([{"int64": [[], [], "cpu"]}, 1])"))));
}

TEST(OperatorTable, ReductionsWriteTheOtherDimensions) {
  const Operation sum = of("aten::sum", R"([{"float32": [[8, 64, 10], [640, 10, 1]]}, [0, -1], false, null])");
  EXPECT_EQ(sum.kind, OperationKind::reduction);
  EXPECT_EQ(sum.rows, 64);
  EXPECT_EQ(sum.columns, 80);
  EXPECT_EQ(sum.bytes_written, 64 * 4);
  EXPECT_FALSE(sum.strided);
  EXPECT_TRUE(of("aten::sum", R"([{"float32": [[8, 64], [64, 1]]}, [0], true, null])").strided);
}

TEST(OperatorTable, NormalizationsKnowTheirRows) {
  const Operation layer =
      of("aten::native_layer_norm",
         R"([{"float32": [[4, 128, 768], [98304, 768, 1]]}, [768], {"float32": [[768], [1]]}, {"float32": [[768], [1]]}, 1e-05])");
  EXPECT_EQ(layer.kind, OperationKind::normalization);
  EXPECT_EQ(layer.rows, 512);
  EXPECT_EQ(layer.columns, 768);
  const Operation softmax = of("aten::_softmax", R"([{"float16": [[2, 12, 64, 64], [49152, 4096, 64, 1]]}, -1, false])");
  EXPECT_EQ(softmax.rows, 2 * 12 * 64);
  EXPECT_EQ(softmax.bytes_written, softmax.bytes_read);
}

TEST(OperatorTable, ASortHasRowsAlongItsDimension) {
  const Operation rows = of("aten::sort", R"([{"float32":[[8,64,32],[2048,32,1]]},1,true])");
  EXPECT_EQ(rows.kind, OperationKind::indexing);
  EXPECT_EQ(rows.rows, 8 * 32);
  EXPECT_EQ(rows.columns, 64);
  EXPECT_EQ(rows.sort_bits, 32);
  EXPECT_EQ(rows.bytes_read, 8 * 64 * 32 * 12);
  EXPECT_EQ(of("aten::sort", R"([{"float32":[[8,64,32],[2048,32,1]]},null,0,true])").columns, 8);
  EXPECT_EQ(of("aten::argsort", R"([{"int64":[[8,64,32],[2048,32,1]]}])").columns, 32);
  const Operation scan = of("aten::cumsum", R"([{"float32":[[8,64,32],[2048,32,1]]},1,null])");
  EXPECT_EQ(scan.rows, 256);
  EXPECT_EQ(scan.columns, 64);
  EXPECT_EQ(scan.bytes_written, scan.bytes_read);
  const Operation topk = of("aten::topk", R"([{"float32":[[8,64,32],[2048,32,1]]},5,1,true,true])");
  EXPECT_EQ(topk.columns, 64);
  EXPECT_EQ(topk.bytes_written, 256 * 5 * 12);
  const Operation search = of("aten::searchsorted", R"([{"float32":[[1000],[1]]},{"float32":[[50],[1]]},false,false,null,null])");
  EXPECT_EQ(search.columns, 1000);
  EXPECT_EQ(search.bytes_written, 400);
}

TEST(OperatorTable, AnEmbeddingsGradientIsASumOfRows) {
  const Operation many = of("aten::embedding_dense_backward", R"([{"float32":[[4096,64],[64,1]]},{"int64":[[4096],[1]]},1000,-1,false])");
  EXPECT_EQ(many.summed_rows, 4096 + 409 + 2 * 1000);
  EXPECT_EQ(many.columns, 64);
  EXPECT_EQ(many.bytes_written, 2 * 1000 * 64 * 4);  // the sums, and the rows of the result
  const Operation few = of("aten::embedding_dense_backward", R"([{"float32":[[64,64],[64,1]]},{"int64":[[64],[1]]},1000,-1,false])");
  EXPECT_EQ(few.summed_rows, 0);
  EXPECT_EQ(few.bytes_written, 64 * 64 * 4);
}

// The profiler has no list of indices: their number comes from the values.
TEST(OperatorTable, RowsPutByIndicesThatAreNotRecorded) {
  const Operation rows =
      of("aten::_index_put_impl_", R"([{"float32": [[4096, 1024], [1024, 1]]}, null, {"float32": [[8192, 1024], [0, 0]]}, true, true])");
  EXPECT_EQ(rows.rows, 8192);
  EXPECT_EQ(rows.columns, 4096);
  EXPECT_EQ(rows.bytes_written, 8192 * 1024 * 4);
  const Operation elements = of("aten::index_put_", R"([{"float32": [[40, 50], [50, 1]]}, null, {"float32": [[600], [1]]}, true])");
  EXPECT_EQ(elements.rows, 600);
  EXPECT_EQ(elements.columns, 40 * 50);
}

TEST(OperatorTable, AnEmbeddingReadsTheRowsItNeeds) {
  const Operation embedding =
      of("aten::embedding", R"([{"float32": [[50257, 768], [768, 1]]}, {"int64": [[4, 128], [128, 1]]}, -1, false, false])");
  EXPECT_EQ(embedding.kind, OperationKind::indexing);
  EXPECT_EQ(embedding.bytes_written, 512 * 768 * 4);
  EXPECT_EQ(embedding.bytes_read, 512 * 768 * 4 + 512 * 8);
}

TEST(OperatorTable, AnIndexForEachDimensionTakesElements) {
  // logits[places, targets], as Megatron's cross entropy has it.
  const std::string logits = R"([{"float32": [[4096, 50304], [50304, 1]]}, )";
  const Operation both = of("aten::index", (logits + R"([{"int64": [[4096], [1]]}, {"int64": [[4096], [1]]}]])").c_str());
  EXPECT_EQ(both.bytes_written, 4096 * 4);
  const Operation first = of("aten::index", (logits + R"([{"int64": [[16], [1]]}]])").c_str());
  EXPECT_EQ(first.bytes_written, 16 * 50304 * 4);
}

TEST(OperatorTable, OptimizersMoveTheirLists) {
  const char* list = R"([{"float32": [[10], [1]]}, {"float32": [[20], [1]]}])";
  const std::string inputs = std::string("[") + list + "," + list + "," + list + "," + list + ", [], 0.1]";
  const Operation adam = of("aten::_fused_adamw_", inputs.c_str());
  EXPECT_EQ(adam.kind, OperationKind::optimizer);
  EXPECT_EQ(adam.bytes_read, 4 * 30 * 4);
  EXPECT_EQ(adam.bytes_written, 3 * 30 * 4);
  const Operation norm = of("aten::_foreach_norm", (std::string("[") + list + ", 2]").c_str());
  EXPECT_EQ(norm.bytes_written, 2 * 4);
}

// 65,536 elements are 32 rounds of 512 threads with four elements each; a longer tensor has more blocks.
TEST(OperatorTable, AListsBlocksWaitForTheirChunks) {
  const auto waits = [](const char* name, const std::string& elements, const char* more) {
    const std::string list = R"([{"float32": [[)" + elements + R"(], [1]]}, {"float32": [[20], [1]]}])";
    std::string inputs = "[" + list;
    for (const char* next = more; *next != 0; ++next)
      inputs += "," + (*next == 't' ? list : R"([{"float32": [[], []]}, {"float32": [[], []]}])");
    return of(name, (inputs + ", 0.1]").c_str()).waited_loads;
  };
  EXPECT_EQ(waits("aten::_foreach_mul_", "65536", ""), 32 * 2);
  EXPECT_EQ(waits("aten::_foreach_mul_", "1000000", ""), 32 * 2);
  EXPECT_EQ(waits("aten::_foreach_mul_", "2049", ""), 2 * 2);
  EXPECT_EQ(waits("aten::_fused_adamw_", "65536", "ttts"), 32 * 5);
  EXPECT_EQ(waits("aten::_foreach_norm", "65536", ""), 32);
  EXPECT_EQ(waits("aten::_foreach_zero_", "65536", ""), 0);
}

TEST(OperatorTable, ATransposedCopyReadsOneElementOfManyLines) {
  const Operation far = of("aten::copy_", R"([{"float32": [[64, 391774], [391774, 1]]}, {"float32": [[64, 391774], [1, 64]]}, false])");
  EXPECT_EQ(far.far_elements, 64 * 391774);
  EXPECT_EQ(far.far_lines, 391774);
  const Operation image = of("aten::copy_", R"([{"float32": [[8, 100, 56, 56], [313600, 1, 5600, 100]]},
    {"float32": [[8, 100, 56, 56], [313600, 3136, 56, 1]]}, false])");
  EXPECT_EQ(image.far_lines, 100);
  EXPECT_EQ(of("aten::copy_", R"([{"float32": [[64, 32], [32, 1]]}, {"float32": [[64, 32], [32, 1]]}, false])").far_lines, 0);
}

TEST(OperatorTable, ACopyOfEverySecondElementTouchesAllSectors) {
  const char* copy = R"([{"float32": [[100, 384], [384, 1]]}, {"float32": [[100, 384], [768, 2]]}, false])";
  EXPECT_EQ(of("aten::copy_", copy).bytes_read, 2 * 100 * 384 * 4);
  EXPECT_EQ(of("aten::copy_", R"([{"float32": [[100, 1], [1, 1]]}, {"float32": [[100, 1], [1000, 1]]}, false])").bytes_read, 100 * 32);
}

// A warp of 32 threads: transposed, each reads another line; of 2 x 16 neighbours from two rows, the rows' two.
TEST(OperatorTable, AStridedCopyReadsTheLinesOfAWarp) {
  const auto lines = [](const char* arguments) { return of("aten::copy_", arguments).warp_lines; };
  EXPECT_EQ(lines(R"([{"float32": [[512, 512], [512, 1]]}, {"float32": [[512, 512], [1, 512]]}, false])"), 32);
  EXPECT_EQ(lines(R"([{"float32": [[8, 35, 2], [70, 2, 1]]}, {"float32": [[8, 35, 2], [35, 1, 280]]}, false])"), 2);
  EXPECT_EQ(lines(R"([{"float32": [[512, 512], [512, 1]]}, {"float32": [[512, 512], [512, 1]]}, false])"), 0);
}

TEST(OperatorTable, AFusedNormIsNoOptimizer) {
  const char* x = R"({"bfloat16": [[8, 128, 768], [98304, 768, 1]]})";
  const Operation norm = of("aten::_fused_rms_norm", (std::string("[") + x + R"(, [768], {"bfloat16": [[768], [1]]}, null])").c_str());
  EXPECT_EQ(norm.kind, OperationKind::normalization);
  EXPECT_EQ(norm.rows, 8 * 128);
  EXPECT_EQ(norm.bytes_written, 8 * 128 * 768 * 2);
}

TEST(OperatorTable, PoolingMayHaveOneStrideForAllDimensions) {
  const Operation pool =
      of("aten::max_pool2d_with_indices", R"([{"float32": [[2, 8, 32, 32], [8192, 1024, 32, 1]]}, [3, 3], [2], [1], [1], false])");
  EXPECT_EQ(pool.bytes_written, 2 * 8 * 16 * 16 * (4 + 8));
}

// A window of 3 x 3 by steps of 2: an element is in 1.5 lines of 1.5 windows. Where channels are together, each place is another line.
TEST(OperatorTable, ImagesWaitForTheLinesOfTheirWindows) {
  const std::string x = R"({"float32": [[2, 8, 32, 32], [8192, 1024, 32, 1]]})";
  const std::string last = R"({"float32": [[2, 8, 32, 32], [8192, 1, 256, 8]]})",
                    y = R"({"float32": [[2, 8, 16, 16], [2048, 256, 16, 1]]})";
  const auto work = [&](const char* name, const std::string& arguments) { return of(name, ("[" + arguments + "]").c_str()).element_work; };
  const ElementWork pool = work("aten::max_pool2d_with_indices", x + ", [3, 3], [2, 2], [1, 1], [1, 1], false");
  EXPECT_EQ(pool.elements, 2 * 8 * 16 * 16);
  EXPECT_EQ(std::pair(pool.waited_loads, pool.near_loads), std::pair(3.0, 6.0));
  EXPECT_EQ(work("aten::avg_pool2d", last + ", [3, 3], [2, 2], [1, 1], false, true, null").waited_loads, 9);
  const ElementWork back = work("aten::max_pool2d_with_indices_backward", y + ", " + x + ", [3, 3], [2, 2], [1, 1], [1, 1], false");
  EXPECT_EQ(back.elements, 2 * 8 * 32 * 32);
  EXPECT_EQ(std::pair(back.waited_loads, back.near_loads), std::pair(3.0, 1.5));
  const ElementWork cubic = work("aten::upsample_bicubic2d", x + ", [64, 64], false, null, null");
  EXPECT_EQ(std::pair(cubic.of_thread, cubic.joined_loads), std::pair(int64_t{16}, 15.0));
  const ElementWork linear = work("aten::upsample_bilinear2d_backward", x + ", [32, 32], [2, 8, 16, 16], false, null, null");
  EXPECT_EQ(std::tuple(linear.elements, linear.of_thread, linear.atomics), std::tuple(2 * 8 * 32 * 32, 0, 4.0));
  const ElementWork nearest = work("aten::upsample_nearest2d_backward", x + ", [32, 32], [2, 8, 16, 16], null, null");
  EXPECT_EQ(std::tuple(nearest.of_thread, nearest.waited_loads, nearest.near_loads), std::tuple(2, 2.0, 2.0));
  // The profiler of PyTorch 2.14 leaves the lists of sizes out.
  const ElementWork by_factors = work("aten::upsample_nearest2d_backward", x + ", null, null, 2.0, 2.0");
  EXPECT_EQ(std::tuple(by_factors.of_thread, by_factors.waited_loads, by_factors.near_loads), std::tuple(2, 2.0, 2.0));
  EXPECT_EQ(by_factors.elements, 2 * 8 * 16 * 16);
  EXPECT_EQ(work("aten::upsample_nearest2d", y + ", null, 2.0, 2.0").elements, 2 * 8 * 32 * 32);
  EXPECT_EQ(work("aten::upsample_nearest2d", y + ", null, null, null").elements, 2 * 8 * 32 * 32);
  const ElementWork adaptive = work("aten::_adaptive_avg_pool2d_backward", y + ", " + x);
  EXPECT_EQ(std::pair(adaptive.atomics, adaptive.atomic_sectors), std::pair(4.0, 2.0 * 8 * 32 * 32 / 4));
  EXPECT_EQ(work("aten::adaptive_max_pool2d", x + ", [16, 16]").waited_loads, 2);
  EXPECT_EQ(work("aten::adaptive_max_pool2d_backward", y + ", " + x).atomics, 1);
  EXPECT_EQ(work("aten::_adaptive_avg_pool2d_backward", last + ", " + x).atomics, 0);
  EXPECT_EQ(work("aten::max_unpool2d", x).elements, 0);
  const ElementWork sample = work("aten::grid_sampler_2d", x + R"(, {"float32": [[2, 5, 5, 2], [50, 10, 2, 1]]}, 0, 0, false)");
  EXPECT_EQ(std::tuple(sample.elements, sample.of_thread, sample.joined_loads), std::tuple(2 * 8 * 25, 8, 3.0));
  const Operation columns = of("aten::im2col", ("[" + x + ", [3, 3], [1, 1], [1, 1], [1, 1]]").c_str());
  EXPECT_EQ(std::pair(columns.bytes_written, columns.element_work.near_loads), std::pair(int64_t{9} * 16 * 1024 * 4, 6.0));
  EXPECT_EQ(of("aten::reflection_pad2d", ("[" + x + ", [2, 2, 1, 1]]").c_str()).bytes_written, 16 * 36 * 34 * 4);
}

TEST(OperatorTable, AttentionCountsHalfWhenCausal) {
  const char* q = R"({"bfloat16": [[2, 512, 8, 64], [262144, 512, 64, 1]]})";
  const std::string tensors = std::string(q) + "," + q + "," + q;
  const Operation whole = of("aten::_flash_attention_forward", ("[" + tensors + ", null, null, 512, 512, 0.0, false, false]").c_str());
  const Operation causal = of("aten::_flash_attention_forward", ("[" + tensors + ", null, null, 512, 512, 0.0, true, false]").c_str());
  EXPECT_EQ(whole.kind, OperationKind::attention);
  EXPECT_EQ(whole.attention.heads, 8);
  EXPECT_EQ(whole.attention.queries, 512);
  EXPECT_DOUBLE_EQ(whole.flops, 4.0 * 2 * 8 * 512 * 512 * 64);
  EXPECT_DOUBLE_EQ(causal.flops, whole.flops / 2);
}

TEST(OperatorTable, GarbageIsNoCrash) {
  for (const char* inputs :
       {"[]", "[null]", "[[]]", "[{}]", R"([{"float32": []}])", R"([{"float32": [[-5], [1]]}])", R"([{"no type": [[3], []]}])",
        R"([{"float32": [[3, 3], [3, 1]]}, [5, -7]])", "null", "7", R"([[[{"float32": [[1], [1]]}]]])"}) {
    for (const char* name : {"aten::sum", "aten::_softmax", "aten::native_layer_norm_backward", "aten::convolution_backward",
                             "aten::_flash_attention_backward", "aten::max_pool2d_with_indices", "aten::upsample_bilinear2d_backward",
                             "aten::grid_sampler_2d", "aten::_adaptive_avg_pool2d_backward", "aten::im2col", "aten::reflection_pad2d",
                             "aten::embedding", "aten::_foreach_add_", "aten::copy_", "aten::cat", "unheard::of", ""}) {
      (void)operator_operation(name, operator_arguments(Json::parse(inputs)));
    }
  }
}

// ---- library calls ---------------------------------------------------------------------------------------------------------------------

// torch._scaled_mm: products in 8 and 4 bits have the rate of 8, and results in bf16.
TEST(LibraryCall, ScaledProductsHaveTheRateOfTheirType) {
  for (const char* type : {"float8_e4m3", "float8_e5m2", "float4_e2m1"}) {
    const std::string arguments = fmt::format(R"({{"type":"{}","type_c":"bfloat16","m":64,"n":128,"k":256}})", type);
    const Operation product = call("cublasLt", "cublasLtMatmul", arguments.c_str());
    EXPECT_EQ(product.precision, Precision::fp8) << type;
    EXPECT_EQ(product.element_bytes, 1);
    EXPECT_EQ(product.bytes_written, 64 * 128 * 2);
  }
}

TEST(LibraryCall, ALinearLayerIsRowMajor) {
  // x[8, 784] w[2048, 784]^T: PyTorch requests the transposed product from cuBLAS.
  const Operation linear =
      call("cublasLt", "cublasLtMatmul",
           R"({"type":"float32","type_c":"float32","compute_type":68,"ta":"t","tb":"n","m":2048,"n":8,"k":784,"batch":1})");
  EXPECT_EQ(linear.kind, OperationKind::gemm);
  EXPECT_EQ(linear.precision, Precision::fp32);
  EXPECT_EQ(linear.gemm.m, 8);
  EXPECT_EQ(linear.gemm.n, 2048);
  EXPECT_EQ(linear.gemm.k, 784);
  EXPECT_TRUE(linear.gemm.b_transposed);
  EXPECT_FALSE(linear.gemm.a_transposed);
  EXPECT_DOUBLE_EQ(linear.flops, 2.0 * 8 * 2048 * 784);
  EXPECT_EQ(linear.bytes_read, (8 + 2048) * 784 * 4);
}

TEST(LibraryCall, Fp32MayRunAsTf32) {
  const char* arguments = R"({"type":"float32","ta":"n","tb":"n","m":8,"n":8,"k":8,"batch":1})";
  EXPECT_EQ(call("cublas", "cublasSgemm_v2", arguments).precision, Precision::fp32);
  EXPECT_EQ(call("cublas", "cublasSgemm_v2", arguments, {true, false}).precision, Precision::tf32);
  EXPECT_EQ(call("cublas", "cublasGemmEx", R"({"type":"float16","compute_type":68,"m":8,"n":8,"k":8})", {true, true}).precision,
            Precision::fp16);
}

TEST(LibraryCall, AConvolutionsPassAndGroups) {
  const Operation grouped = call(
      "cudnn", "cudnnBackendExecute",
      R"({"engine":0,"operations":[{"op":"convolution_backward_filter","type":"float16","x":[8,64,28,28],"w":[128,2,3,3],"y":[8,128,14,14],"x_strides":[50176,1,1792,64],"stride":[2,2]}]})");
  EXPECT_EQ(grouped.kind, OperationKind::convolution);
  EXPECT_EQ(grouped.convolution.pass, Pass::weight_gradient);
  EXPECT_EQ(grouped.convolution.groups, 32);
  EXPECT_EQ(grouped.convolution.stride[0], 2);
  EXPECT_TRUE(grouped.convolution.channels_last);
  EXPECT_DOUBLE_EQ(grouped.flops, 2.0 * 8 * 128 * 14 * 14 * 2 * 9);
  EXPECT_EQ(grouped.bytes_written, 128 * 2 * 9 * 2);
}

// As PyTorch's scaled_dot_product_attention calls cuDNN on Hopper: forward is one node, backward a graph of products.
TEST(LibraryCall, AttentionInACudnnGraph) {
  const auto tensor = [](const char* shape, bool is_virtual = false) {
    return std::string(R"({"type":"bfloat16","virtual":)") + (is_virtual ? "1" : "0") + R"(,"shape":)" + shape + "}";
  };
  const auto graph = [](const std::string& operations) { return R"({"engine":0,"operations":[)" + operations + "]}"; };
  const auto node = [](const char* name, const std::string& tensors) {
    return std::string(R"({"op":")") + name + R"(","tensors":[)" + tensors + "]}";
  };
  const std::string q = tensor("[4,16,1024,128]"), k = tensor("[4,8,2048,128]"), v = tensor("[4,8,2048,64]");
  const std::string forward = node("sdpa_forward", q + "," + k + "," + v + "," + tensor("[4,16,1024,64]"));
  const Operation one = call("cudnn", "cudnnBackendExecute", graph(forward).c_str());
  EXPECT_EQ(one.kind, OperationKind::attention);
  EXPECT_EQ(one.precision, Precision::bf16);
  const AttentionShape expected{Pass::forward, 4, 16, 8, 1024, 2048, 128, 64, false, 0, false, AttentionKernel::cudnn};
  EXPECT_EQ(one.attention, expected);
  EXPECT_DOUBLE_EQ(one.flops, 2.0 * 4 * 16 * 1024 * 2048 * (128 + 64));
  EXPECT_EQ(one.bytes_read, 2 * (4 * 16 * 1024 * 128 + 4 * 8 * 2048 * (128 + 64)));
  EXPECT_EQ(one.bytes_written, 2 * 4 * 16 * 1024 * 64);
  const Operation causal = call("cudnn", "cudnnBackendExecute", graph(forward + "," + node("diagonal_band_mask", "")).c_str());
  EXPECT_TRUE(causal.attention.causal);
  EXPECT_DOUBLE_EQ(causal.flops, one.flops / 2);

  const std::string scores = tensor("[4,16,1024,2048]", true);
  const std::string pair = node("matmul", q + "," + tensor("[4,8,128,2048]") + "," + scores) + "," + node("pointwise", scores) + "," +
                           node("matmul", scores + "," + v + "," + tensor("[4,16,1024,64]"));
  EXPECT_EQ(call("cudnn", "cudnnBackendExecute", graph(pair).c_str()).attention, expected);
  const std::string gradients = node("matmul", tensor("[4,16,1024,64]") + "," + tensor("[4,8,64,2048]") + "," + scores) + "," +
                                node("matmul", scores + "," + k + "," + q) + "," +
                                node("matmul", tensor("[4,16,2048,1024]", true) + "," + q + "," + tensor("[4,16,2048,128]"));
  const Operation backward = call("cudnn", "cudnnBackendExecute", graph(pair + "," + gradients).c_str());
  EXPECT_EQ(backward.attention.pass, Pass::backward);
  EXPECT_EQ(backward.attention.value_dim, 64);
  EXPECT_DOUBLE_EQ(backward.flops, 2.5 * one.flops);

  const Operation product =
      call("cudnn", "cudnnBackendExecute",
           graph(node("matmul", tensor("[2,32,64]") + "," + tensor("[2,64,16]") + "," + tensor("[2,32,16]"))).c_str());
  EXPECT_EQ(product.kind, OperationKind::gemm);
  EXPECT_DOUBLE_EQ(product.flops, 2.0 * 2 * 32 * 64 * 16);
}

TEST(LibraryCall, ATransformMovesItsSignalOnceForEachDimension) {
  const auto transform = [](const char* arguments) {
    return *library_call("cufft", "cufftXtExec", call_arguments(Json::parse(arguments)), {});
  };
  const Operation plane = transform(R"({"type": "complex64", "type_out": "complex64", "shape": [256, 128], "batch": 8})");
  EXPECT_EQ(plane.launches, 2);
  EXPECT_EQ(plane.bytes_read + plane.bytes_written, 4 * 8 * 256 * 128 * 8);
  const Operation real = transform(R"({"type": "float32", "type_out": "complex64", "shape": [256], "batch": 8})");
  EXPECT_EQ(real.bytes_read + real.bytes_written, 8 * (256 * 4 + 129 * 8));
  const Operation longer = transform(R"({"type": "complex64", "type_out": "complex64", "shape": [8192], "batch": 1})");
  EXPECT_EQ(longer.launches, 2);
  const Operation prime = transform(R"({"type": "float32", "type_out": "complex64", "shape": [251], "batch": 8})");
  EXPECT_EQ(prime.launches, 3);
  EXPECT_EQ(prime.bytes_read + prime.bytes_written, 8 * (251 * 4 + 126 * 8 + 4 * 251 * 8));
  EXPECT_FALSE(library_call("cufft", "cufftXtExec", call_arguments(Json::parse("{}")), {}).has_value());
}

TEST(LibraryCall, RecurrentNetworksMayRunAsTf32) {
  CallSettings settings;
  settings.tf32_convolutions = true;
  const CallArguments lstm = call_arguments(
      Json::parse(R"({"type": "float32", "cell": "lstm", "input_size": 8, "hidden_size": 16, "layers": 2, "steps": 5, "batch": 4})"));
  EXPECT_EQ(library_call("cudnn", "cudnnRNNForward", lstm, settings)->precision, Precision::tf32);
  EXPECT_EQ(library_call("cudnn", "cudnnRNNForward", lstm, {})->precision, Precision::fp32);
}

TEST(LibraryCall, UnknownCallsAreUnset) {
  EXPECT_FALSE(library_call("cusolver", "cusolverDnSpotrf", call_arguments(Json::parse("{}")), {}));
  EXPECT_FALSE(library_call("cudnn", "cudnnOfTheFuture", call_arguments(Json::parse("{}")), {}));
}

// ---- a whole step ----------------------------------------------------------------------------------------------------------------------

TEST(StepOperations, EachPieceOfWorkFindsItsOperatorAndPlace) {
  const Trace trace = trace_of(kLines);
  const StepOperations step = step_operations(trace);
  ASSERT_EQ(step.operations.size(), 4u);
  EXPECT_EQ(step.operations[0].name, "aten::relu") << "the innermost one";
  EXPECT_EQ(step.operations[0].phase, Phase::forward);
  EXPECT_EQ(module_label(trace, step.operations[0].module), "net (Net)");
  EXPECT_EQ(step.operations[1].name, "memcpy") << "it runs after aten::linear_like ended at 5000";
  EXPECT_EQ(step.operations[1].phase, Phase::loss);
  EXPECT_TRUE(step.operations[1].waits);
  EXPECT_FALSE(step.shapes[step.operations[1].shape].pageable);
  EXPECT_EQ(step.operations[2].name, "aten::_foreach_add_");
  EXPECT_EQ(step.operations[2].phase, Phase::backward);
  EXPECT_EQ(step.streams[step.operations[2].stream], 7u);
  EXPECT_EQ(step.shapes[step.operations[2].shape].launches, 2);
  EXPECT_EQ(step.operations[3].name, "relu_kernel");
  EXPECT_FALSE(step.operations[3].known);
  EXPECT_EQ(step.shapes[step.operations[3].shape].kind, OperationKind::unknown);
  EXPECT_EQ(step.shapes[step.operations[3].shape].bytes_read, 2 * 128 * 4);
  EXPECT_EQ(step.work, 5);
  EXPECT_EQ(step.known_work, 4);
  EXPECT_EQ(step.host_ns, 1'000'000);
  EXPECT_EQ(step.operations[0].asked_ns, 11'500) << "from the step's begin at 999990 us to 2500 ns after the clock's begin";
  EXPECT_EQ(step.samples, 8);
  EXPECT_EQ(step.tokens, 8 * 128);
}

// The whole step is inside a call of thread 1, so that this thread's calls hold all work of thread 2.
TEST(StepOperations, AStepInAClosureKnowsTheOperatorsOfItsBackward) {
  std::vector<std::string> lines = kLines;
  const auto at = [&](std::string_view line) { return std::find(lines.begin(), lines.end(), line); };
  lines.insert(at(R"(["operator_kind",0,"aten::linear_like",[{"float32":[[4,4],[4,1]]}]])"),
               R"(["operator_kind",3,"Optimizer.step#LBFGS.step",[]])");
  lines.insert(at(R"(["operator",0,1,0,5000])"), R"(["operator",3,1,0,50000])");
  const StepOperations step = step_operations(trace_of(lines));
  ASSERT_GT(step.operations.size(), 3U);
  EXPECT_EQ(step.operations[0].name, "aten::relu");
  EXPECT_EQ(step.operations[2].name, "aten::_foreach_add_");
  EXPECT_EQ(step.operations[3].name, "relu_kernel") << "after it";
}

// An embedding's backward sorts its indices: fills of work space lie between its kernels.
TEST(StepOperations, AnOperatorCostsItsBytesOnceThoughAFillIsBetweenItsKernels) {
  std::vector<std::string> lines = kLines;
  const auto second = std::find(lines.begin(), lines.end(), R"(["kernel",0,1,1,1,128,1,1,0,7,10200])");
  ASSERT_NE(second, lines.end());
  lines.insert(second, R"(["memset",1,0,64,7,10150])");
  const StepOperations step = step_operations(trace_of(lines));
  ASSERT_EQ(step.operations.size(), 6u);
  const Operation &first = step.shapes[step.operations[2].shape], &rest = step.shapes[step.operations[4].shape];
  EXPECT_EQ(step.operations[3].kernel, "memset");
  EXPECT_GT(first.bytes_read, 0);
  EXPECT_EQ(rest.bytes_read + rest.bytes_written, 0);
  EXPECT_EQ(rest.launches, 1);
  EXPECT_TRUE(step.operations[4].known);
}

// Blocks of 4096 and 1000 bytes. Before the step a third block gets the second one's address; a fourth is allocated after the kernel.
// The operator's own kernels follow as its operation.
TEST(StepOperations, AKnownKernelIsAnOperationOfItsOwn) {
  std::vector<std::string> lines = kLines;
  const auto own = std::find(lines.begin(), lines.end(), R"(["kernel",0,1,1,1,128,1,1,0,7,10100])");
  ASSERT_NE(own, lines.end());
  *own = R"(["kernel",1,9,1,1,384,1,1,0,7,10100])";
  lines.insert(own, R"(["kernel_name",1,"_ZN14at_cuda_detail3cub6detail10radix_sort29DeviceRadixSortOnesweepKernelIfE"])");
  const StepOperations step = step_operations(trace_of(lines));
  ASSERT_GE(step.operations.size(), 4);
  const Operation &pass = step.shapes[step.operations[2].shape], &rest = step.shapes[step.operations[3].shape];
  EXPECT_EQ(pass.sorted_elements, 9 * 384 * 12);
  EXPECT_EQ(step.operations[2].name, "aten::_foreach_add_");
  EXPECT_TRUE(step.operations[2].known);
  EXPECT_EQ(rest.kind, OperationKind::optimizer);
  EXPECT_GT(rest.bytes_read, 0);
}

TEST(StepOperations, ACompiledKernelMovesTheBuffersOfItsPointers) {
  std::vector<std::string> lines = kLines;
  const auto events = std::find(lines.begin(), lines.end(), R"(["mark",2,0,0,999990,"other",""])");
  lines.insert(events, {R"(["alloc",65536,4096,0,0,900000])", R"(["alloc",131072,1000,0,0,900001])",
                        R"(["free_requested",131072,1000,0,0,900002])", R"(["alloc",131072,600,0,0,900003])"});
  const auto last = std::find(lines.begin(), lines.end(), R"(["mark",9,0,0,1000990,"step",2])");
  lines.insert(last, R"(["alloc",196608,100,0,0,1000900])");
  const auto kernel = std::find(lines.begin(), lines.end(), R"(["kernel",0,2,1,1,128,1,1,0,7,19000])");
  *kernel = R"(["kernel",1,2,1,1,128,1,1,0,7,[65536,131072,65536,66560,196608],19000])";
  const auto name = std::find(lines.begin(), lines.end(), R"(["kernel_name",0,"relu_kernel"])");
  lines.insert(name, R"(["kernel_name",1,"triton_poi_fused_gelu_0",32,0,0])");
  const Trace trace = trace_of(lines);
  const StepOperations step = step_operations(trace);
  ASSERT_EQ(step.operations.size(), 4u);
  const StepOperation& compiled = step.operations[3];
  EXPECT_EQ(compiled.name, "triton_poi_fused_gelu_0");
  EXPECT_TRUE(compiled.known);
  EXPECT_EQ(step.shapes[compiled.shape].kind, OperationKind::elementwise);
  EXPECT_EQ(step.shapes[compiled.shape].bytes_read, 1024 + 1024 + 3072 + 600) << "blocks as they were then";
}

// The graph was captured while aten::relu ran, and is launched while no operator runs. A line "captured" before a launch outside of the
// step does not belong to the next launch.
TEST(StepOperations, AGraphsWorkIsTheOperatorsThatRanWhenItWasCaptured) {
  std::vector<std::string> lines = kLines;
  const auto at = [&](const char* text) { return std::find(lines.begin(), lines.end(), text); };
  lines.insert(at(R"(["kernel",0,2,1,1,128,1,1,0,7,19000])"), {R"(["graph",1,7,18900])", R"(["captured",2500,1])"});
  lines.insert(at(R"(["kernel",0,9,1,1,128,1,1,0,0,1])"), R"(["captured",10100,2])");
  const StepOperations step = step_operations(trace_of(lines));
  ASSERT_EQ(step.operations.size(), 4u);
  EXPECT_EQ(step.operations[0].name, "aten::relu");
  EXPECT_EQ(step.operations[3].name, "aten::relu");
  EXPECT_EQ(step.operations[3].shape, step.operations[0].shape);
  EXPECT_TRUE(step.operations[3].known);
  EXPECT_EQ(step.operations[3].asked_ns, step.operations[0].asked_ns + 16'500) << "when it was launched";
  EXPECT_EQ(step.operations[3].phase, Phase::forward) << "when it was captured, not backward as at the launch";
  EXPECT_EQ(step.operations[3].module, step.operations[0].module);
}

// Checkpointing computes a forward again for the backward. That adds to the hardware's FLOPs, not to the model's.
TEST(StepOperations, ARecomputedForwardIsBackward) {
  std::vector<std::string> lines = kLines;
  const auto at = [&](const char* text) {
    return std::find_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(text); });
  };
  *at(R"(["mark",8)") = R"(["mark",8,0,0,1000009,"phase_begin","forward"])";
  lines.insert(at(R"(["mark",9)"),
               {R"(["mark",9,0,0,1000018,"phase_end","forward"])", R"(["mark",10,0,0,1000020,"phase_end","backward"])"});
  *std::find(lines.begin(), lines.end(), R"(["mark",9,0,0,1000990,"step",2])") = R"(["mark",11,0,0,1000990,"step",2])";
  *at(R"({"record":"operators")") =
      R"({"record":"operators","step":2,"unix_ns":1000000000,"marks":[2,11],"tf32":{"cublas":false,"cudnn":true}})";
  *at(R"(["vgpu_mark",7])") = R"(["vgpu_mark",8])";
  *at(R"(["vgpu_mark",9])") = R"(["vgpu_mark",11])";
  const StepOperations step = step_operations(trace_of(lines));
  ASSERT_EQ(step.operations.size(), 4u);
  EXPECT_EQ(step.operations[0].phase, Phase::forward);
  EXPECT_EQ(step.operations[2].phase, Phase::backward);
}

TEST(StepOperations, TellsHowFastTheHostOfAnA100Is) {
  std::vector<std::string> lines = kLines;
  const auto found =
      std::find_if(lines.begin(), lines.end(), [](const std::string& one) { return one.starts_with(R"({"record":"operators")"); });
  found->insert(1, R"("warm_yardstick_ns":)" + std::to_string(std::llround(2 * step_constants().yardstick_ns)) + ",");
  EXPECT_EQ(step_operations(trace_of(lines)).host.yardstick_ns, std::llround(2 * step_constants().yardstick_ns));
}

TEST(StepOperations, AClockThatWasSetBackIsNotTaken) {
  std::vector<std::string> lines = kLines;
  lines.insert(std::find(lines.begin(), lines.end(), R"({"record":"end","reason":"steps","exit_code":0,"optimizer_steps":3})"),
               R"(["mark",12,0,0,400000,"step",3])");
  const StepOperations step = step_operations(trace_of(lines));
  EXPECT_GT(host_scale(step.host, step_constants()), 0);
  EXPECT_LE(host_scale(step.host, step_constants()), 1);
}

// A step of 500 us, with 50 us of hooks. Another program used the core for 5 ms: while a hook ran, between hooks, or never.
TEST(StepOperations, OtherProgramsDoNotChangeTheHostsSpeed) {
  const auto scale = [](const std::string& hooks_us, const std::string& step_3) {
    std::vector<std::string> lines = kLines;
    const auto line = [&](std::string_view text) {
      return std::find_if(lines.begin(), lines.end(), [&](const std::string& one) { return one.starts_with(text); });
    };
    line(R"({"record":"operators")")->insert(1, R"("hooks_us":)" + hooks_us + ",");
    *line(R"(["mark",1,)") = R"(["mark",1,0,0,900000,"step",1,1000])";
    *line(R"(["mark",9,)") = R"(["mark",9,0,0,1000990,"step",2,1850])";
    lines.insert(line(R"({"record":"end")"), step_3);
    return host_scale(step_operations(trace_of(lines)).host, step_constants());
  };
  const double never = scale("[1,0,2,50,3,100]", R"(["mark",12,0,0,1001540,"step",3,2400])");
  EXPECT_LT(never, 0.6);
  EXPECT_DOUBLE_EQ(scale("[1,0,2,50,3,5100]", R"(["mark",12,0,0,1006540,"step",3,2400])"), never);
  EXPECT_DOUBLE_EQ(scale("[1,0,2,50,3,100]", R"(["mark",12,0,0,1006540,"step",3,2400])"), never);
  // In hooks and script alike, and in each step.
  EXPECT_LT(scale("[1,0,2,2000,3,4000]", R"(["mark",12,0,0,1006540,"step",3,2400])"), 0.6);
}

// Steps that ran after the capture, without hooks. Their quickest parts count; what the recorded steps took does not.
TEST(StepOperations, UnobservedStepsShowTheHostsTime) {
  const auto with = [](const std::string& record) {
    std::vector<std::string> lines = kLines;
    lines.push_back(record);
    return step_operations(trace_of(lines));
  };
  const StepOperations step = with(R"({"record":"unobserved_steps","least_ns":240000,"cpu_ns":[450000,250000,300000]})");
  EXPECT_EQ(step.host.unobserved_ns, 240'000);
  EXPECT_EQ(step.host.middle_unobserved_ns, 300'000);
  EXPECT_EQ(step.host.unobserved_steps, 3);
  EXPECT_DOUBLE_EQ(host_scale(step.host, step_constants()) * static_cast<double>(step.host_ns), 240'000);
  // Twice the work of the observed step, and far more than that.
  const size_t pieces = step.operations.size() + step.order.size();
  const auto of_pieces = [&](size_t count) {
    return with(fmt::format(R"({{"record":"unobserved_steps","least_ns":240000,"pieces":{},"cpu_ns":[450000]}})", count)).host;
  };
  EXPECT_DOUBLE_EQ(of_pieces(2 * pieces).unobserved_ns, 120'000);
  EXPECT_EQ(of_pieces(10 * pieces).unobserved_steps, 0);
  for (const char* damaged : {R"({"record":"unobserved_steps","least_ns":1,"cpu_ns":[450000,-1]})",
                              R"({"record":"unobserved_steps","cpu_ns":[450000]})", R"({"record":"unobserved_steps"})"})
    EXPECT_EQ(with(damaged).host.unobserved_ns, 0) << damaged;
}

TEST(StepOperations, SaysWhyThereIsNone) {
  std::vector<std::string> lines = kLines;
  std::erase_if(lines, [](const std::string& line) { return line.find("operator") != std::string::npos; });
  EXPECT_THROW(step_operations(trace_of(lines)), Error);
  std::erase_if(lines, [](const std::string& line) { return line.find("clock") != std::string::npos; });
  try {
    (void)step_operations(trace_of(lines));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("older"), std::string::npos);
  }
}

TEST(StepOperations, BadLinesAreCounted) {
  std::vector<std::string> lines = kLines;
  for (const char* bad : {R"(["operator",99,1,0,1])", R"(["operator",0,1,-4,1])", R"(["operator_kind",7,"x",[]])",
                          R"(["operator_kind",3,"x",5])", R"(["operator",0,1,2,3])"})
    lines.insert(lines.end() - 17, bad);
  lines.insert(lines.end() - 1, R"(["kernel",0,-1,1,1,128,1,1,0,0,2500])");
  const Trace trace = trace_of(lines);
  EXPECT_GE(trace.problems[Problem::bad_event].count, 5);
  EXPECT_EQ(step_operations(trace).operations.size(), 4u);
}

}  // namespace
}  // namespace gpucast
