#include "src/time/collective.h"

#include <gtest/gtest.h>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/time/duration.h"
#include "src/time/kinds.h"
#include "src/time/nccl_choice.h"

namespace gpucast {
namespace {

using enum CollectiveKind;

constexpr int64_t kKb = 1 << 10, kMb = 1 << 20;
constexpr CollectiveKind kChosen[] = {all_reduce, all_gather, reduce_scatter, broadcast, reduce};

Operation collective(CollectiveKind kind, int64_t ranks, int64_t bytes, int64_t nodes = 1, Precision precision = Precision::bf16) {
  Operation out;
  out.kind = OperationKind::collective;
  out.precision = precision;
  out.collective = {.kind = kind, .ranks = ranks, .nodes = nodes, .bytes = bytes};
  return out;
}

double us(const Operation& operation, const CardRates& card) { return collective_time(operation, card).ns / 1e3; }

NcclChoice choice(const Operation& operation, const CardRates& card) {
  return choose_nccl(operation.collective, operation.precision, route_of(operation.collective, card), card);
}

CardRates card_of(const char* name) { return card_rates(find_gpu(name)); }

// A card whose kernels have nothing but a start and a rate: 200 GB/s within a node of 8, 8 network cards of 10 GB/s.
CardRates plain_card() {
  CardRates card = card_of("a100-80");
  PathConstants& path = card.network.nvlink;
  path.bus_fraction = 0.5;
  path.simple_start_ns = 10'000;
  path.simple_wait_ns = path.simple_slice_ns = 1e-6;
  path.simple_fraction = 1;
  KernelConstants& kernel = card.network.kernel;
  kernel.simple_extra_all_reduce = kernel.simple_extra_all_gather = kernel.simple_extra_reduce_scatter = 0;
  kernel.tree_fill = 0;
  card.network.network_fraction = 1;
  card.network.simple_hops = 2;
  card.network.hop_fill = 0;
  card.links = {.cards = 8, .card_bytes_per_s = 400e9, .network_card_bytes_per_s = 10e9, .network_cards = 8, .network_hop_ns = 5000};
  card.nccl = read_nccl_settings({{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}});
  return card;
}

TEST(Collective, ARingSendsTwiceNMinus1OverN) {
  const CardRates card = plain_card();
  EXPECT_NEAR(us(collective(all_reduce, 8, 800'000'000), card), 7'000 + 10, 0.1);  // 2 x 7 / 8 x 800 MB at 200 GB/s
  EXPECT_NEAR(us(collective(all_gather, 8, 800'000'000), card), 3'500 + 10, 0.1);
  EXPECT_NEAR(us(collective(reduce_scatter, 4, 800'000'000), card), 3'000 + 10, 0.1);
  EXPECT_NEAR(us(collective(all_reduce, 2, 800'000'000), card), 4'000 + 10, 0.1);
}

TEST(Collective, SmallSlicesWaitForTheNeighbour) {
  CardRates card = plain_card();
  card.network.nvlink.simple_wait_ns = 4000;
  EXPECT_NEAR(us(collective(all_reduce, 8, 8), card), 14 * 4 + 10, 0.1);
  // 24 channels of 200 / 24 GB/s, slices of 100 kB: 12 us each, longer than the wait.
  EXPECT_NEAR(us(collective(all_gather, 8, int64_t{24} * 8 * 200'000), card), 7 * 24 + 10, 0.5);
}

TEST(Collective, TheNetworkIsTheSlowerPart) {
  const CardRates card = plain_card();
  // 16 ranks on two nodes with 80 GB/s each: 2 x 15 / 16 x 800 MB, and two hops of 10 us, shorter than slices of 260 us.
  EXPECT_NEAR(us(collective(all_reduce, 16, 800'000'000, 2), card), 18'750 + 10, 1);
  // Two of a node's eight cards have a quarter of its network cards; the others serve sibling groups.
  EXPECT_NEAR(us(collective(all_reduce, 4, 800'000'000, 2), card), 60'000 + 10, 1);
  CardRates racks = card;
  racks.links.rack_nodes = 2;
  racks.links.oversubscription = 2;
  EXPECT_NEAR(us(collective(all_reduce, 16, 800'000'000, 2), racks), 18'750 + 10, 1);
  EXPECT_NEAR(us(collective(all_reduce, 32, 800'000'000, 4), racks) / us(collective(all_reduce, 32, 800'000'000, 4), card), 2, 0.01);
}

TEST(Collective, ATreeOfTwoNodesSendsTheBytesOnce) {
  CardRates card = plain_card();
  card.nccl = read_nccl_settings({{"NCCL_ALGO", "Tree"}, {"NCCL_PROTO", "Simple"}});
  // 80 GB/s, up and down; two hops of 10 us. With more nodes, one has two below it.
  EXPECT_NEAR(us(collective(all_reduce, 16, 800'000'000, 2), card), 10'000 + 20 + 10, 1);
  EXPECT_NEAR(us(collective(all_reduce, 32, 800'000'000, 4), card), 20'000 + 40 + 10, 1);
}

TEST(Collective, NvlinkOfAMeshLeadsToItsNeighbours) {
  CardRates card = plain_card();
  card.links.inside = CardLink::nvlink_mesh;
  card.links.cards = 4;
  EXPECT_NEAR(us(collective(all_reduce, 4, 800'000'000), card), 6'000 + 10, 0.1);
  EXPECT_NEAR(us(collective(all_reduce, 2, 800'000'000), card), 12'000 + 10, 0.1);
}

TEST(Collective, TheSwitchAddsInLoops) {
  CardRates card = card_of("h200");
  PathConstants& path = card.network.nvlink;
  path.nvls_start_ns = 10'000;
  path.nvls_loop_ns = 1000;
  path.nvls_fraction = 1;
  card.network.kernel.nvls_fill = 0;
  card.links.card_bytes_per_s = 450e9;
  // 16 channels x 8 cards x 64 KiB a loop: 8 us, and 8 MiB at 8 / 9 of 450 GB/s.
  EXPECT_NEAR(us(collective(all_reduce, 8, 800 * kMb), card), 10 + 100 * (8 + 8 * kMb / 400e3), 1);
}

// Sizes at which measured times jump are those at which NCCL's own estimates cross.
TEST(Collective, ChoosesAsNcclDoes) {
  const CardRates a100 = card_of("a100-80"), h200 = card_of("h200");
  const auto protocol = [](const CardRates& card, CollectiveKind kind, int64_t ranks, int64_t bytes) {
    return std::string(nccl_protocol_name(choice(collective(kind, ranks, bytes), card).protocol));
  };
  EXPECT_EQ(protocol(a100, all_gather, 8, 2 * kMb), "LL");
  EXPECT_EQ(protocol(a100, all_gather, 8, 4 * kMb), "LL128");
  EXPECT_EQ(protocol(a100, all_gather, 8, 16 * kMb), "Simple");
  EXPECT_EQ(protocol(a100, all_reduce, 2, 512 * kKb), "LL");
  EXPECT_EQ(protocol(a100, all_reduce, 2, 1 * kMb), "Simple");
  EXPECT_EQ(protocol(h200, all_gather, 4, 2 * kMb), "LL");
  EXPECT_EQ(protocol(h200, all_gather, 4, 4 * kMb), "Simple");
  const auto algorithm = [&](const CardRates& card, int64_t ranks, Precision precision) {
    return std::string(nccl_algorithm_name(choice(collective(all_reduce, ranks, 256 * kMb, 1, precision), card).algorithm));
  };
  EXPECT_EQ(algorithm(h200, 8, Precision::bf16), "NVLS");
  EXPECT_EQ(algorithm(h200, 8, Precision::int8), "Ring") << "the switch does not add int8";
  EXPECT_EQ(algorithm(h200, 4, Precision::bf16), "Ring");
  EXPECT_EQ(algorithm(a100, 8, Precision::bf16), "Ring");
}

// A tree's channels are few where a node has few network cards, and NCCL limits each.
TEST(Collective, FewNetworkCardsPreferRings) {
  CardRates card = card_of("a100-80");
  card.links.network_card_bytes_per_s = 25e9;
  const auto algorithm = [&](int64_t network_cards, int64_t bytes) {
    card.links.network_cards = network_cards;
    return choice(collective(all_reduce, 16, bytes, 2), card).algorithm;
  };
  EXPECT_EQ(algorithm(4, 64 * kKb), NcclAlgorithm::tree);
  EXPECT_EQ(algorithm(4, 256 * kMb), NcclAlgorithm::ring) << "4 x 23.6 GB/s up and down, and 4 x 25 GB/s around";
  EXPECT_EQ(route_of(collective(all_reduce, 16, 1, 2).collective, card).graph_channels, 4);
  card.links.network_card_bytes_per_s = 50e9;
  EXPECT_EQ(route_of(collective(all_reduce, 16, 1, 2).collective, card).graph_channels, 8);
}

TEST(Collective, FewBytesHaveFewChannels) {
  const CardRates card = card_of("a100-80");
  EXPECT_EQ(choice(collective(all_reduce, 8, 8), card).channels, 1);
  EXPECT_EQ(choice(collective(all_reduce, 8, 128 * kKb), card).channels, 4);  // 512 threads x 8 bytes x 8 ranks each
  EXPECT_EQ(choice(collective(all_reduce, 8, 512 * kMb), card).channels, 24);
}

TEST(Collective, SettingsAreObeyed) {
  CardRates card = card_of("h200");
  const Operation large = collective(all_reduce, 8, 256 * kMb);
  const double switched = us(large, card);
  card.nccl = read_nccl_settings({{"NCCL_NVLS_ENABLE", "0"}});
  EXPECT_EQ(choice(large, card).algorithm, NcclAlgorithm::ring);
  EXPECT_GT(us(large, card), 1.1 * switched);
  card.nccl = read_nccl_settings({{"NCCL_ALGO", "Tree"}, {"NCCL_PROTO", "^Simple"}});
  EXPECT_EQ(choice(large, card).algorithm, NcclAlgorithm::tree);
  EXPECT_EQ(choice(large, card).protocol, NcclProtocol::ll128);
  card.nccl = read_nccl_settings({{"NCCL_MAX_NCHANNELS", "4"}});
  EXPECT_EQ(choice(collective(all_gather, 8, 256 * kMb), card).channels, 4);
  EXPECT_GT(us(collective(all_gather, 8, 256 * kMb), card), 4 * us(collective(all_gather, 8, 256 * kMb), card_of("h200")));
  card.nccl = read_nccl_settings({{"NCCL_P2P_DISABLE", "1"}});
  EXPECT_GT(us(large, card), 10 * switched) << "through the host's memory";
}

TEST(Collective, CardsInSlotsUseTheBus) {
  const CardRates slot = card_of("a100-80-pcie"), module = card_of("a100-80");
  EXPECT_GT(us(collective(all_reduce, 2, 256 * kMb), slot), 5 * us(collective(all_reduce, 2, 256 * kMb), module));
  EXPECT_TRUE(slot.addresses_peers);
  EXPECT_FALSE(card_of("rtx4090").addresses_peers);
  EXPECT_TRUE(card_of("gtx1080ti").addresses_peers);
}

// Within a protocol: where NCCL changes it, more bytes may need less time.
TEST(Collective, MoreBytesNeedMoreTime) {
  for (const char* name : {"v100-32", "a100-80", "h100-80", "b200", "l40s", "rtx4090"}) {
    CardRates card = card_of(name);
    for (const char* protocol : {"LL", "LL128", "Simple"}) {
      card.nccl = read_nccl_settings({{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", protocol}});
      for (const CollectiveKind kind : kChosen) {
        for (const int64_t nodes : {1, 2, 8}) {
          double before = 0;
          for (int64_t bytes = 8; bytes <= 4096 * kMb; bytes *= 4) {
            const double now = us(collective(kind, 4 * nodes, bytes, nodes), card);
            EXPECT_GE(now, 0.95 * before) << name << ' ' << protocol << ' ' << collective_kind_name(kind) << ' ' << bytes;
            before = now;
          }
        }
      }
    }
    for (const CollectiveKind kind : {all_to_all, gather, scatter, messages}) {
      double before = 0;
      for (int64_t bytes = 8; bytes <= 4096 * kMb; bytes *= 4) {
        const double now = us(collective(kind, 8, bytes), card);
        EXPECT_GE(now, before) << name << ' ' << collective_kind_name(kind) << ' ' << bytes;
        before = now;
      }
    }
  }
}

TEST(Collective, OneRankHasNobodyToWaitFor) {
  const CardRates card = card_of("h100-80");
  for (const CollectiveKind kind : {all_reduce, all_gather, all_to_all, broadcast}) {
    EXPECT_LT(us(collective(kind, 1, 1 * kMb), card), us(collective(kind, 2, 1 * kMb), card));
    EXPECT_GT(us(collective(kind, 1, 0), card), 0);
  }
}

TEST(Collective, AMessageToAnotherNodeIsSlower) {
  const CardRates card = card_of("h100-80");
  EXPECT_GT(us(collective(messages, 16, 64 * kMb, 2), card), 2 * us(collective(messages, 16, 64 * kMb, 1), card));
  // All to all between two nodes: half of the bytes leave the node, by one network card for each GPU.
  EXPECT_NEAR(us(collective(all_to_all, 16, 1024 * kMb, 2), card), 1e6 * 512 * kMb / (0.93 * 50e9), 1500);
}

TEST(CollectiveShare, FewNetworkCardsHaveFewChannels) {
  CardRates card = card_of("a100-80");
  card.links.network_cards = 4;
  card.links.network_card_bytes_per_s = 25e9;
  const auto blocks = [&](int64_t ranks, int64_t nodes) {
    return collective_share(collective(all_reduce, ranks, 256 * kMb, nodes), card).multiprocessors * card.multiprocessors;
  };
  EXPECT_NEAR(blocks(8, 1), 24, 0.1);
  EXPECT_NEAR(blocks(16, 2), 8, 0.1);
  EXPECT_NEAR(blocks(2, 2), 2, 0.1);
}

TEST(CollectiveShare, ChannelsAreMultiprocessors) {
  const CardRates card = card_of("a100-80");
  const CollectiveShare large = collective_share(collective(all_reduce, 8, 512 * kMb), card);
  EXPECT_NEAR(large.multiprocessors, 24.0 / 108, 1e-9);
  EXPECT_EQ(large.memory, 1) << "before Hopper, Simple stops other kernels";
  EXPECT_EQ(large.moving, 1);
  const CollectiveShare small = collective_share(collective(all_reduce, 8, 8), card);
  EXPECT_NEAR(small.multiprocessors, 1.0 / 108, 1e-9);
  EXPECT_LT(small.memory, 1e-3);
  EXPECT_NEAR(small.moving, 1.0 / 108, 1e-9) << "LL has no fences";
  const CollectiveShare hopper = collective_share(collective(all_reduce, 8, 512 * kMb), card_of("h100-80"));
  EXPECT_LT(hopper.memory, 0.6);
  EXPECT_EQ(hopper.moving, hopper.multiprocessors);
  EXPECT_GT(collective_share(collective(all_to_all, 8, 512 * kMb), card).multiprocessors, 0.2);
}

// The constants are data: each changes the time that it belongs to.
TEST(Collective, ChangedNumbersMoveTheTimes) {
  const auto with = [](const std::string& group, const std::string& number) {
    return card_rates(find_gpu("h200"), R"({"schema_version":1,"network":{")" + group + R"(":{"source":"x",)" + number + "}}}");
  };
  const CardRates plain = card_of("h200");
  const Operation small = collective(all_reduce, 8, 8), large = collective(all_gather, 8, 512 * kMb);
  EXPECT_NEAR(us(small, with("path_hopper", R"("ll_start_ns":14519)")) - us(small, plain), 14.519 - plain.network.nvlink.ll_start_ns / 1e3,
              1e-6);
  EXPECT_GT(us(large, with("path_hopper", R"("simple_fraction":0.5)")), 1.5 * us(large, plain));
  EXPECT_GT(us(large, with("path_hopper", R"("bus_fraction":0.4)")), 1.5 * us(large, plain));
  EXPECT_EQ(us(large, with("path_ampere", R"("simple_fraction":0.5)")), us(large, plain)) << "another generation's";
  EXPECT_THROW(with("path_hopper", R"("no_such_number":1)"), Error);
}

}  // namespace
}  // namespace gpucast
