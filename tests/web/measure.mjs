// Opens one report and prints how long things take, as JSON: bench/reports.py reads it.
import { readFileSync } from "node:fs";
import { close, open } from "./harness.mjs";

const file = process.argv[2];
const html = readFileSync(file, "utf8");
const data = html.indexOf('<script id="data"');
const { page, problems, done } = await open(file);
const measured = await page.evaluate(() => {
  const { report, model, get, set, flush } = window.gpucast;
  const median = (times) => times.sort((a, b) => a - b)[times.length >> 1];
  const time = (count, action) => {
    const times = [];
    for (let i = 0; i < count; ++i) {
      const begin = performance.now();
      action(i);
      flush();
      times.push(performance.now() - begin);
    }
    return median(times);
  };
  const { events } = report;
  let allocated = 0, reserved = 0;
  for (let p = 0; p <= events; ++p) {
    allocated = Math.max(allocated, model.timeline.allocated[p]);
    reserved = Math.max(reserved, model.timeline.reserved[p]);
  }
  return {
    events,
    blocks: report.block.count,
    allocated,
    reserved,
    ready_ms: performance.getEntriesByName("gpucast-ready")[0].startTime,
    zoom_ms: time(11, (i) => model.setView((events * i) / 40, events - (events * i) / 40)),
    moment_ms: time(11, (i) => model.goTo((events * (i + 1)) / 13)),
    filter_ms: time(7, (i) => set({ search: ["conv", "weight", "relu", "layer1", "bn", "forward", "backward"][i] })),
    position: get().position,
  };
});
await done();
await close();
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(2);
}
const prediction = /<script id="prediction"[^>]*>([^<]*)</.exec(html)[1];
const end = html.indexOf("</script>", data);
console.log(JSON.stringify({ ...measured, page_bytes: html.length - (end - data) - prediction.length }));
