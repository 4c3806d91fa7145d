// Which blocks of a trace in fp32 hold fp32 numbers, and the operators whose results have another type than their inputs.
#pragma once

#include <string_view>
#include <vector>

#include "src/orchestrate/profile_facts.h"
#include "src/orchestrate/sequence.h"

namespace gpucast {

constexpr int kFloatType = 6;  // fp32 in c10/core/ScalarType.h

// For each block of the sequence: whether it holds fp32 numbers.
std::vector<bool> blocks_of_floats(const ProfileFacts& facts, const Sequence& sequence);

// Some results do not have the input's type: statistics are in fp32.
bool has_statistics(std::string_view operator_name);

// The result has the type of the first input, whatever the types of the others are.
bool follows_first_input(std::string_view operator_name);

// log_softmax(x, dim, dtype): cross_entropy_loss passes the type of its input, so autocast does not change it.
bool names_input_type(const ProfileFacts& facts, SpanIndex op);

// softmax(x, dim, dtype=torch.float32)
bool asks_for_fp32(const ProfileFacts& facts, SpanIndex op);

}  // namespace gpucast
