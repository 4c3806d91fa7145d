#include "src/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace gpucast::cli {
namespace {

// CLI11's own range validators write their bounds into the message, all 309 digits of them.
double number(const std::string& text) {
  double value = 0;
  return CLI::detail::lexical_cast(text, value) ? value : -1;
}

}  // namespace

Argument& Argument::required() {
  option_->required();
  return *this;
}

Argument& Argument::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}

Argument& Argument::positive() {
  option_->check([](const std::string& text) { return number(text) > 0 ? "" : text + " is not a number above 0"; }, "POSITIVE");
  return *this;
}

Argument& Argument::not_negative() {
  option_->check([](const std::string& text) { return number(text) >= 0 ? "" : text + " is not 0 or a number above it"; }, "NONNEGATIVE");
  return *this;
}

Argument& Argument::shows_default() {
  option_->capture_default_str();
  return *this;
}

Argument& Argument::one_each_time() {
  option_->allow_extra_args(false);
  return *this;
}

Argument& Argument::group(const std::string& name) {
  option_->group(name);
  return *this;
}

Argument& Argument::needs(const Argument& other) {
  option_->needs(other.option_);
  return *this;
}

bool Argument::given() const { return option_->count() > 0; }

Argument Arguments::option(const char* names, std::string* variable, const std::string& help) {
  return Argument(app_.add_option(names, *variable, help));
}

Argument Arguments::option(const char* names, std::vector<std::string>* variable, const std::string& help) {
  return Argument(app_.add_option(names, *variable, help));
}

Argument Arguments::option(const char* names, int64_t* variable, const std::string& help) {
  return Argument(app_.add_option(names, *variable, help));
}

Argument Arguments::option(const char* names, size_t* variable, const std::string& help) {
  return Argument(app_.add_option(names, *variable, help));
}

Argument Arguments::option(const char* names, double* variable, const std::string& help) {
  return Argument(app_.add_option(names, *variable, help));
}

Argument Arguments::option(const char* names, std::optional<std::string>* variable, const std::string& help) {
  return Argument(app_.add_option(names, *variable, help));
}

Argument Arguments::option(const char* names, std::optional<int32_t>* variable, const std::string& help) {
  return Argument(app_.add_option(names, *variable, help));
}

Argument Arguments::option(const char* names, std::optional<int64_t>* variable, const std::string& help) {
  return Argument(app_.add_option(names, *variable, help));
}

Argument Arguments::flag(const char* names, bool* variable, const std::string& help) {
  return Argument(app_.add_flag(names, *variable, help));
}

Argument Arguments::command(std::vector<std::string>* variable) {
  const auto option = app_.add_option("command", *variable, "the command, after --")->required()->type_name("COMMAND...");
  app_.positionals_at_end();
  return Argument(option);
}

void Arguments::action(std::function<int()> action) {
  app_.callback([&slot = action_, action = std::move(action)] { slot = action; });
}

}  // namespace gpucast::cli
