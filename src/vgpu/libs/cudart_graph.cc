// CUDA runtime: graphs. A node keeps the line that its launch writes to the log.
#include <cstdio>
#include <memory>
#include <string>

#include "src/vgpu/core/functions.h"
#include "src/vgpu/core/graphs.h"
#include "src/vgpu/core/log.h"
#include "src/vgpu/core/user_objects.h"
#include "src/vgpu/libs/cudart.h"

using namespace gpucast::vgpu;

namespace {

int add_node(uint64_t* node, uint64_t graph, const uint64_t* dependencies, size_t count, GraphNodeType type, std::string_view line,
             uint64_t child = 0, HostFunction host = {nullptr, nullptr}) {
  return cudart_return(graph_add_node(graph, dependencies, count, type, line, child, host, node));
}

int add_kernel(uint64_t* node, uint64_t graph, const uint64_t* dependencies, size_t count, const cuda::KernelNodeParams* p) {
  Function function;
  if (p == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!find_function(p->func, &function)) return cudart_return(cudaErrorInvalidDeviceFunction);
  const unsigned grid[3] = {p->gridDim.x, p->gridDim.y, p->gridDim.z}, block[3] = {p->blockDim.x, p->blockDim.y, p->blockDim.z};
  return add_node(node, graph, dependencies, count, kGraphNodeKernel, kernel_line(function.name, grid, block, p->sharedMemBytes, 0));
}

std::string copy_line(const void* to, const void* from, size_t size, int kind) {
  return "[\"memcpy\"," + std::to_string(kind) + "," + std::to_string(reinterpret_cast<uint64_t>(to)) + "," +
         std::to_string(reinterpret_cast<uint64_t>(from)) + "," + std::to_string(size) + ",0]";
}

}  // namespace

CUDART_API int cudaGraphCreate(uint64_t* graph, unsigned) {
  if (graph == nullptr) return cudart_return(cudaErrorInvalidValue);
  *graph = graph_create();
  return cudaSuccess;
}
CUDART_API int cudaGraphDestroy(uint64_t graph) { return cudart_return(graph_destroy(graph)); }
CUDART_API int cudaGraphClone(uint64_t* clone, uint64_t graph) { return cudart_return(graph_clone(graph, clone)); }
CUDART_API int cudaGraphDestroyNode(uint64_t node) { return cudart_return(graph_destroy_node(node)); }
CUDART_API int cudaGraphNodeGetType(uint64_t node, int* type) { return cudart_return(graph_node_type(node, type)); }
CUDART_API int cudaGraphGetNodes(uint64_t graph, uint64_t* nodes, size_t* count) {
  return cudart_return(graph_nodes(graph, false, nodes, count));
}
CUDART_API int cudaGraphGetRootNodes(uint64_t graph, uint64_t* nodes, size_t* count) {
  return cudart_return(graph_nodes(graph, true, nodes, count));
}

// ---- Nodes ------------------------------------------------------------------------------------------------------------------------

CUDART_API int cudaGraphAddEmptyNode(uint64_t* node, uint64_t graph, const uint64_t* dependencies, size_t count) {
  return add_node(node, graph, dependencies, count, kGraphNodeEmpty, "");
}
CUDART_API int cudaGraphAddKernelNode(uint64_t* node, uint64_t graph, const uint64_t* dependencies, size_t count,
                                      const cuda::KernelNodeParams* p) {
  return add_kernel(node, graph, dependencies, count, p);
}
CUDART_API int cudaGraphAddHostNode(uint64_t* node, uint64_t graph, const uint64_t* dependencies, size_t count,
                                    const cuda::HostNodeParams* p) {
  if (p == nullptr) return cudart_return(cudaErrorInvalidValue);
  return add_node(node, graph, dependencies, count, kGraphNodeHost, "", 0, {p->fn, p->userData});
}
CUDART_API int cudaGraphAddChildGraphNode(uint64_t* node, uint64_t graph, const uint64_t* dependencies, size_t count, uint64_t child) {
  uint64_t copy = 0;
  if (const int problem = graph_clone(child, &copy)) return cudart_return(problem);
  return add_node(node, graph, dependencies, count, kGraphNodeGraph, "", copy);
}
CUDART_API int cudaGraphAddMemsetNode(uint64_t* node, uint64_t graph, const uint64_t* dependencies, size_t count,
                                      const cuda::MemsetParams* p) {
  if (p == nullptr) return cudart_return(cudaErrorInvalidValue);
  const std::string line = "[\"memset\"," + std::to_string(reinterpret_cast<uint64_t>(p->dst)) + "," + std::to_string(p->value & 0xff) +
                           "," + std::to_string(p->width * p->elementSize * (p->height > 0 ? p->height : 1)) + ",0]";
  return add_node(node, graph, dependencies, count, kGraphNodeMemset, line);
}
CUDART_API int cudaGraphAddMemcpyNode1D(uint64_t* node, uint64_t graph, const uint64_t* dependencies, size_t count, void* to,
                                        const void* from, size_t size, int kind) {
  return add_node(node, graph, dependencies, count, kGraphNodeMemcpy, copy_line(to, from, size, kind));
}
CUDART_API int cudaGraphAddMemcpyNode(uint64_t* node, uint64_t graph, const uint64_t* dependencies, size_t count,
                                      const cuda::Memcpy3DParms* p) {
  if (p == nullptr) return cudart_return(cudaErrorInvalidValue);
  return add_node(node, graph, dependencies, count, kGraphNodeMemcpy,
                  copy_line(p->dstPtr.ptr, p->srcPtr.ptr, p->extent.width * p->extent.height * p->extent.depth, p->kind));
}

namespace {
int add_any_node(uint64_t* node, uint64_t graph, const uint64_t* dependencies, size_t count, const cuda::GraphNodeParams* p) {
  if (p == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (p->type == kGraphNodeKernel) return add_kernel(node, graph, dependencies, count, &p->kernel);
  if (p->type == kGraphNodeEmpty) return add_node(node, graph, dependencies, count, kGraphNodeEmpty, "");
  return cudart_not_supported("cudaGraphAddNode");
}
}  // namespace

#if GPUCAST_CUDA == 12
CUDART_API int cudaGraphAddNode(uint64_t* node, uint64_t graph, const uint64_t* dependencies, size_t count,
                                const cuda::GraphNodeParams* p) {
  return add_any_node(node, graph, dependencies, count, p);
}
CUDART_API int cudaGraphAddNode_v2(uint64_t* node, uint64_t graph, const uint64_t* dependencies, const void*, size_t count,
                                   const cuda::GraphNodeParams* p) {
  return add_any_node(node, graph, dependencies, count, p);
}
CUDART_API int cudaGraphNodeGetDependencies(uint64_t node, uint64_t* nodes, size_t* count) {
  return cudart_return(graph_node_dependencies(node, nodes, count));
}
CUDART_API int cudaGraphNodeGetDependentNodes(uint64_t node, uint64_t* nodes, size_t* count) {
  return cudart_return(graph_node_dependents(node, nodes, count));
}
CUDART_API int cudaGraphGetEdges(uint64_t graph, uint64_t* from, uint64_t* to, size_t* count) {
  return cudart_return(graph_edges(graph, from, to, count));
}
CUDART_API int cudaGraphAddDependencies(uint64_t graph, const uint64_t* from, const uint64_t* to, size_t count) {
  return cudart_return(graph_change_dependencies(graph, from, to, count, true));
}
CUDART_API int cudaGraphRemoveDependencies(uint64_t graph, const uint64_t* from, const uint64_t* to, size_t count) {
  return cudart_return(graph_change_dependencies(graph, from, to, count, false));
}
#define GPUCAST_WITH_EDGES(name) name##_v2
#else
CUDART_API int cudaGraphAddNode(uint64_t* node, uint64_t graph, const uint64_t* dependencies, const void*, size_t count,
                                const cuda::GraphNodeParams* p) {
  return add_any_node(node, graph, dependencies, count, p);
}
#define GPUCAST_WITH_EDGES(name) name
#endif
CUDART_API int GPUCAST_WITH_EDGES(cudaGraphNodeGetDependencies)(uint64_t node, uint64_t* nodes, void*, size_t* count) {
  return cudart_return(graph_node_dependencies(node, nodes, count));
}
CUDART_API int GPUCAST_WITH_EDGES(cudaGraphNodeGetDependentNodes)(uint64_t node, uint64_t* nodes, void*, size_t* count) {
  return cudart_return(graph_node_dependents(node, nodes, count));
}
CUDART_API int GPUCAST_WITH_EDGES(cudaGraphGetEdges)(uint64_t graph, uint64_t* from, uint64_t* to, void*, size_t* count) {
  return cudart_return(graph_edges(graph, from, to, count));
}
CUDART_API int GPUCAST_WITH_EDGES(cudaGraphAddDependencies)(uint64_t graph, const uint64_t* from, const uint64_t* to, const void*,
                                                            size_t count) {
  return cudart_return(graph_change_dependencies(graph, from, to, count, true));
}
CUDART_API int GPUCAST_WITH_EDGES(cudaGraphRemoveDependencies)(uint64_t graph, const uint64_t* from, const uint64_t* to, const void*,
                                                               size_t count) {
  return cudart_return(graph_change_dependencies(graph, from, to, count, false));
}

// ---- Executable graphs ------------------------------------------------------------------------------------------------------------

CUDART_API int cudaGraphInstantiate(uint64_t* exec, uint64_t graph, unsigned long long) {
  return cudart_return(graph_instantiate(graph, exec));
}
CUDART_API int cudaGraphInstantiateWithFlags(uint64_t* exec, uint64_t graph, unsigned long long) {
  return cudart_return(graph_instantiate(graph, exec));
}
CUDART_API int cudaGraphInstantiateWithParams(uint64_t* exec, uint64_t graph, cuda::GraphInstantiateParams* p) {
  const int code = graph_instantiate(graph, exec);
  if (p != nullptr) p->result_out = code == kSuccess ? 0 : 1;
  return cudart_return(code);
}
CUDART_API int cudaGraphExecUpdate(uint64_t exec, uint64_t graph, cuda::GraphExecUpdateResultInfo* result) {
  if (result != nullptr) *result = {};
  return cudart_return(graph_exec_update(exec, graph));
}
CUDART_API int cudaGraphExecGetFlags(uint64_t, unsigned long long* flags) {
  if (flags == nullptr) return cudart_return(cudaErrorInvalidValue);
  *flags = 0;
  return cudaSuccess;
}
CUDART_API int cudaGraphUpload(uint64_t, uint64_t) { return cudaSuccess; }
CUDART_API int cudaGraphLaunch(uint64_t exec, uint64_t stream) { return cudart_return(graph_launch(exec, stream)); }
CUDART_API int cudaGraphExecDestroy(uint64_t exec) { return cudart_return(graph_exec_destroy(exec)); }
CUDART_API int cudaGraphDebugDotPrint(uint64_t graph, const char* path, unsigned) {
  size_t count = 0;
  if (path == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (const int problem = graph_nodes(graph, false, nullptr, &count)) return cudart_return(problem);
  std::string text = "digraph dot {\n";
  std::string edges;
  uint64_t* none = nullptr;
  size_t edge_count = 0;
  graph_edges(graph, none, none, &edge_count);
  std::unique_ptr<uint64_t[]> nodes(new uint64_t[count + 1]), from(new uint64_t[edge_count + 1]), to(new uint64_t[edge_count + 1]);
  graph_nodes(graph, false, nodes.get(), &count);
  graph_edges(graph, from.get(), to.get(), &edge_count);
  for (size_t i = 0; i < count; ++i) text += "  n" + std::to_string(nodes[i]) + ";\n";
  for (size_t i = 0; i < edge_count; ++i) text += "  n" + std::to_string(from[i]) + " -> n" + std::to_string(to[i]) + ";\n";
  FILE* file = std::fopen(path, "we");
  if (file == nullptr) return cudart_return(cudaErrorOperatingSystem);
  const bool written = std::fputs((text + "}\n").c_str(), file) >= 0;
  return cudart_return(std::fclose(file) == 0 && written ? cudaSuccess : cudaErrorOperatingSystem);
}

// Memory allocated by graph nodes: not supported here.
CUDART_API int cudaDeviceGraphMemTrim(int) { return cudaSuccess; }
CUDART_API int cudaDeviceGetGraphMemAttribute(int, int, void* value) {
  if (value == nullptr) return cudart_return(cudaErrorInvalidValue);
  *static_cast<uint64_t*>(value) = 0;
  return cudaSuccess;
}
CUDART_API int cudaDeviceSetGraphMemAttribute(int, int, void*) { return cudaSuccess; }

// ---- User objects -----------------------------------------------------------------------------------------------------------------

CUDART_API int cudaUserObjectCreate(uint64_t* object, void* data, void (*destroy)(void*), unsigned references, unsigned) {
  if (object == nullptr || destroy == nullptr || references == 0) return cudart_return(cudaErrorInvalidValue);
  *object = user_object_create({destroy, data}, references);
  return cudaSuccess;
}
CUDART_API int cudaUserObjectRetain(uint64_t object, unsigned count) { return cudart_return(user_object_change(object, count)); }
CUDART_API int cudaUserObjectRelease(uint64_t object, unsigned count) {
  return cudart_return(user_object_change(object, -static_cast<int64_t>(count)));
}
CUDART_API int cudaGraphRetainUserObject(uint64_t graph, uint64_t object, unsigned count, unsigned flags) {
  return cudart_return(graph_retain_user_object(graph, object, count, flags == 1));
}
CUDART_API int cudaGraphReleaseUserObject(uint64_t graph, uint64_t object, unsigned count) {
  return cudart_return(graph_release_user_object(graph, object, count));
}
