// Pipelines in the order of torch.distributed.pipelining: each stage's kernels on stream 0, all messages on stream 1. A message is issued
// after the kernels before it, and what needs a received one waits for its event. Messages take next to no time.
// Or with a stream for each way (streams 1 to 4), and receives that wait for nothing: as on paper.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "src/ranks/hand_made_ranks.h"

namespace gpucast {
namespace {

constexpr double kMessageUs = 1e-3;
constexpr int64_t kBytes = 1 << 20;

enum class Act : uint8_t { forward, backward, input_gradient, weight_gradient, send, receive };
struct Action {
  Act act = Act::forward;
  int64_t stage = 0, micro_batch = 0;
  bool gradient = false;  // send, receive: of gradients
  auto operator<=>(const Action&) const = default;
};
using Plan = std::vector<std::vector<Action>>;  // by rank

struct Times {
  double forward_us = 0, backward_us = 0, weight_us = 0;
};

// ---- ranks with their streams ------------------------------------------------------------------------------------------------

struct Pipeline {
  int64_t ranks = 0, stages = 0;
  Times times;  // of a stage
  bool one_stream = true;
  std::deque<HandMadeRank> made;
  std::map<Action, HandMadeRank::Event> received;

  Pipeline(int64_t rank_count, int64_t stage_count, const Times& of_stage) : ranks(rank_count), stages(stage_count), times(of_stage) {
    std::vector<int64_t> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    for (int64_t r = 0; r < ranks; ++r) made.emplace_back(r, 5).group("pipe", all);
  }

  int64_t rank_of(int64_t stage) const { return stage % ranks; }
  Message send_of(int64_t stage, bool gradient) const { return {rank_of(gradient ? stage - 1 : stage + 1), kBytes, false}; }
  Message receive_of(int64_t stage, bool gradient) const { return {rank_of(gradient ? stage + 1 : stage - 1), kBytes, true}; }

  HandMadeRank::Event communicate(int64_t r, const std::vector<Message>& messages, bool gradient = false) {
    HandMadeRank& rank = made[static_cast<size_t>(r)];
    const bool receives = messages.front().receives;
    const uint32_t stream = one_stream ? 1 : 1 + (receives ? 2 : 0) + (gradient ? 1 : 0);
    if (one_stream || !receives) rank.after(stream, 0);
    rank.messages(0, messages, kMessageUs, stream);
    return rank.record(stream);
  }
  void wait(int64_t r, HandMadeRank::Event event) { made[static_cast<size_t>(r)].wait(0, event); }
  void compute(int64_t r, double us) { made[static_cast<size_t>(r)].compute(us); }

  void perform(int64_t r, const Action& action) {
    const auto& [act, stage, micro_batch, gradient] = action;
    if (act == Act::send) {
      communicate(r, {send_of(stage, gradient)}, gradient);
      return;
    }
    if (act == Act::receive) {
      received[action] = communicate(r, {receive_of(stage, gradient)}, gradient);
      return;
    }
    const auto needed = received.find({Act::receive, stage, micro_batch, act != Act::forward});
    if (needed != received.end()) wait(r, needed->second);
    const double us = act == Act::forward           ? times.forward_us
                      : act == Act::weight_gradient ? times.weight_us
                      : act == Act::input_gradient  ? times.backward_us
                                                    : times.backward_us + times.weight_us;
    compute(r, us);
  }

  JobTime time() {
    std::vector<PlayedRank> played;
    for (HandMadeRank& rank : made) {
      for (uint32_t stream = 1; stream < 5; ++stream) rank.after(0, stream);  // all messages have ended
      played.push_back(rank.played());
    }
    return play(played, free_host());
  }
};

// ---- messages for a plan of computation ------------------------------------------------------------------------------------------

bool is_backward(Act act) { return act == Act::backward || act == Act::input_gradient; }

// Goes through all ranks in turn. An action whose input is sent goes into its rank's list, with the send after it, and the receive goes
// into the list of the other rank: so sends and receives have one order on both sides.
Plan with_messages(const Plan& plan, int64_t stages) {
  const auto ranks = static_cast<int64_t>(plan.size());
  Plan out(plan.size());
  std::vector<size_t> next(plan.size());
  std::set<std::tuple<int64_t, int64_t, bool>> arrived;  // stage, micro-batch, gradient
  for (bool more = true; more;) {
    more = false;
    for (size_t r = 0; r < plan.size(); ++r) {
      if (next[r] == plan[r].size()) continue;
      const Action& action = plan[r][next[r]];
      const bool gradient = is_backward(action.act), moves = gradient || action.act == Act::forward;
      const int64_t last = gradient ? 0 : stages - 1, first = stages - 1 - last, step = gradient ? -1 : 1;
      if (moves && action.stage != first && !arrived.contains({action.stage, action.micro_batch, gradient})) continue;
      ++next[r];
      more = true;
      out[r].push_back(action);
      if (!moves || action.stage == last) continue;
      arrived.emplace(action.stage + step, action.micro_batch, gradient);
      out[r].push_back({Act::send, action.stage, action.micro_batch, gradient});
      out[static_cast<size_t>((action.stage + step) % ranks)].push_back({Act::receive, action.stage + step, action.micro_batch, gradient});
    }
  }
  return out;
}

JobTime time_of_plan(const Plan& plan, int64_t stages, const Times& times, bool one_stream) {
  Pipeline pipeline(static_cast<int64_t>(plan.size()), stages, times);
  pipeline.one_stream = one_stream;
  const Plan all = with_messages(plan, stages);
  for (size_t r = 0; r < all.size(); ++r) {
    for (const Action& action : all[r]) pipeline.perform(static_cast<int64_t>(r), action);
  }
  return pipeline.time();
}

// ---- the plans ---------------------------------------------------------------------------------------------------------------

struct Size {
  int64_t ranks, micro_batches, stages_of_rank = 1;
};

// ScheduleGPipe.
JobTime gpipe(const Size& size, const Times& times) {
  Pipeline pipe(size.ranks, size.ranks, times);
  for (int64_t r = 0; r < size.ranks; ++r) {
    for (const bool gradient : {false, true}) {
      const bool receives = gradient ? r + 1 < size.ranks : r > 0, sends = gradient ? r > 0 : r + 1 < size.ranks;
      for (int64_t m = 0; m < size.micro_batches; ++m) {
        if (receives) pipe.wait(r, pipe.communicate(r, {pipe.receive_of(r, gradient)}));
        pipe.compute(r, gradient ? times.backward_us : times.forward_us);
        if (sends) pipe.communicate(r, {pipe.send_of(r, gradient)});
      }
      pipe.made[static_cast<size_t>(r)].after(0, 1);
    }
  }
  return pipe.time();
}

// Schedule1F1B: a send and the receive in the other direction are one operation.
void one_forward_one_backward(Pipeline* pipe, int64_t r, int64_t micro_batches) {
  const bool last = r + 1 == pipe->ranks, first = r == 0;
  const auto exchange = [&](bool sends, bool receives, bool sent_gradient) {
    std::vector<Message> messages;
    if (sends) messages.push_back(pipe->send_of(r, sent_gradient));
    if (receives) messages.push_back(pipe->receive_of(r, !sent_gradient));
    if (!messages.empty()) pipe->wait(r, pipe->communicate(r, messages));
  };
  const int64_t warmup = std::min(micro_batches, pipe->ranks - r);
  int64_t forwards = 0, backwards = 0;
  for (; forwards < warmup; ++forwards) {
    if (!first) pipe->wait(r, pipe->communicate(r, {pipe->receive_of(r, false)}));
    pipe->compute(r, pipe->times.forward_us);
    if (!last && forwards + 1 < warmup) pipe->communicate(r, {pipe->send_of(r, false)});
  }
  for (;; ++forwards) {
    exchange(!last, !last, false);
    pipe->compute(r, pipe->times.backward_us);
    ++backwards;
    if (forwards == micro_batches) break;
    exchange(!first, !first, true);
    pipe->compute(r, pipe->times.forward_us);
  }
  if (!first) pipe->communicate(r, {pipe->send_of(r, true)});
  for (; backwards < micro_batches; ++backwards) {
    if (!last) pipe->wait(r, pipe->communicate(r, {pipe->receive_of(r, true)}));
    pipe->compute(r, pipe->times.backward_us);
    if (!first) pipe->communicate(r, {pipe->send_of(r, true)});
  }
}

JobTime one_f_one_b(const Size& size, const Times& times) {
  Pipeline pipe(size.ranks, size.ranks, times);
  for (int64_t r = 0; r < size.ranks; ++r) one_forward_one_backward(&pipe, r, size.micro_batches);
  return pipe.time();
}

// ScheduleInterleaved1F1B: micro-batches go in rounds through the stages of a rank.
Plan interleaved_plan(const Size& size) {
  Plan out(static_cast<size_t>(size.ranks));
  const int64_t rounds = std::max<int64_t>(1, size.micro_batches / size.ranks), of_round = size.micro_batches / rounds;
  for (int64_t r = 0; r < size.ranks; ++r) {
    const int64_t all = size.stages_of_rank * size.micro_batches;
    const int64_t warmup = std::min(all, (size.stages_of_rank - 1) * of_round + 2 * (size.ranks - 1 - r));
    std::vector<int64_t> forwards(static_cast<size_t>(size.stages_of_rank)), backwards = forwards;
    const auto add = [&](Act act, int64_t number) {
      const int64_t turn = number / of_round % size.stages_of_rank;
      const auto local = static_cast<size_t>(act == Act::forward ? turn : size.stages_of_rank - 1 - turn);
      const int64_t micro_batch = (act == Act::forward ? forwards : backwards)[local]++;
      out[static_cast<size_t>(r)].push_back({act, static_cast<int64_t>(local) * size.ranks + r, micro_batch});
    };
    for (int64_t i = 0; i < warmup; ++i) add(Act::forward, i);
    for (int64_t i = warmup; i < all; ++i) {
      add(Act::forward, i);
      add(Act::backward, i - warmup);
    }
    for (int64_t i = all - warmup; i < all; ++i) add(Act::backward, i);
  }
  return out;
}

// ScheduleInterleavedZeroBubble with one stage on each rank, ZB-H1 of the paper: the gradients of weights fill the bubble.
Plan zero_bubble_plan(const Size& size) {
  Plan out(static_cast<size_t>(size.ranks));
  for (int64_t r = 0; r < size.ranks; ++r) {
    std::vector<Action>& plan = out[static_cast<size_t>(r)];
    const int64_t warmup = std::min(size.micro_batches, size.ranks - 1 - r);
    int64_t weights = 0;
    for (int64_t i = 0; i < size.micro_batches + warmup; ++i) {
      if (i < size.micro_batches) plan.push_back({Act::forward, r, i});
      if (i < warmup) continue;
      plan.push_back({Act::input_gradient, r, i - warmup});
      if (i - warmup >= r) plan.push_back({Act::weight_gradient, r, weights++});
    }
    while (weights < size.micro_batches) plan.push_back({Act::weight_gradient, r, weights++});
  }
  return out;
}

// ---- their bubbles -----------------------------------------------------------------------------------------------------------

double bubble_of(const JobTime& job) {
  double compute_ns = 0;
  for (const RankTime& rank : job.ranks) compute_ns += rank.compute_ns;
  return 1 - compute_ns / static_cast<double>(job.ranks.size()) / job.step_ns;
}

double share(double bubbles, double works) { return bubbles / (works + bubbles); }

constexpr Size kSizes[] = {{2, 4}, {4, 4}, {4, 8}, {4, 32}, {8, 8}, {8, 16}, {8, 64}};

TEST(Pipelines, GPipeAndOneForwardOneBackward) {
  for (const Size& size : kSizes) {
    const auto p = static_cast<double>(size.ranks), m = static_cast<double>(size.micro_batches);
    const double expected = share(p - 1, m);
    for (const Times& times : {Times{100, 100}, Times{100, 200}, Times{50, 130}}) {
      EXPECT_NEAR(bubble_of(gpipe(size, times)) / expected, 1, 0.01) << p << " ranks, " << m << " micro-batches";
      EXPECT_NEAR(bubble_of(one_f_one_b(size, times)) / expected, 1, 0.01) << p << " ranks, " << m << " micro-batches";
    }
  }
}

TEST(Pipelines, TheBubbleIsWaitingTime) {
  const JobTime job = one_f_one_b({4, 8}, {100, 200});
  for (const RankTime& rank : job.ranks) {
    EXPECT_NEAR(rank.compute_ns, 8 * 300 * kUsNs, 1);
    EXPECT_NEAR(rank.waiting_ns, 3 * 300 * kUsNs, 100);
    EXPECT_LT(rank.exposed_ns + rank.idle_ns, 100);
  }
}

TEST(Pipelines, TheCriticalPathIsAsLongAsTheStep) {
  const JobTime job = one_f_one_b({4, 8}, {100, 200});
  double length_ns = 0;
  for (const PlayedOperation& at : job.critical_path) {
    const OperationSpan& span = job.ranks[at.rank].spans[at.operation];
    length_ns += span.end_ns - span.moves_ns;
  }
  EXPECT_NEAR(length_ns, job.step_ns, 10);
}

TEST(Pipelines, ASlowStageHoldsTheOthers) {
  Pipeline pipe(4, 4, {100, 200});
  for (int64_t r = 0; r < 4; ++r) {
    pipe.times = r == 2 ? Times{150, 300} : Times{100, 200};
    one_forward_one_backward(&pipe, r, 32);
  }
  EXPECT_NEAR(pipe.time().step_ns / (32 * 450 + 3 * 300) / kUsNs, 1, 0.01);
}

TEST(Pipelines, Interleaved) {
  for (const int64_t stages : {1, 2, 4}) {
    for (Size size : kSizes) {
      size.stages_of_rank = stages;
      const auto p = static_cast<double>(size.ranks), m = static_cast<double>(size.micro_batches), v = static_cast<double>(stages);
      for (const Times& times : {Times{100, 100}, Times{100, 200}}) {
        const JobTime job = time_of_plan(interleaved_plan(size), size.ranks * stages, times, false);
        EXPECT_NEAR(bubble_of(job) / share(p - 1, v * m), 1, 0.01) << p << " ranks, " << m << " micro-batches, " << v << " stages";
      }
    }
  }
}

// pytorch/pytorch issue 188833: a receive is issued when its sender is planned, long before its bytes come, and holds the sends after it.
TEST(Pipelines, InterleavedOnOneStreamHasALargerBubble) {
  const Size size{4, 8, 2};
  const JobTime job = time_of_plan(interleaved_plan(size), 8, {100, 200}, true);
  EXPECT_GT(bubble_of(job), 1.5 * share(3, 16));
}

// Qi et al., "Zero bubble pipeline parallelism", table 1: ZB-H1 has (p - 1) (F + B - W) of bubble.
TEST(Pipelines, ZeroBubble) {
  for (const Size& size : kSizes) {
    const auto p = static_cast<double>(size.ranks), m = static_cast<double>(size.micro_batches);
    for (const Times& times : {Times{100, 100, 100}, Times{100, 110, 90}}) {
      const double expected = share((p - 1) * (times.forward_us + times.backward_us - times.weight_us),
                                    m * (times.forward_us + times.backward_us + times.weight_us));
      EXPECT_NEAR(bubble_of(time_of_plan(zero_bubble_plan(size), size.ranks, times, true)) / expected, 1, 0.01)
          << p << " ranks, " << m << " micro-batches, " << times.weight_us;
    }
  }
}

}  // namespace
}  // namespace gpucast
