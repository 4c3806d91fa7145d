// With which ranks a step's collectives and messages work.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "gpucast/recorded_arguments.h"
#include "gpucast/trace.h"
#include "src/work/step_operations.h"

namespace gpucast {

// nullptr: its ranks are not recorded.
const Communicator* find_communicator(const Trace& trace, std::string_view name);

// Collects the calls of NCCL that run as one operation (ncclGroupStart, ncclGroupEnd).
class Communications {
 public:
  Communications(const Trace& trace, StepOperations* out);

  // A call that begins an operation: its messages and its group. `operation`: as library_call() makes it.
  void begin(std::string_view call, const CallArguments& arguments, const Operation& operation);
  // Another call of the same operation.
  void join(std::string_view call, const CallArguments& arguments, const Operation& other, Operation* operation);
  // The operation has all its calls. Returns the index of its communication in StepOperations::communications.
  int32_t end(Operation* operation);

  bool is_open() const { return open_; }

 private:
  uint32_t group_of(const CallArguments& arguments);
  void add_message(std::string_view call, const CallArguments& arguments, const Operation& operation);
  void leave_out_own_messages();
  bool reaches_all() const;

  const Trace& trace_;
  StepOperations& out_;
  std::map<std::string, uint32_t> groups_;
  std::map<Communication, int32_t> known_;
  Communication made_;
  bool open_ = false;
};

// The collectives' ranks and nodes, on machines with this many cards. 0: as the capture recorded, or 8.
void put_on_nodes(int64_t cards, StepOperations* step);

}  // namespace gpucast
