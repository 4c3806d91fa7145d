// What renting a card or a machine costs an hour: a file of prices (docs/reference/gpus.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/machine.h"

namespace gpucast::search {

struct Offer {
  std::string name;  // "AWS p5.48xlarge"
  std::string gpu_id;
  std::string machine_id;                      // "": the card's usual machine
  int64_t cards = 1;                           // rented together
  int64_t most_cards = 1;                      // for one job
  double price_per_hour = 0;                   // of all of them
  std::string currency, region, source, date;  // "": not said
};

inline constexpr const char* kExamplePrices = "example";

// A file, or the built-in example. Throws Error: not such a file, a field is wrong, prices in two currencies.
std::vector<Offer> read_offers(const std::string& file_or_example);

// The cheapest offer of such a machine; without one, of its cards, for this many of them. Unset: there is none.
std::optional<Offer> offer_for(const Machine& machine, const std::string& gpu_id, int64_t cards, const std::vector<Offer>& offers);

// How many of the offer hold this many cards, at their price for an hour.
double price_per_hour(const Offer& offer, int64_t cards);

}  // namespace gpucast::search
