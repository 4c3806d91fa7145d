#include "src/time/nccl_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"

namespace gpucast {
namespace {

constexpr std::array kAlgorithms = {"Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"};
constexpr std::array kProtocols = {"LL", "LL128", "Simple"};
static_assert(kAlgorithms.size() == static_cast<size_t>(NcclAlgorithm::count_));
static_assert(kProtocols.size() == static_cast<size_t>(NcclProtocol::count_));

// The collectives for which NCCL chooses, by its names.
constexpr std::pair<const char*, CollectiveKind> kFunctions[] = {{"Broadcast", CollectiveKind::broadcast},
                                                                 {"Reduce", CollectiveKind::reduce},
                                                                 {"AllGather", CollectiveKind::all_gather},
                                                                 {"ReduceScatter", CollectiveKind::reduce_scatter},
                                                                 {"AllReduce", CollectiveKind::all_reduce}};

struct Variable {
  std::string name, value;

  [[noreturn]] void reject(const std::string& what, const std::string& hint) const {
    throw Error(fmt::format("{}={}: {}", name, value, what), "NCCL's settings", hint);
  }
  [[noreturn]] void reject_word(std::string_view word, const std::vector<std::string>& known) const {
    const std::optional<std::string> meant = did_you_mean(std::string(word), known);
    reject(fmt::format("'{}' is none of NCCL's names", word),
           meant ? fmt::format("did you mean {}?", *meant) : fmt::format("it is one of {}", fmt::join(known, ", ")));
  }
};

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::vector<std::string_view> parts(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// "Ring,Tree", "^NVLS": bits by place in `names`.
template <size_t size>
uint32_t read_names(const Variable& variable, std::string_view list, const std::array<const char*, size>& names) {
  const bool without = list.starts_with('^');
  if (without) list.remove_prefix(1);
  uint32_t bits = 0;
  for (const std::string_view word : parts(list, ',')) {
    const auto* found = std::ranges::find_if(names, [&](const char* name) { return same_word(word, name); });
    if (found == names.end()) variable.reject_word(word, {names.begin(), names.end()});
    bits |= 1U << (found - names.begin());
  }
  if (bits == 0) variable.reject("it names nothing", "such as Ring,Tree or ^NVLS");
  return without ? ~bits : bits;
}

// "ring,collnetdirect;allreduce:tree": lists by function. Only the first may be for all of them. `set` gets a kind and its list.
template <class Set>
void read_by_function(const Variable& variable, const Set& set) {
  bool first = true;
  for (const std::string_view entry : parts(variable.value, ';')) {
    const size_t colon = entry.find(':');
    const std::string_view function = colon == entry.npos ? "" : entry.substr(0, colon);
    const std::string_view list = colon == entry.npos ? entry : entry.substr(colon + 1);
    if (function.empty() && !first) variable.reject("only its first list may be without a function", "such as Ring;allreduce:Tree");
    bool found = false;
    for (const auto& [name, kind] : kFunctions) {
      if (!function.empty() && !same_word(function, name)) continue;
      found = true;
      set(kind, list);
    }
    if (!found) variable.reject_word(function, {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"});
    first = false;
  }
}

int64_t read_whole(const Variable& variable) {
  char* stop = nullptr;
  const int64_t number = std::strtoll(variable.value.c_str(), &stop, 10);
  if (variable.value.empty() || *stop != '\0' || number < 0) variable.reject("it is no whole number from 0", "such as 8");
  return number;
}

// How far apart cards may be that address each other: "SYS", or NCCL's number of it.
void read_peer_level(const Variable& variable, NcclSettings* out) {
  constexpr std::array kLevels = {"LOC", "NVL", "PIX", "PXB", "PHB", "SYS"};
  constexpr int64_t kProcessor = 4;
  int64_t level = 0;
  if (!variable.value.empty() && std::isdigit(static_cast<unsigned char>(variable.value[0])) != 0) {
    level = read_whole(variable);
  } else {
    const auto* found = std::ranges::find_if(kLevels, [&](const char* name) { return same_word(variable.value, name); });
    if (found == kLevels.end()) variable.reject_word(variable.value, {kLevels.begin(), kLevels.end()});
    level = found - kLevels.begin();
  }
  if (level == 0) out->peer = false;
  out->peer_through_processor = level >= kProcessor;
}

}  // namespace

const char* nccl_algorithm_name(NcclAlgorithm algorithm) { return kAlgorithms.at(static_cast<size_t>(algorithm)); }
const char* nccl_protocol_name(NcclProtocol protocol) { return kProtocols.at(static_cast<size_t>(protocol)); }

NcclSettings::NcclSettings() {
  std::ranges::fill(algorithms, kAll);
  std::ranges::fill(protocols, kAll);
}

NcclSettings read_nccl_settings(const std::map<std::string, std::string>& environment) {
  NcclSettings out;
  for (const auto& [name, value] : environment) {
    const Variable variable{name, value};
    if (name == "NCCL_ALGO") {
      read_by_function(variable, [&](CollectiveKind kind, std::string_view list) {
        out.algorithms[static_cast<size_t>(kind)] = read_names(variable, list, kAlgorithms);
      });
    } else if (name == "NCCL_PROTO") {
      read_by_function(variable, [&](CollectiveKind kind, std::string_view list) {
        const auto of = static_cast<size_t>(kind);
        out.protocols[of] = read_names(variable, list, kProtocols);
        out.forces_ll128[of] = out.allows(kind, NcclProtocol::ll128);
      });
    } else if (name == "NCCL_P2P_DISABLE") {
      if (read_whole(variable) != 0) out.peer = false;
    } else if (name == "NCCL_P2P_LEVEL") {
      read_peer_level(variable, &out);
    } else if (name == "NCCL_NVLS_ENABLE") {
      out.multicast = read_whole(variable) != 0;
    } else if (name == "NCCL_MAX_NCHANNELS" || name == "NCCL_MAX_CTAS") {
      out.most_channels = read_whole(variable);
    } else if (name == "NCCL_MIN_NCHANNELS" || name == "NCCL_MIN_CTAS") {
      out.least_channels = read_whole(variable);
    }
  }
  return out;
}

}  // namespace gpucast
