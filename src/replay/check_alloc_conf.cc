#include "src/replay/check_alloc_conf.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/allocator/bfc_allocator.h"
#include "src/base/alloc_conf.h"
#include "src/base/to_number.h"

namespace gpucast {
namespace {

enum class ValueKind : uint8_t { mib, fraction, flag, divisions, backend, threads, whole_number };

struct Setting {
  const char* name;
  ValueKind kind;
  bool newer;  // missing in 2.6
};

constexpr Setting kSettings[] = {
    {"max_split_size_mb", ValueKind::mib, false},
    {"max_non_split_rounding_mb", ValueKind::mib, false},
    {"garbage_collection_threshold", ValueKind::fraction, false},
    {"roundup_power2_divisions", ValueKind::divisions, false},
    {"expandable_segments", ValueKind::flag, false},
    {"backend", ValueKind::backend, false},
    {"release_lock_on_cudamalloc", ValueKind::flag, false},
    {"pinned_use_cuda_host_register", ValueKind::flag, false},
    {"pinned_num_register_threads", ValueKind::threads, false},
    {"pinned_use_background_threads", ValueKind::flag, false},
    {"large_segment_size_mb", ValueKind::mib, true},
    {"per_process_memory_fraction", ValueKind::fraction, true},
    {"throw_on_cudamalloc_oom", ValueKind::flag, true},
    {"graph_capture_record_stream_reuse", ValueKind::flag, true},
    {"pinned_reserve_segment_size_mb", ValueKind::whole_number, true},
    {"pinned_max_round_threshold_mb", ValueKind::whole_number, true},
    {"pinned_max_cached_size_mb", ValueKind::whole_number, true},
    {"pinned_free_catch_all", ValueKind::flag, true},
};
// The last release that is known to lack the newer settings.
constexpr int kLastOldMinor = 7;

class Checker {
 public:
  Checker(const std::string& alloc_conf, const std::string& torch_version)
      : where_(fmt::format("--alloc-conf '{}'", alloc_conf)),
        release_(torch_version.empty() ? "the newest PyTorch" : "PyTorch " + torch_version),
        conf_(parse_alloc_conf(alloc_conf, torch_version)) {
    for (const char c : alloc_conf) {
      if (c != ' ' && c != '\t') text_ += c;
    }
  }

  void check() const {
    size_t begin = 0;
    int depth = 0;
    for (size_t i = 0; i <= text_.size(); ++i) {
      if (i < text_.size() && text_[i] == '[') ++depth;
      if (i < text_.size() && text_[i] == ']') --depth;
      if (i < text_.size() && (text_[i] != ',' || depth != 0)) continue;
      const std::string setting = text_.substr(begin, i - begin);
      begin = i + 1;
      if (!setting.empty()) {
        check_setting(setting);
      } else if (i < text_.size()) {  // PyTorch accepts a comma at the end
        fail("there is a comma with no setting before it", "leave the comma out");
      }
    }
    if (depth != 0) fail("a '[' is not closed", "write roundup_power2_divisions:[256:1,512:2,>:4]");
    if (!conf_.unknown.empty())
      fail(fmt::format("'{}' cannot be read", conf_.unknown.front()), "docs/reference/replay.md lists the settings");
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint) const { throw Error(what, where_, hint); }

  void check_setting(const std::string& setting) const {
    const size_t colon = setting.find(':');
    const std::string key = setting.substr(0, colon);
    const Setting* known = std::find_if(std::begin(kSettings), std::end(kSettings), [&](const Setting& s) { return key == s.name; });
    if (known == std::end(kSettings)) unknown_setting(setting, key);
    if (known->newer && conf_.torch_minor <= kLastOldMinor) {
      fail(fmt::format("{} does not know the setting '{}'", release_, key),
           "name a newer release to see what it would do: --torch-version 2.14");
    }
    if (colon == std::string::npos || colon + 1 == setting.size()) {
      fail(fmt::format("the setting '{}' has no value", key), fmt::format("write {}:VALUE", key));
    }
    check_value(*known, setting.substr(colon + 1));
  }

  [[noreturn]] void unknown_setting(const std::string& setting, const std::string& key) const {
    const size_t equals = key.find('=');
    std::vector<std::string> names;
    for (const Setting& s : kSettings) names.emplace_back(s.name);
    if (const auto near = did_you_mean(key.substr(0, equals), names)) {
      const std::string value =
          equals != std::string::npos ? key.substr(equals + 1) : setting.substr(std::min(key.size() + 1, setting.size()));
      fail(fmt::format("PyTorch has no allocator setting '{}'", key), fmt::format("did you mean '{}:{}'?", *near, value));
    }
    fail(fmt::format("PyTorch has no allocator setting '{}'", key), "docs/reference/replay.md lists the settings");
  }

  void check_value(const Setting& setting, const std::string& value) const {
    const auto bad = [&](const std::string& must) { fail(fmt::format("{} takes {}, not '{}'", setting.name, must, value), ""); };
    switch (setting.kind) {
      case ValueKind::mib: {
        const auto mib = to_number<int64_t>(value);
        const bool segment = std::string_view(setting.name) == "large_segment_size_mb";
        if (!mib) bad("a whole number of MiB");
        // Must be more than 20 MiB up to 2.7; in newer releases at least the size of a segment for large blocks.
        const int64_t least = segment ? 11 : conf_.torch_minor <= kLastOldMinor ? 21 : conf_.large_segment_bytes >> 20;
        if (*mib < least) bad(fmt::format("at least {} ({})", least, release_));
        break;
      }
      case ValueKind::fraction: {
        const auto fraction = to_number<double>(value);
        const bool bounds_too = std::string_view(setting.name) == "per_process_memory_fraction";
        const bool within = fraction && (bounds_too ? *fraction >= 0 && *fraction <= 1 : *fraction > 0 && *fraction < 1);
        if (!within) bad(bounds_too ? "a number from 0 to 1" : "a number between 0 and 1, both excluded");
        break;
      }
      case ValueKind::flag:
        if (value != "True" && value != "False") bad("True or False (so written)");
        break;
      case ValueKind::divisions:
        if (std::any_of(conf_.unknown.begin(), conf_.unknown.end(), [&](const std::string& u) { return u.ends_with(value); })) {
          bad("a power of two (4), or powers of two by size in MiB ([256:1,512:2,>:4])");
        }
        break;
      case ValueKind::backend:
        if (value == "cudaMallocAsync") {
          fail("the pool of cudaMallocAsync is the driver's own and cannot be replayed", "leave backend out, or compare with backend:bfc");
        }
        if (value != "native") bad("native (PyTorch's allocator), or in gpucast alone bfc (TensorFlow's)");
        break;
      case ValueKind::threads: {
        const auto threads = to_number<uint64_t>(value);
        if (!threads || !std::has_single_bit(*threads) || *threads > 128) bad("a power of two up to 128");
        break;
      }
      case ValueKind::whole_number:
        if (!to_number<uint64_t>(value)) bad("a whole number");
        break;
    }
  }

  std::string where_, release_, text_;
  AllocConf conf_;
};

}  // namespace

void check_alloc_conf(const std::string& alloc_conf, const std::string& torch_version) {
  if (const auto bfc = parse_bfc_conf(alloc_conf)) {
    if (bfc->unknown.empty()) return;
    throw Error(fmt::format("backend:bfc has no setting '{}'", bfc->unknown.front()), fmt::format("--alloc-conf '{}'", alloc_conf),
                "docs/explanation/other-allocators.md lists its settings");
  }
  Checker(alloc_conf, torch_version).check();
}

}  // namespace gpucast
