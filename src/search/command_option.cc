#include "src/search/command_option.h"

#include <cstddef>
#include <string_view>

#include "src/base/to_number.h"

namespace gpucast::search {
namespace {

bool is_option(std::string_view word) { return word.size() > 1 && word.front() == '-' && !to_number<double>(word); }

// The word that holds the option's value: as a whole, or after "OPTION=". Unset: the command does not have it.
struct OptionPlace {
  size_t word = 0;
  bool joined = false;
};
std::optional<OptionPlace> find_option(const std::vector<std::string>& command, const std::string& option) {
  for (size_t i = 1; i < command.size(); ++i) {
    if (command[i] == option && i + 1 < command.size()) return OptionPlace{i + 1, false};
    if (command[i].starts_with(option + "=")) return OptionPlace{i, true};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> value_of_option(const std::vector<std::string>& command, const std::string& option) {
  const auto place = find_option(command, option);
  if (!place) return std::nullopt;
  return command[place->word].substr(place->joined ? option.size() + 1 : 0);
}

bool set_option(const std::string& option, const std::string& value, std::vector<std::string>* command) {
  const auto place = find_option(*command, option);
  if (!place) return false;
  (*command)[place->word].replace(place->joined ? option.size() + 1 : 0, std::string::npos, value);
  return true;
}

std::vector<std::string> with_option(std::vector<std::string> command, const std::string& option, const std::string& value) {
  if (set_option(option, value, &command)) return command;
  if (is_option(option) && !option.starts_with("--")) {
    command.insert(command.end(), {option, value});
  } else {
    command.push_back(option + "=" + value);  // the one form that every parser of "--" options takes
  }
  return command;
}

}  // namespace gpucast::search
