#include "src/search/patch.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "gpucast/error.h"
#include "src/base/bytes.h"
#include "src/base/command_words.h"
#include "src/base/json.h"
#include "src/explain/what_if.h"
#include "src/run/session_folder.h"
#include "src/search/own_python.h"

namespace gpucast::search {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "gpucast advise: ";  // of each patch

bool is_folder(const std::string& path) {
  std::error_code error;
  return path.ends_with('/') || fs::is_directory(path, error);
}

// "micro-batch-2+checkpoint-Block-0-2+fused.patch"
std::string file_name(const AdvisedPoint& point) {
  std::string name = fmt::format("{}", fmt::join(point.what_ifs, "+"));
  if (!point.settings.empty()) name += "+expandable_segments";
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '=' || c == ',' || c == '/'; }, '-');
  return name + ".patch";
}

// The lines of a patch before its first file, which `patch` and `git apply` skip.
std::vector<std::string> header_of(const Advice& advice, const AdvisedPoint& point, const Patch& patch) {
  std::vector<std::string> lines = {fmt::format("{}{}, on {}", kBegin, fmt::join(point.what_ifs, ", "), advice.gpu_id)};
  std::string figures = format_bytes(point.peak_reserved_bytes) + " reserved at its peak";
  if (point.samples_per_s > 0) figures += fmt::format(", {:.4g} samples/s", point.samples_per_s);
  lines.push_back(figures);
  lines.emplace_back("apply it in the folder of the command: patch -p1 < FILE, or git apply FILE");
  lines.push_back("run it as: " + shell_quote(patch.command));
  if (!point.settings.empty()) lines.push_back("with " + settings_to_write(point.settings));
  return lines;
}

Patch write_patch(const Advice& advice, size_t index, const std::string& path) {
  const AdvisedPoint& point = advice.points[index];
  Patch patch;
  patch.point = index;
  patch.folder = point.folder;
  const ChangedCommand changed = change_command(advice.command, point.what_ifs);
  patch.command = changed.command;
  patch.other_command = changed.command != advice.command;
  Json to_place = Json::array();
  for (const WhatIf& what_if : changed.what_ifs) {
    if (!what_if.acted) to_place.push_back(what_if.name);
  }
  if (to_place.empty()) return patch;
  const Json places = Json::parse(point.places);
  if (!places.is_object()) {
    for (const Json& name : to_place) patch.by_hand.push_back({name.get<std::string>(), "no line of the script that trains was seen"});
    return patch;
  }
  const run::SessionFolder work;
  Json job = {{"places", places}, {"what_ifs", to_place}, {"folder", point.folder}, {"output", fs::absolute(path).string()}};
  job["header"] = header_of(advice, point, patch);
  const std::string job_path = work.path + "/patch.json";
  run::write_session_file(job_path, job.dump());
  const Json answer = answer_of_python(places.value("python", "python3"), "patch/write.py", {job_path});
  if (!answer.is_object())
    throw Error("the patch could not be made: its Python ended early", "", "change the script by hand, as the report says");
  if (answer.contains("problem"))
    throw Error("no patch: " + answer.value("problem", ""), answer.value("where", ""), answer.value("to_do", ""));
  for (const Json& file : answer["files"]) {
    patch.files.push_back({file.value("name", ""), file.value("added", 0), file.value("removed", 0)});
  }
  for (const Json& name : answer["placed"]) patch.placed.push_back(name.get<std::string>());
  for (const Json& entry : answer["by_hand"]) patch.by_hand.push_back({entry.value("what_if", ""), entry.value("why", "")});
  if (!patch.files.empty()) patch.path = path;
  return patch;
}

}  // namespace

void check_patch_path(const std::string& path) {
  std::error_code error;
  if (is_folder(path)) {
    fs::create_directories(path, error);
    if (error || access(path.c_str(), W_OK) != 0)
      throw Error("the patches cannot be written: no folder that we may write to", path, "name another one: --write-patch FOLDER/");
    return;
  }
  const fs::path folder = fs::absolute(path, error).parent_path();
  const bool exists = fs::exists(path, error);
  if (access((exists ? path : folder.string()).c_str(), W_OK) != 0)
    throw Error("the patch cannot be written: no file that we may write to", path, "name another one: --write-patch FILE");
  std::string begin;
  if (exists && (!std::getline(std::ifstream(path), begin) || !begin.starts_with(kBegin)) && fs::is_regular_file(path, error) &&
      fs::file_size(path, error) > 0)
    throw Error("the file is there, and it is no patch of gpucast advise", path, "name another one: --write-patch FILE");
}

std::vector<Patch> write_patches(const Advice& advice, const std::string& path) {
  std::vector<Patch> out;
  if (!is_folder(path)) {
    const size_t chosen = advice.best.value_or(advice.smallest);
    if (!advice.points[chosen].what_ifs.empty() || !advice.points[chosen].settings.empty())
      out.push_back(write_patch(advice, chosen, path));
    return out;
  }
  for (size_t i = 0; i < advice.points.size(); ++i) {
    const AdvisedPoint& point = advice.points[i];
    if (point.on_front && !point.what_ifs.empty()) out.push_back(write_patch(advice, i, (fs::path(path) / file_name(point)).string()));
  }
  return out;
}

}  // namespace gpucast::search
