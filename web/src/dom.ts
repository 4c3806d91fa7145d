// Makes elements without parsing markup, so that names and paths are always plain text.

type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, string | number | boolean | ((event: never) => void) | undefined>;

export function el<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: (Child | Child[])[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value as EventListener);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element: Element, children: (Child | Child[])[]): void {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
}

export function fill(element: Element, ...children: (Child | Child[])[]): void {
  element.replaceChildren();
  append(element, children);
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found as T;
}

// The reader's own theme at first, and the other one after each click on the button.
export function chooseTheme(redraw: () => void): void {
  const root = document.documentElement;
  root.dataset.theme = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    redraw();
  });
}

// Sets a canvas to the screen's own resolution; returns null before it is laid out.
export function context(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  if (width < 1 || height < 1) return null;
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d")!;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return ctx;
}

// Cuts `text` at its end, or at its beginning, to fit `width`, and marks the cut.
export function fitted(ctx: CanvasRenderingContext2D, text: string, width: number, cut: "end" | "beginning" = "end"): string {
  if (ctx.measureText(text).width <= width) return text;
  const shortened = (length: number): string => (cut === "end" ? `${text.slice(0, length)}…` : `…${text.slice(text.length - length)}`);
  let from = 0, to = text.length;
  while (from < to) {
    const middle = (from + to + 1) >>> 1;
    if (ctx.measureText(shortened(middle)).width <= width) from = middle;
    else to = middle - 1;
  }
  return from > 0 ? shortened(from) : "";
}

// ---- the one tooltip ---------------------------------------------------------------------------------------------------------

export function showTip(x: number, y: number, ...lines: (Child | Child[])[]): void {
  const tip = byId("tip");
  fill(tip, ...lines);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const width = document.documentElement.clientWidth, height = window.innerHeight;
  const left = x + 14 + box.width > width ? Math.max(4, x - box.width - 14) : x + 14;
  const top = y + 14 + box.height > height ? Math.max(4, y - box.height - 14) : y + 14;
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

export function hideTip(): void {
  byId("tip").hidden = true;
}
