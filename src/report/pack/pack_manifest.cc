#include "src/report/pack/pack_manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <set>

#include "gpucast/error.h"

namespace gpucast {
namespace {

constexpr Manifest kManifests[] = {{"kubernetes", kubernetes_manifest}, {"hami", hami_manifest},   {"kai", kai_manifest},
                                   {"volcano", volcano_manifest},       {"slurm", slurm_manifest}, {"ray", ray_manifest}};
constexpr size_t kLongestName = 63;

// Lower case, with '-' for all other characters. A name that already exists gets a number.
std::string kubernetes_name(const std::string& name, std::set<std::string>* taken) {
  std::string plain;
  for (const char c : name.substr(0, kLongestName)) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 && byte < 0x80)
      plain += static_cast<char>(std::tolower(byte));
    else if (!plain.empty() && plain.back() != '-')
      plain += '-';
  }
  while (!plain.empty() && plain.back() == '-') plain.pop_back();
  if (plain.empty() || std::isdigit(static_cast<unsigned char>(plain.front())) != 0) plain = "job" + (plain.empty() ? "" : "-" + plain);
  std::string out = plain.substr(0, kLongestName);
  for (size_t number = 2; !taken->insert(out).second; ++number) {
    const std::string ending = fmt::format("-{}", number);
    out = plain.substr(0, kLongestName - ending.size()) + ending;
  }
  return out;
}

}  // namespace

const Manifest& manifest_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Manifest& manifest : kManifests) {
    if (name == manifest.name) return manifest;
    names.emplace_back(manifest.name);
  }
  throw Error(fmt::format("there is no scheduler '{}' here", name), "--to", fmt::format("one of {}", fmt::join(names, ", ")));
}

std::vector<Request> requests_of(const PackReport& report) {
  constexpr int64_t kMib = int64_t{1} << 20;
  std::vector<Request> out;
  std::set<std::string> taken;
  for (size_t i = 0; i < report.jobs.size(); ++i) {
    const pack::Placement& placed = report.plan.jobs[i];
    if (placed.outcome != pack::Outcome::finished || placed.cards.empty()) continue;
    const Gpu& gpu = report.cluster.types[report.cluster.cards[placed.cards.front()].type];
    Request request{&report.jobs[i], &placed, &gpu, kubernetes_name(report.jobs[i].name, &taken), 0, 1, 100};
    request.memory_mib = (placed.request_bytes + kMib - 1) / kMib;
    request.memory_share = static_cast<double>(request.memory_mib * kMib) / static_cast<double>(gpu.total_memory_bytes);
    if (report.plan.mode == pack::SharingMode::mps_limits)
      request.percent = std::clamp(static_cast<int>(std::ceil(placed.share * 100 - 1e-9)), 1, 100);
    out.push_back(std::move(request));
  }
  if (out.empty()) throw Error("no job has a place, so there is nothing to request", "", "the plan without --to says why");
  return out;
}

bool is_shared(const PackReport& report) { return report.plan.policy != "slot"; }

std::string shell_words(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ' ';
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || std::string_view("_-./=,:+@%").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (plain) {
      out += word;
      continue;
    }
    out += '\'';
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

const std::vector<std::string>& command_of(const Request& request, const char* scheduler) {
  if (request.job->command.empty())
    throw Error(fmt::format("'{}' has no command for {} to start", request.job->name, scheduler), "",
                "captures hold theirs; a table has a column for it, 'command'");
  return request.job->command;
}

}  // namespace gpucast
