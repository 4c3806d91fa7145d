#include "src/attribution/profile_phases.h"

#include <algorithm>
#include <unordered_map>

namespace gpucast {
namespace {

// "torch/autograd/__init__.py(183): backward", possibly with a path before it.
bool is_backward_call(std::string_view name) {
  return name.find("torch/autograd/__init__.py(") != std::string_view::npos && (name.ends_with(": backward") || name.ends_with(": grad"));
}

class PhaseFinder {
 public:
  PhaseFinder(const ProfileTrace& trace, const SpanTree& tree) : trace_(trace), tree_(tree) {}

  ProfilePhases find() {
    choose_main_thread();
    for (SpanIndex i = 0; i < trace_.spans.size(); ++i) look_at(i);
    if (out_.backwards.empty()) {
      out_.backwards = std::move(calls_);
      if (out_.backwards.empty()) out_.backwards = engine_runs();
    }
    if (!marked_forward_) outermost_modules();
    drop_nested(&out_.forwards, out_.backwards);
    if (out_.forwards.empty()) forward_between();
    count_steps();
    lay_out();
    return std::move(out_);
  }

 private:
  void choose_main_thread() {
    std::vector<int64_t> operators(trace_.threads.size(), 0);
    for (const ProfileSpan& span : trace_.spans) operators[span.thread] += span.kind == SpanKind::op ? 1 : 0;
    out_.main_thread =
        operators.empty() ? 0 : static_cast<uint32_t>(std::max_element(operators.begin(), operators.end()) - operators.begin());
  }

  void add_window(std::vector<PhaseWindow>* list, Phase phase, SpanIndex i) {
    const ProfileSpan& span = trace_.spans[i];
    if (!list->empty() && span.begin_ns < list->back().end_ns && list->back().span != kNoSpan) return;  // lies inside the last one
    list->push_back({phase, 0, span.begin_ns, span.end_ns, i});
  }

  void look_at(SpanIndex i) {
    const ProfileSpan& span = trace_.spans[i];
    const std::string_view name = trace_.strings.text(span.name);
    switch (span.kind) {
      case SpanKind::annotation:
        if (name.starts_with("Optimizer.step#")) add_window(&out_.optimizer_steps, Phase::optimizer_step, i);
        if (name.starts_with("Optimizer.zero_grad#")) add_window(&out_.zero_grads, Phase::zero_grad, i);
        if (name.starts_with("enumerate(DataLoader)#") || name.starts_with("dataloader.__next__")) add_window(&out_.data, Phase::data, i);
        if (name.starts_with("gpucast.")) gpucast_mark(name, i);
        break;
      case SpanKind::module:
        out_.modules = true;
        break;
      case SpanKind::function:
        if (is_backward_call(name)) add_window(&calls_, Phase::backward, i);
        break;
      case SpanKind::op:
        if (is_autograd_node(name)) engine_.push_back(i);
        break;
    }
  }

  void gpucast_mark(std::string_view name, SpanIndex i) {
    out_.gpucast_marks = true;
    if (name.starts_with("gpucast.forward#")) {
      add_window(&out_.forwards, Phase::forward, i);
      marked_forward_ = true;
    }
    if (name.starts_with("gpucast.backward#")) add_window(&out_.backwards, Phase::backward, i);
    if (name == "gpucast.to_device#module") add_window(&moves_, Phase::model_to_device, i);
    if (name == "gpucast.to_device#tensor" || name == "gpucast.on_device") add_window(&out_.to_device, Phase::data, i);
  }

  // Groups autograd's nodes that have no optimizer, data, module or other forward between them. Backward runs nodes from the last made to
  // the first, so a node made later than the first one of the group belongs to another forward.
  std::vector<PhaseWindow> engine_runs() const {
    std::vector<PhaseWindow> runs;
    int64_t newest = -1;
    for (const SpanIndex i : engine_) {
      const ProfileSpan& span = trace_.spans[i];
      const bool broken = runs.empty() || span.sequence_number > newest ||
                          begins_between(out_.optimizer_steps, runs.back().end_ns, span.begin_ns) ||
                          begins_between(out_.data, runs.back().end_ns, span.begin_ns) || new_forward(runs.back().end_ns, span.begin_ns);
      if (broken) {
        runs.push_back({Phase::backward, 0, span.begin_ns, span.end_ns, kNoSpan});
        newest = span.sequence_number;
      } else {
        runs.back().end_ns = std::max(runs.back().end_ns, span.end_ns);
      }
    }
    return runs;
  }

  static bool begins_between(const std::vector<PhaseWindow>& list, int64_t from_ns, int64_t to_ns) {
    const auto at = std::partition_point(list.begin(), list.end(), [&](const PhaseWindow& window) { return window.begin_ns < from_ns; });
    return at != list.end() && at->begin_ns < to_ns;
  }

  // An outermost module began in between, so this is another forward.
  bool new_forward(int64_t from_ns, int64_t to_ns) const {
    auto at =
        std::partition_point(trace_.spans.begin(), trace_.spans.end(), [&](const ProfileSpan& span) { return span.begin_ns < from_ns; });
    for (; at != trace_.spans.end() && at->begin_ns < to_ns; ++at) {
      if (at->kind == SpanKind::module) return true;
    }
    return false;
  }

  void outermost_modules() {
    for (SpanIndex i = 0; i < trace_.spans.size(); ++i) {
      if (trace_.spans[i].kind != SpanKind::module) continue;
      bool outermost = true;
      for (SpanIndex up = tree_.parent[i]; up != kNoSpan && outermost; up = tree_.parent[up])
        outermost = trace_.spans[up].kind != SpanKind::module;
      if (outermost) add_window(&out_.forwards, Phase::forward, i);
    }
  }

  // A forward that is recomputed for backward is part of backward.
  static void drop_nested(std::vector<PhaseWindow>* inner, const std::vector<PhaseWindow>& outer) {
    std::erase_if(*inner, [&](const PhaseWindow& window) {
      return std::any_of(outer.begin(), outer.end(),
                         [&](const PhaseWindow& around) { return around.begin_ns <= window.begin_ns && window.end_ns <= around.end_ns; });
    });
  }

  // Without modules and marks, a forward lasts from the first operator whose node runs in a backward until that backward. zero_grad may
  // lie in between.
  void forward_between() {
    std::unordered_map<int64_t, int64_t> made_ns;  // sequence number -> when its node was made
    for (SpanIndex i = 0; i < trace_.spans.size(); ++i) {
      const ProfileSpan& span = trace_.spans[i];
      const bool node = is_autograd_node(trace_.strings.text(span.name));
      if (span.kind == SpanKind::op && span.sequence_number >= 0 && !node) made_ns.try_emplace(span.sequence_number, span.begin_ns);
    }
    int64_t last_end_ns = INT64_MIN;
    for (const PhaseWindow& backward : out_.backwards) {
      int64_t from_ns = backward.begin_ns;
      for (const SpanIndex i : engine_) {
        const ProfileSpan& node = trace_.spans[i];
        const auto made = made_ns.find(node.sequence_number);
        if (node.begin_ns < backward.begin_ns || node.end_ns > backward.end_ns || made == made_ns.end()) continue;
        if (made->second > last_end_ns) from_ns = std::min(from_ns, made->second);
      }
      last_end_ns = backward.end_ns;
      // Phases must not touch: a phase that ends at the nanosecond of another's begin gets an earlier end.
      const auto add_until = [&](int64_t end_ns) {
        if (from_ns < end_ns) out_.forwards.push_back({Phase::forward, 0, from_ns, end_ns - 1, kNoSpan});
      };
      for (const PhaseWindow& clear : out_.zero_grads) {
        if (clear.begin_ns <= from_ns || clear.end_ns > backward.begin_ns) continue;
        add_until(clear.begin_ns);
        from_ns = clear.end_ns + 1;
      }
      add_until(backward.begin_ns);
    }
  }

  // A step ends with the first optimizer's step after a backward. Other optimizers' steps before the next backward belong to it too.
  void count_steps() {
    std::vector<int64_t>& ends_ns = out_.step_ends_ns;
    int64_t last_end_ns = INT64_MIN;
    for (const PhaseWindow& step : out_.optimizer_steps) {
      if (!ends_ns.empty() && !out_.backwards.empty() && !begins_between(out_.backwards, last_end_ns, step.begin_ns)) ends_ns.pop_back();
      ends_ns.push_back(last_end_ns = step.end_ns);
    }
    out_.steps = static_cast<int32_t>(ends_ns.size());
    for (const auto* list : {&out_.forwards, &out_.data}) {
      if (!list->empty() && !out_.forwards.empty() && list->front().begin_ns <= out_.forwards.front().begin_ns) {
        out_.loop_begin_ns = std::min(out_.loop_begin_ns, list->front().begin_ns);
      }
    }
  }

  void lay_out() {
    for (auto* list : {&out_.optimizer_steps, &out_.zero_grads, &out_.forwards, &out_.backwards, &out_.data, &moves_}) {
      for (PhaseWindow& window : *list) {
        window.step = window.phase == Phase::model_to_device && window.begin_ns < out_.loop_begin_ns ? 0 : out_.step_at(window.begin_ns);
        out_.windows.push_back(window);
      }
    }
    std::stable_sort(out_.windows.begin(), out_.windows.end(), [](const PhaseWindow& a, const PhaseWindow& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
    // A window inside another one (for example zero_grad in a hook) is dropped.
    int64_t until_ns = INT64_MIN;
    std::erase_if(out_.windows, [&](const PhaseWindow& window) {
      const bool inside = window.begin_ns < until_ns;
      if (!inside) until_ns = window.end_ns;
      return inside;
    });
  }

  const ProfileTrace& trace_;
  const SpanTree& tree_;
  ProfilePhases out_;
  std::vector<PhaseWindow> calls_, moves_;
  std::vector<SpanIndex> engine_;
  bool marked_forward_ = false;
};

}  // namespace

const PhaseWindow* ProfilePhases::window_at(int64_t time_ns) const {
  const auto at =
      std::partition_point(windows.begin(), windows.end(), [&](const PhaseWindow& window) { return window.begin_ns <= time_ns; });
  if (at == windows.begin() || std::prev(at)->end_ns < time_ns) return nullptr;
  return &*std::prev(at);
}

int32_t ProfilePhases::step_at(int64_t time_ns) const {
  return 1 + static_cast<int32_t>(std::upper_bound(step_ends_ns.begin(), step_ends_ns.end(), time_ns) - step_ends_ns.begin());
}

ProfilePhases find_phases(const ProfileTrace& trace, const SpanTree& tree) { return PhaseFinder(trace, tree).find(); }

}  // namespace gpucast
