#include "src/search/plan.h"

#include <gtest/gtest.h>

#include <map>

#include "gpucast/error.h"

namespace gpucast::search {
namespace {

PlanSpace space_with(const std::vector<std::string>& vary, const std::string& gpus, const std::vector<std::string>& require = {}) {
  PlanSpace out;
  out.command = {"python", "train.py", "--heads", "32"};
  out.gpus = parse_counts(gpus, "--gpus");
  for (const std::string& text : vary) out.parameters.push_back(parse_parameter(text, {}));
  for (const std::string& text : require) out.constraints.emplace_back(text);
  add_usual_constraint(&out);
  return out;
}

// A script whose figures are given by formulas; each rank holds `bytes`, and a step of `ns` trains `tokens`.
struct FakeSource : PlanSource {
  struct Result {
    int64_t bytes = 50, tokens_of_replica = 1000;
    double ns = 1e9;
    std::string problem;
  };
  std::function<Result(const PlanSpace&, const PlanChoice&)> result;
  const PlanSpace& space;
  std::vector<std::string> asked;

  explicit FakeSource(const PlanSpace& the_space) : space(the_space) {}

  PlanFigures figures_of(const PlanChoice& choice) const {
    const Result one = result(space, choice);
    PlanFigures out;
    out.failed = !one.problem.empty();
    out.problem = one.problem;
    out.peak_reserved_bytes = one.bytes;
    out.verdict = one.bytes <= 100 ? Verdict::fits : Verdict::does_not_fit;
    out.replicas = choice.gpus / replica_cards(space, choice);
    out.tokens = one.tokens_of_replica * out.replicas;
    out.samples = out.tokens;
    out.step = {one.ns, one.ns, one.ns};
    return out;
  }
  std::vector<PlanAnswer> ask(const std::vector<PlanRequest>& requests) override {
    std::vector<PlanAnswer> out;
    for (const PlanRequest& request : requests) {
      asked.push_back(plan_words(space, request.choice));
      PlanAnswer answer;
      answer.figures = figures_of(request.choice);
      answer.tokens_of_replica = answer.samples_of_replica = result(space, request.choice).tokens_of_replica;
      for (const int64_t gpus : request.also) {
        PlanChoice more = request.choice;
        more.gpus = gpus;
        answer.also.push_back(answer.figures.replicas > 1 ? std::optional(figures_of(more)) : std::nullopt);
      }
      out.push_back(answer);
    }
    return out;
  }
};

int64_t number(const PlanSpace& space, const PlanChoice& choice, PlanRole role) { return size_of(space, choice, role); }

TEST(PlanSpace, ReadsParameters) {
  const PlanParameter tp = parse_parameter("tp=--tp:1..8", {});
  EXPECT_EQ(tp.place, "--tp");
  EXPECT_EQ(tp.values, (std::vector<std::string>{"1", "2", "4", "8"}));
  EXPECT_EQ(tp.role, PlanRole::tensor);
  EXPECT_EQ(parse_parameter("ac=train.checkpoint:none,full", {}).values, (std::vector<std::string>{"none", "full"}));
  const std::vector<PlanParameter> known{{"tp", "--tensor-model-parallel-size", {}, PlanRole::tensor}};
  EXPECT_EQ(parse_parameter("tp=2,4", known).place, "--tensor-model-parallel-size");
  for (const char* wrong : {"tp", "=--tp:1", "tp=1,2", "tp=--tp:", "tp=--tp:1,,2", "1p=--tp:2"})
    EXPECT_THROW(parse_parameter(wrong, {}), Error) << wrong;
  EXPECT_EQ(parse_counts("8..64", "--gpus"), (std::vector<int64_t>{8, 16, 32, 64}));
  EXPECT_EQ(parse_counts("64,8,24", "--gpus"), (std::vector<int64_t>{8, 24, 64}));
  for (const char* wrong : {"", "0", "8..", "64..8", "8,x"}) EXPECT_THROW(parse_counts(wrong, "--gpus"), Error) << wrong;
}

TEST(PlanSpace, KnowsProgramsByTheirCommands) {
  const KnownParameters megatron = known_parameters({"python", "/opt/Megatron-LM/pretrain_gpt.py", "--lr", "1"});
  EXPECT_EQ(megatron.program, "Megatron-LM");
  EXPECT_EQ(megatron.varied, (std::vector<std::string>{"tp", "pp"}));
  EXPECT_EQ(known_parameters({"python", "-m", "torchtitan.train"}).program, "torchtitan");
  EXPECT_EQ(known_parameters({"python", "train.py"}).program, "");
}

TEST(PlanSpace, LeavesOutWhatConstraintsExclude) {
  const PlanSpace space =
      space_with({"tp=--tp:1,2,4,8", "pp=--pp:1,2,3", "dp=--dp:1..16"}, "16", {"heads % tp == 0", "tp * pp * dp == world", "tp > 2"});
  std::vector<std::string> words;
  for (const PlanChoice& choice : allowed_choices(space)) words.push_back(plan_words(space, choice));
  EXPECT_EQ(words, (std::vector<std::string>{"16 cards, tp 4, pp 1, dp 4", "16 cards, tp 4, pp 2, dp 2", "16 cards, tp 8, pp 1, dp 2",
                                             "16 cards, tp 8, pp 2, dp 1"}));
  EXPECT_EQ(allowed_choices(space_with({"tp=--tp:1,2,3"}, "8")).size(), 2);  // by the usual constraint
  EXPECT_EQ(allowed_choices(space_with({"tp=--tp:1,2,4", "dp=--dp:2,4"}, "8")).size(), 2);
  EXPECT_TRUE(allowed_choices(space_with({"tp=--tp:3"}, "8")).empty());
  EXPECT_EQ(allowed_choices(space_with({"tp=--tp:1,16"}, "8", {"64 % (world / tp) == 0"})).size(), 1);  // 64 % 0 does not hold
  EXPECT_THROW(allowed_choices(space_with({"tp=--tp:1"}, "8", {"layers % tp == 0"})), Error);
  EXPECT_THROW(allowed_choices(space_with({"ac=--ac:none,full"}, "8", {"ac == 1"})), Error);
}

TEST(PlanSpace, SetsFlags) {
  PlanSpace space = space_with({"tp=--tp:2", "pp=--pp:4", "b=train.b:8", "dp=env:DP:1"}, "8");
  space.command = {"python", "t.py", "--tp", "1", "--pp=1", "--other", "train.b=2"};
  const PlanCommand command = command_of(space, {8, {"2", "4", "8", "1"}});
  EXPECT_EQ(command.words, (std::vector<std::string>{"python", "t.py", "--tp", "2", "--pp=4", "--other", "train.b=8"}));
  ASSERT_EQ(command.environment.size(), 1);
  EXPECT_EQ(command.environment[0].first, "DP");
  space.command = {"python", "t.py"};
  EXPECT_EQ(command_of(space, {8, {"2", "4", "8", "1"}}).words,
            (std::vector<std::string>{"python", "t.py", "--tp", "2", "--pp", "4", "train.b=8"}));
}

TEST(Plan, CapturesEachSplitOnceAndProvesTheBest) {
  const PlanSpace space = space_with({"tp=--tp:1,2"}, "8..64");
  FakeSource source(space);
  source.result = [](const PlanSpace& the_space, const PlanChoice& choice) {
    return FakeSource::Result{50, 1000, 1e9 * (number(the_space, choice, PlanRole::tensor) == 2 ? 0.4 : 1.0), ""};
  };
  const PlanSearch found = find_plans(space, allowed_choices(space), {}, &source);
  EXPECT_EQ(found.plans.size(), 8);
  EXPECT_EQ(plan_words(space, found.plans[0].choice), "64 cards, tp 2");
  EXPECT_DOUBLE_EQ(found.plans[0].throughput, 32 * 1000 / 0.4);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(found.plans[i].captured_gpus, found.plans[i].choice.gpus);
  EXPECT_TRUE(found.rescaled);
  EXPECT_FALSE(found.sharded);
  // Two splits, the probe on 64 cards, and two of the three best: the probe is the third.
  EXPECT_EQ(found.runs, 5);
  ASSERT_EQ(found.scale.size(), 4);
  EXPECT_DOUBLE_EQ(found.scale[3].of_more_cards, 1);
}

TEST(Plan, CapturesEachNumberOfCardsWhereTheWorkDependsOnIt) {
  const PlanSpace space = space_with({"tp=--tp:1,2"}, "8,16,32");
  FakeSource source(space);
  source.result = [](const PlanSpace&, const PlanChoice& choice) {  // a fixed global batch
    return FakeSource::Result{50, 3200 / choice.gpus, 1e9, ""};
  };
  const PlanSearch found = find_plans(space, allowed_choices(space), {}, &source);
  EXPECT_FALSE(found.rescaled);
  for (const Plan& plan : found.plans) EXPECT_EQ(plan.captured_gpus, plan.choice.gpus);
  ASSERT_EQ(found.scale.size(), 3);
  EXPECT_DOUBLE_EQ(found.scale[2].of_more_cards, 0);
}

TEST(Plan, TriesALargerMicroBatchOnlyWhereTheSmallerOneFits) {
  const PlanSpace space = space_with({"tp=--tp:1,2", "b=--b:1,2,4"}, "8");
  FakeSource source(space);
  source.result = [](const PlanSpace& the_space, const PlanChoice& choice) {
    const int64_t batch = number(the_space, choice, PlanRole::micro_batch);
    return FakeSource::Result{80 * batch / number(the_space, choice, PlanRole::tensor), 1000 * batch, batch == 1 ? 2e9 : 1e9, ""};
  };
  const PlanSearch found = find_plans(space, allowed_choices(space), {}, &source);
  EXPECT_EQ(found.plans.size(), 6);
  EXPECT_EQ(plan_words(space, found.plans[0].choice), "8 cards, tp 2, b 2");
  EXPECT_EQ(std::ranges::count(source.asked, "8 cards, tp 1, b 4"), 0);
  EXPECT_EQ(found.runs, 5);
}

TEST(Plan, StopsWhereMoreCardsDoNotLowerTheMemory) {
  const PlanSpace space = space_with({"tp=--tp:1"}, "8..64");
  FakeSource source(space);
  source.result = [](const PlanSpace&, const PlanChoice&) { return FakeSource::Result{200, 1000, 1e9, ""}; };
  const PlanSearch found = find_plans(space, allowed_choices(space), {}, &source);
  EXPECT_EQ(found.runs, 2);
  EXPECT_EQ(found.plans.size(), 4);
  for (const Plan& plan : found.plans) EXPECT_EQ(plan.figures.verdict, Verdict::does_not_fit);
}

TEST(Plan, GoesToMoreCardsWhereShardsGetSmaller) {
  const PlanSpace space = space_with({"tp=--tp:1"}, "8..64");
  FakeSource source(space);
  source.result = [](const PlanSpace&, const PlanChoice& choice) { return FakeSource::Result{1600 / choice.gpus, 1000, 1e9, ""}; };
  const PlanSearch found = find_plans(space, allowed_choices(space), {}, &source);
  EXPECT_EQ(std::ranges::count_if(found.plans, [](const Plan& plan) { return plan.figures.verdict == Verdict::fits; }), 3);
  EXPECT_TRUE(found.sharded);
}

TEST(Plan, RanksByGoal) {
  const PlanSpace space = space_with({"tp=--tp:1"}, "8..64");
  FakeSource source(space);
  // Each doubling of cards makes a step longer by a quarter: more cards cost more.
  source.result = [](const PlanSpace&, const PlanChoice& choice) {
    return FakeSource::Result{50, 1000, 1e9 * std::pow(1.25, std::log2(static_cast<double>(choice.gpus) / 8)), ""};
  };
  PlanGoal goal;
  goal.tokens = 8000 * 3600;  // an hour on 8 cards
  const auto best = [&] { return find_plans(space, allowed_choices(space), goal, &source).plans.front(); };
  EXPECT_EQ(best().choice.gpus, 64);
  goal.price_per_hour = [](int64_t gpus) { return 2.0 * static_cast<double>(gpus); };
  EXPECT_EQ(best().choice.gpus, 8);
  EXPECT_DOUBLE_EQ(best().cost, 16);
  goal.deadline_ns = 1800e9;
  EXPECT_EQ(best().choice.gpus, 32);
  goal.price_per_hour = nullptr;
  EXPECT_EQ(best().choice.gpus, 32);
  goal.deadline_ns = 60e9;
  EXPECT_FALSE(best().in_time);
  EXPECT_EQ(best().choice.gpus, 64);
}

TEST(Plan, SaysWhyNothingRuns) {
  const PlanSpace space = space_with({"tp=--tp:1,2,4,8", "b=--b:1,2"}, "8..64");
  FakeSource source(space);
  source.result = [](const PlanSpace&, const PlanChoice&) { return FakeSource::Result{0, 0, 0, "unrecognized arguments: --tp 1"}; };
  try {
    find_plans(space, allowed_choices(space), {}, &source);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("first with 8 cards, tp 1, b 1: unrecognized arguments: --tp 1"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(source.asked.size(), 4);
}

TEST(Plan, GoesOnAfterAPlanThatFails) {
  const PlanSpace space = space_with({"tp=--tp:1,2"}, "8,16");
  FakeSource source(space);
  source.result = [](const PlanSpace& the_space, const PlanChoice& choice) {
    const bool fails = number(the_space, choice, PlanRole::tensor) == 1;
    return FakeSource::Result{50, 1000, 1e9, fails ? "cannot" : ""};
  };
  const PlanSearch found = find_plans(space, allowed_choices(space), {}, &source);
  EXPECT_EQ(plan_words(space, found.plans[0].choice), "16 cards, tp 2");
  EXPECT_TRUE(found.plans.back().figures.failed);
}

}  // namespace
}  // namespace gpucast::search
