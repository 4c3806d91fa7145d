// Sentences that several reports of a check share.
#pragma once

#include <optional>
#include <string>

#include "src/check/result.h"
#include "src/check/user_lines.h"

namespace gpucast::check {

// "6 limits hold", "2 of 6 limits are broken, 1 job failed".
std::string headline(const CheckResult& result);

// "rank 1 of 2", "cuda:1", "2 ranks" (no rank: all); "": the job is one process on one card.
std::string rank_words(const CardResult& card, const std::optional<JobRank>& rank);
// "rtx3090, rank 1 of 2".
std::string card_words(const CardResult& card, const LimitResult& limit);
// "small on rtx3090, rank 1 of 2". The second: of the deciding rank.
std::string where_words(const JobResult& job, const CardResult& card, const LimitResult& limit);
std::string where_words(const JobResult& job, const CardResult& card);

// "body.6 (Linear), new", "h.12 (Block), new, 9 below", "h.*.mlp (MLP), 12 layers".
std::string module_words(const GrownModule& grown);

// The line that requested a grown module's largest block: its path from `root` if it is below, otherwise as it was recorded.
std::optional<SourceLine> line_of(const CheckResult& result, const JobResult& job, const GrownModule& grown);
// "model/block.py:17"; "": not known.
std::string line_words(const CheckResult& result, const JobResult& job, const GrownModule& grown);

// "no such file (train.py); to do: name a file".
std::string problem_words(const run::JobProblem& problem);

// A line such as "gpucast run --gpu l4 -- python train.py", in the job's folder. "": there is none.
std::string in_folder(const JobResult& job, const std::string& line);

}  // namespace gpucast::check
