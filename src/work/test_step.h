// A capture with an observed step, line by line, for tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "gpucast/trace.h"

namespace gpucast {

// Two threads, and a clock that begins 1000 ns before the operators' clock. Forward: one kernel of an operator that is nested in another;
// then a copy to the host. Backward, on the other thread: two kernels of one operator, then one without an operator.
inline const std::vector<std::string> kLines = {
    R"({"record":"header","schema_version":1,"source":"vgpu","gpu":{"name":"a100-80"},"steps_requested":3,"command":["python","t.py"]})",
    R"({"record":"process","pid":1,"torch":"2.6.0"})",
    R"({"record":"module","id":1,"parent":-1,"name":"net","type":"Net"})",
    R"(["operator_kind",0,"aten::linear_like",[{"float32":[[4,4],[4,1]]}]])",
    R"(["operator_kind",1,"aten::relu",[{"float32":[[4,4],[4,1]]}]])",
    R"(["operator_kind",2,"aten::_foreach_add_",[[{"float32":[[4],[1]]},{"float32":[[4],[1]]}]]])",
    R"({"record":"operators","step":2,"unix_ns":1000000000,"marks":[2,9],"tf32":{"cublas":false,"cudnn":true}})",
    R"(["operator",0,1,0,5000])",
    R"(["operator",1,1,1000,2000])",
    R"(["operator",2,2,9000,3000])",
    R"(["mark",1,0,0,900000,"step",1])",
    R"(["mark",2,0,0,999990,"other",""])",
    R"(["mark",3,0,0,1000000,"phase_begin","forward"])",
    R"(["mark",4,0,0,1000001,"module_begin",1])",
    R"(["tensor",4,"input",5,64,"0",-1,"int64",[8,128]])",
    R"(["mark",5,0,0,1000006,"module_end",1])",
    R"(["mark",6,0,0,1000006,"phase_end","forward"])",
    R"(["mark",7,0,0,1000008,"phase_begin","backward"])",
    R"(["mark",8,0,0,1000020,"phase_end","backward"])",
    R"(["mark",9,0,0,1000990,"step",2])",
    R"({"record":"end","reason":"steps","exit_code":0,"optimizer_steps":3})",
    R"(["vgpu_mark",1])",
    R"({"record":"clock","unix_ns":999999000})",
    R"(["kernel_name",0,"relu_kernel"])",
    R"(["thread",1])",
    R"(["kernel",0,9,1,1,128,1,1,0,0,1])",
    R"(["vgpu_mark",4])",
    R"(["kernel",0,1,1,1,128,1,1,0,0,2500])",
    R"(["vgpu_mark",6])",
    R"(["memcpy",2,1,2,64,0,6500])",
    R"(["vgpu_mark",7])",
    R"(["thread",2])",
    R"(["kernel",0,1,1,1,128,1,1,0,7,10100])",
    R"(["kernel",0,1,1,1,128,1,1,0,7,10200])",
    R"(["kernel",0,2,1,1,128,1,1,0,7,19000])",
    R"(["vgpu_mark",9])",
    R"(["kernel",0,1,1,1,128,1,1,0,0,99000])",
};

inline Trace trace_of(std::vector<std::string> lines) {
  lines.push_back("{\"record\":\"eof\",\"lines\":" + std::to_string(lines.size()) + "}");
  const std::string path = testing::TempDir() + "gpucast_step." + std::to_string(getpid()) + ".jsonl";
  std::ofstream out(path);
  for (const std::string& line : lines) out << line << '\n';
  out.close();
  return read_trace(path);
}

}  // namespace gpucast
