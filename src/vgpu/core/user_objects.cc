#include "src/vgpu/core/user_objects.h"

#include <mutex>
#include <unordered_map>

#include "src/vgpu/core/stream_state.h"

namespace gpucast::vgpu {
namespace {

struct UserObject {
  HostFunction destroy;
  int64_t references;
};

std::unordered_map<uint64_t, UserObject>& user_objects() {
  static auto* const kObjects = new std::unordered_map<uint64_t, UserObject>;  // never destroyed: used until the very end
  return *kObjects;
}

}  // namespace

uint64_t user_object_create(HostFunction destroy, unsigned references) {
  const StreamLock lock(stream_state().mutex);
  const uint64_t handle = stream_state().new_handle();
  user_objects()[handle] = {destroy, references};
  return handle;
}

int user_object_change(uint64_t object, int64_t references) {
  std::vector<HostFunction> due;
  {
    const StreamLock lock(stream_state().mutex);
    if (!user_object_exists(object)) return kInvalidValue;
    user_object_release(object, -references, due);
  }
  call_all(due);
  return kSuccess;
}

bool user_object_exists(uint64_t object) { return user_objects().contains(object); }

void user_object_retain(uint64_t object, int64_t references) {
  const auto found = user_objects().find(object);
  if (found != user_objects().end()) found->second.references += references;
}

void user_object_release(uint64_t object, int64_t references, std::vector<HostFunction>& due) {
  const auto found = user_objects().find(object);
  if (found == user_objects().end()) return;
  found->second.references -= references;
  if (found->second.references > 0) return;
  due.push_back(found->second.destroy);
  user_objects().erase(found);
}

void call_all(const std::vector<HostFunction>& functions) {
  for (const HostFunction& f : functions)
    if (f.function != nullptr) f.function(f.data);
}

}  // namespace gpucast::vgpu
