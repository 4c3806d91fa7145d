#include "src/pack/job_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "gpucast/error.h"
#include "src/base/gzip_lines.h"
#include "src/base/json.h"

namespace gpucast::pack {
namespace {

constexpr const char* kPage = "docs/reference/pack.md says what a job's columns are";
constexpr double kLongestNs = 1e17, kLatestNs = 2e18, kMostSteps = 1e12, kMostCardsOfJob = 1e6;
constexpr int64_t kMostTableBytes = int64_t{1} << 50;

struct BadJob {
  std::string what;
};

// The columns of one line; NAN: not given.
struct JobRow {
  std::string name;
  double arrival_ns = 0, steps = 1, cards = 1;
  double step_ns = NAN, bytes = NAN, occupancy = NAN, sm_active = NAN, nvml = NAN;
  double compute = NAN, tensor = NAN, dram = NAN, l2 = NAN, pcie = NAN, launch = NAN, kernels = NAN, waves = NAN;
  std::vector<std::string> gpus, command;
};

struct Column {
  const char* name;
  double JobRow::*value;
  double unit;
  bool of_card;  // it may differ between cards, so it is allowed in "on"
};
constexpr Column kColumns[] = {
    {"arrival_ns", &JobRow::arrival_ns, 1, false},
    {"arrival_s", &JobRow::arrival_ns, 1e9, false},
    {"steps", &JobRow::steps, 1, false},
    {"cards", &JobRow::cards, 1, false},
    {"step_ns", &JobRow::step_ns, 1, true},
    {"step_ms", &JobRow::step_ns, 1e6, true},
    {"step_s", &JobRow::step_ns, 1e9, true},
    {"memory_bytes", &JobRow::bytes, 1, true},
    {"memory_mib", &JobRow::bytes, 1 << 20, true},
    {"memory_gib", &JobRow::bytes, 1 << 30, true},
    {"occupancy", &JobRow::occupancy, 1, true},
    {"sm_active", &JobRow::sm_active, 1, true},
    {"nvml_utilization", &JobRow::nvml, 1, true},
    {"compute", &JobRow::compute, 1, true},
    {"tensor", &JobRow::tensor, 1, true},
    {"dram", &JobRow::dram, 1, true},
    {"l2", &JobRow::l2, 1, true},
    {"pcie", &JobRow::pcie, 1, true},
    {"launch", &JobRow::launch, 1, true},
    {"kernels", &JobRow::kernels, 1, true},
    {"waves", &JobRow::waves, 1, true},
};

const Column& find_column(std::string_view name) {
  std::vector<std::string> names = {"name", "gpus", "command"};
  for (const Column& column : kColumns) {
    if (name == column.name) return column;
    names.emplace_back(column.name);
  }
  const auto meant = did_you_mean(std::string(name), names);
  throw BadJob{fmt::format("a job has no '{}'{}", name, meant ? "; did you mean '" + *meant + "'?" : "")};
}

double parse_number(std::string_view text, std::string_view column) {
  double out = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) throw BadJob{fmt::format("'{}' is no number: '{}'", column, text)};
  return out;
}

double given_or(double value, double otherwise) { return std::isnan(value) ? otherwise : value; }

// A value that is not a number becomes infinite, and check_job() reports it.
void set_column(const Column& column, double value, JobRow* row) {
  row->*column.value = std::isnan(value) ? INFINITY : value * column.unit;
}

int64_t whole_number(double value, double least, double most, const char* what) {
  if (!(value >= least && value <= most)) throw BadJob{fmt::format("{} is from {} to {:g}, not {:g}", what, least, most, value)};
  return std::llround(value);
}

Figures figures_from_row(const JobRow& row) {
  if (std::isnan(row.step_ns)) throw BadJob{"it has no step time: 'step_ns', 'step_ms' or 'step_s'"};
  if (std::isnan(row.bytes)) throw BadJob{"it has no memory: 'memory_bytes', 'memory_mib' or 'memory_gib'"};
  Figures out;
  out.step_ns = row.step_ns;
  out.request_bytes = whole_number(std::ceil(row.bytes), 1, static_cast<double>(kMostTableBytes), "the memory in bytes");
  out.occupancy = given_or(row.occupancy, 1);
  out.nvml_utilization = given_or(row.nvml, 1);
  out.sm_active = given_or(row.sm_active, out.nvml_utilization);
  const double parts[] = {row.compute, row.tensor, row.dram, row.l2, row.pcie, row.launch, row.kernels, row.waves};
  if (std::all_of(std::begin(parts), std::end(parts), [](double part) { return std::isnan(part); })) return out;
  KernelMix& mix = out.mix.emplace(kernel_mix_of(out));
  mix.compute = given_or(row.compute, 0);
  mix.tensor = given_or(row.tensor, 0);
  mix.dram = given_or(row.dram, 0);
  mix.l2 = given_or(row.l2, 0);
  mix.pcie = given_or(row.pcie, 0);
  mix.launch = given_or(row.launch, 0);
  mix.kernels = whole_number(given_or(row.kernels, 0), 0, kMostSteps, "the number of kernels");
  mix.waves = whole_number(given_or(row.waves, 0), 0, kMostSteps, "the number of waves");
  return out;
}

Job job_from_row(const JobRow& row, const std::vector<std::pair<std::string, JobRow>>& on) {
  Job out;
  out.name = row.name;
  out.command = row.command;
  out.arrival_ns = whole_number(row.arrival_ns, 0, kLatestNs, "the arrival in nanoseconds");
  out.steps = whole_number(row.steps, 1, kMostSteps, "the number of steps");
  out.cards = static_cast<int>(whole_number(row.cards, 1, kMostCardsOfJob, "the number of cards"));
  out.only_listed = !row.gpus.empty() || (!on.empty() && (std::isnan(row.step_ns) || std::isnan(row.bytes)));
  const auto wanted = [&](const std::string& id) {
    return row.gpus.empty() || std::find(row.gpus.begin(), row.gpus.end(), id) != row.gpus.end();
  };
  for (const auto& [id, of_card] : on)
    if (wanted(id)) out.by_card.emplace_back(id, figures_from_row(of_card));
  for (const std::string& id : row.gpus) {
    bool known = false;
    for (const auto& [listed, figures] : out.by_card) known = known || listed == id;
    if (!known) out.by_card.emplace_back(id, figures_from_row(row));
  }
  if (!out.only_listed) out.figures = figures_from_row(row);
  if (out.only_listed) out.figures = out.by_card.front().second;
  return out;
}

// A command given as one string is run by a shell.
std::vector<std::string> shell_command(const std::string& text) {
  return text.empty() ? std::vector<std::string>() : std::vector<std::string>{"sh", "-c", text};
}

// ---- JSON ---------------------------------------------------------------------------------------------------------------------

void set_json_column(const std::string& key, const Json& value, bool of_card, JobRow* row) {
  const Column& column = find_column(key);
  if (of_card && !column.of_card) throw BadJob{fmt::format("'{}' does not differ from card to card", key)};
  if (!value.is_number()) throw BadJob{fmt::format("'{}' is no number", key)};
  set_column(column, value.get<double>(), row);
}

Job job_from_json(const Json& line) {
  JobRow row;
  for (size_t i = 0; i < line.size(); ++i) {
    const std::string& key = line.keys()[i];
    const Json& value = line.at(i);
    if (key == "name" && value.is_text())
      row.name = value.get<std::string>();
    else if (key == "gpus" && value.is_array())
      for (const Json& gpu : value) row.gpus.push_back(find_gpu(gpu.get<std::string>()).id);
    else if (key == "command" && value.is_text())
      row.command = shell_command(value.get<std::string>());
    else if (key == "command" && value.is_array())
      for (const Json& word : value) row.command.push_back(word.get<std::string>());
    else if (key != "on")
      set_json_column(key, value, false, &row);
  }
  std::vector<std::pair<std::string, JobRow>> on;
  const Json& cards = line["on"];
  if (!cards.is_null() && !cards.is_object()) throw BadJob{"'on' is no object"};
  for (size_t c = 0; c < cards.size(); ++c) {
    JobRow of_card = row;
    if (!cards.at(c).is_object()) throw BadJob{fmt::format("'{}' is no object", cards.keys()[c])};
    for (size_t i = 0; i < cards.at(c).size(); ++i) set_json_column(cards.at(c).keys()[i], cards.at(c).at(i), true, &of_card);
    on.emplace_back(find_gpu(cards.keys()[c]).id, of_card);
  }
  return job_from_row(row, on);
}

// A result of `gpucast batch`. Its step time is the GPU's time only. False: the run failed and has no job.
bool read_batch_result(const Json& line, JobTable* table, Job* job) {
  const Json& report = line["report"];
  if (report.is_null()) {
    ++table->failed_runs;
    return false;
  }
  JobRow row;
  row.name = line["name"].get<std::string>();
  const Json& request = report["device"]["request_bytes"];
  if (!request.is_number()) throw BadJob{"the report has no 'device.request_bytes'"};
  row.bytes = request.get<double>();
  const Json& time = report["gpu_time"]["expected_ns"];
  if (!time.is_number()) ++table->without_time;
  row.step_ns = time.is_number() ? time.get<double>() : 1e9;
  const Json& ranks = report["environment"]["world_size"];
  if (ranks.is_number()) row.cards = ranks.get<double>();
  *job = job_from_row(row, {});
  return true;
}

// ---- CSV ----------------------------------------------------------------------------------------------------------------------

// RFC 4180, but without line breaks in fields.
void split_csv_line(std::string_view line, std::vector<std::string>* fields) {
  fields->clear();
  if (line.ends_with('\r')) line.remove_suffix(1);
  for (size_t at = 0;;) {
    std::string& field = fields->emplace_back();
    if (at < line.size() && line[at] == '"') {
      for (++at;; ++at) {
        if (at >= line.size()) throw BadJob{"a quoted field has no end"};
        if (line[at] != '"') {
          field += line[at];
        } else if (at + 1 < line.size() && line[at + 1] == '"') {
          field += line[at++];
        } else {
          ++at;
          break;
        }
      }
      if (at < line.size() && line[at] != ',') throw BadJob{"text follows a quoted field"};
    } else {
      const size_t end = std::min(line.find(',', at), line.size());
      field = line.substr(at, end - at);
      at = end;
    }
    if (at >= line.size()) return;
    ++at;
  }
}

std::vector<std::string> parse_heading(std::string_view line) {
  std::vector<std::string> out;
  if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  split_csv_line(line, &out);
  for (const std::string& name : out)
    if (name != "name" && name != "gpus" && name != "command") (void)find_column(name);
  return out;
}

Job job_from_fields(const std::vector<std::string>& heading, const std::vector<std::string>& fields) {
  if (fields.size() != heading.size()) throw BadJob{fmt::format("it has {} fields, and the heading {}", fields.size(), heading.size())};
  JobRow row;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (heading[i] == "name") {
      row.name = fields[i];
    } else if (heading[i] == "command") {
      row.command = shell_command(fields[i]);
    } else if (heading[i] == "gpus") {
      for (size_t at = 0; at < fields[i].size();) {
        const size_t end = std::min(fields[i].find(';', at), fields[i].size());
        row.gpus.push_back(find_gpu(fields[i].substr(at, end - at)).id);
        at = end + 1;
      }
    } else if (!fields[i].empty()) {
      set_column(find_column(heading[i]), parse_number(fields[i], heading[i]), &row);
    }
  }
  return job_from_row(row, {});
}

void check_share(double value, const char* what) {
  if (!(value >= 0 && value <= 1)) throw BadJob{fmt::format("the {} is a share from 0 to 1, not {:g}", what, value)};
}

void check_figures(const Job& job, const Figures& figures) {
  if (!(figures.step_ns > 0) || !std::isfinite(figures.step_ns)) throw BadJob{"the time of a step is not above 0"};
  if (!(figures.step_ns * static_cast<double>(job.steps) <= kLongestNs)) throw BadJob{"the job lasts longer than three years"};
  if (figures.request_bytes <= 0 || figures.request_bytes > kMostTableBytes) throw BadJob{"the memory is not from 1 byte to 1 PiB"};
  check_share(figures.occupancy, "occupancy");
  check_share(figures.sm_active, "share of active multiprocessors");
  check_share(figures.nvml_utilization, "NVML utilization");
  if (!figures.mix) return;
  const KernelMix& mix = *figures.mix;
  check_share(mix.busy, "GPU's busy share");
  check_share(mix.compute, "arithmetic's share");
  check_share(mix.tensor, "tensor cores' share");
  check_share(mix.dram, "bandwidth's share");
  check_share(mix.l2, "L2's share");
  check_share(mix.pcie, "bus's share");
  check_share(mix.launch, "launches' share");
}

void check_job_numbers(const Job& job) {
  if (job.steps < 1 || job.cards < 1 || job.arrival_ns < 0) throw BadJob{"steps and cards are 1 or more, an arrival is 0 or more"};
  check_figures(job, job.figures);
  for (const auto& [id, figures] : job.by_card) check_figures(job, figures);
}

}  // namespace

void check_job(const Job& job, const std::string& where) {
  try {
    check_job_numbers(job);
  } catch (const BadJob& bad) {
    throw Error(fmt::format("'{}' is no job: {}", job.name, bad.what), where, kPage);
  }
}

JobTable read_job_table(const std::string& path) {
  GzipLines lines(path == "-" ? "/dev/stdin" : path);
  JobTable out;
  std::vector<std::string> heading, fields;
  std::string_view line;
  const auto where = [&] { return fmt::format("{}, line {}", path == "-" ? "standard input" : path, lines.line_number()); };
  bool json = false, begun = false;
  while (lines.next(&line)) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      if (!begun) {
        begun = true;
        json = line[line.find_first_not_of(" \t")] == '{';
        if (!json) {
          heading = parse_heading(line);
          continue;
        }
      }
      Job job;
      if (json) {
        const Json parsed = Json::parse(line);
        if (!parsed.is_object()) throw BadJob{"it is no JSON object"};
        if (parsed.contains("report") && parsed.contains("status")) {
          if (!read_batch_result(parsed, &out, &job)) continue;
        } else {
          job = job_from_json(parsed);
        }
      } else {
        split_csv_line(line, &fields);
        job = job_from_fields(heading, fields);
      }
      if (job.name.empty()) job.name = fmt::format("line {}", lines.line_number());
      check_job_numbers(job);
      out.jobs.push_back(std::move(job));
    } catch (const BadJob& bad) {
      throw Error(fmt::format("this is no job: {}", bad.what), where(), kPage);
    } catch (const Error& error) {
      throw Error(fmt::format("this is no job: {}", error.what()), where(), error.hint);
    }
  }
  if (lines.end() != GzipLines::End::complete) throw Error("the table ends before its end: it is cut short or damaged", where());
  if (out.jobs.empty())
    throw Error("there is no job in it", path == "-" ? "standard input" : path,
                out.failed_runs > 0 ? "all runs of the batch failed" : "a table has a heading and a line for each job");
  return out;
}

}  // namespace gpucast::pack
