// Sentences of the text reports about a step's time and about its loader.
#pragma once

#include <string>

#include "gpucast/step_time.h"

namespace gpucast {

constexpr int kStepsOfCost = 1000;  // reports give the cost of this many steps if an epoch's steps are not known

std::string interval_words(const CardTime& card);                      // "90 % within 5.04 ms to 7.11 ms"
std::string power_words(const CardTime& card);                         // the power and a step's energy; "": the limit is not known
std::string energy_text(double joules);                                // "18.3 J"
std::string known_words(const StepTimes& times);                       // the effect of --known; "": no step is known
std::string cost_words(const StepTimes& times, const CardTime& card);  // "an epoch of 625 steps takes 1.2 h"; "": nothing is known
std::string money_text(double amount);                                 // "12.4", of any currency
std::string long_time_text(double ns);                                 // "2.31 h"
std::string bound_words(const CardTime& card);                         // "host-bound: the host works 3.1 ms, the GPU 1.2 ms"
std::string host_steps_words(const StepTimes& times);                  // if the host's time differs from step to step; or ""
std::string host_words(const StepTimes& times, const CardTime& card);  // if another host would be faster; or ""
std::string bound_words(const LoaderChoice& choice);                   // "loader (cores)"
std::string loader_words(const LoaderFigures& figures);                // "DataLoader of ImageFolder: batches of 32, 1 worker"
std::string batch_words(const LoaderFigures& figures);                 // "a batch takes one process 38.9 ms: decode 27.1 ms"
std::string read_words(const LoaderFigures& figures);                  // "it reads 3.2 MB"; "": almost nothing
std::string workers_advice(const LoaderFigures& figures, const CardTime& card);  // card.loader must be set

}  // namespace gpucast
