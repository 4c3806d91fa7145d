#include "src/trace/pickle.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include "gpucast/error.h"
#include "src/trace/pickle_text.h"

namespace gpucast {
namespace {

namespace pt = pickle_text;
using namespace std::string_literals;

struct KeepAll final : PickleFolder {
  std::optional<uint64_t> fold(PickleContainer, std::span<const PickleValue>) override { return std::nullopt; }
};

// Folds every list to its length.
struct FoldLists final : PickleFolder {
  int shown = 0;
  std::optional<uint64_t> fold(PickleContainer kind, std::span<const PickleValue> items) override {
    ++shown;
    return kind == PickleContainer::list ? std::optional<uint64_t>(items.size()) : std::nullopt;
  }
};

struct Read {
  StringTable strings;
  std::unique_ptr<PickleReader> reader;
  PickleValue value;
};

Read read_bytes(const std::string& bytes, PickleFolder* folder = nullptr) {
  KeepAll keep;
  Read out;
  out.reader = std::make_unique<PickleReader>(pt::file(testing::TempDir(), bytes), &out.strings);
  out.value = out.reader->read(folder == nullptr ? &keep : folder);
  return out;
}

Error pickle_error(const std::string& bytes) {
  try {
    read_bytes(bytes);
  } catch (const Error& error) {
    return error;
  }
  return Error("nothing was thrown");
}

int64_t integer(const std::string& bytes) {
  const Read r = read_bytes(bytes);
  return r.reader->integer(r.value).value_or(-12345);
}

TEST(Pickle, Integers) {
  EXPECT_EQ(integer("\x80\x04K\xff."), 255);
  EXPECT_EQ(integer("\x80\x04M\xff\xff."), 65535);
  EXPECT_EQ(integer("\x80\x04J\xfe\xff\xff\xff."), -2);
  EXPECT_EQ(integer("\x80\x04\x8a\x00."s), 0);
  EXPECT_EQ(integer("\x80\x04\x8a\x01\x80."), -128);
  EXPECT_EQ(integer("\x80\x04\x8a\x02\xff\x00."s), 255);
  EXPECT_EQ(integer("\x80\x04\x8b\x02\x00\x00\x00\x01\x02."s), 513);
  for (const int64_t value : {INT64_MAX, INT64_MIN, (int64_t{1} << 59) - 1, int64_t{1} << 59, -(int64_t{1} << 59), -(int64_t{1} << 59) - 1,
                              int64_t{0x7f0000000000}})
    EXPECT_EQ(integer(pt::pickle(pt::number(value))), value);
}

TEST(Pickle, AddressesUpTo64Bits) {
  const Read r = read_bytes("\x80\x04\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."s);
  EXPECT_EQ(r.reader->address(r.value), UINT64_MAX);
  EXPECT_EQ(r.reader->integer(r.value), std::nullopt);
  EXPECT_STREQ(pickle_error("\x80\x04\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x01.").what(), "an integer of more than 64 bits");
}

TEST(Pickle, OtherScalars) {
  const Read half = read_bytes("\x80\x04G\x3f\xe0\x00\x00\x00\x00\x00\x00."s);
  EXPECT_EQ(half.reader->real(half.value), 0.5);
  const Read text = read_bytes(
      "\x80\x02X\x03\x00\x00\x00"s
      "abc."s);
  EXPECT_EQ(text.strings.text(*text.reader->text(text.value)), "abc");
  const Read truth = read_bytes("\x80\x05\x88.");
  EXPECT_EQ(truth.reader->boolean(truth.value), true);
  const Read none = read_bytes("\x80\x05N.");
  EXPECT_EQ(none.value.kind(), PickleValue::Kind::none);
}

TEST(Pickle, ContainersAndMemo) {
  // {'a': [1, (2, 3)], 'b': the same list}
  const Read r = read_bytes(
      "\x80\x04}\x94(\x8c\x01"
      "a\x94]\x94(K\x01K\x02K\x03\x86\x94"
      "e\x8c\x01"
      "b\x94h\x02u.");
  const auto dict = r.reader->items(r.value, PickleContainer::dict);
  ASSERT_TRUE(dict);
  ASSERT_EQ(dict->size(), 4u);
  EXPECT_EQ((*dict)[1].payload(), (*dict)[3].payload());
  const auto list = r.reader->items((*dict)[1], PickleContainer::list);
  ASSERT_EQ(list->size(), 2u);
  const auto tuple = r.reader->items((*list)[1], PickleContainer::tuple);
  ASSERT_EQ(tuple->size(), 2u);
  EXPECT_EQ(r.reader->integer((*tuple)[1]), 3);
  EXPECT_FALSE(r.reader->items((*list)[1], PickleContainer::list));
}

TEST(Pickle, AContainerIsShownOnceWhenItIsComplete) {
  FoldLists folder;
  // [[1, 2], the same] in two batches
  const Read r = read_bytes(
      "\x80\x02]q\x00(]q\x01(K\x01K\x02"
      "eh\x01"
      "eK\x07"
      "a."s,
      &folder);
  EXPECT_EQ(folder.shown, 2);
  EXPECT_EQ(r.reader->folded(r.value), 3u);
}

TEST(Pickle, RefusesCode) {
  EXPECT_NE(pickle_error("\x80\x02"
                         "cos\nsystem\n(U\x04"
                         "echotR.")
                .what(),
            nullptr);
  const Error global = pickle_error(
      "\x80\x02K\x01"
      "cos\nsystem\n(U\x04"
      "echotR.");
  EXPECT_NE(std::string(global.what()).find("os.system"), std::string::npos);
  EXPECT_NE(global.where.find("byte 4"), std::string::npos) << global.where;
  EXPECT_NE(std::string(pickle_error("\x80\x04\x8c\x05posix\x8c\x06system\x93.").what()).find("posix.system"), std::string::npos);
  EXPECT_NE(std::string(pickle_error("\x80\x02(ios\nsystem\n.").what()).find("os.system"), std::string::npos);
  for (const char op : "RbQo\x81\x92\x82\x83\x84P"s)
    EXPECT_NE(std::string(pickle_error("\x80\x02NN"s + op + "xxxx\n.").what()).find("refused"), std::string::npos) << op;
  // Sets, bytes, old protocols: snapshots do not contain these
  for (const std::string ops : {"\x8f", "\x90", "\x91", "C\x01x", "I1\n", "S'x'\n", "2", "\xff"})
    EXPECT_NE(std::string(pickle_error("\x80\x04N" + ops + ".").what()), "nothing was thrown") << ops;
  EXPECT_NE(std::string(pickle_error("\x80\x06N.").what()).find("protocol 6"), std::string::npos);
}

TEST(Pickle, CutOffAnywhere) {
  const std::string whole = pt::pickle(pt::dict({{"a", pt::list({pt::number(1), pt::text("x")})}, {"b", pt::boolean(true)}}));
  for (size_t bytes = 2; bytes < whole.size(); ++bytes) {
    const Error error = pickle_error(whole.substr(0, bytes));
    EXPECT_STREQ(error.what(), "the pickle is cut off") << bytes;
    EXPECT_NE(error.where.find("byte " + std::to_string(bytes)), std::string::npos) << error.where;
  }
}

TEST(Pickle, Damaged) {
  const std::vector<std::string> damaged = {".",
                                            "0.",
                                            "(.",
                                            "e.",
                                            "u.",
                                            "(K\001e.",
                                            "K\001K\002a.",
                                            "](K\001u.",
                                            "}(K\001u.",
                                            "h\005.",
                                            "q\000."s,
                                            "\x94.",
                                            "\x85.",
                                            "1.",
                                            "NN.",
                                            "K\001\x86.",
                                            "t.",
                                            "l.",
                                            "d.",
                                            "((K\001\x86.",
                                            "j\xff\xff\xff\xff.",
                                            "}K\001s.",
                                            "(K\001d.",
                                            "(0(0K\0011.",
                                            "Nr\xff\xff\xff\xff."};
  for (const std::string& ops : damaged) {
    const std::string what = pickle_error("\x80\x04" + ops).what();
    EXPECT_NE(what.find("damaged"), std::string::npos) << testing::PrintToString(ops) << " " << what;
  }
}

// A list that contains itself, and a list that grows after it was put into another one. No pickler writes these, and folded data would be
// wrong.
TEST(Pickle, Recursion) {
  for (const std::string& ops : {"]q\000h\000a."s, "]q\000]q\001h\000ah\000K\001a."s}) {
    const std::string what = pickle_error("\x80\x02" + ops).what();
    EXPECT_NE(what.find("part of another value"), std::string::npos) << what;
  }
}

long peak_kib() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Each of these needs gigabytes or never ends, if the reader believes its counts.
TEST(Pickle, HostileCountsStayWithinBounds) {
  const auto repeat = [](const std::string& ops, size_t count) {
    std::string out = "\x80\x04";
    for (size_t i = 0; i < count; ++i) out += ops;
    return out;
  };
  const long before_kib = peak_kib();
  const std::string hostile[] = {
      "\x80\x04X\xff\xff\xff\xff",                                        // a text of 4 GiB
      "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",                     // a text of 2^63 bytes
      "\x80\x04\x8b\xff\xff\xff\x7f",                                     // an integer of 2 GiB
      "\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f",                     // a frame
      repeat("(", 8'000'000),                                             // nesting
      repeat("](", 8'000'000),                                            //
      repeat("}0", 8'000'000),                                            // containers that are thrown away
      repeat("]\x94", 8'000'000),                                         // memo
      repeat("]", 8'000'000),                                             // stack
      repeat("N", 8'000'000),                                             //
      "\x80\x04]\x94" + repeat("(h\0h\0h\0h\0e\x85\x94"s, 10).substr(2),  // ten times itself
  };
  for (const std::string& bytes : hostile) EXPECT_NE(std::string(pickle_error(bytes).what()), "nothing was thrown");
  EXPECT_LT(peak_kib() - before_kib, 700 << 10) << "the test itself needs 100 MiB";
}

TEST(Pickle, ReadsGzip) {
  const std::string path = testing::TempDir() + "pickle_test.gz";
  const std::string bytes = pt::pickle(pt::text("abc"));
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  EXPECT_TRUE(looks_like_pickle(path));
  StringTable strings;
  KeepAll keep;
  PickleReader reader(path, &strings);
  EXPECT_EQ(strings.text(*reader.text(reader.read(&keep))), "abc");
  EXPECT_FALSE(looks_like_pickle("/no/such/file"));
  EXPECT_FALSE(looks_like_pickle(pt::file(testing::TempDir(), "{\"record\":1}")));
}

}  // namespace
}  // namespace gpucast
