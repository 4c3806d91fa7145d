// The share of a card that a collective leaves no other kernel.
#pragma once

#include <cstdint>

#include "src/time/card_rates.h"
#include "src/time/operation.h"

namespace gpucast {

struct CollectiveShare {
  double multiprocessors = 0;  // NCCL's channels: each is a block that keeps a multiprocessor
  double memory = 0;           // of device memory's rate
  double moving = 0;           // of multiprocessors, while it moves bytes
  int64_t buffered_bytes = 0;  // of messages: a send of at most this does not wait for its receiver
};

CollectiveShare collective_share(const Operation& operation, const CardRates& card);

}  // namespace gpucast
