#include "src/pack/plan.h"

namespace gpucast::pack {

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::finished:
      return "finished";
    case Outcome::out_of_memory:
      return "out_of_memory";
    case Outcome::never_fits:
      return "never_fits";
    case Outcome::count_:
      break;
  }
  return "";
}

const char* reason_name(Reason reason) {
  switch (reason) {
    case Reason::idle_card:
      return "idle_card";
    case Reason::share_fits:
      return "share_fits";
    case Reason::memory_fits:
      return "memory_fits";
    case Reason::best_neighbour:
      return "best_neighbour";
    case Reason::slice_fits:
      return "slice_fits";
    case Reason::alone_after_out_of_memory:
      return "alone_after_out_of_memory";
    case Reason::none:
      return "none";
    case Reason::count_:
      break;
  }
  return "";
}

const char* job_order_name(JobOrder order) {
  switch (order) {
    case JobOrder::arrival:
      return "arrival";
    case JobOrder::longest_first:
      return "longest_first";
    case JobOrder::shortest_first:
      return "shortest_first";
    case JobOrder::searched:
      return "searched";
    case JobOrder::count_:
      break;
  }
  return "";
}

}  // namespace gpucast::pack
