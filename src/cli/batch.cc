// `gpucast batch`: its options. src/run/batch.cc runs the jobs.

#include "src/run/batch.h"

#include "gpucast/gpu.h"
#include "src/cli/subcommand.h"
#include "src/run/run_session.h"

namespace gpucast::cli {
namespace {

int run_jobs(const run::BatchOptions& options) {
  if (!options.defaults.gpu.empty()) find_gpu(options.defaults.gpu);
  if (!options.defaults.steps.empty()) (void)run::parse_steps(options.defaults.steps);
  return run::run_batch(options);
}

}  // namespace

void declare_batch(Arguments& arguments) {
  static run::BatchOptions options;
  arguments.option("JOBS", &options.jobs, "a file with one job a line, as JSON; - for standard input, whose jobs are run as they come")
      .required();
  arguments.option("--jobs", &options.at_a_time, "how many at a time (default: the number that processors and memory allow)").positive();
  arguments.option("-o,--output", &options.output,
                   "write the results to this file (default: standard output); jobs that are in it already are not run again");
  arguments.option("--timeout", &options.defaults.timeout_s, "the seconds that a job may take, where it does not say").positive();
  arguments.option("--gpu", &options.defaults.gpu, "the card of jobs that name none");
  arguments.option("--cudnn", &options.defaults.cudnn, "auto, ask, off or a path, for jobs that do not say (see `gpucast run --help`)");
  arguments.option("--steps", &options.defaults.steps, "the optimizer steps of jobs that do not say: a number, auto or until-end");
  arguments.flag("--fresh", &options.fresh, "run each job in a process of its own, which imports PyTorch itself");
  arguments.action([] { return run_jobs(options); });
}

}  // namespace gpucast::cli
