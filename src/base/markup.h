// Text inside of HTML and XML.
#pragma once

#include <string>

namespace gpucast {

// Appends the entity of a character that has a meaning in markup. False: it has none, and nothing is appended.
inline bool append_entity(char c, std::string* out) {
  const char* entity = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : nullptr;
  if (entity != nullptr) *out += entity;
  return entity != nullptr;
}

}  // namespace gpucast
