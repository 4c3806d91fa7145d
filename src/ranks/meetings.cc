#include "src/ranks/meetings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "gpucast/error.h"

namespace gpucast {
namespace {

const char* const kOneRun = "capture all ranks in one run of one program, with the same number of steps";

struct Call {
  uint32_t operation = 0;
  const CollectiveShape* shape = nullptr;
  double duration_ns = 0;
  double link = 1;
  int64_t buffered_bytes = 0;
};

// One end of a message.
struct End {
  uint32_t operation = 0;
  int64_t bytes = 0, buffered_bytes = 0;
  double duration_ns = 0;
  double link = 1;
  Link way = Link::node;
  bool routed = false;
};

struct Ends {
  int64_t from = 0, to = 0;
  auto operator<=>(const Ends&) const = default;
};

// The same communicator in all captures.
struct Group {
  std::string name;
  std::vector<int64_t> ranks;
  bool assumed = false;
  std::map<uint32_t, std::vector<Call>> calls;       // by played rank
  std::map<Ends, std::vector<End>> sends, receives;  // the sends of `from`, the receives of `to`
};

Link way_of(const CollectiveShape& shape) { return shape.nodes > 1 ? Link::network : Link::node; }

// Ranks need not give the same bytes to these.
bool may_differ(CollectiveKind kind) {
  return kind == CollectiveKind::all_to_all || kind == CollectiveKind::gather || kind == CollectiveKind::scatter ||
         kind == CollectiveKind::messages;
}

// Messages whose other end is not played.
struct Lone {
  const Group* group = nullptr;
  Ends ends;
  const std::vector<End>* list = nullptr;
};

class Finder {
 public:
  explicit Finder(const std::vector<PlayedRank>& ranks) : ranks_(ranks), of_operation_(ranks.size()) {
    out_.imagined_messages.resize(ranks.size());
  }

  Meetings find() {
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      if (!index_.emplace(ranks_[r].rank, r).second)
        throw Error(fmt::format("rank {} is there twice", ranks_[r].rank), "captures of one job", kOneRun);
      collect(r);
    }
    for (const auto& [key, group] : groups_) {
      check_members(group);
      match_collectives(group);
      match_messages(group);
    }
    match_lone(true);
    match_lone(false);
    for (const Lone& lone : lone_sends_) imagine(*lone.list, lone.ends.from, Direction::out);
    for (const Lone& lone : lone_receives_) imagine(*lone.list, lone.ends.to, Direction::in);
    list_by_operation();
    return std::move(out_);
  }

 private:
  struct PartOf {
    uint32_t operation = 0;
    Meetings::Part part;
  };

  void collect(uint32_t r) {
    const StepOperations& step = *ranks_[r].step;
    std::vector<Group*> of_step;
    for (const CommunicationGroup& group : step.groups) {
      Group& known = groups_[{group.name, group.ranks}];
      known.name = group.name;
      known.ranks = group.ranks;
      known.assumed |= group.assumed;
      of_step.push_back(&known);
    }
    for (uint32_t i = 0; i < step.operations.size(); ++i) {
      const StepOperation& operation = step.operations[i];
      if (operation.communication < 0) continue;
      const Communication& communication = step.communications[static_cast<size_t>(operation.communication)];
      const CollectiveUse use = ranks_[r].uses.empty() ? CollectiveUse() : ranks_[r].uses[operation.shape];
      const Call call{i, &step.shapes[operation.shape].collective, ranks_[r].durations[operation.shape].expected_ns, use.link,
                      use.buffered_bytes};
      if (communication.messages.empty()) {
        of_step[communication.group]->calls[r].push_back(call);
      } else {
        add_messages(of_step[communication.group], r, communication.messages, call);
      }
    }
  }

  // The messages of one operation move at the same time, take its whole time, and share the link by their bytes.
  void add_messages(Group* group, uint32_t r, const std::vector<Message>& messages, const Call& call) {
    int64_t sent = 0, received = 0;
    for (const Message& message : messages) (message.receives ? received : sent) += message.bytes;
    const int64_t most = std::max({sent, received, int64_t{1}});
    for (const Message& message : messages) {
      const double link = call.link * static_cast<double>(message.bytes) / static_cast<double>(most);
      const End end{call.operation, message.bytes, call.buffered_bytes, call.duration_ns, link, way_of(*call.shape), message.routed};
      const int64_t me = ranks_[r].rank;
      if (message.receives) {
        group->receives[{message.peer, me}].push_back(end);
      } else {
        group->sends[{me, message.peer}].push_back(end);
      }
    }
  }

  // A played rank of a known group that never calls it would hold the others forever.
  void check_members(const Group& group) const {
    if (group.assumed || group.calls.empty()) return;
    const auto& [other, calls] = *group.calls.begin();
    for (const int64_t rank : group.ranks) {
      const auto played = index_.find(rank);
      if (played != index_.end() && !group.calls.contains(played->second)) throw_count(group, other, calls.size(), played->second, 0);
    }
  }

  [[noreturn]] void throw_count(const Group& group, uint32_t one, size_t ones, uint32_t other, size_t others) const {
    throw Error(fmt::format("rank {} makes {} collectives in a step, rank {} makes {}: the job would hang", ranks_[one].rank, ones,
                            ranks_[other].rank, others),
                fmt::format("group \"{}\"", group.name), kOneRun);
  }

  void match_collectives(const Group& group) {
    if (group.calls.empty()) return;
    const auto& [first_rank, first_calls] = *group.calls.begin();
    for (const auto& [r, calls] : group.calls) {
      if (calls.size() != first_calls.size()) throw_count(group, first_rank, first_calls.size(), r, calls.size());
    }
    for (size_t number = 0; number < first_calls.size(); ++number) {
      const CollectiveShape& shape = *first_calls[number].shape;
      begin_meeting(way_of(shape));
      for (const auto& [r, calls] : group.calls) {
        const Call& call = calls[number];
        if (call.shape->kind != shape.kind || (call.shape->bytes != shape.bytes && !may_differ(shape.kind)))
          throw_different(group, number, first_rank, shape, r, *call.shape);
        attend({r, call.operation, Direction::both, call.duration_ns, call.link});
      }
    }
  }

  [[noreturn]] void throw_different(const Group& group, size_t number, uint32_t one, const CollectiveShape& ones, uint32_t other,
                                    const CollectiveShape& others) const {
    throw Error(
        fmt::format("ranks make different collectives in the same place: rank {} {} of {} bytes, rank {} {} of {} bytes", ranks_[one].rank,
                    collective_kind_name(ones.kind), ones.bytes, ranks_[other].rank, collective_kind_name(others.kind), others.bytes),
        fmt::format("group \"{}\", collective {} of the step", group.name, number + 1), kOneRun);
  }

  void match_messages(const Group& group) {
    for (const auto& [ends, receives] : group.receives) {
      if (!index_.contains(ends.from)) {
        lone_receives_.push_back({&group, ends, &receives});
      } else if (!group.sends.contains(ends)) {
        throw_messages(group, ends, 0, receives.size());
      }
    }
    for (const auto& [ends, sends] : group.sends) {
      const auto receives = group.receives.find(ends);
      if (!index_.contains(ends.to)) {
        lone_sends_.push_back({&group, ends, &sends});
      } else if (receives == group.receives.end()) {
        throw_messages(group, ends, sends.size(), 0);
      } else {
        check_messages(group, ends, sends, receives->second);
        join(sends, ends.from, receives->second, ends.to);
      }
    }
  }

  // The receives of one rank from an imagined one may stand for the receives of the imagined rank to which another one sends.
  void match_lone(bool same_group) {
    std::erase_if(lone_sends_, [&](const Lone& sends) {
      const auto mirror = std::ranges::find_if(lone_receives_, [&](const Lone& receives) {
        return std::ranges::equal(*receives.list, *sends.list, {}, &End::bytes, &End::bytes) &&
               (same_group ? sends.group == receives.group && sends.ends.from != receives.ends.to : same_places(sends, receives));
      });
      if (mirror == lone_receives_.end()) return false;
      join(*sends.list, sends.ends.from, *mirror->list, mirror->ends.to);
      lone_receives_.erase(mirror);
      return true;
    });
  }

  // In two groups of the same size: two pipelines, for example.
  static bool same_places(const Lone& one, const Lone& other) {
    const auto place = [](const Lone& lone, int64_t rank) {
      return std::ranges::find(lone.group->ranks, rank) - lone.group->ranks.begin();
    };
    return one.group->ranks.size() == other.group->ranks.size() && place(one, one.ends.from) == place(other, other.ends.from) &&
           place(one, one.ends.to) == place(other, other.ends.to);
  }

  [[noreturn]] static void throw_messages(const Group& group, const Ends& ends, size_t sends, size_t receives) {
    throw Error(fmt::format("rank {} sends {} messages to rank {} in a step, which receives {}: the job would hang", ends.from, sends,
                            ends.to, receives),
                fmt::format("group \"{}\"", group.name), kOneRun);
  }

  static void check_messages(const Group& group, const Ends& ends, const std::vector<End>& sends, const std::vector<End>& receives) {
    if (sends.size() != receives.size()) throw_messages(group, ends, sends.size(), receives.size());
    for (size_t i = 0; i < sends.size(); ++i) {
      if (sends[i].bytes == receives[i].bytes || (sends[i].routed && receives[i].routed)) continue;
      throw Error(
          fmt::format("rank {} sends {} bytes to rank {}, which receives {}", ends.from, sends[i].bytes, ends.to, receives[i].bytes),
          fmt::format("group \"{}\", message {} of the step", group.name, i + 1), kOneRun);
    }
  }

  void join(const std::vector<End>& sends, int64_t from, const std::vector<End>& receives, int64_t to) {
    for (size_t i = 0; i < sends.size(); ++i) {
      const End &send = sends[i], &receive = receives[i];
      const Attendance sends_it{index_.at(from), send.operation, Direction::out, send.duration_ns, send.link};
      const Attendance receives_it{index_.at(to), receive.operation, Direction::in, receive.duration_ns, receive.link};
      begin_meeting(send.way);
      attend(sends_it);
      if (send.bytes <= send.buffered_bytes) {
        // The buffers are free again when an earlier message was received.
        const auto fit = static_cast<size_t>(send.buffered_bytes / std::max<int64_t>(1, send.bytes));
        if (i >= fit) attend(begin_of({receives_it.rank, receives[i - fit].operation}));
        begin_meeting(send.way);
        attend(begin_of(sends_it));
      }
      attend(receives_it);
    }
  }

  static Attendance begin_of(Attendance attendance) {
    attendance.duration_ns = 0;
    attendance.waits = false;
    return attendance;
  }

  void imagine(const std::vector<End>& list, int64_t rank, Direction direction) {
    const uint32_t r = index_.at(rank);
    out_.imagined_messages[r] += static_cast<int64_t>(list.size());
    for (const End& end : list) {
      begin_meeting(end.way);
      attend({r, end.operation, direction, end.duration_ns, end.link});
    }
  }

  void begin_meeting(Link link) { out_.meetings.push_back({link, 0, static_cast<uint32_t>(out_.attendances.size()), 0}); }

  void attend(const Attendance& attendance) {
    Meeting& meeting = out_.meetings.back();
    meeting.duration_ns = std::max(meeting.duration_ns, attendance.duration_ns);
    ++meeting.count;
    out_.attendances.push_back(attendance);
    of_operation_[attendance.rank].push_back({attendance.operation, {static_cast<uint32_t>(out_.meetings.size() - 1), attendance.waits}});
  }

  void list_by_operation() {
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      std::ranges::stable_sort(of_operation_[r], {}, &PartOf::operation);
      std::vector<uint32_t>& first = out_.first.emplace_back(ranks_[r].step->operations.size() + 1);
      std::vector<Meetings::Part>& parts = out_.parts.emplace_back();
      for (const auto& [operation, part] : of_operation_[r]) {
        ++first[operation + 1];
        parts.push_back(part);
      }
      for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    }
  }

  const std::vector<PlayedRank>& ranks_;
  std::map<int64_t, uint32_t> index_;  // by rank of the job
  std::map<std::pair<std::string, std::vector<int64_t>>, Group> groups_;
  std::vector<Lone> lone_sends_, lone_receives_;
  std::vector<std::vector<PartOf>> of_operation_;  // by rank
  Meetings out_;
};

}  // namespace

Meetings find_meetings(const std::vector<PlayedRank>& ranks) { return Finder(ranks).find(); }

}  // namespace gpucast
