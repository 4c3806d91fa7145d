// Parts that several JSON reports share.
#pragma once

#include <optional>
#include <string>

#include "gpucast/prediction.h"
#include "gpucast/time_range.h"
#include "src/base/json.h"

namespace gpucast {

inline Json place_json(const Place& place) {
  return {{"event", place.event}, {"phase", place.phase}, {"step", place.step}, {"module", place.module}, {"stack", place.stack}};
}

inline Json device_json(const DeviceBytes& device) {
  return {{"low_bytes", device.low_bytes},
          {"expected_bytes", device.expected_bytes},
          {"high_bytes", device.high_bytes},
          {"request_bytes", device.request_bytes}};
}

inline Json time_range_json(const TimeRange& range) {
  return {{"low_ns", range.low_ns}, {"expected_ns", range.expected_ns}, {"high_ns", range.high_ns}};
}

inline Json ledger_line_json(const LedgerLine& line) {
  return {{"what", line.what},
          {"library", line.library},
          {"low_bytes", line.low_bytes},
          {"expected_bytes", line.expected_bytes},
          {"high_bytes", line.high_bytes},
          {"source", line.source}};
}

template <class T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class List, class To>
Json list_json(const List& list, To to) {
  Json out = Json::array();
  for (const auto& entry : list) out.push_back(to(entry));
  return out;
}

inline std::string dump(const Json& json) { return json.dump(2) + "\n"; }

}  // namespace gpucast
