#include "src/search/vary.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "gpucast/error.h"
#include "src/base/batch_option.h"
#include "src/base/to_number.h"
#include "src/search/command_option.h"
#include "src/search/script_options.h"
#include "src/search/settings_file.h"

namespace gpucast::search {
namespace {

namespace fs = std::filesystem;

constexpr const char* kForms =
    "write NAME=OPTION:LOW..HIGH, e.g. --vary batch=--batch-size:1..512; also config.yaml:train.batch_size, or loader for the batch_size "
    "of "
    "the script's DataLoader";

// The range in "1..512" or "224..1024/32".
bool read_range(std::string_view text, Vary* vary) {
  const size_t dots = text.find(".."), slash = text.rfind('/');
  if (dots == std::string_view::npos) return false;
  const std::string_view high = text.substr(dots + 2, slash == std::string_view::npos ? slash : slash - dots - 2);
  const auto low_number = to_number<int64_t>(text.substr(0, dots)), high_number = to_number<int64_t>(high);
  const auto step = slash == std::string_view::npos ? std::optional<int64_t>(1) : to_number<int64_t>(text.substr(slash + 1));
  if (!low_number || !high_number || !step) return false;
  vary->low = *low_number;
  vary->high = *high_number;
  vary->step = *step;
  return true;
}

// "config.yaml:train.batch_size".
bool read_file_key(const std::string& text, Vary* vary) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos || !is_settings_file(text.substr(0, colon))) return false;
  vary->kind = VaryKind::file_key;
  vary->file = text.substr(0, colon);
  vary->target = text.substr(colon + 1);
  return true;
}

Vary batch_vary(VaryKind kind, const std::string& target, const std::string& file, std::optional<int64_t> now) {
  return {"batch", kind, target, file, 1, 1 << 16, 1, now};
}

std::optional<Vary> batch_option(const std::vector<std::string>& command) {
  std::optional<Vary> found;
  for (size_t i = 1; i < command.size(); ++i) {
    const size_t equals = command[i].find('=');
    const std::string option = command[i].substr(0, equals);
    const std::string value = equals != std::string::npos ? command[i].substr(equals + 1) : i + 1 < command.size() ? command[i + 1] : "";
    const auto number = to_number<int64_t>(value);
    if (!number || *number < 1 || !is_batch_word(option)) continue;
    if (!found || (is_card_batch_word(option) && !is_card_batch_word(found->target)))
      found = batch_vary(VaryKind::option, option, "", number);
  }
  return found;
}

// The one number of a settings file whose key names the batch; of several, the one of the training part.
std::optional<Vary> batch_of_file(const std::vector<std::string>& command, const std::string& folder) {
  for (const std::string& word : command) {
    const std::string path = word.substr(word.find('=') == std::string::npos ? 0 : word.find('=') + 1);
    std::error_code error;
    if (!is_settings_file(path) || !fs::is_regular_file(fs::path(folder) / path, error)) continue;
    const SettingsFile file = read_settings(command, folder, path);
    std::vector<std::pair<std::string, int64_t>> found;
    for (const auto& number : file.numbers) {
      if (is_batch_word("--" + number.first)) found.push_back(number);
    }
    if (found.size() > 1) std::erase_if(found, [](const auto& number) { return number.first.find("train") == std::string::npos; });
    if (const auto card = std::ranges::find_if(found, [](const auto& number) { return is_card_batch_word(number.first); });
        found.size() > 1 && card != found.end())
      found = {*card};
    if (found.size() == 1) return batch_vary(VaryKind::file_key, found.front().first, path, found.front().second);
  }
  return std::nullopt;
}

// Options that the command does not have, the batch of one card first: add_argument("--batch-size", ...), then names of parameters.
std::vector<std::string> addable_batches(const std::vector<std::string>& command, const std::string& folder) {
  std::vector<std::string> out = declared_options(command, folder);
  std::erase_if(out, [](const std::string& option) { return !is_batch_word(option); });
  if (out.empty()) out = named_batches(command, folder);
  std::ranges::stable_partition(out, is_card_batch_word);
  return out;
}

void check_range(const Vary& vary, const std::string& text) {
  if (vary.low < 1 || vary.step < 1 || vary.high < vary.low)
    throw Error(fmt::format("the range {}..{}/{} is empty or not positive", vary.low, vary.high, vary.step), "--vary " + text, kForms);
}

}  // namespace

Vary parse_vary(const std::string& text, const std::vector<std::string>& command) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Error("it is not said what to vary", "--vary " + text, kForms);
  Vary vary;
  vary.name = text.substr(0, equals);
  std::string target = text.substr(equals + 1);
  const size_t colon = target.rfind(':');
  if (colon != std::string::npos && target.find("..", colon) != std::string::npos) {
    if (!read_range(std::string_view(target).substr(colon + 1), &vary))
      throw Error(fmt::format("'{}' is no range of whole numbers", target.substr(colon + 1)), "--vary " + text, kForms);
    target.resize(colon);
  }
  check_range(vary, text);
  if (target == "loader") {
    vary.kind = VaryKind::loader;
  } else if (!read_file_key(target, &vary)) {
    vary.target = target;
    const auto now = value_of_option(command, target);
    if (now) vary.now = to_number<int64_t>(*now);
  }
  return vary;
}

std::vector<Vary> find_batches(const std::vector<std::string>& command, const std::string& folder) {
  if (const auto found = batch_option(command)) return {*found};
  std::vector<Vary> out;
  if (const auto found = batch_of_file(command, folder)) out.push_back(*found);
  const std::vector<std::string> addable = addable_batches(command, folder);
  if (!addable.empty()) out.push_back(batch_vary(VaryKind::option, addable.front(), "", std::nullopt));
  out.push_back(batch_vary(VaryKind::loader, "", "", std::nullopt));
  return out;
}

RunSpec with_value(const RunSpec& spec, const Vary& vary, int64_t value, const std::string& folder) {
  RunSpec out = spec;
  const std::string text = std::to_string(value);
  switch (vary.kind) {
    case VaryKind::option:
      out.command = with_option(spec.command, vary.target, text);
      break;
    case VaryKind::loader:
      out.what_ifs.push_back("batch:" + text);
      break;
    case VaryKind::file_key:
      out.command = with_settings(spec.command, spec.folder, vary.file, vary.target, text, folder);
      break;
  }
  return out;
}

std::string target_text(const Vary& vary) {
  switch (vary.kind) {
    case VaryKind::option:
      return vary.target;
    case VaryKind::file_key:
      return fmt::format("{} in {}", vary.target, vary.file);
    case VaryKind::loader:
      return "batch_size of the DataLoader";
  }
  return "";
}

std::string setting_text(const Vary& vary, int64_t value) {
  switch (vary.kind) {
    case VaryKind::option:
      return vary.target.starts_with('-') ? fmt::format("{} {}", vary.target, value) : fmt::format("{}={}", vary.target, value);
    case VaryKind::file_key:
      return fmt::format("{}: {} in {}", vary.target, value, vary.file);
    case VaryKind::loader:
      return fmt::format("batch_size {} of the DataLoader", value);
  }
  return "";
}

}  // namespace gpucast::search
