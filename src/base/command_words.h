// The words of a command, in JSON and for a shell. A word may contain any byte except NUL.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"

namespace gpucast {

// A list of texts. JSON allows only UTF-8, so any other word becomes {"hex": "2d2dff"}. The command can then be started again.
Json command_json(const std::vector<std::string>& words);

// The exact word of such an entry. Unset: it is neither a text nor {"hex": ...}.
std::optional<std::string> word_from_json(const Json& entry);

// Words as bash and zsh read them, in ASCII if possible. A word with control characters, or one that is not UTF-8, is written as $'\377'.
// All other words are quoted in a form that every POSIX shell reads.
std::string shell_quote(const std::vector<std::string>& words);

}  // namespace gpucast
