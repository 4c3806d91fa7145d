#include "src/base/json.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace gpucast {
namespace {

TEST(Json, KeepsTheOrderOfKeys) {
  const Json json = {{"z", 1}, {"a", "x"}, {"m", {{"inner", true}}}};
  EXPECT_EQ(json.dump(), R"({"z":1,"a":"x","m":{"inner":true}})");
  EXPECT_EQ(Json::parse(json.dump()).dump(), json.dump());
}

TEST(Json, ListsThatAreNoPairsAreArrays) {
  EXPECT_EQ((Json{1, 2.5, "x", nullptr}).dump(), R"([1,2.5,"x",null])");
  EXPECT_EQ((Json{{"name", "x"}, {"y"}}).dump(), R"([["name","x"],["y"]])");
  EXPECT_EQ(Json(std::vector<std::string>{"a", "b"}).dump(), R"(["a","b"])");
  EXPECT_EQ(Json::object().dump(), "{}");
  EXPECT_EQ(Json(std::vector<int64_t>{}).dump(), "[]");
}

TEST(Json, NumbersComeBackAsTheyWere) {
  const std::string text = R"([9223372036854775807,-9223372036854775808,0.1,1e300,true,-0.0])";
  EXPECT_EQ(Json::parse(text).dump(), R"([9223372036854775807,-9223372036854775808,0.1,1e+300,true,-0.0])");
  EXPECT_EQ(Json::parse("7").get<double>(), 7.0);
  EXPECT_EQ(Json::parse("18446744073709551615").get<double>(), 18446744073709551616.0);
}

TEST(Json, BadTextIsNull) {
  for (const char* text : {"", "{", "[1,", "{\"a\":}", "nul", "\"\\ud800\"", "[1] 2"}) EXPECT_TRUE(Json::parse(text).is_null()) << text;
}

TEST(Json, RepeatedKeysAreNamed) {
  std::optional<std::string> repeated = "old";
  EXPECT_EQ(Json::parse(R"({"a": {"b": 1}, "b": 2})", &repeated)["b"].get<int>(), 2);
  EXPECT_EQ(repeated, std::nullopt);
  EXPECT_EQ(Json::parse(R"({"a": {"b": 1, "c": 3, "b": 2}})", &repeated)["a"]["b"].get<int>(), 2);
  EXPECT_EQ(repeated, "b");
}

TEST(Json, DeepTextIsNull) {
  const std::string many(100000, '[');
  EXPECT_TRUE(Json::parse(many + std::string(100000, ']')).is_null());
  EXPECT_TRUE(Json::parse(std::string(1000, '[') + std::string(1000, ']')).is_array());
}

TEST(Json, BytesThatAreNoUtf8AreReplaced) { EXPECT_EQ(Json("a\xff").dump(), "\"a\xef\xbf\xbd\""); }

TEST(Json, WhatIsNotThereIsNull) {
  const Json json = Json::parse(R"({"rank": 2, "reason": "steps", "final": true, "none": null})");
  EXPECT_TRUE(json["nothing"]["further"].is_null());
  EXPECT_EQ(json.value("rank", 0), 2);
  EXPECT_EQ(json.value("reason", 7), 7);
  EXPECT_EQ(json.value("reason", ""), "steps");
  EXPECT_EQ(json.value("rank", "x"), "x");
  EXPECT_TRUE(json.value("final", false));
  EXPECT_TRUE(json.value("rank", true));
  EXPECT_EQ(Json(3).value("rank", 1), 1);
  EXPECT_FALSE(json.contains("nothing"));
  EXPECT_TRUE(json.contains("none"));
}

TEST(Json, GrowsFromNull) {
  Json json;
  json["list"].push_back(1);
  json["list"].push_back({{"a", 1}});
  json["deep"]["er"] = "x";
  json.update({{"list", 2}, {"new", 3}});
  EXPECT_EQ(json.dump(), R"({"list":2,"deep":{"er":"x"},"new":3})");
}

}  // namespace
}  // namespace gpucast
