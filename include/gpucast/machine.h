// Machines: their cards, how these reach each other, and the host. Data: data/machines.json, or a user's file of the same form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "src/base/links.h"

namespace gpucast {

struct Machine {
  std::string id;    // the argument of --machine: "aws-p5"; of a user's file: its path
  std::string name;  // "AWS p5.48xlarge"
  std::vector<std::string> aliases;
  std::vector<std::string> gpu_ids;    // it has cards of one of these
  std::string card_name;               // not "": the device table does not have its card, and gpu_ids stand for it
  std::vector<std::string> usual_for;  // the machine assumed for these cards
  Links links;                         // of a node: the cards that reach each other without the network
  int64_t cards_per_host = 0;          // less than a node's if a rack is one node (NVL72)
  std::string network;                 // "EFA v2, 100 Gb/s"; "": not known
  std::string processor;               // of a host; "": not known
  int64_t cores = 0;                   // of a host, physical; 0: not known
  uint64_t memory_bytes = 0;           // of a host; 0: not known
  std::vector<std::string> sources;
};

const std::vector<Machine>& machine_table();

// Ignores case and separators. Throws Error with a "did you mean" for an unknown name.
const Machine& find_machine(const std::string& name);

// The machine assumed for a card, if the user names none.
const Machine& usual_machine(const Gpu& gpu);

// A name of the table, or a user's file (a text with a '/', or one that ends in ".json"). Throws Error for an unknown name, and for a file
// that is not a machine: docs/reference/machines.md.
Machine read_machine(const std::string& name_or_file);

// Throws Error if the machine has no such card.
void check_machine_has(const Machine& machine, const Gpu& gpu);

const char* card_link_name(CardLink link);  // as in files: "nvswitch"

}  // namespace gpucast
