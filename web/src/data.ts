// The page's data: the prediction in the format of `gpucast analyze --format json`, and columns of blocks, segments and spans.
//
// src/report/html_export.cc writes the columns.
//
// Positions: position p is after event p-1 and before event p; the last one is `events`. A block or segment exists at p when
// birth <= p < death; `never` (events + 1) is after the last position.

import { unpack } from "./container";

export interface LedgerLine {
  what: string;
  library: string;
  low_bytes: number;
  expected_bytes: number;
  high_bytes: number;
  source: string;
}

export interface Place {
  event: number;
  phase: string;
  step: number;
  module: string;
  stack: string[];
}

export interface TimeRange {
  low_ns: number;
  expected_ns: number;
  high_ns: number;
}

export interface Prediction {
  source: string;
  gpu_time?: TimeRange;
  gpu: { name: string; capacity_bytes: number; full_name: string; chosen: boolean };
  environment: { torch: string; cuda: string; python: string; rank: number; world_size: number };
  command: string[];
  steps: number;
  steps_requested: number;
  end_reason: string;
  verdict: "fits" | "tight" | "grows" | "does_not_fit" | "none";
  verdict_reason: string;
  peak: {
    allocated_bytes: number;
    reserved_bytes: number;
    free_but_reserved_bytes: number;
    allocated_at: Place & { reserved_bytes: number };
    reserved_at: Place & { allocated_bytes: number };
  };
  device: { low_bytes: number; expected_bytes: number; high_bytes: number; request_bytes: number; confidence: number; request_source: string };
  ledger: LedgerLine[];
  min_capacity_bytes: number | null;
  min_capacity_expandable_segments_bytes: number | null;
  categories: { name: string; bytes: number }[];
  oom: (Place & { requested_bytes: number; free_bytes: number; count: number; ended_run: boolean }) | null;
  growth: Growth | null;
  cards: { name: string; capacity_bytes: number; verdict: string; device: { expected_bytes: number } }[];
  counts: { allocator_events: number; kernels: number };
  warnings: { code: string; message: string }[];
}

// Memory that grows from step to step: docs/reference/report-json.md.
export interface Growth {
  kind: "allocated" | "reserved";
  bytes_per_step: number;
  fills_bytes: number | null;
  holders: { bytes_per_step: number; name: string; what: string; container: string; length: number; kept_at: string[]; made: { line: string | null; module: string }[]; remedy: string }[];
}

// What a step waits for, with the figures of `gpucast time` and the sentences of its text report.
export interface StepTime {
  step: TimeRange;
  bound: "gpu" | "host" | "loader";
  gpu_ns: number;
  host_ns: number;
  bound_words: string;
  interval_words: string;
  loader_words: string[];
  notes: string[];
  // null: the script has no DataLoader, or its speed is unknown.
  loader: {
    workers: number; // the script's own number
    batches: number; // of a step
    fed_ns: number; // time until the loader has delivered them
    wait_share: number; // of the step
    stages: { name: string; ns: number }[]; // for one batch in one process
    choices: { workers: number; batch: TimeRange; step: TimeRange; wait_share: number; bound: string }[];
    advice: string;
  } | null;
}

// Operations of the observed step, in the order in which the program requests them, and when they would run on the card. Times count
// from the step's begin. Texts are indices of `names`.
export interface Work {
  step: number;
  count: number;
  start: Float64Array; // ns
  duration: Float64Array;
  occupancy: Float64Array; // achieved, from 0 to 1; below 0: unknown
  position: Uint32Array; // where the program requested it
  name: Uint32Array;
  kernel: Uint32Array;
  sizes: Uint32Array;
  kind: Uint32Array;
  bound: Uint32Array;
  phase: Uint32Array;
  stream: Uint32Array;
  launches: Uint32Array;
  module: Int32Array;
  names: string[];
  time: StepTime;
}

export interface Report {
  prediction: Prediction;
  events: number;
  never: number;
  explained: boolean; // phases, modules and categories are known
  peak: number;
  peakReserved: number;
  categories: string[];
  phases: string[];
  operators: string[];
  strings: string[];
  block: {
    count: number;
    kind: Uint32Array;
    address: Float64Array;
    birth: Uint32Array; // ascending
    death: Uint32Array;
    released: Uint32Array; // from here on the memory could be reused
    step: Int32Array;
  };
  // Values that many blocks share. Strings, modules, operators, stacks: -1 for none.
  kind: {
    count: number;
    size: Float64Array;
    requested: Float64Array;
    stream: Float64Array;
    category: Uint8Array;
    phase: Uint8Array;
    module: Int32Array;
    operator: Int32Array;
    tensor: Int32Array;
    stack: Int32Array;
  };
  segment: {
    count: number;
    address: Float64Array;
    size: Float64Array;
    stream: Float64Array;
    expandable: Uint8Array;
    birth: Uint32Array;
    death: Uint32Array;
  };
  // Spans of one phase, step and module. A span ends at the next span's `begin`.
  span: { count: number; begin: Uint32Array; phase: Uint8Array; step: Int32Array; module: Int32Array };
  oom: { event: Uint32Array; requested: Float64Array; free: Float64Array };
  module: { count: number; parent: Int32Array; name: Int32Array; type: Int32Array };
  stack: { begin: Uint32Array; frames: Uint32Array }; // frames[begin[s]] to frames[begin[s + 1]], innermost first
  frame: { file: Int32Array; function: Int32Array; line: Int32Array };
  work: Work | null; // null: no step was observed, or the card's speed is unknown
}

// Turns lengths (or differences) into positions.
function sums(values: Uint32Array): Uint32Array {
  let at = 0;
  for (let i = 0; i < values.length; ++i) values[i] = at += values[i]!;
  return values;
}

function begins(lengths: Uint32Array): Uint32Array {
  const out = new Uint32Array(lengths.length + 1);
  for (let i = 0; i < lengths.length; ++i) out[i + 1] = out[i]! + lengths[i]!;
  return out;
}

export async function decode(prediction: Prediction, text: string): Promise<Report> {
  const { meta, column } = await unpack(text);
  const u8 = column<Uint8Array>, u32 = column<Uint32Array>, i32 = column<Int32Array>, f64 = column<Float64Array>;

  const events: number = meta.events;
  const never = events + 1;
  const kind = u32("block.kind");
  const count = kind.length;
  const low = u32("block.address_low"), high = u32("block.address_high"), life = u32("block.life"), wait = u32("block.wait");
  const birth = sums(u32("block.birth"));
  const address = new Float64Array(count), death = new Uint32Array(count), released = new Uint32Array(count);
  for (let i = 0; i < count; ++i) {
    address[i] = high[i]! * 4294967296 + low[i]!;
    death[i] = life[i] === 0xffffffff ? never : birth[i]! + life[i]!;
    released[i] = wait[i] === 0xffffffff ? never : death[i]! + wait[i]!;
  }
  const spanBegin = begins(u32("span.length"));
  return {
    prediction,
    events,
    never,
    explained: meta.explained,
    peak: meta.peak_position,
    peakReserved: meta.peak_reserved_position,
    categories: meta.categories,
    phases: meta.phases,
    operators: meta.operators,
    strings: meta.strings,
    block: { count, kind, address, birth, death, released, step: i32("block.step") },
    kind: {
      count: f64("kind.size").length,
      size: f64("kind.size"),
      requested: f64("kind.requested"),
      stream: f64("kind.stream"),
      category: u8("kind.category"),
      phase: u8("kind.phase"),
      module: i32("kind.module"),
      operator: i32("kind.operator"),
      tensor: i32("kind.tensor"),
      stack: i32("kind.stack"),
    },
    segment: {
      count: f64("segment.address").length,
      address: f64("segment.address"),
      size: f64("segment.size"),
      stream: f64("segment.stream"),
      expandable: u8("segment.expandable"),
      birth: u32("segment.birth"),
      death: u32("segment.death"),
    },
    span: { count: spanBegin.length - 1, begin: spanBegin, phase: u8("span.phase"), step: i32("span.step"), module: i32("span.module") },
    oom: { event: u32("oom.event"), requested: f64("oom.requested"), free: f64("oom.free") },
    module: { count: i32("module.parent").length, parent: i32("module.parent"), name: i32("module.name"), type: i32("module.type") },
    stack: { begin: begins(u32("stack.frame_count")), frames: u32("stack.frames") },
    frame: { file: i32("frame.file"), function: i32("frame.function"), line: i32("frame.line") },
    work: !meta.step
      ? null
      : {
          step: meta.step.number,
          count: f64("work.start").length,
          start: f64("work.start"),
          duration: f64("work.duration"),
          occupancy: f64("work.occupancy"),
          position: u32("work.position"),
          name: u32("work.name"),
          kernel: u32("work.kernel"),
          sizes: u32("work.sizes"),
          kind: u32("work.kind"),
          bound: u32("work.bound"),
          phase: u32("work.phase"),
          stream: u32("work.stream"),
          launches: u32("work.launches"),
          module: i32("work.module"),
          names: meta.step.names,
          time: meta.step.time,
        },
  };
}

// ---- names -----------------------------------------------------------------------------------------------------------------

export const text = (report: Report, index: number): string => (index < 0 ? "" : report.strings[index] ?? "");

// "layer1.0.conv1 (Conv2d)", of the root "ResNet"
export function moduleLabel(report: Report, module: number): string {
  if (module < 0) return "";
  const name = text(report, report.module.name[module]!), type = text(report, report.module.type[module]!);
  if (!name) return type || "the model";
  return type ? `${name} (${type})` : name;
}

export interface FrameText {
  file: string;
  line: number;
  name: string;
  library: boolean; // not the user's own code
}

const isLibrary = (file: string): boolean =>
  file.startsWith("torch/") || /\/torch\/|site-packages|<frozen|gpucast\/profile|\.(c|cc|cpp|cxx|h|hpp|cu|cuh|o|S|so|rs)$/.test(file) || file === "??" || file === "";

export function frameText(report: Report, frame: number): FrameText {
  const file = text(report, report.frame.file[frame]!);
  return { file, line: report.frame.line[frame]!, name: text(report, report.frame.function[frame]!), library: isLibrary(file) };
}

export function stackOf(report: Report, stack: number): FrameText[] {
  if (stack < 0) return [];
  const out: FrameText[] = [];
  for (let i = report.stack.begin[stack]!; i < report.stack.begin[stack + 1]!; ++i) out.push(frameText(report, report.stack.frames[i]!));
  return out;
}

// The innermost line of the user's own code: "train.py:31 forward".
export function userFrame(report: Report, stack: number): string {
  const frames = stackOf(report, stack);
  const own = frames.find((frame) => !frame.library) ?? frames[0];
  return own ? `${baseName(own.file)}:${own.line} ${own.name}` : "";
}

export const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1);
