#include "src/search/prices.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "prices_json.h"
#include "src/base/json.h"
#include "src/base/read_file.h"

namespace gpucast::search {
namespace {

constexpr const char* kPriceExample = R"(such as {"gpu": "rtx4090", "price_per_hour": 0.29, "currency": "USD"})";
const char* const kOfferKeys[] = {"name",           "machine",  "gpu",    "cards",  "most_cards",
                                  "price_per_hour", "currency", "region", "source", "date"};

Offer offer_of(const Json& entry, const std::string& where) {
  if (!entry.is_object()) throw Error("an entry of \"prices\" is no object", where, kPriceExample);
  for (const std::string& key : entry.keys())
    if (std::ranges::find(kOfferKeys, key) == std::end(kOfferKeys))
      throw Error(fmt::format("there is no \"{}\" in a price", key), where,
                  "name, machine, gpu, cards, most_cards, price_per_hour, currency, region, source, date");
  Offer out;
  out.name = entry.value("name", "");
  out.currency = entry.value("currency", "");
  out.region = entry.value("region", "");
  out.source = entry.value("source", "");
  out.date = entry.value("date", "");
  const std::string machine = entry.value("machine", ""), gpu = entry.value("gpu", "");
  if (machine.empty() && gpu.empty()) throw Error("a price names neither \"machine\" nor \"gpu\"", where, kPriceExample);
  if (!machine.empty()) {
    const Machine& known = find_machine(machine);
    out.machine_id = known.id;
    out.gpu_id = known.gpu_ids.front();
    out.cards = known.cards_per_host > 0 ? known.cards_per_host : known.links.cards;
    if (out.name.empty()) out.name = known.name;
  }
  if (!gpu.empty()) {
    out.gpu_id = find_gpu(gpu).id;
    if (!machine.empty()) check_machine_has(find_machine(machine), find_gpu(gpu));
    if (out.name.empty()) out.name = find_gpu(gpu).name;
  }
  out.cards = entry.value("cards", out.cards);
  out.price_per_hour = entry.value("price_per_hour", 0.0);
  const bool has_network = !machine.empty() && find_machine(machine).links.network_cards > 0;
  out.most_cards = entry.value("most_cards", has_network ? std::numeric_limits<int64_t>::max() : out.cards);
  if (out.cards < 1 || out.most_cards < out.cards)
    throw Error("\"cards\" is a number above 0, and \"most_cards\" at least that number", where);
  if (!(out.price_per_hour > 0) || !std::isfinite(out.price_per_hour))
    throw Error("\"price_per_hour\" is missing or no number above 0", where, kPriceExample);
  return out;
}

}  // namespace

std::vector<Offer> read_offers(const std::string& file_or_example) {
  const bool example = file_or_example == kExamplePrices;
  const std::string where = example ? "data/prices.json" : file_or_example;
  const std::string text = example ? std::string(kPricesJson) : read_file(where);
  if (text.empty()) throw Error("the file of prices is empty or cannot be read", where, "`--prices example` uses the built-in example");
  const Json file = Json::parse(text);
  if (!file["prices"].is_array())
    throw Error("this is no file of prices", where, fmt::format("{{\"prices\": [..]}}, with entries {}", kPriceExample));
  std::vector<Offer> out;
  for (size_t i = 0; i < file["prices"].size(); ++i) {
    out.push_back(offer_of(file["prices"].at(i), fmt::format("{}, price {}", where, i + 1)));
    if (out.back().currency != out.front().currency)
      throw Error(fmt::format("prices in two currencies: '{}' and '{}'", out.front().currency, out.back().currency), where,
                  "name all prices in one currency");
  }
  if (out.empty()) throw Error("the file of prices has no price", where, kPriceExample);
  return out;
}

std::optional<Offer> offer_for(const Machine& machine, const std::string& gpu_id, int64_t cards, const std::vector<Offer>& offers) {
  std::optional<Offer> out;
  const auto take_cheapest = [&](const auto& wanted) {
    for (const Offer& offer : offers)
      if (wanted(offer) &&
          (!out || offer.price_per_hour / static_cast<double>(offer.cards) < out->price_per_hour / static_cast<double>(out->cards)))
        out = offer;
  };
  take_cheapest([&](const Offer& offer) { return offer.machine_id == machine.id; });
  if (!out)
    take_cheapest([&](const Offer& offer) { return offer.machine_id.empty() && offer.gpu_id == gpu_id && cards <= offer.most_cards; });
  return out;
}

double price_per_hour(const Offer& offer, int64_t cards) {
  const int64_t machines = (cards + offer.cards - 1) / offer.cards;
  return static_cast<double>(machines) * offer.price_per_hour;
}

}  // namespace gpucast::search
