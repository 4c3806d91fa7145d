// Colours of categories, from Paul Tol's "muted" scheme (made for colour-blind readers). Each also has a pattern.

import { el } from "./dom";

type Pattern = "solid" | "rising" | "falling" | "dots" | "lines" | "bars" | "grid";
interface Style {
  light: string;
  dark: string;
  pattern: Pattern;
}

const kStyles: Record<string, Style> = {
  parameters: { light: "#3b3a9c", dark: "#7f86ea", pattern: "solid" },
  buffers: { light: "#aa4499", dark: "#cf74c2", pattern: "grid" },
  optimizer_state: { light: "#117733", dark: "#3f9f63", pattern: "solid" },
  gradients: { light: "#cc6677", dark: "#dc7f8e", pattern: "rising" },
  parameter_copies: { light: "#77bb66", dark: "#8fce7f", pattern: "bars" },
  activations: { light: "#7cc0e8", dark: "#6db4de", pattern: "solid" },
  intermediate_gradients: { light: "#882255", dark: "#b8558a", pattern: "falling" },
  inputs: { light: "#8f8f2c", dark: "#b5b45a", pattern: "dots" },
  temporaries: { light: "#e0cb74", dark: "#d9c56f", pattern: "solid" },
  workspaces: { light: "#44aa99", dark: "#4fb8a7", pattern: "lines" },
  communication: { light: "#dd8844", dark: "#e09a5f", pattern: "dots" },
  unattributed: { light: "#8a929d", dark: "#8b949e", pattern: "solid" },
  // Kinds of the GPU's work.
  gemm: { light: "#3b3a9c", dark: "#7f86ea", pattern: "solid" },
  convolution: { light: "#117733", dark: "#3f9f63", pattern: "solid" },
  attention: { light: "#882255", dark: "#b8558a", pattern: "falling" },
  normalization: { light: "#7cc0e8", dark: "#6db4de", pattern: "solid" },
  reduction: { light: "#44aa99", dark: "#4fb8a7", pattern: "lines" },
  elementwise: { light: "#e0cb74", dark: "#d9c56f", pattern: "solid" },
  indexing: { light: "#8f8f2c", dark: "#b5b45a", pattern: "dots" },
  copy: { light: "#cc6677", dark: "#dc7f8e", pattern: "rising" },
  memset: { light: "#8a929d", dark: "#8b949e", pattern: "grid" },
  optimizer: { light: "#aa4499", dark: "#cf74c2", pattern: "grid" },
  collective: { light: "#cc6677", dark: "#dc7f8e", pattern: "bars" },
  recurrent: { light: "#3b3a9c", dark: "#7f86ea", pattern: "bars" },
  unknown: { light: "#8a929d", dark: "#8b949e", pattern: "solid" },
  // Stages of a batch.
  decode: { light: "#117733", dark: "#3f9f63", pattern: "solid" },
  transform: { light: "#e0cb74", dark: "#d9c56f", pattern: "solid" },
  tokenise: { light: "#882255", dark: "#b8558a", pattern: "falling" },
  collate: { light: "#44aa99", dark: "#4fb8a7", pattern: "lines" },
  dataset: { light: "#8f8f2c", dark: "#b5b45a", pattern: "dots" },
  // A job's ranks: kernels in grey, so that communication stands out; the parts of a step.
  products: { light: "#7d8796", dark: "#76818f", pattern: "solid" },
  other_kernels: { light: "#b7bfca", dark: "#4c5663", pattern: "solid" },
  data: { light: "#117733", dark: "#3f9f63", pattern: "solid" },
  tensor: { light: "#dd8844", dark: "#e09a5f", pattern: "rising" },
  pipeline: { light: "#3b3a9c", dark: "#7f86ea", pattern: "solid" },
  expert: { light: "#aa4499", dark: "#cf74c2", pattern: "grid" },
  context: { light: "#44aa99", dark: "#4fb8a7", pattern: "lines" },
  compute: { light: "#7d8796", dark: "#76818f", pattern: "solid" },
  exposed: { light: "#dd8844", dark: "#e09a5f", pattern: "solid" },
  waiting: { light: "#3b3a9c", dark: "#7f86ea", pattern: "falling" },
  host: { light: "#e0cb74", dark: "#d9c56f", pattern: "solid" },
};
const kUnknown = kStyles.unattributed!;

// From the bottom of the curve to its top: permanent memory first, then short-lived memory.
const kOrder = ["parameters", "buffers", "optimizer_state", "parameter_copies", "gradients", "activations", "intermediate_gradients", "inputs", "temporaries", "workspaces", "communication", "unattributed"];
export function stackingOrder(categories: string[]): number[] {
  const place = (name: string): number => (kOrder.indexOf(name) + kOrder.length + 1) % (kOrder.length + 1);
  return categories.map((_, i) => i).sort((a, b) => place(categories[a]!) - place(categories[b]!));
}

export const isDark = (): boolean => document.documentElement.dataset.theme === "dark";
export const color = (category: string): string => (kStyles[category] ?? kUnknown)[isDark() ? "dark" : "light"];

// A colour or font of style.css. Cached, because drawings need thousands.
const variables = new Map<string, string>();
export function css(name: string): string {
  const key = `${name} ${isDark()}`;
  let value = variables.get(key);
  if (value === undefined) variables.set(key, (value = getComputedStyle(document.documentElement).getPropertyValue(name).trim()));
  return value;
}

const kTile = 8; // pixels of the screen

function draw(ctx: CanvasRenderingContext2D, style: Style, ratio: number): void {
  const size = kTile * ratio;
  ctx.fillStyle = isDark() ? style.dark : style.light;
  ctx.fillRect(0, 0, size, size);
  ctx.strokeStyle = ctx.fillStyle = isDark() ? "rgba(0,0,0,.34)" : "rgba(255,255,255,.5)";
  ctx.lineWidth = 1.25 * ratio;
  const line = (x0: number, y0: number, x1: number, y1: number): void => {
    ctx.beginPath();
    ctx.moveTo(x0 * ratio, y0 * ratio);
    ctx.lineTo(x1 * ratio, y1 * ratio);
    ctx.stroke();
  };
  switch (style.pattern) {
    case "rising":
      for (const shift of [-8, 0, 8]) line(shift - 2, 10, shift + 10, -2);
      break;
    case "falling":
      for (const shift of [-8, 0, 8]) line(shift - 2, -2, shift + 10, 10);
      break;
    case "dots":
      ctx.beginPath();
      ctx.arc(4 * ratio, 4 * ratio, 1.5 * ratio, 0, 7);
      ctx.fill();
      break;
    case "lines":
      line(0, 4, 8, 4);
      break;
    case "bars":
      line(4, 0, 4, 8);
      break;
    case "grid":
      line(0, 4, 8, 4);
      line(4, 0, 4, 8);
      break;
    case "solid":
      break;
  }
}

const made = new Map<string, HTMLCanvasElement>();

function tile(category: string): HTMLCanvasElement {
  const ratio = Math.max(1, Math.round(window.devicePixelRatio || 1));
  const key = `${category} ${isDark()} ${ratio}`;
  let canvas = made.get(key);
  if (!canvas) {
    canvas = el("canvas", { width: kTile * ratio, height: kTile * ratio });
    draw(canvas.getContext("2d")!, kStyles[category] ?? kUnknown, ratio);
    made.set(key, canvas);
  }
  return canvas;
}

// A fill style for shapes on a canvas. `scaled`: the context is in CSS pixels.
export function fillOf(ctx: CanvasRenderingContext2D, category: string, scaled = true): CanvasPattern | string {
  if ((kStyles[category] ?? kUnknown).pattern === "solid") return color(category);
  const canvas = tile(category);
  const pattern = ctx.createPattern(canvas, "repeat");
  if (!pattern) return color(category);
  if (scaled) pattern.setTransform(new DOMMatrix().scale(kTile / canvas.width));
  return pattern;
}

export function background(category: string): string {
  if ((kStyles[category] ?? kUnknown).pattern === "solid") return color(category);
  return `url(${tile(category).toDataURL()}) 0 0/${kTile}px ${kTile}px, ${color(category)}`;
}

export function swatch(category: string): HTMLElement {
  const mark = el("i", { class: "swatch", "aria-hidden": "true" });
  if (category === "free") mark.classList.add("free");
  else mark.style.background = background(category);
  return mark;
}

// Black or white, depending on which is easier to read on the category's colour.
export function inkOn(category: string): string {
  const value = parseInt(color(category).slice(1), 16);
  const luminance = 0.299 * (value >> 16) + 0.587 * ((value >> 8) & 255) + 0.114 * (value & 255);
  return luminance > 140 ? "#10141a" : "#ffffff";
}
