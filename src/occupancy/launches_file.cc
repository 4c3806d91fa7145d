#include "src/occupancy/launches_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include "gpucast/error.h"
#include "src/base/gzip_lines.h"

namespace gpucast {
namespace {

constexpr int64_t kMostLaunchBlocks = int64_t{1} << 50, kMostOthers = INT32_MAX / 4;
constexpr int64_t kMostThreadRegisters = 255;  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"

struct BadLaunchLine {
  std::string what;
};

int64_t whole(simdjson::dom::element value, std::string_view name, int64_t most) {
  int64_t number = 0;
  if (value.get(number) != simdjson::SUCCESS || number < 0 || number > most)
    throw BadLaunchLine{fmt::format("'{}' is no whole number from 0 to {}", name, most)};
  return number;
}

LaunchRow launch_of(simdjson::dom::element line) {
  simdjson::dom::object fields;
  if (line.get(fields) != simdjson::SUCCESS) throw BadLaunchLine{"it is no JSON object"};
  LaunchRow out;
  bool has_blocks = false, has_threads = false, has_registers = false;
  for (const auto& [name, value] : fields) {
    if (name == "blocks") {
      out.launch.blocks = whole(value, name, kMostLaunchBlocks);
      has_blocks = true;
    } else if (name == "block_threads") {
      out.launch.block_threads = static_cast<int>(whole(value, name, kMostBlockThreads));
      has_threads = true;
    } else if (name == "registers") {
      out.kernel.registers = static_cast<int>(whole(value, name, kMostThreadRegisters));
      has_registers = true;
    } else if (name == "static_shared_bytes") {
      out.kernel.static_shared_bytes = static_cast<int>(whole(value, name, kMostOthers));
    } else if (name == "dynamic_shared_bytes") {
      out.launch.dynamic_shared_bytes = whole(value, name, kMostOthers);
    } else {
      throw BadLaunchLine{fmt::format("a launch has no field '{}'", name)};
    }
  }
  if (!has_blocks || !has_threads || !has_registers) throw BadLaunchLine{"'blocks', 'block_threads' and 'registers' must be there"};
  return out;
}

}  // namespace

LaunchRow read_launch(std::string_view line, const std::function<std::string()>& where) {
  thread_local simdjson::dom::parser parser;  // its memory is used again for the next line
  try {
    simdjson::dom::element parsed;
    const auto error = parser.parse(line.data(), line.size(), false).get(parsed);
    if (error != simdjson::SUCCESS) throw BadLaunchLine{fmt::format("it is no JSON ({})", simdjson::error_message(error))};
    return launch_of(parsed);
  } catch (const BadLaunchLine& bad) {
    throw Error(fmt::format("this is no launch: {}", bad.what), where(), "docs/reference/occupancy.md says what a line holds");
  }
}

void read_launches(const std::string& path, const std::function<void(const LaunchRow&, const std::function<std::string()>& where)>& take) {
  GzipLines lines(path == "-" ? "/dev/stdin" : path);
  const auto where = [&] { return fmt::format("{}, line {}", path == "-" ? "standard input" : path, lines.line_number()); };
  std::string_view line;
  while (lines.next(&line)) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    take(read_launch(line, where), where);
  }
  if (lines.end() != GzipLines::End::complete) throw Error("the file ends before its end: it is cut short or damaged", where());
}

}  // namespace gpucast
