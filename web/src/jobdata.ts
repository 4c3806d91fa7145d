// The data of a job's page: `gpucast time --format json`, and the operations of one rank of each role.

import { unpack } from "./container";

export interface Communication {
  purpose: string;
  kind: string;
  ranks: number;
  nodes: number;
  calls: number;
  bytes: number;
  exposed_ns: number;
  hidden_ns: number;
  bubble_ns: number;
}
export interface Rank {
  rank: number;
  role: number;
  step_ns: number;
  compute_ns: number;
  communication: { exposed_ns: number; hidden_ns: number };
  bubble_ns: number;
  idle_ns: number;
  by_communication: Communication[];
}
export interface Times {
  gpu: string;
  gpu_name: string;
  command: string[];
  step: { low_ns: number; expected_ns: number; high_ns: number };
  samples_per_s: number;
  tokens_per_s: number;
  model_flops_utilisation: number;
  job: { machine: string; ranks: number; nodes: number; replicas: number; busiest_rank: number; critical_path: { rank: number; what: string; ns: number }[]; notes: string[] };
  ranks: Rank[];
}

export interface Slices {
  count: number;
  lane: Uint32Array;
  name: Uint32Array; // in `texts`, as kind, kernel, phase and purpose
  kind: Uint32Array;
  kernel: Uint32Array;
  phase: Uint32Array;
  purpose: Uint32Array; // "" of what is no communication
  stream: Uint32Array;
  critical: Uint8Array;
  waitsFor: Int32Array; // a rank; below 0: none
  launched: Float64Array;
  start: Float64Array;
  moves: Float64Array; // of communication: no other rank is missing from here on
  end: Float64Array;
  bytes: Float64Array;
  nodes: Uint32Array;
}

export interface Job {
  times: Times;
  played: number; // the step's length on the axis, which begins with it
  machine: string;
  bound: string;
  interval: string;
  lanes: Rank[]; // the shown ranks, by role
  texts: string[];
  slices: Slices;
  messages: { from: Uint32Array; to: Uint32Array }; // slices
}

export async function readJob(times: Times, text: string): Promise<Job> {
  const { meta, column } = await unpack(text);
  const u32 = column<Uint32Array>, f64 = column<Float64Array>;
  const lanes = meta.lanes as { captured: number; slices: number }[];
  const count = f64("slice.start").length, lane = new Uint32Array(count);
  let first = 0;
  lanes.forEach(({ slices }, i) => {
    lane.fill(i, first, first + slices);
    first += slices;
  });
  return {
    times,
    played: meta.played_ns,
    machine: meta.machine_name,
    bound: meta.bound_words,
    interval: meta.interval_words,
    lanes: lanes.map(({ captured }) => times.ranks[captured]!),
    texts: meta.texts,
    slices: {
      count,
      lane,
      name: u32("slice.name"),
      kind: u32("slice.kind"),
      kernel: u32("slice.kernel"),
      phase: u32("slice.phase"),
      purpose: u32("slice.purpose"),
      stream: u32("slice.stream"),
      critical: column<Uint8Array>("slice.critical"),
      waitsFor: column<Int32Array>("slice.waits_for"),
      launched: f64("slice.launched"),
      start: f64("slice.start"),
      moves: f64("slice.moves"),
      end: f64("slice.end"),
      bytes: f64("slice.bytes"),
      nodes: u32("slice.nodes"),
    },
    messages: { from: u32("message.from"), to: u32("message.to") },
  };
}

// "ranks 0, 2 to 5".
export function ranksOfRole(times: Times, role: number): string {
  const ranks = times.ranks.filter((one) => one.role === role).map((one) => one.rank);
  const parts: string[] = [];
  for (let i = 0; i < ranks.length; ) {
    let j = i;
    while (ranks[j + 1] === ranks[j]! + 1) ++j;
    parts.push(j - i >= 2 ? `${ranks[i]} to ${ranks[j]}` : ranks.slice(i, j + 1).join(", "));
    i = j + 1;
  }
  return `rank${ranks.length > 1 ? "s" : ""} ${parts.join(", ")}`;
}
