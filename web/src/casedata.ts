// The rows of `gpucast sweep` (python/api/gpucast/sweep/page.py) and of `gpucast fit` (src/search/fit_report.cc), and questions that the page has.
import { byId } from "./dom";

export type Value = string | number | boolean | null | (string | number | boolean)[];
export interface Row {
  case: string;
  values: Record<string, Value>;
  gpu: string;
  status: "fits" | "tight" | "does_not_fit" | "failed";
  run: string;
  capacity_bytes?: number;
  peak_reserved_bytes?: number;
  device_expected_bytes?: number;
  step_ns?: number;
  samples_per_s?: number;
  error?: string;
  capture?: string;
}
interface Sweep {
  title: string;
  names: string[];
  gpus: string[];
  rows: Row[];
  to_scale?: boolean; // the values of the argument are numbers, and their axis is to scale
}

export const sweep = JSON.parse(byId("cases").textContent ?? "{}") as Sweep;
export const kStatuses = ["fits", "tight", "does_not_fit", "failed"] as const;
export const words = (status: string): string => status.replaceAll("_", " ");
export const fits = (row: Row): boolean => row.status === "fits" || row.status === "tight";

export function text(value: Value | undefined): string {
  return value === undefined ? "" : value === null ? "none" : Array.isArray(value) ? value.join(" ") : String(value);
}
export const valueOf = (row: Row, name: string): string => text(row.values[name]);

// The values of an argument in these rows: numbers by size, others as they come.
export function valuesOf(rows: Row[], name: string): string[] {
  const values = [...new Set(rows.map((row) => valueOf(row, name)))];
  return values.every((value) => value !== "" && Number.isFinite(Number(value))) ? values.sort((a, b) => Number(a) - Number(b)) : values;
}

export const varying = sweep.names.filter((name) => valuesOf(sweep.rows, name).length > 1);
export const timed = sweep.rows.some((row) => row.samples_per_s);
// Higher is better: samples a second; where they are not known, steps a second.
export const speed = (row: Row): number | undefined => (timed ? row.samples_per_s : row.step_ns && 1e9 / row.step_ns);
export const speedText = (value: number): string => `${value >= 1000 ? Math.round(value).toLocaleString("en-US") : +value.toPrecision(3)}`;
export const speedName = timed ? "Samples a second" : "Steps a second";

export function fastest(rows: Row[]): Row[] {
  return rows.filter((row) => fits(row) && speed(row) !== undefined).sort((a, b) => speed(b)! - speed(a)!);
}

// Rows that differ in `name` alone, each at the place of its value.
export function linesAlong(rows: Row[], name: string, values: string[]): (Row | undefined)[][] {
  const lines = new Map<string, (Row | undefined)[]>();
  const place = new Map(values.map((value, i) => [value, i]));
  const others = sweep.names.filter((other) => other !== name);
  for (const row of rows) {
    const key = JSON.stringify(others.map((other) => row.values[other] ?? null));
    let line = lines.get(key);
    if (!line) lines.set(key, (line = new Array<Row | undefined>(values.length)));
    line[place.get(valueOf(row, name))!] = row;
  }
  return [...lines.values()];
}

// Of rows that fit: those that no other beats in both memory and speed, by memory.
export function front(rows: Row[]): Row[] {
  const out: Row[] = [];
  const sorted = rows.filter((row) => fits(row) && speed(row) !== undefined).sort((a, b) => a.device_expected_bytes! - b.device_expected_bytes! || speed(b)! - speed(a)!);
  for (const row of sorted) if (out.length === 0 || speed(row)! > speed(out[out.length - 1]!)!) out.push(row);
  return out;
}
