// Where a rising function of a place crosses a limit: which places to look at next.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace gpucast::search {

struct Seen {
  bool ok = false;             // below the limit
  std::optional<double> over;  // how far above the limit (below: negative); unset: unknown, as when the script failed
};

// The answer lies between them. ok: below the limit, as everything below it that was looked at and follows an ok one; bad: the next one
// above that is not. Unset: none was seen. Memory may fall again beyond `bad`: what lies there does not count.
struct Bracket {
  std::optional<int64_t> ok, bad;
};
Bracket bracket(const std::map<int64_t, Seen>& seen);

// The places to look at next among 0 ... count - 1, at most two; empty: found. `start`: where to begin. `stuck`: the last looks have hardly
// narrowed the bracket, so cut it in three.
std::vector<int64_t> next_places(const std::map<int64_t, Seen>& seen, int64_t count, int64_t start, bool stuck);

}  // namespace gpucast::search
