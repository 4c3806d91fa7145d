#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gpucast/error.h"
#include "gpucast/trace.h"

namespace gpucast {
namespace {

const char kHeader[] =
    R"({"record":"header","schema_version":1,"gpucast_version":"0.1.0","source":"vgpu","gpu":{"id":"rtx3060","compute_capability":"8.6",)"
    R"("total_memory_bytes":12622168064},"gpu_chosen":true,"steps_requested":3,"command":["python","a b.py"]})"
    "\n";
const char kProcess[] = R"({"record":"process","pid":7,"torch":"2.14.1+cu130","cuda":"13.0","alloc_conf":"expandable_segments:True",)"
                        R"("places":{"notes":[{"kind":"forward"}]}})"
                        "\n";
const char kAlloc[] = R"(["alloc",139637976727552,1000,0,4,17])"
                      "\n";

std::string write_capture(const std::string& text) {
  const std::string path = testing::TempDir() + "read_trace_test." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

Trace read_capture_text(const std::string& body) { return read_trace(write_capture(kHeader + body)); }

// The message of the error that reading `text` throws.
std::string capture_error(const std::string& text) {
  try {
    read_trace(write_capture(text));
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.where + " | " + error.hint;
  }
  return "no error";
}

TEST(ReadTrace, ConvolutionsByKind) {
  const Trace t = read_capture_text(std::string(kProcess) + kAlloc +
                                    R"(["call","cudnn","cudnnBackendExecute",{"engine":0,"workspace_bytes":0,"operations":[)"
                                    R"({"op":"convolution_forward","type":"float32","x":[8,64,9,9],"w":[64,64,3,3],"y":[8,64,7,7]}]},0]
["call","cudnn","cudnnBackendExecute",{"asked":"9.24.1","engine":0,"operations":[{"op":"pointwise","tensors":[]},{"op":"convolution_forward","type":"bfloat16","x":[8,64,9,9],"w":[64,2,3,3]}]},0]
["call", "cudnn", "cudnnConvolutionBackwardData", {"type": "float32", "x": [8,3,9,9], "w": [64,3,3,3], "groups": 1}, 0]
["call","cudnn","cudnnConvolutionBackwardBias",{"type":"float32","shape":[8,64,9,9]},0]
["call","cudnn","cudnnBackendExecute",{"operations":[{"op":"convolution_backward_filter","tensors":[]}]},0]
["call","cudnn","cudnnBatchNormalizationBackward",{"type":"float32","shape":[8,64,9,9]},0]
{"record":"eof","lines":9}
)");
  EXPECT_EQ(t.convolutions.dense, 1);
  EXPECT_EQ(t.convolutions.grouped, 1);
  EXPECT_EQ(t.convolutions.few_channels, 1);
  EXPECT_EQ(t.convolutions.unknown, 1);
  EXPECT_EQ(t.convolutions.count(), 4);
  EXPECT_EQ(t.convolutions.asked, 1);
  EXPECT_EQ(t.convolutions.not_float32, 2);  // includes the one with an unknown type
  EXPECT_EQ(t.library_calls, 6);
  EXPECT_EQ(t.problems[Problem::bad_event].count, 0);
}

TEST(ReadTrace, ShapesOfInputs) {
  const Trace t = read_capture_text(std::string(kProcess) + kAlloc + R"(["mark",1,1,0,18,"tensors",""]
["tensor",1,"input",139637976727552,1000,"input_ids",-1,"int64",[8, 16]]
["tensor",1,"parameter",139637976727552,1000,"weight",-1,"float32",[10,25]]
["tensor",1,"input",139637976727552,1000,"old",-1]
)");
  ASSERT_EQ(t.tensors.size(), 3u);
  EXPECT_EQ(t.tensors[0].shape, (std::vector<int64_t>{8, 16}));
  EXPECT_TRUE(t.tensors[1].shape.empty());
  EXPECT_TRUE(t.tensors[2].shape.empty());
}

TEST(ReadTrace, WithoutAnyBackwardForwardsWithoutGradientsAreNoEvaluation) {
  const std::string evaluation = R"(["mark",1,1,0,18,"phase_begin","evaluation"]
["mark",2,1,0,18,"phase_end","evaluation"]
)";
  EXPECT_EQ(read_capture_text(std::string(kProcess) + kAlloc + evaluation).marks[0].phase, MarkedPhase::forward);
  const Trace t = read_capture_text(std::string(kProcess) + kAlloc + evaluation + R"(["mark",3,1,0,18,"phase_begin","backward"]
)");
  EXPECT_EQ(t.marks[0].phase, MarkedPhase::evaluation);
}

TEST(ReadTrace, EveryPartOfACapture) {
  const Trace t = read_capture_text(std::string(kProcess) + R"({"record":"warning","code":"torch_save_skipped","message":"not saved"}
{"record":"stack","id":4,"frames":[["train.py",17,"main"],["lib.py",3,"f"]]}
{"record":"module","id":0,"parent":-1,"name":"","type":"Net"}
{"record":"module","id":1,"parent":0,"name":"fc","type":"Linear"}
["segment_alloc",139637976727552,2097152,0,-1,16]
["alloc",139637976727552,1000,0,4,17]
["mark",1,1,0,18,"phase_begin","forward"]
["mark",2,1,0,18,"module_begin",1]
["mark",3,1,0,19,"step",2]
["mark",4,1,0,19,"tensors",""]
["tensor",4,"gradient",139637976727552,1000,"fc.weight.grad",1,"float32",[10,25]]
["mark",5,1,0,20,"a_later_kind",{"x":1}]
["a_later_event",1,2,3]
["free_requested",139637976727552,1000,0,4,21]
["oom",4096,1024,0,-1,22]
{"record":"end","reason":"steps","exit_code":0,"optimizer_steps":2,"torch_stats":{"peak_allocated_bytes":1024,"allocated_bytes":0,"ooms":1},"segments":[[139637976727552,2097152,0,"small"]]}
["vgpu_mark",1]
["kernel_name",0,"_Z4kern"]
["kernel",0,1,1,1,32,1,1,0,0]
["call","cublas","gemm",{"m":3},0]
["memcpy",1,139637976727552,94000000,1000,0]
["memcpy",2,94000000,139637976727552,1000,0]
["workspace","cublas",139637976727552,1000]
["library_memory","nccl","buffers",4096]
{"record":"unsupported","library":"cudart","name":"cudaFoo","count":2}
{"record":"vgpu_end","peak_device_bytes":2097152,"kernels":1,"dropped":3}
{"record":"eof","lines":28}
)");
  EXPECT_EQ(t.header.gpu.id, "rtx3060");
  EXPECT_EQ(t.header.gpu.compute_major, 8);
  EXPECT_EQ(t.header.gpu.compute_minor, 6);
  EXPECT_EQ(t.header.command, (std::vector<std::string>{"python", "a b.py"}));
  EXPECT_EQ(t.process.alloc_conf, "expandable_segments:True");
  EXPECT_EQ(t.process.places, R"({"notes":[{"kind":"forward"}]})");
  ASSERT_EQ(t.warnings.size(), 1u);
  EXPECT_EQ(t.warnings[0].code, "torch_save_skipped");
  ASSERT_EQ(t.events.size(), 4u);
  EXPECT_EQ(t.events[1].kind, EventKind::alloc);
  EXPECT_EQ(t.events[1].address, 139637976727552u);
  EXPECT_EQ(t.events[1].size_bytes, 1000);
  const Stack& stack = t.stacks[t.events[1].stack.index()];
  ASSERT_EQ(stack.frame_count, 2u);
  EXPECT_EQ(t.strings.text(t.frames[t.stack_frames[stack.first_frame].index()].file), "train.py");
  EXPECT_EQ(t.frames[t.stack_frames[stack.first_frame].index()].line, 17);
  EXPECT_EQ(t.events[3].kind, EventKind::oom);
  EXPECT_EQ(t.events[3].address, 4096u);
  ASSERT_EQ(t.marks.size(), 5u);
  EXPECT_EQ(t.marks[0].phase, MarkedPhase::forward);
  EXPECT_EQ(t.marks[1].module, ModuleId(1));
  EXPECT_EQ(t.marks[2].step, 2);
  ASSERT_EQ(t.tensors.size(), 1u);
  EXPECT_EQ(t.tensors[0].kind, TensorKind::gradient);
  EXPECT_EQ(t.tensors[0].module, ModuleId(1));
  EXPECT_EQ(module_label(t, ModuleId(1)), "fc (Linear)");
  EXPECT_EQ(module_label(t, ModuleId(0)), "Net (the model)");
  EXPECT_EQ(t.end.reason, "steps");
  EXPECT_EQ(t.end.torch_stats->peak_allocated_bytes, 1024);
  EXPECT_FALSE(t.end.torch_stats->reserved_bytes.has_value());
  ASSERT_EQ(t.end.segments->size(), 1u);
  ASSERT_EQ(t.vgpu_events.size(), 4u);
  EXPECT_EQ(t.vgpu_events[1].kind, VgpuEventKind::copy_to_device);
  EXPECT_EQ(t.strings.text(t.vgpu_events[2].library), "cublas");
  EXPECT_EQ(t.vgpu_events[3].size_bytes, 4096);
  EXPECT_EQ(t.kernels, 1);
  EXPECT_EQ(t.library_calls, 1);
  EXPECT_EQ(t.vgpu_lines_dropped, 3);
  ASSERT_EQ(t.unsupported.size(), 1u);
  EXPECT_EQ(t.unsupported[0].count, 2);
  for (size_t i = 0; i < static_cast<size_t>(Problem::count_); ++i) {
    const auto problem = static_cast<Problem>(i);
    EXPECT_EQ(t.problems[problem].count, 0) << problem_info(problem).name << " " << t.problems[problem].first;
  }
}

TEST(ReadTrace, ArgumentsAreReadOnce) {
  const Trace t = read_capture_text(std::string(kProcess) + kAlloc +
                                    R"({"record":"operators","step":2,"unix_ns":1000000000,"marks":[2,9]}
["operator_kind",0,"aten::add_",[{"float32":[[4,2],[2,1]]},{"int64":[[],[],"cpu"]},[{"bool":[[3],[1]]},null],[1,2],true,7,0.5,"x",null]]
["operator_kind",1,"aten::cut",[nul]]
["vgpu_mark",2]
["call","cublas","cublasSgemm_v2",{"type":"float32","ta":"t","tb":"n","m":8,"n":4,"k":-2},0,1]
["call","cublas","cublasSgemm_v2",{"type":"float32","ta":"t","tb":"n","m":8,"n":4,"k":-2},0,2]
["call","cudnn","cudnnBackendExecute",{"operations":[{"op":"pointwise","tensors":[{"type":"float16","shape":[2,3],"virtual":1}]}]},0,3]
["call","cublas","cublasSgemm_v2",{"m":nul},0,4]
)");
  ASSERT_EQ(t.observed.kinds.size(), 2u);
  const std::vector<OperatorArgument>& in = t.observed.kinds[0].inputs;
  ASSERT_EQ(in.size(), 9u);
  ASSERT_EQ(in[0].tensors.size(), 1u);
  EXPECT_EQ(in[0].tensors[0].dtype, "float32");
  EXPECT_EQ(in[0].tensors[0].sizes, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(in[0].tensors[0].strides, (std::vector<int64_t>{2, 1}));
  EXPECT_TRUE(in[0].tensors[0].on_card);
  EXPECT_FALSE(in[1].tensors[0].on_card);
  EXPECT_EQ(in[2].kind, ArgumentKind::tensors);
  EXPECT_EQ(in[2].tensors.size(), 1u);
  EXPECT_EQ(in[3].integers, (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(in[4].boolean);
  EXPECT_EQ(in[5].integer, 7);
  EXPECT_EQ(in[6].kind, ArgumentKind::number);
  EXPECT_EQ(in[7].kind, ArgumentKind::other);
  EXPECT_EQ(in[8].kind, ArgumentKind::other);
  EXPECT_TRUE(t.observed.kinds[1].inputs.empty()) << "no JSON, and its number is taken";
  ASSERT_EQ(t.observed.work.size(), 3u);
  ASSERT_EQ(t.observed.call_arguments.size(), 2u);
  EXPECT_EQ(t.observed.work[0].arguments, t.observed.work[1].arguments);
  const CallArguments& gemm = t.observed.call_arguments[0];
  EXPECT_EQ(gemm.m, 8);
  EXPECT_EQ(gemm.k, 0) << "no size is below 0";
  EXPECT_FALSE(gemm.batch);
  EXPECT_TRUE(gemm.a_transposed && !gemm.b_transposed);
  const GraphTensor& tensor = t.observed.call_arguments[1].operations[0].tensors[0];
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_TRUE(tensor.is_virtual);
  EXPECT_EQ(t.problems[Problem::bad_event].count, 2);
}

TEST(ReadTrace, BadLinesAreCountedWithThePlaceOfTheFirst) {
  const Trace t = read_capture_text(std::string(kProcess) + R"(["alloc",1,2
["alloc"]
["alloc","x",5,0,-1,1]
["alloc",512,-5,0,-1,1]
["alloc",18446744073709551615,4096,0,-1,1]
["segment_alloc",512,9000000000000000000,0,-1,1]
["mark",1,0]
not json at all
{"no":"record"}
)" + kAlloc + R"({"record":"eof","lines":12}
)");
  EXPECT_EQ(t.events.size(), 1u);
  EXPECT_EQ(t.problems[Problem::bad_event].count, 6);
  EXPECT_EQ(t.problems[Problem::bad_json].count, 3);
  EXPECT_NE(t.problems[Problem::bad_event].first.find("line 4 "), std::string::npos);
  EXPECT_NE(t.problems[Problem::bad_json].first.find("line 3 "), std::string::npos);
}

TEST(ReadTrace, WhatIsMissingIsSaid) {
  const Trace cut = read_capture_text(kAlloc);
  EXPECT_EQ(cut.problems[Problem::no_eof].count, 1);
  EXPECT_EQ(cut.problems[Problem::no_process].count, 1);
  const Trace fewer = read_capture_text(std::string(kProcess) + kAlloc + "{\"record\":\"eof\",\"lines\":9}\n");
  EXPECT_EQ(fewer.problems[Problem::lines_missing].count, 1);
  EXPECT_EQ(fewer.problems[Problem::no_end].count, 1);
  const Trace two = read_capture_text(std::string(kProcess) + kAlloc + kProcess + kAlloc + "{\"record\":\"eof\",\"lines\":5}\n");
  EXPECT_EQ(two.problems[Problem::several_processes].count, 1);
  EXPECT_EQ(two.events.size(), 1u);
}

TEST(ReadTrace, WhatIsNoCaptureIsAnError) {
  EXPECT_NE(capture_error("").find("the file is empty"), std::string::npos);
  EXPECT_NE(capture_error("hello\n").find("not a gpucast capture"), std::string::npos);
  EXPECT_NE(capture_error("{\"a\":1}\n").find("not a gpucast capture"), std::string::npos);
  EXPECT_NE(capture_error("\x80\x04pickle\n").find("pickle"), std::string::npos);
  EXPECT_NE(capture_error("{\"schemaVersion\": 1, \"traceEvents\": []}\n").find("Chrome trace"), std::string::npos);
  EXPECT_NE(capture_error("PK\x03\x04\n").find("zip"), std::string::npos);
  EXPECT_NE(capture_error(R"({"record":"header","schema_version":2,"gpucast_version":"9.1"})"
                          "\n")
                .find("use gpucast 9.1 or newer"),
            std::string::npos);
  EXPECT_NE(capture_error("{\"record\":\"header\"}\n").find("no schema_version"), std::string::npos);
  EXPECT_NE(capture_error(kHeader).find("cut off before the first allocation"), std::string::npos);
}

}  // namespace
}  // namespace gpucast
