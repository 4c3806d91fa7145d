#include "src/loader/loader_constants.h"

#include "loader_json.h"
#include "src/base/constants_file.h"

namespace gpucast {

LoaderConstants read_loader_constants(const std::string& file) {
  const ConstantSection section("loader", kLoaderJson, file);
  return {.worker_over_inline = section.number("worker", "over_inline"),
          .worker_noise = section.number("worker", "noise"),
          .take_ns = section.number("worker", "take_ns"),
          .second_thread = section.number("cores", "second_thread"),
          .cores_noise = section.number("cores", "noise"),
          .least_free_cores = section.number("cores", "least_free"),
          .least_noise = section.number("measuring", "least_noise"),
          .others_noise = section.number("measuring", "others_noise"),
          .few_noise = section.number("measuring", "few_noise"),
          .undisturbed_share = section.number("measuring", "undisturbed_share"),
          .most_variation = section.number("measuring", "most_variation"),
          .cached = section.number("measuring", "cached"),
          .sigma = section.number("law", "sigma"),
          .kappa = section.number("law", "kappa"),
          .least_rate_noise = section.number("law", "least_noise"),
          .busy = section.number("choice", "busy")};
}

const LoaderConstants& loader_constants() {
  static const LoaderConstants built_in = read_loader_constants("");
  return built_in;
}

}  // namespace gpucast
