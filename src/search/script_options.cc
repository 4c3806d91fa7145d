#include "src/search/script_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string_view>

#include "src/base/batch_option.h"
#include "src/base/read_file.h"
#include "src/base/to_number.h"

namespace gpucast::search {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSources = 64;

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_option_character(char c) { return is_name_character(c) || c == '-' || c == '.'; }

// "a.b" in `folder`: a/b.py, or the package's a/b/__init__.py. "": neither is there.
fs::path module_file(const fs::path& folder, std::string module) {
  std::ranges::replace(module, '.', '/');
  std::error_code error;
  for (const fs::path& path : {folder / (module + ".py"), folder / module / "__init__.py"}) {
    if (!module.empty() && fs::is_regular_file(path, error)) return path;
  }
  return {};
}

// The file that the command runs: a word that ends in .py, or the module after -m. "": none.
fs::path script_file(const std::vector<std::string>& command, const std::string& folder) {
  for (const std::string& word : command) {
    if (word.ends_with(".py")) return fs::path(folder) / word;
  }
  const auto flag = std::ranges::find(command, "-m");
  if (flag == command.end() || flag + 1 == command.end()) return {};
  const char* path = std::getenv("PYTHONPATH");
  std::istringstream folders(folder + ":" + (path != nullptr ? path : ""));
  for (std::string one; std::getline(folders, one, ':');) {
    if (const fs::path file = module_file(one, *(flag + 1)); !one.empty() && !file.empty()) return file;
  }
  return {};
}

// The files that an import line names: "import a.b", "from a import b", "from .a import b". `root`: where absolute names begin.
std::vector<fs::path> imported_files(const std::string& line, const fs::path& file, const fs::path& root) {
  std::istringstream words(line);
  std::string keyword, module, import, name;
  words >> keyword >> module >> import;
  if (keyword != "from" && keyword != "import") return {};
  fs::path folder = root;
  if (module.starts_with('.')) {
    folder = file.parent_path();
    for (module.erase(0, 1); module.starts_with('.'); module.erase(0, 1)) folder = folder.parent_path();
  }
  while (!module.empty() && module.back() == ',') module.pop_back();
  std::vector<fs::path> out = {module_file(folder, module)};
  while (keyword == "from" && words >> name) {
    std::erase_if(name, [](char c) { return !is_name_character(c); });
    const std::string inside = module.empty() ? name : fmt::format("{}.{}", module, name);
    out.push_back(module_file(folder, inside));
  }
  std::erase_if(out, [](const fs::path& path) { return path.empty(); });
  return out;
}

struct Source {
  fs::path path;
  std::string text;
};

// The script and what it imports from its own folder or, as a module, from the folder where its name begins; the script first.
std::vector<Source> sources(const std::vector<std::string>& command, const std::string& folder) {
  std::vector<fs::path> files = {script_file(command, folder)};
  if (files.front().empty()) return {};
  const bool by_path = std::ranges::any_of(command, [](const std::string& word) { return word.ends_with(".py"); });
  const std::string module = by_path ? "" : *(std::ranges::find(command, "-m") + 1);
  fs::path root = files.front().parent_path();
  for (auto dots = std::ranges::count(module, '.'); dots > 0; --dots) root = root.parent_path();
  std::vector<Source> out;
  std::set<fs::path> seen(files.begin(), files.end());
  for (size_t i = 0; i < files.size(); ++i) {
    out.push_back({files[i], read_file(files[i].string())});
    std::istringstream lines(out.back().text);
    for (std::string line; std::getline(lines, line);) {
      for (const fs::path& found : imported_files(line, files[i], root)) {
        if (files.size() < kMostSources && seen.insert(found).second) files.push_back(found);
      }
    }
  }
  return out;
}

// Texts in quotes that begin with two dashes.
void add_quoted_options(const std::string& text, std::vector<std::string>* out) {
  for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
    if (at == 0 || (text[at - 1] != '"' && text[at - 1] != '\'')) continue;
    const auto end = std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), is_option_character);
    if (end != text.end() && *end == text[at - 1]) out->emplace_back(text.begin() + static_cast<std::ptrdiff_t>(at), end);
  }
}

// Whether a number is given to the name that ends here: "= 8", ": int = 8", ": int = field(default=8)".
bool is_given_a_number(std::string_view rest) {
  const auto skip_spaces = [&] { rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size())); };
  skip_spaces();
  if (rest.starts_with(':')) rest.remove_prefix(std::min(rest.find_first_of("=\n"), rest.size()));
  if (!rest.starts_with('=')) return false;
  rest.remove_prefix(1);
  skip_spaces();
  return rest.starts_with("field(") || (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest.front())) != 0);
}

// Where the text gives a number to this name. npos: nowhere.
size_t number_given(const std::string& text, const std::string& name) {
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const bool whole = at == 0 || (!is_name_character(text[at - 1]) && text[at - 1] != '.');
    if (whole && is_given_a_number(std::string_view(text).substr(at + name.size()))) return at;
  }
  return std::string::npos;
}

// What turns parameters, fields or globals into options.
bool makes_options(const std::string& text) {
  static constexpr std::string_view kMakers[] = {"HfArgumentParser", "Fire(", "tyro.cli", "simple_parsing", "CLI(", "exec(open("};
  return std::ranges::any_of(kMakers, [&](std::string_view maker) { return text.find(maker) != std::string::npos; });
}

// "steps" of "steps: int = 8".
std::string_view name_at(std::string_view text) {
  return text.substr(0, static_cast<size_t>(std::ranges::find_if_not(text, is_name_character) - text.begin()));
}

// "    steps: int = 8": a field of a class.
struct Field {
  std::string name, type, value;
  std::string holder;  // the class around it: "Trainer.Config"
};

std::vector<Field> fields_of(const std::string& text) {
  struct Scope {
    size_t indent;
    std::string name;  // "": a function
  };
  std::vector<Field> out;
  std::vector<Scope> scopes;  // around this line
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t indent = line.find_first_not_of(' ');
    if (indent == std::string::npos) continue;
    const std::string_view rest = std::string_view(line).substr(indent);
    const std::string_view name = name_at(rest), after = rest.substr(name.size());
    if (name != "class" && name != "def" && (name.empty() || !after.starts_with(": "))) continue;
    while (!scopes.empty() && scopes.back().indent >= indent) scopes.pop_back();
    const std::string around = scopes.empty() ? "" : scopes.back().name;
    if (name == "def") {
      scopes.push_back({indent, ""});
    } else if (name == "class") {
      const std::string own(name_at(after.substr(std::min<size_t>(1, after.size()))));
      scopes.push_back({indent, around.empty() ? own : fmt::format("{}.{}", around, own)});
    } else if (const size_t equals = after.find('='); !around.empty() && equals != std::string_view::npos) {
      std::string type(after.substr(2, equals - 2)), value(after.substr(equals + 1, after.find('#') - equals - 1));
      std::erase(type, ' ');
      std::erase(value, ' ');
      out.push_back({std::string(name), std::move(type), std::move(value), around});
    }
  }
  return out;
}

// "training.": the fields that hold this class, from the outermost to it. A class that no field holds is the outermost.
std::string path_to(const std::vector<Field>& fields, const std::string& holder, int most_levels = 4) {
  const auto field = std::ranges::find(fields, holder, &Field::type);
  if (field == fields.end() || most_levels == 0) return "";
  return path_to(fields, field->holder, most_levels - 1) + field->name + ".";
}

// What LightningCLI puts before a parameter of the class around this place: "data.", "model.", or nothing.
std::string lightning_group(const std::string& text, size_t place) {
  const size_t at = text.rfind("\nclass ", place);
  const std::string heading = at == std::string::npos ? "" : text.substr(at, text.find(':', at) - at);
  return heading.find("DataModule") != std::string::npos ? "data." : heading.find("Module") != std::string::npos ? "model." : "";
}

// "batch_size = 64" in a line that sets a batch to a number. "": it sets none.
std::string batch_number(std::string_view line) {
  line = line.substr(0, line.find('#'));
  for (size_t at = 0; at < line.size();) {
    const auto end =
        static_cast<size_t>(std::find_if_not(line.begin() + static_cast<std::ptrdiff_t>(at), line.end(), is_name_character) - line.begin());
    const std::string_view name = line.substr(at, end - at), rest = line.substr(end);
    if (is_batch_word(name) && is_given_a_number(rest) && rest.find("field(") == std::string_view::npos) {
      const size_t digits = rest.find_first_of("0123456789", rest.find('='));
      return std::string(name) + std::string(rest.substr(0, std::min(rest.find_first_not_of("0123456789_", digits), rest.size())));
    }
    at = std::max(end, at + 1);
  }
  return "";
}

}  // namespace

std::vector<std::string> declared_options(const std::vector<std::string>& command, const std::string& folder) {
  std::vector<std::string> out;
  for (const Source& source : sources(command, folder)) add_quoted_options(source.text, &out);
  return out;
}

std::vector<std::string> named_batches(const std::vector<std::string>& command, const std::string& folder) {
  const fs::path file = script_file(command, folder);
  const std::string text = file.empty() ? "" : read_file(file.string());
  std::vector<std::string> out;
  if (!makes_options(text)) return out;
  for (const std::string& name : batch_names()) {
    const size_t place = number_given(text, name);
    if (place == std::string::npos) continue;
    out.push_back("--" + (text.find("LightningCLI(") == std::string::npos ? "" : lightning_group(text, place)) + name);
  }
  return out;
}

std::vector<OptionNumber> batch_fields(const std::vector<std::string>& command, const std::string& folder) {
  std::vector<Field> fields;
  bool any_makes_options = false;
  for (const Source& source : sources(command, folder)) {
    any_makes_options = any_makes_options || makes_options(source.text);
    for (Field& field : fields_of(source.text)) fields.push_back(std::move(field));
  }
  std::vector<OptionNumber> out;
  if (!any_makes_options) return out;
  for (const Field& field : fields) {
    const bool is_count = field.name.find("batches") != std::string::npos;  // how many there are
    const auto number = to_number<int64_t>(field.value);
    if (field.type != "int" || field.name.find("batch") == std::string::npos || is_count || !number || *number < 1) continue;
    out.push_back({"--" + path_to(fields, field.holder) + field.name, *number});
  }
  return out;
}

std::vector<std::string> batch_numbers(const std::vector<std::string>& command, const std::string& folder) {
  std::vector<std::string> out;
  for (const Source& source : sources(command, folder)) {
    std::istringstream lines(source.text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      if (const std::string found = batch_number(line); !found.empty())
        out.push_back(fmt::format("{}:{}: {}", source.path.lexically_proximate(folder).string(), number, found));
    }
  }
  return out;
}

}  // namespace gpucast::search
