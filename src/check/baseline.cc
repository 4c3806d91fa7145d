#include "src/check/baseline.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <system_error>

#include "gpucast/error.h"
#include "src/attribution/attribution.h"
#include "src/base/json.h"
#include "src/base/read_file.h"
#include "version.h"

namespace gpucast::check {
namespace {

constexpr const char* kRenew = "write it again: gpucast check --update-baseline";

[[noreturn]] void no_baseline(const std::string& what, const std::string& path) { throw Error(what, path, kRenew); }

int64_t bytes_of(const Json& object, const char* key, const std::string& path) {
  const Json* value = object.find(key);
  if (value == nullptr || !value->is_integer() || value->get<int64_t>() < 0)
    no_baseline(fmt::format("the baseline has no \"{}\", or one that is no number of 0 or more", key), path);
  return value->get<int64_t>();
}

ModuleBytes module_of(const Json& json, const std::string& path) {
  ModuleBytes out{json.value("name", ""), json.value("type", ""), {}};
  if (!json.is_object()) no_baseline("the baseline has a module that is no object", path);
  for (size_t c = 0; c < kCategories; ++c) {
    const char* name = category_name(static_cast<Category>(c));
    if (json.contains(name)) out.bytes[c] = bytes_of(json, name, path);
  }
  return out;
}

CardFigures card_of(const Json& json, const std::string& path) {
  CardFigures out;
  out.torch = json.value("torch", "");
  out.steps = static_cast<int32_t>(bytes_of(json, "steps", path));
  out.peak_reserved_bytes = bytes_of(json, "peak_reserved_bytes", path);
  out.peak_allocated_bytes = bytes_of(json, "peak_allocated_bytes", path);
  out.device_expected_bytes = bytes_of(json, "device_expected_bytes", path);
  out.device_request_bytes = bytes_of(json, "device_request_bytes", path);
  if (json["step_ns"].is_number()) out.step_ns = json["step_ns"].get<int64_t>();
  for (const Json& module : json["modules"]) out.modules.push_back(module_of(module, path));
  return out;
}

std::string module_line(const ModuleBytes& module) {
  Json line{{"name", module.name}, {"type", module.type}};
  for (size_t c = 0; c < kCategories; ++c)
    if (module.bytes[c] != 0) line[category_name(static_cast<Category>(c))] = module.bytes[c];
  return line.dump();
}

std::string card_text(const CardFigures& card) {
  constexpr const char* kIndent = "\n        ";
  std::string out = "{";
  const auto add = [&](const char* key, const Json& value) {
    fmt::format_to(std::back_inserter(out), "{}{}\"{}\": {}", out.size() > 1 ? "," : "", kIndent, key, value.dump());
  };
  add("torch", card.torch);
  add("steps", card.steps);
  add("peak_reserved_bytes", card.peak_reserved_bytes);
  add("peak_allocated_bytes", card.peak_allocated_bytes);
  add("device_expected_bytes", card.device_expected_bytes);
  add("device_request_bytes", card.device_request_bytes);
  add("step_ns", card.step_ns ? Json(*card.step_ns) : Json(nullptr));
  fmt::format_to(std::back_inserter(out), ",{}\"modules\": [", kIndent);
  for (size_t i = 0; i < card.modules.size(); ++i)
    fmt::format_to(std::back_inserter(out), "{}{}  {}", i == 0 ? "" : ",", kIndent, module_line(card.modules[i]));
  return out + kIndent + "]\n      }";
}

}  // namespace

const CardFigures* Baseline::find(const std::string& job, const std::string& gpu) const {
  const auto of_job = jobs.find(job);
  if (of_job == jobs.end()) return nullptr;
  const auto card = of_job->second.find(gpu);
  return card == of_job->second.end() ? nullptr : &card->second;
}

Baseline read_baseline(const std::string& path) {
  std::error_code error;
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) return {};
  return parse_baseline(read_file_or_throw(path), path);
}

Baseline parse_baseline(std::string_view text, const std::string& path) {
  const Json json = Json::parse(text);
  if (!json.is_object() || !json["jobs"].is_object()) no_baseline("this is no baseline of gpucast check", path);
  if (const int64_t version = json.value("schema_version", 0); version != 1)
    throw Error(fmt::format("the baseline has schema version {}, and this gpucast reads 1", version), path,
                "use a newer gpucast, or write it again: gpucast check --update-baseline");
  Baseline out;
  out.exists = true;
  out.gpucast = json.value("gpucast", "");
  const Json& jobs = json["jobs"];
  for (size_t i = 0; i < jobs.size(); ++i) {
    CardBaselines& cards = out.jobs[jobs.keys()[i]];
    const Json& of_job = jobs.at(i);
    if (!of_job.is_object()) no_baseline(fmt::format("the baseline's job '{}' is no object", jobs.keys()[i]), path);
    for (size_t k = 0; k < of_job.size(); ++k) cards[of_job.keys()[k]] = card_of(of_job.at(k), path);
  }
  return out;
}

std::string baseline_text(const Baseline& baseline) {
  std::string out = fmt::format("{{\n  \"schema_version\": 1,\n  \"gpucast\": {},\n  \"jobs\": {{", Json(kGpucastVersion).dump());
  const char* between_jobs = "";
  for (const auto& [name, cards] : baseline.jobs) {
    fmt::format_to(std::back_inserter(out), "{}\n    {}: {{", between_jobs, Json(name).dump());
    const char* between_cards = "";
    for (const auto& [gpu, card] : cards) {
      fmt::format_to(std::back_inserter(out), "{}\n      {}: {}", between_cards, Json(gpu).dump(), card_text(card));
      between_cards = ",";
    }
    out += "\n    }";
    between_jobs = ",";
  }
  return out + "\n  }\n}\n";
}

}  // namespace gpucast::check
