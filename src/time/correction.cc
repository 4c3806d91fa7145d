#include "src/time/correction.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <map>
#include <mutex>

#include "corrections_json.h"
#include "src/base/constants_file.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

constexpr const char* kWhere = "data/time/corrections.json";

// The letters of the features in the file, in the order of features_of().
std::string_view letters_of(OperationKind kind) { return kind == OperationKind::gemm ? "trmnkb" : "trbqhgdw"; }

using Features = std::array<double, 8>;

Features features_of(const Operation& operation, double expected_ns, double ideal_ns) {
  const GemmShape& product = operation.gemm;
  const AttentionShape& attention = operation.attention;
  Features out = {expected_ns, expected_ns / ideal_ns};
  const auto take = [&](std::initializer_list<int64_t> sizes) {
    std::transform(sizes.begin(), sizes.end(), out.begin() + 2, [](int64_t size) { return static_cast<double>(size); });
  };
  if (operation.kind == OperationKind::gemm)
    take({product.m, product.n, product.k, product.batch});
  else
    take({attention.batch, attention.queries, attention.heads, attention.kv_heads, attention.head_dim, attention.window + 1});
  for (double& feature : out) feature = std::log2(feature);
  return out;
}

// -1: the letter stands for no feature.
int feature_of(std::string_view letters, char letter) {
  const size_t at = letters.find(letter);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

bool is_of(const Correction& correction, const Operation& operation) {
  if (operation.kind != correction.kind) return false;
  if (std::find(correction.precisions.begin(), correction.precisions.end(), operation.precision) == correction.precisions.end())
    return false;
  if (operation.kind == OperationKind::attention) return operation.attention.prefill && operation.attention.pass == Pass::forward;
  const GemmShape& shape = operation.gemm;
  return !shape.a_transposed && (correction.batched ? shape.batch > 1 && !shape.b_transposed : shape.batch == 1 && shape.b_transposed);
}

// "m8.32 k9.5 -0.02 0.11 0.04": a node before its two branches. A letter and a number: values up to it go to the first branch.
size_t read_branch(std::string_view* text, std::string_view letters, std::vector<Correction::Node>* tree) {
  while (text->starts_with(' ')) text->remove_prefix(1);
  const std::string_view word = text->substr(0, text->find(' '));
  text->remove_prefix(word.size());
  Correction::Node node;
  if (!word.empty()) node.feature = feature_of(letters, word[0]);
  const bool is_leaf = node.feature < 0;
  const char* begin = word.data() + (is_leaf ? 0 : 1);
  const char* end = word.data() + word.size();
  const auto [stop, problem] = std::from_chars(begin, end, node.number);
  if (word.empty() || problem != std::errc() || stop != end) reject_constants(fmt::format("'{}' is no node of a tree", word), kWhere);
  const size_t at = tree->size();
  tree->push_back(node);
  if (is_leaf) return at;
  read_branch(text, letters, tree);
  const size_t right = read_branch(text, letters, tree);
  (*tree)[at].right = static_cast<uint32_t>(right);
  return at;
}

double sum_of_trees(const Correction& correction, const Features& features) {
  double sum = 0;
  for (const std::vector<Correction::Node>& tree : correction.trees) {
    uint32_t at = 0;
    while (tree[at].feature >= 0) {
      const double value = features[static_cast<size_t>(tree[at].feature)];
      at = value <= double{tree[at].number} ? at + 1 : tree[at].right;
    }
    sum += tree[at].number;
  }
  return sum;
}

std::vector<Correction> corrections_for(const std::string& card, const Json& file) {
  std::vector<Correction> out;
  for (const Json& entry : file["corrections"]) {
    const Json& cards = entry["cards"];
    if (std::none_of(cards.begin(), cards.end(), [&](const Json& id) { return id.get<std::string>() == card; })) continue;
    Correction& correction = out.emplace_back();
    correction.kind = operation_kind_from_name(entry["kind"].get<std::string>());
    if (correction.kind != OperationKind::gemm && correction.kind != OperationKind::attention)
      reject_constants(fmt::format("no correction is for operations of kind '{}'", entry["kind"].get<std::string>()), kWhere);
    for (const Json& name : entry["precisions"]) correction.precisions.push_back(precision_from_name(name.get<std::string>()));
    correction.batched = entry["batched"].get<bool>();
    correction.interval = {entry["low"].get<double>(), entry["high"].get<double>()};
    const std::string_view letters = letters_of(correction.kind);
    const Json& ranges = entry["ranges"];
    for (size_t i = 0; i < ranges.size(); ++i) {
      const int feature = feature_of(letters, ranges.keys()[i][0]);
      if (feature < 0) reject_constants(fmt::format("no size is called '{}'", ranges.keys()[i]), kWhere);
      correction.ranges.push_back({feature, ranges.at(i).at(0).get<double>(), ranges.at(i).at(1).get<double>()});
    }
    for (const Json& tree : entry["trees"]) {
      const std::string words = tree.get<std::string>();
      std::string_view text = words;
      read_branch(&text, letters, &correction.trees.emplace_back());
      if (!text.empty()) reject_constants(fmt::format("'{}' follows a whole tree", text), kWhere);
    }
  }
  return out;
}

}  // namespace

std::vector<Correction> read_corrections(std::string_view json, const std::string& card) {
  return corrections_for(card, Json::parse(json));
}

std::span<const Correction> corrections_of(const Gpu& gpu) {
  static const Json file = parse_built_in_constants(kCorrectionsJson, kWhere);
  static std::mutex mutex;
  static std::map<std::string, std::vector<Correction>> of_cards;
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = of_cards.try_emplace(gpu.id);
  if (is_new) at->second = corrections_for(gpu.id, file);
  return at->second;
}

double shape_ideal_ns(const Operation& operation, double flop_per_s, double bytes_per_s) {
  const auto whole = [](int64_t number) { return static_cast<double>(number); };
  double flops = 0, elements = 0;
  if (operation.kind == OperationKind::gemm) {
    const double batch = whole(operation.gemm.batch), m = whole(operation.gemm.m), n = whole(operation.gemm.n), k = whole(operation.gemm.k);
    flops = 2 * batch * m * n * k;
    elements = batch * (m * k + k * n + m * n);
  } else {
    const AttentionShape& shape = operation.attention;
    const double rows = whole(shape.batch) * whole(shape.queries) * whole(shape.head_dim);
    double seen = whole(shape.keys) / (shape.causal ? 2 : 1);
    if (shape.window > 0) seen = std::min(seen, whole(shape.window));
    flops = 4 * rows * whole(shape.heads) * seen;
    elements = 2 * rows * (whole(shape.heads) + whole(shape.kv_heads));
  }
  return 1e9 * std::max(flops / flop_per_s, elements * operation.element_bytes / bytes_per_s);
}

Corrected corrected(std::span<const Correction> corrections, const Operation& operation, double expected_ns, double ideal_ns) {
  for (const Correction& correction : corrections) {
    if (!is_of(correction, operation) || !(ideal_ns > 0)) continue;
    const Features features = features_of(operation, expected_ns, ideal_ns);
    const bool is_inside = std::all_of(correction.ranges.begin(), correction.ranges.end(), [&](const Correction::Range& range) {
      const double value = features[static_cast<size_t>(range.feature)];
      return value >= range.least && value <= range.most;
    });
    if (is_inside) return {std::exp(sum_of_trees(correction, features)), &correction};
  }
  return {};
}

}  // namespace gpucast
