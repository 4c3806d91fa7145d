// `gpucast explain` for scripts. Fields are added, not removed: docs/reference/explain.md is the contract.

#include "gpucast/explain.h"
#include "src/report/growth_json.h"
#include "src/report/json_parts.h"
#include "src/report/user_frame.h"

namespace gpucast {
namespace {

Json blocks_json(const AlikeBlocks& blocks) {
  return {{"size_bytes", blocks.size_bytes},
          {"count", blocks.count},
          {"total_bytes", blocks.total_bytes()},
          {"category", blocks.category},
          {"module", blocks.module},
          {"operator", blocks.op},
          {"tensor", blocks.tensor},
          {"user_frame", user_frame(blocks.born)},
          {"before_history", blocks.before_start},
          {"born", place_json(blocks.born)}};
}

Json free_json(const FreeMemory& free) {
  Json out = {{"bytes", free.free_bytes()},   {"reserved_bytes", free.reserved_bytes}, {"allocated_bytes", free.allocated_bytes},
              {"at", place_json(free.place)}, {"whole_segments", free.whole_segments}, {"whole_segments_bytes", free.whole_bytes},
              {"pieces", free.pieces},        {"pieces_bytes", free.piece_bytes}};
  out["segment_sizes"] = list_json(free.sizes, [](const SegmentSize& size) {
    return Json{
        {"segment_bytes", size.segment_bytes}, {"segments", size.segments}, {"pieces", size.pieces}, {"free_bytes", size.free_bytes}};
  });
  out["largest_pieces"] = list_json(free.holes, [](const Hole& hole) {
    return Json{{"bytes", hole.bytes},
                {"segment_bytes", hole.segment_bytes},
                {"blocks", hole.blocks},
                {"largest_block", blocks_json(hole.held_by)}};
  });
  return out;
}

Json remedy_json(const Remedy& remedy) {
  Json out = {{"name", remedy.name},
              {"what", remedy.what},
              {"by", remedy_by_name(remedy.by)},
              {"computed", remedy.computed},
              {"note", remedy.note}};
  if (!remedy.computed) return out;
  out["peak"] = {{"allocated_bytes", remedy.peak_allocated_bytes}, {"reserved_bytes", remedy.peak_reserved_bytes}};
  out["saved"] = {{"allocated_bytes", remedy.saved_allocated_bytes}, {"reserved_bytes", remedy.saved_reserved_bytes}};
  out["verdict"] = verdict_name(remedy.verdict);
  return out;
}

}  // namespace

std::string explain_json(const Explanation& e) {
  const Prediction& p = e.prediction;
  Json out;
  out["schema_version"] = 1;
  out["source"] = p.source;
  out["gpu"] = {{"name", p.gpu_id}, {"capacity_bytes", p.gpu_total_bytes}, {"chosen", p.gpu_chosen}};
  out["command"] = p.command;
  out["what_if"] = list_json(p.what_if, [](const WhatIf& what_if) {
    return Json{{"name", what_if.name}, {"acted", what_if.acted}, {"did", what_if.did}};
  });
  out["verdict"] = verdict_name(p.verdict);
  out["verdict_reason"] = p.verdict_reason;
  out["growth"] = p.growth ? growth_json(*p.growth) : Json();
  out["oom"] = nullptr;
  if (p.oom && e.out_of_memory) {
    out["oom"] = {{"at", place_json(p.oom->place)},
                  {"operator", e.out_of_memory->op},
                  {"requested_bytes", p.oom->requested_bytes},
                  {"free_bytes", p.oom->free_bytes},
                  {"capacity_bytes", e.out_of_memory->capacity_bytes},
                  {"largest_free_piece_bytes", e.out_of_memory->largest_free_block_bytes},
                  {"settings_tried", e.out_of_memory->settings_tried},
                  {"settings_that_get_past", e.out_of_memory->gets_past}};
  }
  out["peak"] = {
      {"allocated_bytes", p.peak_allocated.bytes}, {"reserved_bytes", p.peak_reserved.bytes}, {"at", place_json(p.peak_allocated.place)}};
  out["categories"] = list_json(e.categories, [](const CategoryLine& line) { return Json{{"name", line.name}, {"bytes", line.bytes}}; });
  out["operators"] = list_json(e.operators, [](const OperatorShare& share) {
    return Json{{"operator", share.op}, {"module_type", share.module_type}, {"bytes", share.bytes}};
  });
  out["free_but_reserved"] = free_json(e.free);
  out["largest_blocks"] = list_json(e.blocks, blocks_json);
  out["remedies"] = list_json(e.remedies, remedy_json);
  out["settings_tried"] = e.settings_tried;
  out["baseline"] = e.baseline;
  out["reruns_left"] = e.reruns_left;
  out["warnings"] = list_json(p.warnings, [](const Warning& warning) {
    return Json{{"code", warning.code}, {"message", warning.message}};
  });
  return dump(out);
}

}  // namespace gpucast
