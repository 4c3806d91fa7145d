// The questions of the virtual cuDNN to the real one about a graph of backend descriptors, and the answers, as text (cudnn_helper.cc asks).
//   question  MODE NODE                             cudnnBackendHeurMode_t
//   NODE      TYPE{ATTRIBUTE;ATTRIBUTE;...}         cudnnBackendDescriptorType_t
//   ATTRIBUTE NAME:TYPE=VALUE,VALUE,...             cudnnBackendAttributeName_t, cudnnBackendAttributeType_t
//   VALUE     a NODE where the type is a descriptor; else a decimal number, the element's bytes read as a signed integer
//   answer    ENGINE,WORKSPACE,NOTES,NOTES,KNOBS;ENGINE,...   engines in cuDNN's order of preference
//             WORKSPACE in bytes, or "x": cuDNN makes no plan with this engine; NOTES 1.5.9: numerical, then behaviour;
//             KNOBS 12=3.27=1, type and value
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/vgpu/libs/checksum.h"

namespace gpucast::vgpu::cudnn {

// The size of a cudnnBackendAttributeType_t: 8 for pointers, 64-bit numbers and descriptors, 1 for booleans and characters, 16 for
// fractions, 4 for all others (enumerations, 32-bit numbers).
constexpr size_t element_bytes(int type) {
  switch (type) {
    case 0:
    case 3:
    case 5:
    case 6:
    case 15:
      return 8;
    case 2:
    case 24:
      return 1;
    case 26:
      return 16;
    default:
      return 4;
  }
}

struct EngineAnswer {
  int64_t engine = 0;                      // its global index
  std::optional<int64_t> workspace_bytes;  // nothing: cuDNN makes no plan with it
  std::vector<int32_t> numerical_notes;    // cudnnBackendNumericalNote_t
  std::vector<int32_t> behaviour_notes;    // cudnnBackendBehaviorNote_t
  std::string knobs;
};

namespace detail {

template <class T>
bool read_number(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

inline std::string_view take_until(std::string_view* text, char separator) {
  const size_t at = text->find(separator);
  const std::string_view part = text->substr(0, at);
  text->remove_prefix(at == std::string_view::npos ? text->size() : at + 1);
  return part;
}

inline bool read_notes(std::string_view text, std::vector<int32_t>* notes) {
  while (!text.empty()) {
    if (!read_number(take_until(&text, '.'), &notes->emplace_back())) return false;
  }
  return true;
}

}  // namespace detail

// Nothing: no answer ("failed ...", or damaged text). An empty list: cuDNN has no engine for the graph.
inline std::optional<std::vector<EngineAnswer>> parse_answer(std::string_view text) {
  std::vector<EngineAnswer> engines;
  while (!text.empty()) {
    std::string_view part = detail::take_until(&text, ';');
    EngineAnswer& engine = engines.emplace_back();
    if (!detail::read_number(detail::take_until(&part, ','), &engine.engine)) return std::nullopt;
    const std::string_view workspace = detail::take_until(&part, ',');
    if (workspace != "x") {
      engine.workspace_bytes.emplace();
      if (!detail::read_number(workspace, &*engine.workspace_bytes) || *engine.workspace_bytes < 0) return std::nullopt;
    }
    if (!detail::read_notes(detail::take_until(&part, ','), &engine.numerical_notes)) return std::nullopt;
    if (!detail::read_notes(detail::take_until(&part, ','), &engine.behaviour_notes)) return std::nullopt;
    engine.knobs = part;
  }
  return engines;
}

// A line of the file of answers: question, answer and a checksum. A line may be cut off, or two processes may write at once: the checksum
// detects both. The text begins with a line end, because the line before may have none.
inline std::string answer_line(std::string_view question, std::string_view answer) {
  const std::string line = std::string(question) + '\t' + std::string(answer);
  return '\n' + line + '\t' + std::to_string(checksum(line));
}
// False: not a valid line. `line` has no line end.
inline bool parse_answer_line(std::string_view line, std::string_view* question, std::string_view* answer) {
  const size_t tab = line.rfind('\t');
  uint64_t written = 0;
  if (tab == std::string_view::npos || !detail::read_number(line.substr(tab + 1), &written)) return false;
  const std::string_view checked = line.substr(0, tab);
  if (checksum(checked) != written) return false;
  const size_t middle = checked.find('\t');
  if (middle == std::string_view::npos) return false;
  *question = checked.substr(0, middle);
  *answer = checked.substr(middle + 1);
  return true;
}

}  // namespace gpucast::vgpu::cudnn
