// Declares the arguments of a subcommand. Only arguments.cc includes CLI11, because its headers cost more to compile than a subcommand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gpucast::cli {

// A declared argument. Each function returns the same argument, so that calls can be chained.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}
  Argument& required();
  Argument& one_of(const std::vector<std::string>& words);
  // As `one_of`, or `word` with a colon and a number above 0: "skew:1.5".
  Argument& one_of_or_number(const std::vector<std::string>& words, const std::string& word, const std::string& number_name);
  Argument& positive();       // a number above 0
  Argument& not_negative();   // 0 or a number above it
  Argument& shows_default();  // --help shows the variable's value
  Argument& one_each_time();  // a list; each use of the option adds one word
  Argument& group(const std::string& name);
  Argument& needs(const Argument& other);
  bool given() const;  // whether it is on the command line; valid after parsing

 private:
  CLI::Option* option_;
};

// The arguments of one subcommand. Texts get the user's words byte for byte. A variable must outlive parsing, and keeps its value when its
// argument is not given. `names`: "-o,--output", or "FILE" for a positional argument.
class Arguments {
 public:
  Arguments(CLI::App& app, std::function<int()>& action) : app_(app), action_(action) {}

  Argument option(const char* names, std::string* variable, const std::string& help);
  Argument option(const char* names, std::vector<std::string>* variable, const std::string& help);
  Argument option(const char* names, int64_t* variable, const std::string& help);
  Argument option(const char* names, size_t* variable, const std::string& help);
  Argument option(const char* names, double* variable, const std::string& help);
  Argument option(const char* names, std::optional<std::string>* variable, const std::string& help);
  Argument option(const char* names, std::optional<int32_t>* variable, const std::string& help);
  Argument option(const char* names, std::optional<int64_t>* variable, const std::string& help);
  Argument flag(const char* names, bool* variable, const std::string& help);
  // All words after the options are one command: COMMAND...
  Argument command(std::vector<std::string>* variable);

  // main() calls the action once when this subcommand was typed. The action returns the exit code, and throws gpucast::Error when the tool
  // or its input fails. It prints its result on stdout and all else on stderr.
  void action(std::function<int()> action);

  // To call after parsing: removes the marks that prevented CLI11 from interpreting the words.
  void give_literal_words() const;

 private:
  using Text = std::variant<std::string*, std::optional<std::string>*, std::vector<std::string>*>;

  CLI::App& app_;
  std::function<int()>& action_;
  std::vector<Text> texts_;
};

}  // namespace gpucast::cli
