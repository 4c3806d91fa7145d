// Virtual cuDNN's graph interface: descriptors keep all their attributes, heuristics offer the engines of the user's own cuDNN
// (cudnn_ask.h) or else two engines for every graph, and plans log their operations when executed.
//
// A descriptor's attributes are kept as bytes; descriptors set as attributes are shared, since callers destroy theirs while
// others still refer to them. A caller reads a descriptor-valued attribute into a descriptor of its own, which then
// refers to the same contents.
#include <algorithm>
#include <map>
#include <memory>

#include "src/vgpu/libs/cudnn_ask.h"
#include "src/vgpu/libs/cudnn_on_card.h"
#include "src/vgpu/libs/cudnn_types.h"
#include "src/vgpu/libs/cudnn_workspace.h"

namespace {

using namespace gpucast::vgpu::cudnn;
using gpucast::vgpu::Field;
using gpucast::vgpu::number;

// cudnnBackendDescriptorType_t
enum DescriptorType : int {
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kPlan = 5,
  kOperationConvolutionForward = 10,
  kOperationConvolutionBackwardFilter = 11,
  kOperationConvolutionBackwardData = 12,
  kOperationPointwise = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
};

// cudnnBackendAttributeType_t
enum AttributeType : int {
  kHandle = 0,
  kInt64 = 3,
  kVoidPointer = 6,
  kNumericalNote = 11,
  kDescriptorValue = 15,
  kBehaviourNote = 19,
  kChar = 24,
  kFraction = 26
};
// cudnnBackendAttributeName_t, those with an answer or a meaning here
enum AttributeName : int {
  kPointwiseMode = 0,
  kDilations = 102,
  kFilterStrides = 103,
  kPrePaddings = 105,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kConfigIntermediate = 301,
  kConfigKnobs = 302,
  kConfigWorkspace = 303,
  kConfigSharedMemory = 304,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kPlanJson = 405,
  kPointwiseDescriptor = 750,
  kGraphOperations = 801,
  kGraphEngineCount = 802,
  kTensorType = 901,
  kTensorDims = 902,
  kTensorStrides = 903,
  kTensorVirtual = 907,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNumericalNotes = 1303,
  kEngineBehaviourNotes = 1305,
};

constexpr int64_t kGenIndex = 501;  // CUDNN_POINTWISE_GEN_INDEX
constexpr int64_t kEngines = 2;     // PyTorch and cudnn-frontend expect more than one

struct Node;
struct Attribute {
  int type = 0;
  int64_t count = 0;
  std::vector<char> bytes;
  std::vector<std::shared_ptr<Node>> nodes;  // if the attribute holds descriptors
};
struct Node {
  int type = 0;
  bool finalized = false;
  std::map<int, Attribute> attributes;
  std::string log_arguments;  // for a plan
  int64_t workspace_bytes = 0;
  std::optional<EngineAnswer> answer;  // for an engine config: the answer of the user's own cuDNN

  const Attribute* find(int name) const {
    const auto found = attributes.find(name);
    return found == attributes.end() ? nullptr : &found->second;
  }
  std::shared_ptr<Node> node(int name) const {
    const Attribute* attribute = find(name);
    return attribute && !attribute->nodes.empty() ? attribute->nodes[0] : nullptr;
  }
  std::vector<int64_t> numbers(int name) const {
    const Attribute* attribute = find(name);
    if (!attribute || attribute->type != kInt64) return {};
    std::vector<int64_t> values(static_cast<size_t>(attribute->count));
    std::memcpy(values.data(), attribute->bytes.data(), values.size() * 8);
    return values;
  }
  int64_t integer(int name, int64_t otherwise) const {
    const Attribute* attribute = find(name);
    if (!attribute || attribute->bytes.empty()) return otherwise;
    int64_t value = 0;
    std::memcpy(&value, attribute->bytes.data(), std::min<size_t>(8, element_bytes(attribute->type)));
    return value;
  }
};
// The object that the caller's cudnnBackendDescriptor_t points to.
struct Descriptor {
  std::shared_ptr<Node> node;
};

const char* operation_name(int type) {
  switch (type) {
    case 10:
      return "convolution_forward";
    case 11:
      return "convolution_backward_filter";
    case 12:
      return "convolution_backward_data";
    case 13:
      return "pointwise";
    case 14:
      return "generate_statistics";
    case 19:
      return "matmul";
    case 20:
      return "batch_norm_finalize";
    case 22:
      return "reduction";
    case 23:
      return "batch_norm_backward_weights";
    case 25:
      return "resample_forward";
    case 26:
      return "resample_backward";
    case 27:
      return "concatenate";
    case 29:
      return "norm_forward";
    case 30:
      return "norm_backward";
    case 31:
      return "reshape";
    case 33:
      return "random";
    case 35:
      return "paged_cache_load";
    case 36:
      return "block_scale_quantize";
    case 37:
      return "block_scale_dequantize";
    case 39:
      return "expand_band_matrix";
    case 40:
      return "contract_band_matrix";
    case 41:
      return "sdpa_forward";
    case 42:
      return "grouped_matmul";
    case 43:
      return "sdpa_backward";
    case 44:
      return "diagonal_band_mask";
    case 45:
      return "softmax";
    default:
      return "operation";
  }
}

// The attributes of a convolution that hold its tensors x (or dx), w (or dw), y (or dy), and its descriptor.
struct ConvolutionAttributes {
  ConvolutionKind kind;
  int descriptor, x, w, y;
};
bool convolution_attributes(int type, ConvolutionAttributes* out) {
  switch (type) {
    case kOperationConvolutionForward:
      *out = {ConvolutionKind::forward, 702, 704, 703, 705};
      return true;
    case kOperationConvolutionBackwardData:
      *out = {ConvolutionKind::backward_data, 708, 710, 709, 711};
      return true;
    case kOperationConvolutionBackwardFilter:
      *out = {ConvolutionKind::backward_filter, 714, 716, 715, 717};
      return true;
    default:
      return false;
  }
}

std::string describe_all(const Node& graph, int engine, int64_t* workspace_bytes);

// Nothing: the operation is no convolution, or not a whole one.
std::optional<ConvolutionProblem> convolution_of(const Node& operation, int engine) {
  ConvolutionAttributes names{};
  if (!convolution_attributes(operation.type, &names)) return std::nullopt;
  const auto x = operation.node(names.x), w = operation.node(names.w), y = operation.node(names.y),
             descriptor = operation.node(names.descriptor);
  if (!x || !w || !y || !descriptor) return std::nullopt;
  return ConvolutionProblem{names.kind,
                            static_cast<int>(x->integer(kTensorType, 0)),
                            x->numbers(kTensorDims),
                            w->numbers(kTensorDims),
                            y->numbers(kTensorDims),
                            x->numbers(kTensorStrides),
                            descriptor->numbers(kPrePaddings),
                            descriptor->numbers(kFilterStrides),
                            descriptor->numbers(kDilations),
                            engine};
}

// One operation as JSON, and those within it. Adds its scratch memory to *workspace_bytes.
std::string describe(const Node& operation, int engine, int64_t* workspace_bytes) {
  if (const auto problem = convolution_of(operation, engine)) {
    *workspace_bytes += static_cast<int64_t>(convolution_workspace_bytes(*problem));
    return gpucast::vgpu::json_object({{"op", operation_name(operation.type)},
                                       {"type", type_name(problem->type)},
                                       {"x", problem->x},
                                       {"w", problem->w},
                                       {"y", problem->y},
                                       {"x_strides", problem->x_strides},
                                       {"padding", problem->padding},
                                       {"stride", problem->stride},
                                       {"dilation", problem->dilation}});
  }
  // For any other operation: its tensors, in the order of their attributes, and the operations within it (the mask of attention).
  std::string tensors, within;
  for (const auto& [name, attribute] : operation.attributes) {
    for (const auto& node : attribute.nodes) {
      if (node && node->type == kOperationGraph) {
        const std::string inner = describe_all(*node, engine, workspace_bytes);
        if (!inner.empty()) within += ',' + inner;
      }
      if (!node || node->type != kTensor) continue;
      tensors +=
          (tensors.empty() ? "" : ",") + gpucast::vgpu::json_object({{"attribute", name},
                                                                     {"type", type_name(static_cast<int>(node->integer(kTensorType, 0)))},
                                                                     {"shape", node->numbers(kTensorDims)},
                                                                     {"virtual", node->integer(kTensorVirtual, 0) & 1}});
    }
  }
  const auto pointwise = operation.node(kPointwiseDescriptor);
  const bool is_index = pointwise && pointwise->integer(kPointwiseMode, 0) == kGenIndex;
  return std::string("{\"op\":\"") + (is_index ? "gen_index" : operation_name(operation.type)) + "\",\"tensors\":[" + tensors + "]}" +
         within;
}

std::string describe_all(const Node& graph, int engine, int64_t* workspace_bytes) {
  std::string out;
  const Attribute* operations = graph.find(kGraphOperations);
  if (!operations) return out;
  for (const auto& operation : operations->nodes) {
    if (operation) out += (out.empty() ? "" : ",") + describe(*operation, engine, workspace_bytes);
  }
  return out;
}

// ---- asking the user's own cuDNN -----------------------------------------------------------------------------------------------

// Writes the node in the form of cudnn_question.h. False: a pointer or a fraction in it has no text form.
bool write_question(const Node& node, std::string* text) {
  *text += std::to_string(node.type) + '{';
  for (const auto& [name, attribute] : node.attributes) {
    if (attribute.type == kHandle || attribute.count == 0) continue;
    if (attribute.type == kVoidPointer || attribute.type == kFraction) return false;
    *text += std::to_string(name) + ':' + std::to_string(attribute.type) + '=';
    const size_t size = element_bytes(attribute.type);
    for (int64_t i = 0; i < attribute.count; ++i) {
      if (i > 0) *text += ',';
      if (attribute.type == kDescriptorValue) {
        const auto& child = attribute.nodes[static_cast<size_t>(i)];
        if (!child || !write_question(*child, text)) return false;
        continue;
      }
      int64_t value = 0;
      std::memcpy(&value, attribute.bytes.data() + static_cast<size_t>(i) * size, size);
      if (size == 4) value = static_cast<int32_t>(value);
      *text += std::to_string(value);
    }
    *text += ';';
  }
  *text += '}';
  return true;
}

// Convolutions, alone or followed by pointwise operations: the graphs for which PyTorch leaves the choice to cuDNN.
bool is_convolution(const Node& graph) {
  const Attribute* operations = graph.find(kGraphOperations);
  bool convolution = false;
  for (const auto& operation : operations ? operations->nodes : std::vector<std::shared_ptr<Node>>{}) {
    ConvolutionAttributes unused{};
    if (!operation) return false;
    if (convolution_attributes(operation->type, &unused)) {
      convolution = true;
    } else if (operation->type != kOperationPointwise) {
      return false;
    }
  }
  return convolution;
}

std::optional<std::vector<EngineAnswer>> ask_for_engines(const Node& heuristics, const Node& graph) {
  if (!may_ask() || !is_convolution(graph)) return std::nullopt;
  std::string question = std::to_string(static_cast<int>(heuristics.integer(kHeuristicsMode, 0))) + ' ';
  if (!write_question(graph, &question)) return std::nullopt;
  auto engines = ask(question);
  const auto& card = gpucast::vgpu::profile();
  for (const auto& operation : graph.find(kGraphOperations)->nodes) {
    const auto problem = convolution_of(*operation, 0);
    if (engines && problem) answer_as_on_card(*problem, {card.compute_major, card.multiprocessors}, &*engines);
  }
  return engines;
}

Attribute integers_of(int type, const std::vector<int32_t>& values) {
  Attribute attribute{type, static_cast<int64_t>(values.size()), std::vector<char>(values.size() * sizeof(int32_t)), {}};
  if (!values.empty()) std::memcpy(attribute.bytes.data(), values.data(), attribute.bytes.size());
  return attribute;
}

// ---- engines and plans ---------------------------------------------------------------------------------------------------------

std::shared_ptr<Node> engine_config(const std::shared_ptr<Node>& graph, int64_t index) {
  auto engine = std::make_shared<Node>();
  engine->type = kEngine;
  engine->finalized = true;
  engine->attributes[kEngineGraph] = {kDescriptorValue, 1, {}, {graph}};
  Attribute& global_index = engine->attributes[kEngineIndex];
  global_index = {kInt64, 1, std::vector<char>(8), {}};
  std::memcpy(global_index.bytes.data(), &index, 8);
  auto config = std::make_shared<Node>();
  config->type = kEngineConfig;
  config->finalized = true;
  config->attributes[kConfigEngine] = {kDescriptorValue, 1, {}, {engine}};
  return config;
}

std::shared_ptr<Node> engine_config(const std::shared_ptr<Node>& graph, const EngineAnswer& answer) {
  auto config = engine_config(graph, answer.engine);
  auto& engine = *config->node(kConfigEngine);
  engine.attributes[kEngineNumericalNotes] = integers_of(kNumericalNote, answer.numerical_notes);
  engine.attributes[kEngineBehaviourNotes] = integers_of(kBehaviourNote, answer.behaviour_notes);
  config->answer = answer;
  return config;
}

// Once its engine config is known, a plan knows its log line and its scratch memory. False: cuDNN makes no such plan.
bool finish_plan(Node* plan) {
  const auto config = plan->node(kPlanConfig);
  const auto engine = config ? config->node(kConfigEngine) : nullptr;
  const auto graph = engine ? engine->node(kEngineGraph) : nullptr;
  if (!graph || !graph->find(kGraphOperations)) return true;
  const auto& answer = config->answer;
  if (answer && !answer->workspace_bytes) return false;
  const int index = static_cast<int>(engine->integer(kEngineIndex, 0));
  plan->workspace_bytes = 0;
  const std::string list = describe_all(*graph, index, &plan->workspace_bytes);
  if (answer) plan->workspace_bytes = *answer->workspace_bytes;
  const std::string asked =
      answer ? std::string("\"asked\":\"") + gpucast::vgpu::profile().cudnn_asked + "\",\"knobs\":\"" + answer->knobs + "\"," : "";
  plan->log_arguments = "{" + asked + "\"engine\":" + std::to_string(index) +
                        ",\"workspace_bytes\":" + std::to_string(plan->workspace_bytes) + ",\"operations\":[" + list + "]}";
  return true;
}

// The part of a plan's JSON with which PyTorch excludes an engine on some cards (plan_errata_exception, Conv_v8.cpp).
std::string plan_json(const Node& plan) {
  const auto& card = gpucast::vgpu::profile();
  const auto config = plan.node(kPlanConfig);
  const auto engine = config ? config->node(kConfigEngine) : nullptr;
  return "{\"cudnnVersion\":" + std::to_string(card.cudnn_version) +
         ",\"schemaVersion\":4,\"engine\":{\"engineId\":" + std::to_string(engine ? engine->integer(kEngineIndex, 0) : 0) +
         ",\"smVersion\":" + std::to_string(card.compute_major * 100 + card.compute_minor * 10) + ",\"knobChoices\":{}}}";
}

// Attributes that callers read and never set.
bool computed(const Node& node, int name, Attribute* out) {
  const auto integers = [&](int type, std::initializer_list<int64_t> values) {
    *out = {type, static_cast<int64_t>(values.size()), {}, {}};
    for (const int64_t value : values) {
      const char* bytes = reinterpret_cast<const char*>(&value);
      out->bytes.insert(out->bytes.end(), bytes, bytes + element_bytes(type));
    }
    return true;
  };
  if (node.type == kOperationGraph && name == kGraphEngineCount) return integers(kInt64, {kEngines});
  if (node.type == kEngineHeuristics && name == kHeuristicsResults) {
    const auto graph = node.node(kHeuristicsGraph);
    if (!graph) return false;
    if (const auto engines = ask_for_engines(node, *graph)) {
      *out = {kDescriptorValue, static_cast<int64_t>(engines->size()), {}, {}};
      for (const EngineAnswer& engine : *engines) out->nodes.push_back(engine_config(graph, engine));
      return true;
    }
    *out = {kDescriptorValue, kEngines, {}, {}};
    for (int64_t index = 0; index < kEngines; ++index) out->nodes.push_back(engine_config(graph, index));
    return true;
  }
  if (node.type == kEngineConfig && name == kConfigWorkspace) {
    Node plan;
    plan.attributes[kPlanConfig] = {kDescriptorValue, 1, {}, {std::make_shared<Node>(node)}};
    if (!finish_plan(&plan)) return false;
    return integers(kInt64, {plan.workspace_bytes});
  }
  if (node.type == kEngineConfig && name == kConfigSharedMemory) return integers(kInt64, {0});
  if (node.type == kPlan && name == kPlanWorkspace) return integers(kInt64, {node.workspace_bytes});
  if (node.type == kPlan && name == kPlanJson) {
    const std::string json = plan_json(node);
    *out = {kChar, static_cast<int64_t>(json.size()) + 1, {}, {}};
    out->bytes.assign(json.c_str(), json.c_str() + json.size() + 1);
    return true;
  }
  return false;
}

}  // namespace

GPUCAST_EXPORT int cudnnBackendCreateDescriptor(int type, Descriptor** descriptor) {
  if (!descriptor) return kBadParamNullPointer;
  *descriptor = new Descriptor{std::make_shared<Node>()};
  (*descriptor)->node->type = type;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnBackendInitialize(Descriptor* descriptor) { return descriptor ? kSuccess : kBadParamNullPointer; }

GPUCAST_EXPORT int cudnnBackendSetAttribute(Descriptor* descriptor, int name, int type, int64_t count, const void* elements) {
  if (!descriptor || (!elements && count > 0)) return kBadParamNullPointer;
  if (count < 0) return kBadParam;
  Attribute attribute{type, count, {}, {}};
  if (type == kDescriptorValue) {
    auto* const* others = static_cast<Descriptor* const*>(elements);
    for (int64_t i = 0; i < count; ++i) attribute.nodes.push_back(others[i] ? others[i]->node : nullptr);
  } else {
    const char* bytes = static_cast<const char*>(elements);
    if (count > 0) attribute.bytes.assign(bytes, bytes + static_cast<size_t>(count) * element_bytes(type));
  }
  descriptor->node->attributes[name] = std::move(attribute);
  return kSuccess;
}

GPUCAST_EXPORT int cudnnBackendFinalize(Descriptor* descriptor) {
  if (!descriptor) return kBadParamNullPointer;
  Node& node = *descriptor->node;
  if (node.type == kPlan) {
    if (!node.node(kPlanConfig)) return kBadParam;
    if (!finish_plan(&node)) return kNotSupported;
  }
  node.finalized = true;
  return kSuccess;
}

GPUCAST_EXPORT int cudnnBackendGetAttribute(Descriptor* descriptor, int name, int type, int64_t requested, int64_t* count, void* elements) {
  if (!descriptor) return kBadParamNullPointer;
  const Node& node = *descriptor->node;
  Attribute answer;
  const Attribute* attribute = node.find(name);
  if (!attribute && computed(node, name, &answer)) attribute = &answer;
  if (!attribute) {  // notes, knobs, layouts: none
    if (count) *count = 0;
    return kSuccess;
  }
  if (attribute->type != type) return kBadParam;
  if (count) *count = attribute->count;
  if (!elements || requested <= 0) return kSuccess;
  const int64_t copied = std::min(requested, attribute->count);
  if (type == kDescriptorValue) {
    auto** others = static_cast<Descriptor**>(elements);
    for (int64_t i = 0; i < copied; ++i) {
      if (!others[i]) return kBadParamNullPointer;
      others[i]->node = attribute->nodes[static_cast<size_t>(i)];
    }
    if (count && requested < attribute->count) *count = copied;
  } else {
    std::memcpy(elements, attribute->bytes.data(), static_cast<size_t>(copied) * element_bytes(type));
  }
  return kSuccess;
}

GPUCAST_EXPORT int cudnnBackendExecute(Handle* handle, Descriptor* plan, Descriptor* pack) {
  if (!handle || !plan || !pack) return kBadParamNullPointer;
  if (!plan->node->finalized || plan->node->type != kPlan) return kNotFinalized;
  if (plan->node->workspace_bytes > 0) {
    gpucast::vgpu::log_workspace("cudnn", static_cast<uint64_t>(pack->node->integer(kPackWorkspace, 0)),
                                 static_cast<size_t>(plan->node->workspace_bytes));
  }
  gpucast::vgpu::log_call("cudnn", "cudnnBackendExecute", plan->node->log_arguments.c_str(), number(handle->stream));
  gpucast::vgpu::device_written();
  return kSuccess;
}
