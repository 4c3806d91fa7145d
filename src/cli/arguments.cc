#include "src/cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/cli/subcommand.h"
#include "version.h"

namespace gpucast::cli {
namespace {

// CLI11 interprets some words, even after "--": "[a, b]" becomes the two words a and b, and "{}" or an empty word disappears; "--output="
// becomes --output with the next word. A NUL at a word's end prevents this, and words of argv contain no NUL. give_literal_words()
// removes it again.
constexpr char kLiteral = '\0';

bool would_be_read(const std::string& word) { return word.empty() || std::string_view("]}=").find(word.back()) != std::string_view::npos; }

// argv without the program's name, in CLI11's order: last word first.
std::vector<std::string> words_for_cli11(int argc, char** argv) {
  std::vector<std::string> words;
  bool ours = true;  // until "--"
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (ours && word == "--") {
      ours = false;
    } else if (!ours || would_be_read(word)) {
      word += kLiteral;
    }
    words.push_back(std::move(word));
  }
  std::reverse(words.begin(), words.end());
  return words;
}

void make_literal(std::string* word) {
  if (!word->empty() && word->back() == kLiteral) word->pop_back();
}

// For our own range checks. CLI11's range validators write their bounds into the message, with all 309 digits.
double number(const std::string& text) {
  double value = 0;
  return CLI::detail::lexical_cast(text, value) ? value : -1;
}

// CLI11's message about the error, with our hint on the probable intention.
Error usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::string message = error.what();
  message.erase(std::remove(message.begin(), message.end(), kLiteral), message.end());
  const std::vector<CLI::App*> typed_subcommands = app.get_subcommands();
  std::vector<std::string> names;
  if (typed_subcommands.empty()) {
    for (const CLI::App* subcommand : app.get_subcommands({})) names.push_back(subcommand->get_name());
    const auto near = argc > 1 ? did_you_mean(argv[1], names) : std::nullopt;
    return Error(message, "", near ? fmt::format("did you mean 'gpucast {}'?", *near) : "gpucast --help");
  }
  const CLI::App& subcommand = *typed_subcommands.back();
  std::string hint = fmt::format("gpucast {} --help", subcommand.get_name());
  for (const CLI::Option* option : subcommand.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (int i = 2; i < argc && std::string(argv[i]) != "--"; ++i) {
    const std::string word = argv[i];
    const std::string typed = word.substr(0, word.find('='));
    if (typed.rfind("--", 0) != 0 || std::find(names.begin(), names.end(), typed) != names.end()) continue;
    const bool card = typed == "--card" || typed == "--cards" || typed == "--device";
    if (card && std::find(names.begin(), names.end(), "--gpu") != names.end()) {
      hint = "did you mean '--gpu'?";
      continue;
    }
    if (auto near = did_you_mean(typed, names)) hint = fmt::format("did you mean '{}'?", *near);
  }
  return Error(message, "", hint);
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

Argument& Argument::one_of_or_number(const std::vector<std::string>& words, const std::string& word, const std::string& number_name) {
  const std::string form = fmt::format("{}:{}", word, number_name);
  option_->check(
      [words, word, number_name, form](const std::string& text) -> std::string {
        if (std::find(words.begin(), words.end(), text) != words.end()) return "";
        const size_t colon = text.find(':');
        if (text.substr(0, colon) != word) return fmt::format("{} is none of {}, {}", text, fmt::join(words, ", "), form);
        const double value = colon == text.npos ? -1 : number(text.substr(colon + 1));
        return value > 0 && std::isfinite(value) ? "" : fmt::format("{}: {} must be a number above 0", text, number_name);
      },
      fmt::format("{{{},{}}}", fmt::join(words, ","), form));
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
  texts_.emplace_back(variable);
  return Argument(app_.add_option(names, *variable, help));
}

Argument Arguments::option(const char* names, std::vector<std::string>* variable, const std::string& help) {
  texts_.emplace_back(variable);
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
  texts_.emplace_back(variable);
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
  texts_.emplace_back(variable);
  const auto option = app_.add_option("command", *variable, "the command, after --")->required()->type_name("COMMAND...");
  app_.positionals_at_end();
  return Argument(option);
}

void Arguments::action(std::function<int()> action) {
  app_.callback([&slot = action_, action = std::move(action)] { slot = action; });
}

void Arguments::give_literal_words() const {
  struct {
    void operator()(std::string* text) const { make_literal(text); }
    void operator()(std::optional<std::string>* text) const {
      if (*text) make_literal(&**text);
    }
    void operator()(std::vector<std::string>* texts) const {
      std::for_each(texts->begin(), texts->end(), [](auto& text) { make_literal(&text); });
    }
  } const give;
  for (const Text& text : texts_) std::visit(give, text);
}

int run_command_line(std::span<const Subcommand> subcommands, int argc, char** argv) {
  CLI::App app{"What a PyTorch training job will do on a GPU, before it touches one.", "gpucast"};
  app.set_version_flag("--version", std::string("gpucast ") + kGpucastVersion);
  app.require_subcommand(1);
  std::function<int()> action;
  std::vector<Arguments> declared;
  declared.reserve(subcommands.size());
  for (const Subcommand& subcommand : subcommands) {
    declared.emplace_back(*app.add_subcommand(subcommand.name, subcommand.help), action);
    subcommand.declare(declared.back());
  }
  try {
    app.parse(words_for_cli11(argc, argv));
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    throw usage_error(app, error, argc, argv);
  }
  for (const Arguments& arguments : declared) arguments.give_literal_words();
  return action();
}

}  // namespace gpucast::cli
