// Reports of real captures, opened in headless Chromium.
//
//   GPUCAST_BIN      the command to test
//   GPUCAST_MODULES  a node_modules folder with playwright-core
//   CHROMIUM         the browser, /usr/bin/chromium when unset
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

export const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const gpucast = resolve(process.env.GPUCAST_BIN ?? join(root, "build/release/bin/gpucast"));
const modules = resolve(process.env.GPUCAST_MODULES ?? join(root, "build/web-test/node_modules"));
const { chromium } = createRequire(join(modules, "x.js"))("playwright-core");

export const folder = mkdtempSync(join(tmpdir(), "gpucast-web-"));

// The golden case's input, as gpucast takes it.
export function inputOf(name) {
  const from = join(root, "tests/cases", name);
  for (const [input, to, packed] of [["input.pickle", "pickle", false], ["input.trace.json.gz", "json.gz", false], ["input.jsonl", "gpucast", true]]) {
    if (!existsSync(join(from, input))) continue;
    const path = join(folder, `${name}.${to}`);
    if (packed) writeFileSync(path, gzipSync(readFileSync(join(from, input))));
    else copyFileSync(join(from, input), path);
    return path;
  }
  throw new Error(`no input in ${from}`);
}

// Options that the case itself gives ("--gpu rtx3060").
export function optionsOf(name) {
  const command = readFileSync(join(root, "tests/cases", name, "command"), "utf8").trim().split(/\s+/);
  return command.slice(2);
}

export function analyze(input, options = []) {
  const done = spawnSync(gpucast, ["analyze", input, "--format", "json", ...options], { encoding: "utf8", maxBuffer: 1 << 28 });
  assert.ok(done.status === 0 || done.status === 1, done.stderr);
  return JSON.parse(done.stdout);
}

export function stepTime(input, options = []) {
  return JSON.parse(execFileSync(gpucast, ["time", input, "--format", "json", ...options], { encoding: "utf8", maxBuffer: 1 << 28 }));
}

export function exportHtml(input, options = []) {
  const output = `${input}.html`;
  execFileSync(gpucast, ["export", input, "--to", "html", "-o", output, "--force", ...options], { stdio: ["ignore", "ignore", "pipe"] });
  return output;
}

// `gpucast time --html` of the captures of a job, and the same as JSON.
export function jobHtml(inputs, options = []) {
  const file = `${inputs[0]}.job.html`;
  const json = execFileSync(gpucast, ["time", ...inputs, "--html", file, "--force", "--format", "json", ...options], { encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "pipe"] });
  return { file, json: JSON.parse(json) };
}

let browser;
export async function launch() {
  browser ??= await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  return browser;
}

export async function close() {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
}

// Opens a report. Whatever the page says on the console, or asks of the network, ends up in `problems`.
export async function open(file, { width = 1440, height = 900, dark = false, touch = false } = {}) {
  const context = await (await launch()).newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", hasTouch: touch, isMobile: touch });
  const page = await context.newPage();
  const url = pathToFileURL(file).href;
  const problems = [];
  page.on("console", (message) => problems.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => problems.push(error.stack ?? String(error)));
  page.on("request", (request) => {
    if (request.url() !== url && !request.url().startsWith("data:")) problems.push(`request: ${request.url()}`);
  });
  await page.goto(url);
  await page.waitForSelector("html[data-ready]", { timeout: 60000 });
  return { page, problems, done: () => context.close() };
}

// The views draw in the next frame; this waits for it.
export const settle = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
export const bytesOf = (page, selector) => page.locator(selector).evaluateAll((found) => found.map((element) => Number(element.dataset.bytes)));
