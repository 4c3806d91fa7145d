#include <algorithm>

#include "src/time/kinds.h"

namespace gpucast {

Estimate copy_time(const Operation& operation, const CardRates& card) {
  const BytesConstants& c = card.bytes[OperationKind::copy];
  const double launches = std::max<double>(1, static_cast<double>(operation.launches));
  if (operation.to_host || operation.from_host) {
    const double bytes = static_cast<double>(std::max(operation.bytes_read, operation.bytes_written));
    // The driver first copies memory that is not pinned to its own buffer, piece by piece, while the previous piece crosses the bus.
    const double rate = operation.pageable ? std::min(card.link_bytes_per_s, card.pageable_bytes_per_s) : card.link_bytes_per_s;
    return {launches * c.floor_ns + 1e9 * bytes / rate, Bound::link};
  }
  if (operation.between_cards) {
    const auto bytes = static_cast<double>(std::max(operation.bytes_read, operation.bytes_written));
    const double rate = card.links.card_bytes_per_s > 0 ? card.links.card_bytes_per_s : card.link_bytes_per_s;
    return {launches * c.floor_ns + 1e9 * bytes / rate, Bound::link};
  }
  return time_by_bytes(operation, card);
}

}  // namespace gpucast
