// Graphs: nodes with their dependencies, and launches. Codes and handles as in streams.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {

enum GraphNodeType : int {
  kGraphNodeKernel = 0,
  kGraphNodeMemcpy = 1,
  kGraphNodeMemset = 2,
  kGraphNodeHost = 3,
  kGraphNodeGraph = 4,
  kGraphNodeEmpty = 5
};
GPUCAST_VGPU_API uint64_t graph_create();
GPUCAST_VGPU_API int graph_destroy(uint64_t graph);
GPUCAST_VGPU_API int graph_clone(uint64_t graph, uint64_t* clone);
// `line`: the log line of a launch of the node, or "". `child`: a graph that the node launches, or 0.
GPUCAST_VGPU_API int graph_add_node(uint64_t graph, const uint64_t* dependencies, size_t count, GraphNodeType type, std::string_view line,
                                    uint64_t child, HostFunction host, uint64_t* node);
GPUCAST_VGPU_API int graph_destroy_node(uint64_t node);
GPUCAST_VGPU_API int graph_node_type(uint64_t node, int* type);
// As cudaGraphGetNodes: `nodes` may be null to get only the count. `*count` is the room in `nodes`, then the number of nodes found.
GPUCAST_VGPU_API int graph_nodes(uint64_t graph, bool roots_only, uint64_t* nodes, size_t* count);
GPUCAST_VGPU_API int graph_node_dependencies(uint64_t node, uint64_t* nodes, size_t* count);
GPUCAST_VGPU_API int graph_node_dependents(uint64_t node, uint64_t* nodes, size_t* count);
GPUCAST_VGPU_API int graph_edges(uint64_t graph, uint64_t* from, uint64_t* to, size_t* count);
GPUCAST_VGPU_API int graph_change_dependencies(uint64_t graph, const uint64_t* from, const uint64_t* to, size_t count, bool add);
GPUCAST_VGPU_API int graph_instantiate(uint64_t graph, uint64_t* exec);
GPUCAST_VGPU_API int graph_exec_update(uint64_t exec, uint64_t graph);
GPUCAST_VGPU_API int graph_exec_destroy(uint64_t exec);
GPUCAST_VGPU_API int graph_launch(uint64_t exec, uint64_t stream);

// A graph's references to a user object (user_objects.h).
GPUCAST_VGPU_API int graph_retain_user_object(uint64_t graph, uint64_t object, unsigned references, bool move);
GPUCAST_VGPU_API int graph_release_user_object(uint64_t graph, uint64_t object, unsigned references);

}  // namespace gpucast::vgpu
