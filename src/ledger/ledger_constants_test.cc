#include "src/ledger/ledger_constants.h"

#include <gtest/gtest.h>

#include <string>

#include "gpucast/error.h"
#include "ledger_json.h"

namespace gpucast {
namespace {

// The built-in text with one part replaced.
std::string text_with(const std::string& piece, const std::string& instead) {
  std::string text = kLedgerJson;
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), instead);
}

TEST(LedgerConstants, AChangedNumberMovesItsLine) {
  const auto expected_bytes = [](const char* id, size_t line, const std::string& text) {
    return device_ledger(find_gpu(id), 12, parse_ledger_constants(text.c_str())).at(line).expected_bytes;
  };
  EXPECT_EQ(expected_bytes("a100-80", 0, kLedgerJson), device_ledger(find_gpu("a100-80"), 12).at(0).expected_bytes);
  EXPECT_GT(expected_bytes("a100-80", 0, text_with("\"base_mib\": 36", "\"base_mib\": 136")), expected_bytes("a100-80", 0, kLedgerJson));
  EXPECT_GT(expected_bytes("a100-80", 1, text_with("0.351", "0.4")), expected_bytes("a100-80", 1, kLedgerJson));
  EXPECT_EQ(expected_bytes("rtx3060", 0, text_with("\"context_mib\": 112", "\"context_mib\": 113")), 113 << 20);
}

TEST(LedgerConstants, AGroupWithoutASourceIsRefused) {
  EXPECT_THROW(parse_ledger_constants(R"({"schema_version": 1, "ledger": {"profile": {"error": 0.02}}})"), Error);
  EXPECT_THROW(parse_ledger_constants(text_with("\"confidence\": 0.95", "\"confidences\": 0.95").c_str()), Error) << "a number is missing";
}

}  // namespace
}  // namespace gpucast
