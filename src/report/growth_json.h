// Memory that grows, in the JSON of reports: docs/reference/report-json.md.
#pragma once

#include "gpucast/growth.h"
#include "src/base/json.h"

namespace gpucast {

Json growth_json(const Growth& growth);

}  // namespace gpucast
