// How a subcommand says what it takes. The door to CLI11, whose headers cost more to compile than a subcommand: only arguments.cc includes
// them.
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

// One that was declared. Each function returns the same argument, so that they read as one sentence.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}
  Argument& required();
  Argument& one_of(const std::vector<std::string>& words);
  Argument& positive();       // a number above 0
  Argument& not_negative();   // 0 or a number above it
  Argument& shows_default();  // --help says the variable's value
  Argument& one_each_time();  // a list that takes one word each time it is given
  Argument& group(const std::string& name);
  Argument& needs(const Argument& other);
  bool given() const;  // on the command line, once it is parsed

 private:
  CLI::Option* option_;
};

// What one subcommand takes. Every text is the user's word, byte for byte. A variable must outlive the parsing; it keeps its value when its
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
  // The words after all options are one command: COMMAND...
  Argument command(std::vector<std::string>* variable);

  // What main() calls once when this subcommand was typed. It returns the exit code and throws gpucast::Error when the tool or its
  // input fails. Result on stdout, all else on stderr.
  void action(std::function<int()> action);

  // Once parsed: texts get the words that were typed, without the mark that kept CLI11 from reading them.
  void give_literal_words() const;

 private:
  using Text = std::variant<std::string*, std::optional<std::string>*, std::vector<std::string>*>;

  CLI::App& app_;
  std::function<int()>& action_;
  std::vector<Text> texts_;
};

}  // namespace gpucast::cli
