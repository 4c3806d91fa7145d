// Formats amounts in the same way as the text report: MiB and GiB, never GB.

const kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

export function bytes(value: number): string {
  const size = Math.abs(value);
  if (size < kKiB) return `${value} B`;
  if (size < kMiB) return `${(value / kKiB).toFixed(1)} KiB`;
  if (size < kGiB) return `${(value / kMiB).toFixed(1)} MiB`;
  return `${(value / kGiB).toFixed(2)} GiB`;
}

// For columns of numbers that a reader adds up.
export const mib = (value: number): string => `${(value / kMiB).toFixed(2)} MiB`;
export const exact = (value: number): string => `${whole(value)} bytes`;
export const whole = (value: number): string => value.toLocaleString("en-US");
export const percent = (part: number, all: number): string => (all > 0 ? `${((100 * part) / all).toFixed(1)} %` : "");
export const address = (value: number): string => `0x${value.toString(16)}`;
export const words = (name: string): string => name.replaceAll("_", " ");

// "7.05 ms": three figures, as in the text report.
const kUnits: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
const unitOf = (ns: number): [number, string] => kUnits.find(([unit]) => ns >= unit) ?? kUnits[2]!;
const figures = (value: number): string => value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
export function time(ns: number): string {
  const [unit, name] = unitOf(Math.abs(ns));
  return `${figures(ns / unit)} ${name}`;
}
// "5.99 to 8.45", in the unit of `like`.
export function timeRange(low: number, high: number, like: number): string {
  const [unit] = unitOf(like);
  return `${figures(low / unit)} to ${figures(high / unit)}`;
}

// Ticks of a time axis, at distances of 1, 2 or 5 times a power of ten.
export function timeTicks(from: number, to: number, most: number): number[] {
  const least = Math.max((to - from) / Math.max(1, most), 1e-3);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= least * 0.999)!;
  const ticks = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to; ++at) ticks.push(at * step);
  return ticks;
}
export function timeTick(ns: number): string {
  const [unit, name] = unitOf(Math.abs(ns));
  return ns === 0 ? "0" : `${+(ns / unit).toFixed(3)} ${name}`;
}

// Ticks of an axis of bytes, at distances of 1, 2, 4, ... 512 of a unit.
export function byteTicks(max: number, most: number): number[] {
  let step = 512;
  while (max / step > most) step *= 2;
  const ticks = [];
  for (let at = 0; at <= max; at += step) ticks.push(at);
  return ticks;
}

export function tick(value: number): string {
  if (value === 0) return "0";
  for (const [unit, name] of [[kGiB, "GiB"], [kMiB, "MiB"], [kKiB, "KiB"]] as const) {
    if (value >= unit) return `${+(value / unit).toFixed(2)} ${name}`;
  }
  return `${value} B`;
}
