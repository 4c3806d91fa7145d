#include "src/vgpu/core/devices.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace gpucast::vgpu {
namespace {

struct Machine {
  std::vector<int> visible;  // physical numbers
  int cards = 1;
};

const Machine& machine() {
  static const Machine* const kMachine = [] {
    auto* found = new Machine;  // never destroyed: used until the very end
    found->cards = std::clamp(profile().devices, 1, kMostDevices);
    const char* named = std::getenv("CUDA_VISIBLE_DEVICES");
    if (named == nullptr) {
      for (int card = 0; card < found->cards; ++card) found->visible.push_back(card);
    } else {
      found->visible = parse_visible_devices(named, found->cards);
    }
    for (const int card : found->visible) found->cards = std::max(found->cards, card + 1);
    return found;
  }();
  return *kMachine;
}

thread_local int t_device = 0;

std::mutex g_peers_mutex;
std::array<std::array<bool, kMostDevices>, kMostDevices> g_peers{};  // [device][peer]: access is on

}  // namespace

std::vector<int> parse_visible_devices(std::string_view text, int machine) {
  std::vector<int> found;
  while (!text.empty() && found.size() < kMostDevices) {
    std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    int card = -1;
    if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) {
      card = static_cast<int>(found.size()) % machine;  // given by UUID: any card, since all are alike
    } else {
      const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), card);
      if (error != std::errc() || end != entry.data() + entry.size()) card = -1;
    }
    if (card < 0 || card >= kMostDevices || std::find(found.begin(), found.end(), card) != found.end()) break;
    found.push_back(card);
  }
  return found;
}

int device_count() { return static_cast<int>(machine().visible.size()); }
int physical_device_count() { return machine().cards; }
int physical_device(int device) { return is_device(device) ? machine().visible[static_cast<size_t>(device)] : -1; }
int visible_device(int physical) {
  const auto& visible = machine().visible;
  const auto found = std::find(visible.begin(), visible.end(), physical);
  return found == visible.end() ? -1 : static_cast<int>(found - visible.begin());
}
bool is_device(int device) { return device >= 0 && device < device_count(); }

bool can_access_peer(int device, int peer) {
  // NVIDIA's driver allows peer access between data center and workstation cards, but not between GeForce cards.
  return is_device(device) && is_device(peer) && device != peer && std::strstr(profile().name, "GeForce") == nullptr;
}

int change_peer_access(int peer, bool enable) {
  constexpr int kInvalidDevice = 101, kUnsupported = 217, kAlreadyEnabled = 704, kNotEnabled = 705;
  if (!is_device(peer) || peer == t_device) return kInvalidDevice;
  if (!can_access_peer(t_device, peer)) return kUnsupported;
  const std::lock_guard lock(g_peers_mutex);
  bool& on = g_peers[static_cast<size_t>(t_device)][static_cast<size_t>(peer)];
  if (on == enable) return enable ? kAlreadyEnabled : kNotEnabled;
  on = enable;
  return 0;
}

int current_device() { return t_device; }
bool set_current_device(int device) {
  if (!is_device(device)) return false;
  t_device = device;
  return true;
}

}  // namespace gpucast::vgpu
