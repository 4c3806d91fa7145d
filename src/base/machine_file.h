// A machine as JSON: an entry of data/machines.json, or a user's file.
#pragma once

#include <string>

#include "gpucast/machine.h"
#include "src/base/json.h"

namespace gpucast {

// `entry`, with the parent's fields where it has none. A parent's names are its own. Its sources follow the entry's.
Json with_missing_fields_of(const Json& entry, const Json& parent);

// Throws Error, at `where`, for fields that are missing, unknown or wrong.
Machine machine_of(const Json& entry, const std::string& where);

// The fields of a machine of the table, as in its entry, for `like`.
Json entry_of(const Machine& machine);

}  // namespace gpucast
