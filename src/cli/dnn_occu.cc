#include "src/cli/dnn_occu.h"

#include <unistd.h>

#include <fstream>

#include "gpucast/error.h"
#include "src/base/gpu_json.h"
#include "src/base/json.h"
#include "src/base/read_file.h"
#include "src/run/run_session.h"
#include "src/run/session_folder.h"
#include "src/run/supervise.h"

namespace gpucast::cli {
namespace {

constexpr double kTimeout_s = 180;

}  // namespace

std::string dnn_occu_weights(const std::string& path) {
  std::string weights = path.empty() ? run::library_folder() + "/python/dnn_occu/weights.npz" : path;
  if (access(weights.c_str(), R_OK) != 0)
    throw Error("DNN-occu's weights cannot be read", weights, "eval/occupancy/dnn_occu/evaluate.py trains and writes them");
  return weights;
}

std::vector<double> dnn_occu(const std::string& graph, const std::string& weights, const std::vector<Gpu>& gpus) {
  const std::string python = Json::parse(read_file(graph)).value("python", "");
  if (python.empty())
    throw Error("the graph of the model's forward was not recorded", "",
                "DNN-occu predicts for a model (torch.nn.Module) whose forward the command runs once");
  const std::string libraries = run::library_folder();
  const run::SessionFolder session;
  Json cards = Json::array();
  for (const Gpu& gpu : gpus) {
    Json card;
    add_gpu_figures(gpu, &card);
    cards.push_back(std::move(card));
  }
  const std::string cards_path = session.path + "/cards.json", answer_path = session.path + "/answer.json";
  std::ofstream(cards_path) << cards.dump();
  run::RunSettings settings;
  settings.mode = "doctor";  // in this mode PyTorch finds its libraries, and nothing is recorded
  settings.gpu = gpus.front();
  run::write_session(session.path, libraries, settings);
  const std::vector<std::string> command{python, libraries + "/python/dnn_occu/predict.py", graph, weights, cards_path, answer_path};
  run::supervise(python, command, run::session_environment(libraries, session.path), session.path, kTimeout_s);
  const Json answer = Json::parse(read_file(answer_path));
  std::vector<double> out;
  for (const Json& value : answer["occupancies"]) out.push_back(value.get<double>());
  if (out.size() != gpus.size())
    throw Error("DNN-occu's network could not be run", weights, answer.value("problem", "what its Python printed is above"));
  return out;
}

}  // namespace gpucast::cli
