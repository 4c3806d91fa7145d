#include "src/report/job_html.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "src/report/html_columns.h"
#include "src/report/html_template.h"
#include "src/report/time_words.h"

namespace gpucast {
namespace {

constexpr std::string_view kTimesHere = "<!--gpucast:times-->", kDataHere = "<!--gpucast:data-->";

size_t critical_slices(const RankStep& rank) { return static_cast<size_t>(std::ranges::count_if(rank.slices, &JobSlice::critical)); }

// A rank of each role (an index in JobStep::captured): on the critical path, or else the lowest.
std::vector<size_t> shown_ranks(const JobStep& job) {
  std::vector<size_t> out;
  for (size_t i = 0; i < job.captured.size(); ++i) {
    const RankStep& rank = job.captured[i];
    if (rank.role >= out.size()) {
      out.push_back(i);
    } else if (critical_slices(rank) > critical_slices(job.captured[out[rank.role]])) {
      out[rank.role] = i;
    }
  }
  return out;
}

class JobPage {
 public:
  explicit JobPage(const JobStep& job) : job_(job), shown_(shown_ranks(job)) {}

  std::string payload(Json meta) {
    for (const size_t captured : shown_) {
      first_.push_back(start_.size());
      for (const JobSlice& slice : job_.captured[captured].slices) add_slice(slice);
    }
    first_.push_back(start_.size());
    add_messages();
    columns_.add("slice.name", name_);
    columns_.add("slice.kind", kind_);
    columns_.add("slice.kernel", kernel_);
    columns_.add("slice.phase", phase_);
    columns_.add("slice.purpose", purpose_);
    columns_.add("slice.stream", stream_);
    columns_.add("slice.critical", critical_);
    columns_.add("slice.waits_for", waits_for_);
    columns_.add("slice.launched", launched_);
    columns_.add("slice.start", start_);
    columns_.add("slice.moves", moves_);
    columns_.add("slice.end", end_);
    columns_.add("slice.bytes", bytes_);
    columns_.add("slice.nodes", nodes_);
    columns_.add("message.from", from_);
    columns_.add("message.to", to_);
    meta["texts"] = texts_.texts();
    for (size_t lane = 0; lane < shown_.size(); ++lane)
      meta["lanes"].push_back({{"captured", shown_[lane]}, {"slices", first_[lane + 1] - first_[lane]}});
    return columns_.packed(std::move(meta));
  }

 private:
  void add_slice(const JobSlice& slice) {
    name_.push_back(texts_.number_of(slice.purpose ? slice_words(slice) : slice.name));
    kind_.push_back(texts_.number_of(slice.kind));
    kernel_.push_back(texts_.number_of(slice.kernel));
    phase_.push_back(texts_.number_of(slice.phase));
    purpose_.push_back(texts_.number_of(slice.purpose ? group_purpose_name(*slice.purpose) : ""));
    stream_.push_back(slice.stream);
    critical_.push_back(slice.critical ? 1 : 0);
    waits_for_.push_back(static_cast<int32_t>(slice.waits_for_rank.value_or(-1)));
    launched_.push_back(slice.launched_ns);
    start_.push_back(slice.start_ns);
    moves_.push_back(slice.purpose ? slice.moves_ns : slice.start_ns);
    end_.push_back(slice.end_ns);
    bytes_.push_back(static_cast<double>(slice.collective.bytes));
    nodes_.push_back(static_cast<uint32_t>(slice.collective.nodes));
  }

  void add_messages() {
    for (const JobMessage& message : job_.messages) {
      const size_t from = lane_of(message.from_rank), to = lane_of(message.to_rank);
      if (from == shown_.size() || to == shown_.size()) continue;
      from_.push_back(static_cast<uint32_t>(first_[from] + message.from_slice));
      to_.push_back(static_cast<uint32_t>(first_[to] + message.to_slice));
    }
  }

  size_t lane_of(size_t captured) const { return static_cast<size_t>(std::ranges::find(shown_, captured) - shown_.begin()); }

  const JobStep& job_;
  const std::vector<size_t> shown_;
  std::vector<size_t> first_;  // by lane: its first slice
  HtmlColumns columns_;
  HtmlTexts texts_;
  std::vector<uint32_t> name_, kind_, kernel_, phase_, purpose_, stream_, nodes_, from_, to_;
  std::vector<uint8_t> critical_;
  std::vector<int32_t> waits_for_;
  std::vector<double> launched_, start_, moves_, end_, bytes_;
};

}  // namespace

void check_job_page() {
  if (job_template().empty())
    throw Error("this gpucast was built without the HTML pages", "",
                "build it with Node.js and npm (tools/setup installs them), or use --format json");
}

void write_job_html(const StepTimes& times, std::ostream& out) {
  check_job_page();
  const std::string_view page = job_template();
  const size_t figures = page.find(kTimesHere), data = page.find(kDataHere);
  if (figures == std::string_view::npos || data == std::string_view::npos || data < figures)
    throw Error("internal error: the HTML page has no place for data");
  const CardTime& card = times.cards.front();
  const Json meta = {{"played_ns", card.job->played_ns},
                     {"machine_name", card.job->machine_name},
                     {"bound_words", bound_words(card)},
                     {"interval_words", interval_words(card)}};
  out << page.substr(0, figures) << json_for_script(step_times_json(times));
  out << page.substr(figures + kTimesHere.size(), data - figures - kTimesHere.size());
  out << JobPage(*card.job).payload(meta) << page.substr(data + kDataHere.size());
  out.flush();
  if (!out) throw Error("the report cannot be written", "", "is the disk full?");
}

}  // namespace gpucast
