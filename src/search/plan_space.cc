#include "src/search/plan_space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "parallel_flags_json.h"
#include "src/base/comma_words.h"
#include "src/base/json.h"
#include "src/base/to_number.h"
#include "src/search/command_option.h"

namespace gpucast::search {
namespace {

constexpr const char* kVaryExample = "such as --vary tp=--tp:1,2,4,8";
constexpr std::string_view kEnvironment = "env:";
constexpr int64_t kMostCards = 1 << 20;

const std::map<std::string, PlanRole>& role_names() {
  static const std::map<std::string, PlanRole> names{
      {"tensor", PlanRole::tensor},   {"tp", PlanRole::tensor},         {"pipeline", PlanRole::pipeline},
      {"pp", PlanRole::pipeline},     {"context", PlanRole::context},   {"cp", PlanRole::context},
      {"expert", PlanRole::expert},   {"ep", PlanRole::expert},         {"data", PlanRole::data},
      {"dp", PlanRole::data},         {"b", PlanRole::micro_batch},     {"mb", PlanRole::micro_batch},
      {"mbs", PlanRole::micro_batch}, {"batch", PlanRole::micro_batch}, {"micro_batch", PlanRole::micro_batch}};
  return names;
}

PlanRole role_of(const std::string& name) {
  const auto found = role_names().find(name);
  return found == role_names().end() ? PlanRole::other : found->second;
}

// "1..8" gives 1, 2, 4, 8 and, if it is not among these, the last number itself. Unset: no such range.
std::optional<std::vector<int64_t>> doubled_range(const std::string& text) {
  const size_t dots = text.find("..");
  if (dots == std::string::npos) return std::nullopt;
  const auto low = to_number<int64_t>(text.substr(0, dots)), high = to_number<int64_t>(text.substr(dots + 2));
  if (!low || !high || *low < 1 || *high < *low || *high > kMostCards) return std::nullopt;
  std::vector<int64_t> out;
  for (int64_t value = *low; value <= *high; value *= 2) out.push_back(value);
  if (out.back() != *high) out.push_back(*high);
  return out;
}

bool is_name(const std::string& text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) == 0 &&
         std::ranges::all_of(text, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; });
}

// A flag of the command with a whole number: "--heads 32" and "--num-heads=32" for "heads" and "num_heads".
std::optional<int64_t> number_in_command(const std::vector<std::string>& command, const std::string& name) {
  for (size_t i = 0; i < command.size(); ++i) {
    const size_t equals = command[i].find('=');
    std::string flag = command[i].substr(0, equals);
    flag.erase(0, flag.find_first_not_of('-'));
    std::ranges::replace(flag, '-', '_');
    if (flag != name) continue;
    if (equals != std::string::npos) return to_number<int64_t>(command[i].substr(equals + 1));
    if (i + 1 < command.size()) return to_number<int64_t>(command[i + 1]);
  }
  return std::nullopt;
}

std::optional<int64_t> number_of(const PlanSpace& space, const PlanChoice& choice, const std::string& name) {
  for (size_t i = 0; i < space.parameters.size(); ++i)
    if (space.parameters[i].name == name) return to_number<int64_t>(choice.values[i]);
  if (name == "world" || name == "gpus") return choice.gpus;
  if (name == "node_cards") return space.node_cards;
  if (name == "nodes") return (choice.gpus + space.node_cards - 1) / space.node_cards;
  return number_in_command(space.command, name);
}

void check_names(const PlanSpace& space) {
  PlanChoice first{space.gpus.front(), {}};
  for (const PlanParameter& parameter : space.parameters) first.values.push_back(parameter.values.front());
  for (const Expression& constraint : space.constraints)
    for (const std::string& name : constraint.names())
      if (!number_of(space, first, name))
        throw Error(fmt::format("nothing has the name '{}' and a whole number", name), constraint.text(),
                    fmt::format("a constraint may name what --vary varies, world, nodes, node_cards, and flags of the command "
                                "(--{} 32); or write the number itself",
                                name));
}

// A constraint that divides by 0 does not hold.
bool holds(const Expression& constraint, const PlanSpace& space, const PlanChoice& choice) {
  try {
    return constraint.value([&](const std::string& name) { return number_of(space, choice, name); }) != 0;
  } catch (const Error&) {
    return false;
  }
}

void set_value(const std::string& place, const std::string& value, PlanCommand* command) {
  if (place.starts_with(kEnvironment)) {
    command->environment.emplace_back(place.substr(kEnvironment.size()), value);
    return;
  }
  if (set_option(place, value, &command->words)) return;
  if (place.starts_with('-')) {
    command->words.insert(command->words.end(), {place, value});
  } else {
    command->words.push_back(place + "=" + value);
  }
}

}  // namespace

PlanParameter parse_parameter(const std::string& text, const std::vector<PlanParameter>& known) {
  const size_t equals = text.find('=');
  PlanParameter out;
  out.name = text.substr(0, equals);
  if (equals == std::string::npos || !is_name(out.name)) throw Error("--vary is a name, a flag and its values", text, kVaryExample);
  std::string values = text.substr(equals + 1);
  const size_t colon = values.rfind(':');
  const auto same = std::ranges::find(known, out.name, &PlanParameter::name);
  out.role = same != known.end() ? same->role : role_of(out.name);
  if (colon != std::string::npos) {
    out.place = values.substr(0, colon);
    values.erase(0, colon + 1);
  } else if (same != known.end()) {
    out.place = same->place;
  }
  if (out.place.empty() || out.place == kEnvironment.substr(0, kEnvironment.size() - 1))
    throw Error(fmt::format("--vary does not say by which flag the script gets '{}'", out.name), text, kVaryExample);
  if (const auto range = doubled_range(values)) {
    for (const int64_t value : *range) out.values.push_back(std::to_string(value));
    return out;
  }
  for (const std::string& value : comma_words(values)) {
    if (value.empty()) throw Error("--vary has a value that is empty", text, kVaryExample);
    if (std::ranges::find(out.values, value) == out.values.end()) out.values.push_back(value);
  }
  return out;
}

std::vector<int64_t> parse_counts(const std::string& text, const char* option) {
  if (const auto range = doubled_range(text)) return *range;
  std::vector<int64_t> out;
  for (const std::string& word : comma_words(text)) {
    const auto count = to_number<int64_t>(word);
    if (!count || *count < 1 || *count > kMostCards)
      throw Error(fmt::format("{} names numbers of cards, and '{}' is none", option, word), text,
                  fmt::format("such as {} 8..64 (8, 16, 32, 64), or {} 8,24", option, option));
    if (std::ranges::find(out, *count) == out.end()) out.push_back(*count);
  }
  std::ranges::sort(out);
  return out;
}

KnownParameters known_parameters(const std::vector<std::string>& command) {
  static const Json table = Json::parse(kParallel_flagsJson);
  for (const Json& program : table["programs"]) {
    const auto in_command = [&](const Json& word) {
      return std::ranges::any_of(command,
                                 [&](const std::string& given) { return given.find(word.get<std::string>()) != std::string::npos; });
    };
    const auto in_environment = [](const Json& name) { return std::getenv(name.get<std::string>().c_str()) != nullptr; };
    if (!std::ranges::any_of(program["words"], in_command) && !std::ranges::any_of(program["environment"], in_environment)) continue;
    KnownParameters out;
    out.program = program.value("name", "");
    for (const Json& entry : program["parameters"]) {
      out.all.push_back({entry.value("name", ""), entry.value("place", ""), {}, role_of(entry.value("role", ""))});
      if (entry.value("varied", false)) out.varied.push_back(out.all.back().name);
    }
    return out;
  }
  return {};
}

void add_usual_constraint(PlanSpace* space) {
  bool data = false;
  std::string product;
  for (const PlanParameter& parameter : space->parameters) {
    if (parameter.role != PlanRole::tensor && parameter.role != PlanRole::pipeline && parameter.role != PlanRole::context &&
        parameter.role != PlanRole::data)
      continue;
    data = data || parameter.role == PlanRole::data;
    product += (product.empty() ? "" : "*") + parameter.name;
  }
  for (const Expression& constraint : space->constraints)
    for (const std::string& name : constraint.names())
      if (name == "world" || name == "gpus") return;
  if (!product.empty()) space->constraints.emplace_back(data ? product + " == world" : fmt::format("world % ({}) == 0", product));
}

std::vector<PlanChoice> allowed_choices(const PlanSpace& space) {
  check_names(space);
  std::vector<PlanChoice> out;
  std::vector<size_t> at(space.parameters.size(), 0);
  for (const int64_t gpus : space.gpus) {
    std::ranges::fill(at, 0);
    for (bool more = true; more;) {
      PlanChoice choice{gpus, {}};
      for (size_t i = 0; i < at.size(); ++i) choice.values.push_back(space.parameters[i].values[at[i]]);
      if (std::ranges::all_of(space.constraints, [&](const Expression& constraint) { return holds(constraint, space, choice); }))
        out.push_back(std::move(choice));
      more = false;
      for (size_t i = at.size(); i > 0 && !more; --i) {
        more = ++at[i - 1] < space.parameters[i - 1].values.size();
        if (!more) at[i - 1] = 0;
      }
    }
  }
  return out;
}

PlanCommand command_of(const PlanSpace& space, const PlanChoice& choice) {
  PlanCommand out{space.command, {}};
  for (size_t i = 0; i < space.parameters.size(); ++i) set_value(space.parameters[i].place, choice.values[i], &out);
  return out;
}

int64_t size_of(const PlanSpace& space, const PlanChoice& choice, PlanRole role) {
  int64_t out = 1;
  for (size_t i = 0; i < space.parameters.size(); ++i)
    if (space.parameters[i].role == role) out *= std::max<int64_t>(1, to_number<int64_t>(choice.values[i]).value_or(1));
  return out;
}

int64_t replica_cards(const PlanSpace& space, const PlanChoice& choice) {
  return size_of(space, choice, PlanRole::tensor) * size_of(space, choice, PlanRole::pipeline) * size_of(space, choice, PlanRole::context);
}

}  // namespace gpucast::search
