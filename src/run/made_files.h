// The files that a script made in a run which leaves none.
#pragma once

#include <string>

namespace gpucast::run {

// Undoes what python/gpucast/made_files.py wrote to the session's journal, the last first. Nothing, if there is no journal. What cannot be
// undone stays.
void undo_made_files(const std::string& session_folder);

}  // namespace gpucast::run
