// Amounts as people read them, in the same words as the text report: MiB and GiB, never GB.

const kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

export function bytes(value: number): string {
  const size = Math.abs(value);
  if (size < kKiB) return `${value} B`;
  if (size < kMiB) return `${(value / kKiB).toFixed(1)} KiB`;
  if (size < kGiB) return `${(value / kMiB).toFixed(1)} MiB`;
  return `${(value / kGiB).toFixed(2)} GiB`;
}

// For columns that add up by eye.
export const mib = (value: number): string => `${(value / kMiB).toFixed(2)} MiB`;
export const exact = (value: number): string => `${whole(value)} bytes`;
export const whole = (value: number): string => value.toLocaleString("en-US");
export const percent = (part: number, all: number): string => (all > 0 ? `${((100 * part) / all).toFixed(1)} %` : "");
export const address = (value: number): string => `0x${value.toString(16)}`;
export const words = (name: string): string => name.replaceAll("_", " ");

// Steps of an axis of bytes: 1, 2, 4, ... 512 of a unit.
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
