// A time axis that zooms, and lanes of slices on it. Their owner draws.

import { context, hideTip } from "./dom";
import * as format from "./format";
import { css } from "./palette";
import { upperBound } from "./timeline";

const kLeast = 100; // nanoseconds that a view shows

export class TimeView {
  view: [number, number] = [0, 1];
  width = 0;
  dragged: [number, number] | null = null; // pixels

  constructor(
    readonly canvas: HTMLCanvasElement,
    readonly whole: [number, number],
    readonly left: number,
    readonly right: number,
    readonly redraw: () => void,
  ) {
    this.view = whole;
  }

  inner(): number {
    return Math.max(1, this.width - this.left - this.right);
  }
  xOf(ns: number): number {
    return this.left + ((ns - this.view[0]) / (this.view[1] - this.view[0])) * this.inner();
  }
  timeAt(x: number): number {
    return this.view[0] + ((x - this.left) / this.inner()) * (this.view[1] - this.view[0]);
  }

  // The canvas at the width of its box.
  context(height: (width: number) => number): CanvasRenderingContext2D | null {
    this.width = Math.floor(this.canvas.parentElement!.clientWidth);
    return context(this.canvas, this.width, height(this.width));
  }

  show(from: number, to: number): void {
    const all = this.whole[1] - this.whole[0], length = Math.max(Math.min(all, kLeast), Math.min(all, to - from));
    const begin = Math.max(this.whole[0], Math.min(this.whole[1] - length, from));
    this.view = [begin, begin + length];
    this.redraw();
  }
  zoom(factor: number, center: number = (this.view[0] + this.view[1]) / 2): void {
    this.show(center - (center - this.view[0]) * factor, center + (this.view[1] - center) * factor);
  }
  showWhole(): void {
    this.show(...this.whole);
  }

  drawAxis(ctx: CanvasRenderingContext2D, y: number, zero: number): void {
    ctx.font = `11px ${css("--font")}`;
    ctx.fillStyle = css("--muted");
    ctx.textBaseline = "top";
    ctx.textAlign = "center";
    for (const tick of format.timeTicks(this.view[0] - zero, this.view[1] - zero, this.inner() / 90)) {
      const x = this.xOf(tick + zero), text = format.timeTick(tick), half = ctx.measureText(text).width / 2;
      ctx.fillRect(Math.round(x), y, 1, 4);
      ctx.fillText(text, Math.min(Math.max(x, this.left - 20 + half), this.width - half), y + 6);
    }
  }
  drawDragged(ctx: CanvasRenderingContext2D, top: number, bottom: number): void {
    if (!this.dragged) return;
    ctx.fillStyle = css("--life");
    ctx.fillRect(Math.min(...this.dragged), top, Math.abs(this.dragged[1] - this.dragged[0]), bottom - top);
  }

  // Dragging, the wheel and a new width change the view.
  listen(hover: (event: MouseEvent) => void, click: (event: MouseEvent) => void): void {
    let downAt: number | null = null;
    this.canvas.addEventListener("mousedown", (event) => (downAt = event.offsetX));
    this.canvas.addEventListener("mousemove", (event) => {
      if (downAt !== null && event.buttons === 1 && Math.abs(event.offsetX - downAt) >= 4) {
        this.dragged = [Math.max(this.left, downAt), Math.max(this.left, Math.min(this.width - this.right, event.offsetX))];
        this.redraw();
      }
      hover(event);
    });
    this.canvas.addEventListener("mouseleave", () => {
      hideTip();
      downAt = null;
      if (!this.dragged) return;
      this.dragged = null;
      this.redraw();
    });
    this.canvas.addEventListener("click", (event) => {
      const range = this.dragged;
      this.dragged = downAt = null;
      if (range) this.show(this.timeAt(Math.min(...range)), this.timeAt(Math.max(...range)));
      else click(event);
    });
    this.canvas.addEventListener("wheel", (event) => this.turn(event), { passive: false });
    new ResizeObserver(() => {
      if (Math.floor(this.canvas.parentElement!.clientWidth) !== this.width) this.redraw();
    }).observe(this.canvas.parentElement!);
  }
  private turn(event: WheelEvent): void {
    const along = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (event.ctrlKey || event.metaKey) {
      this.zoom(Math.exp(event.deltaY * 0.004), this.timeAt(event.offsetX));
    } else if (along) {
      const shift = ((event.deltaX || event.deltaY) / this.inner()) * (this.view[1] - this.view[0]);
      this.show(this.view[0] + shift, this.view[1] + shift);
    } else {
      return;
    }
    event.preventDefault();
  }
}

// Slices of one stream: they do not overlap.
export interface Lane {
  slices: Uint32Array; // by start
  starts: Float64Array;
}

export function laneOf(slices: Uint32Array, start: ArrayLike<number>): Lane {
  const ordered = slices.slice().sort((a, b) => start[a]! - start[b]! || a - b);
  return { slices: ordered, starts: Float64Array.from(ordered, (i) => start[i]!) };
}

// Calls `draw` for each slice in view that is a pixel wide or wider, and `drawNarrow` for the longest of those that share a pixel.
export function drawLane(time: TimeView, lane: Lane, end: (i: number) => number, draw: (i: number, x0: number, x1: number) => void, drawNarrow: (i: number, x: number) => void): void {
  const { slices, starts } = lane, left = time.left, right = time.left + time.inner();
  let pixel = -1, longest = -1, length = 0;
  const flush = (): void => {
    if (longest >= 0) drawNarrow(longest, pixel);
    longest = -1;
  };
  for (let k = Math.max(0, upperBound(starts, time.view[0]) - 1); k < slices.length && starts[k]! <= time.view[1]; ++k) {
    const i = slices[k]!, x0 = Math.max(left, time.xOf(starts[k]!)), x1 = Math.min(right, time.xOf(end(i)));
    if (x1 < left || x0 >= right) continue;
    if (x1 - x0 >= 1) {
      flush();
      draw(i, x0, x1);
      continue;
    }
    const at = Math.floor(x0), duration = end(i) - starts[k]!;
    if (at !== pixel) flush();
    if (longest < 0 || duration > length) [longest, length] = [i, duration];
    pixel = at;
  }
  flush();
}

// The slice at this time, or one at most three pixels away. -1: none.
export function sliceAt(time: TimeView, lane: Lane, ns: number, end: (i: number) => number): number {
  const k = upperBound(lane.starts, ns), before = lane.slices[k - 1], after = lane.slices[k];
  if (before !== undefined && ns <= end(before)) return before;
  const gapBefore = before === undefined ? Infinity : ns - end(before), gapAfter = after === undefined ? Infinity : lane.starts[k]! - ns;
  if (Math.min(gapBefore, gapAfter) > (3 * (time.view[1] - time.view[0])) / time.inner()) return -1;
  return gapBefore <= gapAfter ? before! : after!;
}
