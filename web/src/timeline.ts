// Finds the memory at any position fast, with sums at all positions and category sums every kStride positions. The highest and lowest
// positions of each range of kStride make it possible to draw a million events in a thousand columns.

import type { Report } from "./data";

const kStride = 256;

export interface Timeline {
  allocated: Float64Array; // at each position
  reserved: Float64Array;
  categories: number;
  checkpoints: Float64Array; // bytes by category at position k * kStride
  byDeath: Uint32Array; // blocks in order of death
  highest: Uint32Array; // of each range of kStride positions, where allocated is highest and lowest
  lowest: Uint32Array;
}

// The first index whose value is above `limit`, in an ascending list.
export function upperBound(values: ArrayLike<number>, limit: number, from = 0, to = values.length): number {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (values[middle]! <= limit) from = middle + 1;
    else to = middle;
  }
  return from;
}

function running(deltas: Float64Array): Float64Array {
  let sum = 0;
  for (let i = 0; i < deltas.length; ++i) deltas[i] = sum += deltas[i]!;
  return deltas;
}

export function buildTimeline(report: Report): Timeline {
  const { block, kind, segment, events } = report;
  const positions = events + 1;
  // One more element, for blocks that are never freed.
  const allocated = new Float64Array(positions + 1), reserved = new Float64Array(positions + 1);
  const deaths = new Uint32Array(positions + 2);
  for (let i = 0; i < block.count; ++i) {
    const size = kind.size[block.kind[i]!]!;
    allocated[block.birth[i]!]! += size;
    allocated[block.death[i]!]! -= size;
    ++deaths[block.death[i]! + 1]!;
  }
  for (let i = 0; i < segment.count; ++i) {
    reserved[segment.birth[i]!]! += segment.size[i]!;
    reserved[segment.death[i]!]! -= segment.size[i]!;
  }
  running(allocated);
  running(reserved);
  for (let i = 1; i < deaths.length; ++i) deaths[i]! += deaths[i - 1]!;
  const byDeath = new Uint32Array(block.count);
  for (let i = 0; i < block.count; ++i) byDeath[deaths[block.death[i]!]!++] = i;

  const stretches = Math.ceil(positions / kStride);
  const categories = report.categories.length;
  const checkpoints = new Float64Array(stretches * categories);
  const highest = new Uint32Array(stretches), lowest = new Uint32Array(stretches);
  const now = new Float64Array(categories);
  let born = 0, dead = 0;
  for (let stretch = 0; stretch < stretches; ++stretch) {
    const begin = stretch * kStride;
    while (born < block.count && block.birth[born]! <= begin) {
      const k = block.kind[born++]!;
      now[kind.category[k]!]! += kind.size[k]!;
    }
    while (dead < block.count && block.death[byDeath[dead]!]! <= begin) {
      const k = block.kind[byDeath[dead++]!]!;
      now[kind.category[k]!]! -= kind.size[k]!;
    }
    checkpoints.set(now, stretch * categories);
    let high = begin, low = begin;
    for (let p = begin + 1; p < Math.min(begin + kStride, positions); ++p) {
      if (allocated[p]! > allocated[high]!) high = p;
      if (allocated[p]! < allocated[low]!) low = p;
    }
    highest[stretch] = high;
    lowest[stretch] = low;
  }
  return { allocated, reserved, categories, checkpoints, byDeath, highest, lowest };
}

// Bytes by category at a position; they add up to timeline.allocated[position].
export function categoriesAt(report: Report, timeline: Timeline, position: number): Float64Array {
  const { block, kind } = report;
  const stretch = Math.floor(position / kStride), begin = stretch * kStride;
  const bytes = timeline.checkpoints.slice(stretch * timeline.categories, (stretch + 1) * timeline.categories);
  for (let i = upperBound(block.birth, begin); i < block.count && block.birth[i]! <= position; ++i) {
    const k = block.kind[i]!;
    bytes[kind.category[k]!]! += kind.size[k]!;
  }
  const { byDeath } = timeline;
  let from = 0, to = byDeath.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (block.death[byDeath[middle]!]! <= begin) from = middle + 1;
    else to = middle;
  }
  for (let i = from; i < byDeath.length && block.death[byDeath[i]!]! <= position; ++i) {
    const k = block.kind[byDeath[i]!]!;
    bytes[kind.category[k]!]! -= kind.size[k]!;
  }
  return bytes;
}

// Columns of a drawing for a range of positions. Each column has the value of its highest moment.
export interface Sample {
  begins: number[]; // first position of each column, ascending
  positions: number[]; // where allocated is highest in it
  lows: number[]; // the lowest allocated bytes in it
  everything: boolean; // a column for every position
}

// Columns that begin at `begins`; the last one ends with position `to`.
export function sampleAt(timeline: Timeline, begins: number[], to: number): Sample {
  const { allocated, highest, lowest } = timeline;
  const positions: number[] = [], lows: number[] = [];
  begins.forEach((begin, column) => {
    const end = begins[column + 1] ?? to + 1;
    let high = begin, low = begin;
    for (let p = begin; p < end; ) {
      // A whole range of kStride at once, if one begins here and ends in this column.
      let highHere = p, lowHere = p, next = p + 1;
      if (p % kStride === 0 && p + kStride <= end) {
        highHere = highest[p / kStride]!;
        lowHere = lowest[p / kStride]!;
        next = p + kStride;
      }
      if (allocated[highHere]! > allocated[high]!) high = highHere;
      if (allocated[lowHere]! < allocated[low]!) low = lowHere;
      p = next;
    }
    positions.push(high);
    lows.push(allocated[low]!);
  });
  return { begins, positions, lows, everything: begins.length === to - begins[0]! + 1 };
}

// At most `columns` columns of [from, to], equally wide.
export function sample(timeline: Timeline, from: number, to: number, columns: number): Sample {
  const count = to - from + 1, most = Math.min(count, columns);
  return sampleAt(timeline, Array.from({ length: most }, (_, i) => from + Math.floor((count * i) / most)), to);
}

// Blocks that exist at `position`, by address.
export function aliveAt(report: Report, position: number): Uint32Array {
  const { birth, death, address } = report.block;
  const end = upperBound(birth, position);
  const alive: number[] = [];
  for (let i = 0; i < end; ++i) {
    if (death[i]! > position) alive.push(i);
  }
  return Uint32Array.from(alive.sort((a, b) => address[a]! - address[b]!));
}

// Freed, but another stream may still use them: their memory is not free yet.
export function waitingAt(report: Report, position: number): number[] {
  const { birth, death, released } = report.block;
  const out: number[] = [];
  for (let i = 0, end = upperBound(birth, position); i < end; ++i) {
    if (death[i]! <= position && position < released[i]!) out.push(i);
  }
  return out;
}

// At each position, the bytes of blocks with a kind in `mask`.
export function bytesOf(report: Report, mask: Uint8Array): Float64Array {
  const { block, kind, events } = report;
  const bytes = new Float64Array(events + 2);
  for (let i = 0; i < block.count; ++i) {
    const k = block.kind[i]!;
    if (!mask[k]) continue;
    bytes[block.birth[i]!]! += kind.size[k]!;
    bytes[block.death[i]!]! -= kind.size[k]!;
  }
  return running(bytes);
}

export const spanAt = (report: Report, position: number): number =>
  // The span of the event before the position: position p is after event p-1.
  Math.min(report.span.count - 1, Math.max(0, upperBound(report.span.begin, Math.max(0, position - 1)) - 1));
