#include "gpucast/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "gpucast/error.h"
#include "src/base/machine_file.h"

namespace gpucast {
namespace {

class MachineFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("gpucast_machine_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  Machine read(const std::string& text) const { return read_machine(write("node.json", text)); }
  std::string error(const std::string& text) const {
    try {
      (void)read(text);
      return "no error";
    } catch (const Error& error) {
      return std::string(error.what()) + " | " + error.hint;
    }
  }

  std::filesystem::path folder_;
};

const std::string kNode = R"("cards": ["a100-80"], "cards_per_node": 8, "inside": "nvswitch", "card_bytes_per_s": 300e9)";
const std::string kPage = " | docs/reference/machines.md describes the fields";

std::string name_error(const std::string& name) {
  try {
    return "found " + find_machine(name).id;
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint;
  }
}

TEST(MachineTable, EveryEntryIsComplete) {
  std::set<std::string> ids, names, usual;
  for (const Machine& machine : machine_table()) {
    SCOPED_TRACE(machine.id);
    EXPECT_TRUE(ids.insert(machine.id).second);
    EXPECT_TRUE(names.insert(machine.name).second);
    EXPECT_LE(machine.id.size(), 18U);
    EXPECT_LE(machine.name.size(), 30U);
    EXPECT_FALSE(machine.sources.empty());
    EXPECT_EQ(find_machine(machine.id).id, machine.id);
    EXPECT_EQ(find_machine(machine.name).id, machine.id);
    for (const std::string& alias : machine.aliases) EXPECT_EQ(find_machine(alias).id, machine.id);
    for (const std::string& id : machine.usual_for) EXPECT_TRUE(usual.insert(id).second) << id;
    EXPECT_TRUE(machine.links.network_cards == 0 || !machine.network.empty());
  }
  for (const Gpu& gpu : gpu_table()) {
    const Machine& machine = usual_machine(gpu);
    EXPECT_NO_THROW(check_machine_has(machine, gpu)) << gpu.id;
  }
}

TEST(MachineTable, NodesHaveTheNetworkThatTheirCloudsName) {
  const auto gbit_per_s = [](const char* name) {
    const Links& links = find_machine(name).links;
    return static_cast<double>(links.network_cards) * links.network_card_bytes_per_s * 8e-9;
  };
  EXPECT_EQ(gbit_per_s("aws-p3"), 25);
  for (const char* name : {"aws-p3dn", "gcp-a2-high", "gcp-a2-mega", "aws-g5-48xlarge", "aws-g6-48xlarge"})
    EXPECT_EQ(gbit_per_s(name), 100) << name;
  for (const char* name : {"aws-p4d", "aws-p4de", "dgx-1", "gcp-g4"}) EXPECT_EQ(gbit_per_s(name), 400) << name;
  for (const char* name : {"dgx-a100-40", "azure-nd-a100-v4", "oci-gpu4", "oci-a100", "gcp-a3-mega"})
    EXPECT_EQ(gbit_per_s(name), 1600) << name;
  for (const char* name :
       {"dgx-h100", "aws-p5", "aws-p5e", "aws-p5en", "aws-p6-b200", "gcp-a3-ultra", "gcp-a4", "azure-nd-h200-v5", "oci-h200"})
    EXPECT_EQ(gbit_per_s(name), 3200) << name;
  EXPECT_EQ(gbit_per_s("dgx-b300"), 6400);
  EXPECT_EQ(gbit_per_s("aws-p6-b300"), 6400);
  EXPECT_EQ(gbit_per_s("aws-p6e-gb200"), 28800);
}

TEST(MachineTable, AnEntryLikeAnotherHasItsLinks) {
  const Machine& p5 = find_machine("p5.48xlarge");
  EXPECT_EQ(p5.name, "AWS p5.48xlarge");
  EXPECT_EQ(p5.links.cards, 8);
  EXPECT_EQ(p5.links.inside, CardLink::nvswitch);
  EXPECT_EQ(p5.links.card_bytes_per_s, 450e9);
  EXPECT_TRUE(p5.links.multicast);
  EXPECT_EQ(p5.cores, 96);
  EXPECT_TRUE(p5.usual_for.empty());
  EXPECT_TRUE(p5.sources.back().starts_with("as dgx-h100: NVIDIA H100 datasheet"));
  EXPECT_EQ(find_machine("p4de").links.network_hop_ns, 73000);
  EXPECT_EQ(find_machine("p5").links.network_hop_ns, 0);
  EXPECT_EQ(find_machine("a4x").cards_per_host, 4);
  EXPECT_EQ(find_machine("a4x").links.cards, 72);
  EXPECT_EQ(find_machine("a4x").gpu_ids, std::vector<std::string>{"gb200"});
  EXPECT_EQ(find_machine("dgx-h200").card_name, "");
}

TEST(MachineTable, AnEntryIsReadBackAsItWas) {
  for (const Machine& machine : machine_table()) {
    const Machine again = machine_of(entry_of(machine), machine.id);
    EXPECT_EQ(entry_of(again).dump(), entry_of(machine).dump());
    EXPECT_EQ(again.links, machine.links);
  }
}

TEST(FindMachine, SpellingDoesNotMatter) {
  for (const char* name : {"aws-p4d", "AWS P4D", "p4d.24xlarge", "p4d"}) EXPECT_EQ(find_machine(name).id, "aws-p4d") << name;
  EXPECT_EQ(find_machine("a3-megagpu-8g").id, "gcp-a3-mega");
  EXPECT_EQ(find_machine("ND96isr_H100_v5").id, "azure-nd-h100-v5");
  EXPECT_EQ(name_error("dgx-b"), "'dgx-b' may be any of several machines: dgx-b200, dgx-b300 | name one of them");
  EXPECT_EQ(name_error("dgx-h300"), "no machine is named 'dgx-h300' | did you mean 'dgx-h100'? gpucast machines lists all names");
  EXPECT_EQ(name_error("my cluster"), "no machine is named 'my cluster' | gpucast machines lists the names");
}

TEST(FindMachine, ACardThatTheMachineDoesNotHave) {
  const auto error = [](const char* machine, const char* gpu) {
    try {
      check_machine_has(find_machine(machine), find_gpu(gpu));
      return std::string();
    } catch (const Error& thrown) {
      return std::string(thrown.what()) + " | " + thrown.hint;
    }
  };
  EXPECT_EQ(error("aws-p5", "h100-80"), "");
  EXPECT_EQ(error("aws-p5", "h200"),
            "the machine 'aws-p5' has no NVIDIA H200 | name one of its cards with --gpu (h100-80), or another machine");
  EXPECT_EQ(error("dgx-b300", "b300"), "");
  EXPECT_EQ(error("dgx-b300", "b300@900W"), "");  // with another power limit
}

TEST_F(MachineFile, AUsersNode) {
  const Machine machine =
      read("{" + kNode + R"(, "network_cards": 2, "network_card_bytes_per_s": 12.5e9, "network_hop_ns": 9000, "rack_nodes": 16,
    "oversubscription": 2.5, "cores": 64, "memory_bytes": 512000000000, "cards_per_host": 4, "sources": ["measured"]})");
  EXPECT_EQ(machine.name, "node");
  EXPECT_EQ(machine.id, (folder_ / "node.json").string());
  EXPECT_EQ(machine.gpu_ids, std::vector<std::string>{"a100-80"});
  EXPECT_EQ(machine.links, (Links{8, CardLink::nvswitch, 300e9, false, 12.5e9, 2, 2.5, 16, 9000}));
  EXPECT_EQ(machine.cards_per_host, 4);
  EXPECT_EQ(machine.cores, 64);
  EXPECT_EQ(machine.memory_bytes, 512'000'000'000U);
  EXPECT_EQ(read("{" + kNode + "}").links.network_cards, 0);
  EXPECT_EQ(read("{" + kNode + "}").cards_per_host, 8);
}

TEST_F(MachineFile, LikeAnother) {
  const Machine machine = read(R"({"like": "p5", "network_cards": 16, "cores": null, "sources": ["our contract"]})");
  EXPECT_EQ(machine.name, "node");
  EXPECT_EQ(machine.links.network_cards, 16);
  EXPECT_EQ(machine.links.card_bytes_per_s, 450e9);
  EXPECT_EQ(machine.cores, 0);
  EXPECT_EQ(machine.sources.front(), "our contract");
  EXPECT_TRUE(machine.sources[1].starts_with("as aws-p5: ")) << machine.sources[1];
  write("base.json", R"({"like": "dgx-h100", "cores": 7})");
  const Machine again = read(R"({"like": "base.json", "cards_per_node": 4})");
  EXPECT_EQ(again.cores, 7);
  EXPECT_EQ(again.links.cards, 4);
  EXPECT_EQ(again.cards_per_host, 4);
}

TEST_F(MachineFile, MissingFields) {
  EXPECT_EQ(error("{}"), "the machine has no \"cards\"" + kPage);
  EXPECT_EQ(error(R"({"cards": ["t4"], "inside": "host", "card_bytes_per_s": 16e9})"), "the machine has no \"cards_per_node\"" + kPage);
  EXPECT_EQ(error(R"({"cards": ["t4"], "cards_per_node": 2, "card_bytes_per_s": 16e9})"), "the machine has no \"inside\"" + kPage);
  EXPECT_EQ(error(R"({"cards": ["t4"], "cards_per_node": 2, "inside": "host"})"), "the machine has no \"card_bytes_per_s\"" + kPage);
  EXPECT_EQ(error("{" + kNode + R"(, "network_cards": 4})"), "the machine has no \"network_card_bytes_per_s\"" + kPage);
  EXPECT_EQ(error("{" + kNode + R"(, "oversubscription": 2})"),
            "\"oversubscription\" is about nodes of different racks, and there is no \"rack_nodes\"" + kPage);
}

TEST_F(MachineFile, WrongNumbers) {
  const auto with = [&](const std::string& more) { return error("{" + kNode + ", " + more + "}"); };
  EXPECT_EQ(error(R"({"cards": ["t4"], "cards_per_node": 0, "inside": "host", "card_bytes_per_s": 16e9})"),
            "\"cards_per_node\" is 0, not a number from 1 to 1024" + kPage);
  EXPECT_EQ(error(R"({"cards": ["t4"], "cards_per_node": 2.5, "inside": "host", "card_bytes_per_s": 16e9})"),
            "\"cards_per_node\" is 2.5, not a whole number" + kPage);
  EXPECT_EQ(error(R"({"cards": ["t4"], "cards_per_node": "2", "inside": "host", "card_bytes_per_s": 16e9})"),
            "\"cards_per_node\" is \"2\", not a number from 1 to 1024" + kPage);
  for (const char* rate : {"0", "-300e9", "450", "1e300"})
    EXPECT_NE(error(R"({"cards": ["t4"], "cards_per_node": 2, "inside": "host", "card_bytes_per_s": )" + std::string(rate) + "}")
                  .find("not a rate in bytes per second from 1e6 to 1e14"),
              std::string::npos)
        << rate;
  EXPECT_EQ(with(R"("network_cards": -1)"), "\"network_cards\" is -1, not a number from 0 to 1024" + kPage);
  EXPECT_EQ(with(R"("network_cards": 1, "network_card_bytes_per_s": 0)"),
            "\"network_card_bytes_per_s\" is 0, not a rate in bytes per second from 1e6 to 1e14" + kPage);
  EXPECT_EQ(with(R"("oversubscription": 0)"), "\"oversubscription\" is 0, not a number from 1 to 1000" + kPage);
  EXPECT_EQ(with(R"("network_hop_ns": 0)"), "\"network_hop_ns\" is 0, not a number from 100 to 10000000" + kPage);
  EXPECT_EQ(with(R"("rack_nodes": 0)"), "\"rack_nodes\" is 0, not a number from 1 to 1000000" + kPage);
  EXPECT_EQ(with(R"("cores": 0)"), "\"cores\" is 0, not a number from 1 to 65536" + kPage);
  EXPECT_EQ(with(R"("cards_per_host": 3)"), "\"cards_per_node\" 8 is no multiple of \"cards_per_host\" 3" + kPage);
}

TEST_F(MachineFile, WrongWords) {
  EXPECT_EQ(error(R"({"cards": ["rtx3061"], "cards_per_node": 2, "inside": "host", "card_bytes_per_s": 16e9})"),
            "\"cards\": no GPU is named 'rtx3061' | did you mean 'rtx3060'? gpucast gpus lists all names");
  EXPECT_EQ(error(R"({"cards": [], "cards_per_node": 2, "inside": "host", "card_bytes_per_s": 16e9})"), "\"cards\" is empty" + kPage);
  EXPECT_EQ(error(R"({"cards": "t4", "cards_per_node": 2, "inside": "host", "card_bytes_per_s": 16e9})"),
            "\"cards\" is \"t4\", not a list of texts" + kPage);
  EXPECT_EQ(error(R"({"cards": ["t4"], "cards_per_node": 2, "inside": "nvlink", "card_bytes_per_s": 16e9})"),
            "\"inside\" is 'nvlink', none of nvswitch, nvlink_mesh, pcie_peer, host" + kPage);
  EXPECT_EQ(error(R"({"cards": ["t4"], "cards_per_node": 2, "inside": "host", "card_bytes_per_s": 16e9, "multicast": true})"),
            "\"multicast\" is true, but only an NVSwitch adds and copies: \"inside\" must be \"nvswitch\"" + kPage);
  EXPECT_EQ(error("{" + kNode + R"(, "card_per_node": 8})"),
            "a machine has no field \"card_per_node\" | did you mean \"cards_per_node\"? docs/reference/machines.md describes the fields");
  EXPECT_EQ(error("{" + kNode + R"(, "cores": 2, "cores": 3})"), "the key \"cores\" is there twice | keep one of them");
  EXPECT_EQ(error(R"({"like": "p55"})"), "\"like\": no machine is named 'p55' | did you mean 'aws-p5'? gpucast machines lists all names");
}

TEST_F(MachineFile, NoMachineAtAll) {
  for (const char* text : {"", "{", "not json", R"({"card_bytes_per_s": NaN})", R"({"card_bytes_per_s": 1e999})"})
    EXPECT_EQ(error(text), "the file is not JSON (which has no NaN, no infinity and no comments)" + kPage) << text;
  EXPECT_EQ(error("[1]"), "a machine is one JSON object" + kPage);
  EXPECT_EQ(error(R"({"schema_version": 2})"), "the machine's schema_version is not 1" + kPage);
  EXPECT_EQ(error(std::string(70000, ' ') + "{}"), "the file is larger than 64 KiB, so it is no machine" + kPage);
  EXPECT_THROW(read_machine((folder_ / "gone.json").string()), Error);
  EXPECT_THROW(read_machine(folder_.string() + "/"), Error);
}

TEST_F(MachineFile, ACircle) {
  const std::string a = write("a.json", R"({"like": "b.json"})");
  write("b.json", R"({"like": "./a.json"})");
  try {
    (void)read_machine(a);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the machine's \"like\" leads back to itself");
    EXPECT_NE(error.where.find("a.json -> "), std::string::npos) << error.where;
    EXPECT_TRUE(error.where.ends_with("a.json")) << error.where;
  }
  EXPECT_EQ(error(R"({"like": "node.json"})"), "the machine's \"like\" leads back to itself | name a machine of `gpucast machines`");
}

}  // namespace
}  // namespace gpucast
