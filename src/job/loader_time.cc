#include "src/job/loader_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "src/loader/feed.h"
#include "src/schedule/step_schedule.h"

namespace gpucast {
namespace {

constexpr int64_t kMostTriedWorkers = 256;
const std::vector<double> kEven;  // no variation: where workers share a full resource, some are fast when others are slow
constexpr int64_t kUsualPrefetch = 2;
constexpr int64_t kUsualWorkers[] = {0, 1, 2, 4, 8, 16};

// A step on one card together with its loader.
class StepWithLoader {
 public:
  StepWithLoader(const LoaderModel& model, const LoaderFigures& figures, const StepOperations& step, std::vector<Duration> durations,
                 const StepConstants& constants, double host_scale, const CardTime& card)
      : model_(model),
        figures_(figures),
        step_(step),
        durations_(std::move(durations)),
        constants_(constants),
        host_scale_(host_scale),
        card_(card),
        batches_(static_cast<double>(figures.batches)),
        without_ns_(schedule(step_, durations_, constants_, host_scale_).step_ns),
        work_ns_(step_ns_with(model.take_ns)) {}

  // The step's time if the host works `batch_ns` for each batch.
  double step_ns_with(double batch_ns) const {
    return card_.step.expected_ns + schedule(step_, durations_, constants_, host_scale_, nullptr, batch_ns).step_ns - without_ns_;
  }

  LoaderChoice choice(int64_t workers) const {
    LoaderChoice out;
    out.workers = workers;
    const BatchTime batch = model_.batch(workers, card_.host_ns / batches_);
    out.batch = batch.time;
    out.limit = workers > 0 ? loader_limit_name(batch.limit) : "";
    const TimeRange& alone = card_.step;
    if (workers == 0) {
      // The program itself makes the batch, while the GPU does the work that it still has.
      const double step = step_ns_with(batch.time.expected_ns);
      out.step = {alone.low_ns + std::max(0.0, step_ns_with(batch.time.low_ns) - alone.expected_ns), step,
                  alone.high_ns + std::max(0.0, step_ns_with(batch.time.high_ns) - alone.expected_ns)};
      const bool longest = batches_ * batch.time.expected_ns > std::max(card_.gpu_ns, card_.host_ns);
      out.bound = longest ? StepBound::loader : card_.bound;
    } else {
      const double fed_ns = batches_ * batch.time.expected_ns;
      const int64_t prefetch = figures_.prefetch_factor > 0 ? figures_.prefetch_factor : kUsualPrefetch;
      const double step = batches_ * mean_step_ns(work_ns_ / batches_, workers, prefetch, batch.time.expected_ns,
                                                  batch.limit == LoaderLimit::workers ? model_.variation : kEven);
      const double beyond = step / std::max(work_ns_, fed_ns), slower = work_ns_ / alone.expected_ns;
      out.step = {std::max(alone.low_ns * slower, batches_ * batch.time.low_ns) * beyond, step,
                  std::max(alone.high_ns * slower, batches_ * batch.time.high_ns) * beyond};
      out.bound = fed_ns > work_ns_ ? StepBound::loader : card_.bound;
    }
    out.wait_share = std::max(0.0, 1 - alone.expected_ns / out.step.expected_ns);
    return out;
  }

  bool is_enough(const LoaderChoice& choice) const {
    return choice.bound != StepBound::loader && choice.step.expected_ns <= model_.constants.busy * work_ns_;
  }
  // The cores that the loader and the program need to keep the card busy.
  double cores_needed() const {
    return (model_.worker_cpu_ns + model_.take_ns + model_.pin_ns + card_.host_ns / batches_) / (work_ns_ / batches_);
  }

 private:
  const LoaderModel& model_;
  const LoaderFigures& figures_;
  const StepOperations& step_;
  const std::vector<Duration> durations_;
  const StepConstants& constants_;
  const double host_scale_;
  const CardTime& card_;
  const double batches_, without_ns_, work_ns_;
};

std::vector<std::string> notes_of(const LoaderRecord& record, const StepOperations& step, const std::optional<LoaderModel>& model) {
  std::vector<std::string> out = record.said;
  switch (record.kind) {
    case LoaderKind::dali:
      out.emplace_back("NVIDIA DALI feeds this script: it decodes on the GPU, which is virtual here, so its speed is not known");
      break;
    case LoaderKind::none:
    case LoaderKind::unused:
      out.emplace_back(
          "the script's steps take no batch from a torch.utils.data.DataLoader: the time to feed them counts as the program's own");
      break;
    default:
      break;
  }
  if (record.kind != LoaderKind::dataloader) return out;
  if (step.batches.empty()) out.emplace_back("the observed step took no batch");
  if (record.others > 0)
    out.push_back(fmt::format("{} more DataLoader{} gave batches in steps, and {} not counted", record.others, record.others > 1 ? "s" : "",
                              record.others > 1 ? "are" : "is"));
  if (!model) {
    out.emplace_back(
        "how fast it is was not measured: `gpucast time -- COMMAND` does, or `gpucast run --measure-loader -o FILE -- COMMAND`");
  } else if (!model->measured) {
    out.emplace_back("its speed is what two or three batches of the script's own loop took, and workers are assumed to be as usual");
  }
  double others = 0;
  for (const LoaderRun& run : record.runs) others = std::max(others, run.others_cores);
  if (others > 0.25)
    out.push_back(fmt::format("other programs had {:.1f} of this machine's cores while it was measured; that was taken off", others));
  if (model && !model->host.storage && model->read_bytes > 1e5 && model->cached_share > model->constants.cached)
    out.emplace_back(
        "what it read was in this machine's memory already, so no disk is in these times: --storage nvme, ssd, hdd, nfs or BYTES/s adds "
        "one");
  for (const LoaderRun& run : record.runs) {
    if (!run.mapped || run.workers > 1) continue;
    out.emplace_back("its files are mapped into memory: reads from them are not recorded, and are assumed to be as large as a batch");
    break;
  }
  if (record.ranks > 1) out.push_back(fmt::format("{} ranks share this machine's cores", record.ranks));
  return out;
}

}  // namespace

std::optional<LoaderFigures> loader_figures(const LoaderRecord& record, const StepOperations& step, const std::optional<LoaderModel>& model,
                                            const std::vector<int64_t>& workers) {
  if (record.kind == LoaderKind::unknown) return std::nullopt;
  LoaderFigures out;
  out.kind = record.kind;
  out.dataset = record.dataset;
  out.script_workers = record.workers;
  out.workers = workers.empty() ? record.workers : workers.front();
  out.prefetch_factor = record.prefetch_factor;
  out.batch_size = record.batch_size;
  out.pin_memory = record.pin_memory;
  out.batches = static_cast<int64_t>(step.batches.size());
  out.notes = notes_of(record, step, model);
  if (!model) return out;
  out.source = model->measured ? "measured" : "loop";
  out.cores = model->cores;
  out.batch_ns = model->inline_batch.expected_ns;
  out.read_bytes = model->read_bytes;
  out.files = model->files;
  out.cached_share = model->cached_share;
  if (model->host.storage) {
    out.storage = model->host.storage->name;
    out.storage_ns = model->storage_wait_ns();
  }
  if (record.runs.empty()) return out;
  const LoaderRun& run = record.runs.front();
  if (run.cpu_ns > 0 && run.fetch_ns > 0) out.waits_share = std::max(0.0, 1 - (run.cpu_ns + run.queue_ns) / run.fetch_ns);
  out.stages_ns = run.stages_ns;
  double known = 0;
  for (const auto& [name, ns] : out.stages_ns) known += ns;
  if (run.fetch_ns > known) out.stages_ns.emplace_back("dataset", run.fetch_ns - known);
  // Stages were timed with the waits for a CPU that the whole is without, and on this machine.
  const double share = std::min(1.0, (out.batch_ns - out.storage_ns) / std::max(known, run.fetch_ns));
  for (auto& [name, ns] : out.stages_ns) ns *= share;
  std::stable_sort(out.stages_ns.begin(), out.stages_ns.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

void add_loader(const LoaderModel& model, const LoaderFigures& figures, const StepOperations& step, std::vector<Duration> durations,
                const StepConstants& constants, const StepTimeOptions& options, double factor, CardTime* card) {
  for (Duration& duration : durations) duration.expected_ns *= factor;
  const StepWithLoader combined(model, figures, step, std::move(durations), constants,
                                factor * host_scale(step.host, constants) / options.cpu_speed, *card);
  CardLoader out;
  out.step_without = card->step;
  out.now = combined.choice(figures.workers);
  std::set<int64_t> wanted(options.workers.begin(), options.workers.end());
  if (wanted.empty()) wanted.insert(std::begin(kUsualWorkers), std::end(kUsualWorkers));
  wanted.insert(figures.workers);
  const auto enough = [&](int64_t workers) { return combined.is_enough(combined.choice(workers)); };
  int64_t too_few = 0, least = 1;
  while (least <= kMostTriedWorkers && !enough(least)) {
    too_few = least;
    least *= 2;
  }
  if (least <= kMostTriedWorkers) {
    while (least - too_few > 1) {
      const int64_t middle = (least + too_few) / 2;
      (enough(middle) ? least : too_few) = middle;
    }
    out.enough = least;
  }
  if (out.enough) wanted.insert(*out.enough);
  if (!out.enough) out.cores_needed = combined.cores_needed();
  for (const int64_t workers : wanted) out.choices.push_back(combined.choice(workers));
  const double slower = out.now.step.expected_ns / card->step.expected_ns;
  card->step = out.now.step;
  card->bound = out.now.bound;
  card->model_flops_utilisation /= slower;
  card->hardware_flops_utilisation /= slower;
  card->loader = std::move(out);
}

}  // namespace gpucast
