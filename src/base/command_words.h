// The words of a command, which may hold any byte but NUL: in JSON, and for a shell.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"

namespace gpucast {

// A list of texts. JSON holds UTF-8 only: a word that is none becomes {"hex": "2d2dff"}, so that it can be started again.
Json command_json(const std::vector<std::string>& words);

// The word of such an entry, exactly. Unset: it is no text, and no {"hex": ...} either.
std::optional<std::string> word_from_json(const Json& entry);
std::optional<std::string> bytes_from_hex(std::string_view hex);  // of "2d2dff"; unset: it is no such text

// Words as bash and zsh read them. ASCII where it can be: a control character, or a word that is not UTF-8, is written $'\377'; all other
// words are quoted as every POSIX shell reads them.
std::string shell_quote(const std::vector<std::string>& words);

}  // namespace gpucast
