#include "src/search/prices.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "gpucast/error.h"

namespace gpucast::search {
namespace {

std::vector<Offer> offers_of(const std::string& text) {
  const std::string path = testing::TempDir() + "prices.json";
  std::ofstream(path) << text;
  return read_offers(path);
}

TEST(Prices, ExampleNamesSourceAndDateOfEach) {
  const std::vector<Offer> offers = read_offers(kExamplePrices);
  EXPECT_GT(offers.size(), 15);
  for (const Offer& offer : offers) {
    EXPECT_TRUE(offer.source.starts_with("https://")) << offer.name;
    EXPECT_EQ(offer.date.size(), std::string("2026-01-01").size()) << offer.name;
  }
  const auto aws = offer_for(find_machine("aws-p5"), "h100-80", 8, offers);
  ASSERT_TRUE(aws);
  EXPECT_EQ(aws->cards, 8);
  EXPECT_DOUBLE_EQ(price_per_hour(*aws, 20), 3 * aws->price_per_hour);
}

TEST(Prices, TakesTheCheapestOffer) {
  const auto offers = offers_of(
      R"({"prices": [{"gpu": "h100-80", "price_per_hour": 3, "currency": "EUR", "most_cards": 64}, {"gpu": "h100-80", "price_per_hour": 2, "currency": "EUR"},
          {"machine": "aws-p5", "price_per_hour": 40, "currency": "EUR"}]})");
  EXPECT_DOUBLE_EQ(offer_for(find_machine("dgx-h100"), "h100-80", 1, offers)->price_per_hour, 2);
  EXPECT_DOUBLE_EQ(offer_for(find_machine("dgx-h100"), "h100-80", 64, offers)->price_per_hour, 3);
  EXPECT_FALSE(offer_for(find_machine("dgx-h100"), "h100-80", 128, offers));
  EXPECT_DOUBLE_EQ(offer_for(find_machine("aws-p5"), "h100-80", 128, offers)->price_per_hour, 40);
  EXPECT_FALSE(offer_for(find_machine("dgx-a100"), "a100-80", 1, offers));
}

TEST(Prices, RefusesWhatIsNone) {
  for (
      const char* wrong :
      {"", "[]", "{}", R"({"prices": []})", R"({"prices": [1]})", R"({"prices": [{"price_per_hour": 1}]})",
       R"({"prices": [{"gpu": "h100-80"}]})", R"({"prices": [{"gpu": "h100-80", "price_per_hour": -1}]})",
       R"({"prices": [{"gpu": "nothing", "price_per_hour": 1}]})", R"({"prices": [{"gpu": "h100-80", "price_per_hour": 1, "price": 2}]})",
       R"({"prices": [{"gpu": "h100-80", "price_per_hour": 1, "cards": 0}]})",
       R"({"prices": [{"gpu": "h100-80", "price_per_hour": 1, "currency": "EUR"}, {"gpu": "l4", "price_per_hour": 1, "currency": "USD"}]})"})
    EXPECT_THROW(offers_of(wrong), Error) << wrong;
  EXPECT_THROW(read_offers("/no/such/file"), Error);
}

}  // namespace
}  // namespace gpucast::search
