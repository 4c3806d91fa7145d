// The page of a job's step, end to end: `gpucast time --html` of a pipeline of two stages, opened in headless Chromium.
//
//   make test-web
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { close, inputOf, jobHtml, open, settle } from "./harness.mjs";

after(close);

const stages = ["time_job", "time_job_one_stage"].map(inputOf);
const { file, json } = jobHtml(stages, ["--gpu", "a100-80", "--cpu-speed", "100"]);
const near = (a, b, what) => assert.ok(Math.abs(a - b) <= 1e-6 * Math.max(Math.abs(a), Math.abs(b), 1), `${what}: ${a}, ${b}`);
const slicesOf = (page) => page.evaluate(() => ({ ...window.gpucast.job.slices, texts: window.gpucast.job.texts, critical: Array.from(window.gpucast.job.slices.critical) }));

test("the page is one file, and its tables have the report's figures", async () => {
  const html = readFileSync(file, "utf8"), markup = html.slice(0, html.indexOf("<script"));
  assert.equal(/(?:src|href)="(?!#|data:)/.test(markup), false);
  assert.match(markup, /Content-Security-Policy" content="default-src 'none'/);
  const { page, problems, done } = await open(file);
  const rows = await page.locator("#parts tbody tr").evaluateAll((found) => found.map((row) => [...row.querySelectorAll("[data-ns]")].map((cell) => Number(cell.dataset.ns))));
  assert.equal(rows.length, json.ranks.length);
  json.ranks.forEach((rank, i) => {
    const parts = [rank.compute_ns, rank.communication.exposed_ns, rank.bubble_ns, rank.idle_ns, rank.communication.hidden_ns];
    assert.deepEqual(rows[i], parts);
    near(parts.slice(0, 4).reduce((a, b) => a + b), rank.step_ns, "the parts of a step");
  });
  const path = await page.locator("#path tbody tr:last-child [data-ns]").evaluateAll((found) => found.map((cell) => Number(cell.dataset.ns)));
  near(path.at(-1), json.job.step.expected_ns, "the critical path");
  assert.equal(await page.locator("#communication tbody tr").count(), json.ranks.flatMap((rank) => rank.by_communication).length);
  assert.deepEqual(problems, []);
  await done();
});

test("slices lie in the step, wait before they move, and messages arrive after they are sent", async () => {
  const { page, problems, done } = await open(file);
  const wrong = await page.evaluate(() => {
    const { slices, messages, texts, played } = window.gpucast.job, out = [];
    for (let i = 0; i < slices.count; ++i) {
      if (!(slices.start[i] <= slices.moves[i] && slices.moves[i] <= slices.end[i] + 1e-6 && slices.end[i] <= played + 1)) out.push(`slice ${i}`);
      if (slices.launched[i] > slices.start[i]) out.push(`slice ${i} is launched late`);
      if (slices.waitsFor[i] >= 0 && slices.moves[i] === slices.start[i]) out.push(`slice ${i} waits for no time`);
      if ((texts[slices.kind[i]] === "collective") !== (texts[slices.purpose[i]] !== "")) out.push(`slice ${i} has no purpose`);
    }
    for (let m = 0; m < messages.from.length; ++m) if (slices.end[messages.to[m]] < slices.start[messages.from[m]]) out.push(`message ${m}`);
    return messages.from.length === 2 ? out : [...out, `${messages.from.length} messages`];
  });
  assert.deepEqual(wrong, []);
  assert.deepEqual(problems, []);
  await done();
});

test("a slice is clicked, kept and left; the lanes zoom", async () => {
  const { page, problems, done } = await open(file);
  const { start, end, texts, purpose, count } = await slicesOf(page);
  const waiting = Array.from({ length: count }, (_, i) => i).filter((i) => texts[purpose[i]] === "pipeline").sort((a, b) => end[b] - start[b] - (end[a] - start[a]))[0];
  const { x, y } = await page.evaluate((i) => {
    document.getElementById("time").scrollIntoView({ block: "center" });
    return window.gpucast.sliceCenter(i);
  }, waiting);
  await page.mouse.move(x, y);
  await settle(page);
  assert.match(await page.locator("#tip").innerText(), /pipeline: messages of/);
  await page.mouse.click(x, y);
  await settle(page);
  assert.equal(await page.locator("#slice").getAttribute("data-slice"), String(waiting));
  assert.match(await page.locator("#slice").innerText(), /waits for rank \d/);
  await page.keyboard.press("ArrowUp");
  await settle(page);
  assert.notEqual(await page.locator("#slice").getAttribute("data-slice"), String(waiting));
  await page.keyboard.press("Escape");
  await settle(page);
  assert.equal(await page.locator("#slice").getAttribute("data-slice"), "-1");
  const center = () => page.evaluate((i) => window.gpucast.sliceCenter(i).x, waiting);
  const before = await center();
  await page.getByRole("button", { name: "Zoom in" }).click();
  await settle(page);
  assert.notEqual(await center(), before);
  await page.getByRole("button", { name: "Whole step" }).click();
  await settle(page);
  assert.equal(await center(), before);
  assert.deepEqual(problems, []);
  await done();
});

for (const options of [{ width: 390, height: 844, touch: true, dark: true }, { width: 1440, height: 900, dark: true }]) {
  test(`it fits a screen of ${options.width} pixels, in the dark`, async () => {
    const { page, problems, done } = await open(file, options);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), true);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    assert.deepEqual(problems, []);
    await done();
  });
}
