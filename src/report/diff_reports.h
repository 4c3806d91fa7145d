// A diff as text for people, as JSON and as Markdown for a pull request (docs/reference/diff.md).
#pragma once

#include <cstdint>
#include <string>

#include "gpucast/diff.h"

namespace gpucast {

std::string diff_text(const Diff& diff, bool colour);
std::string diff_json(const Diff& diff);
std::string diff_markdown(const Diff& diff);

// "activations +30.0 MiB, gradients -1.0 MiB", the largest first; "" without a change.
std::string category_changes(const Diff& diff, const DiffRow& row);
// "+120.00 MiB (+5.2 %)", "no change".
std::string change_words(const DiffBytes& bytes);
// "Peak reserved grew by 120.00 MiB (5.2 %), from 2300.00 to 2420.00 MiB: more than the 50MiB of --fail-above"
std::string diff_verdict(const Diff& diff);

}  // namespace gpucast
