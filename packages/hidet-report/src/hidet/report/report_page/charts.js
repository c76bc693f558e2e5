"use strict";
// Charts of a page, by uPlot: drawn when they come into sight, again when the window or the colour scheme changes. Each
// can be focused; arrow keys, Home and End go through its points, which are read out below it. Enter, or a click, chooses
// one: what else the page knows of it hears an event "chosen" with its number.

const data = JSON.parse(document.getElementById("data").textContent);
const charts = new Map();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function seconds(value) {
  if (value === 0) return "0";
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["us", 1e-6]]) {
    if (value >= size) return `${+(value / size).toPrecision(3)} ${unit}`;
  }
  return `${+(value * 1e9).toPrecision(3)} ns`;
}

function rate(value) {
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6]]) {
    if (value >= size) return `${+(value / size).toPrecision(3)} ${unit}op/s`;
  }
  return `${+value.toPrecision(3)} op/s`;
}

function axis(label, values, size) {
  return {
    label, size, labelSize: 24, stroke: colour("--text"), font: "12px system-ui, sans-serif",
    labelFont: "12px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") },
    values: (_, splits, __, ___, step) => splits.map((split) => (split == null ? "" : values(split, step))),
  };
}

function decades(low, high) {
  return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high))];
}

function isDecade(value) {
  return Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6;
}

function options(place, height) {
  return { width: place.clientWidth, height, legend: { show: false }, cursor: { y: false, drag: { x: false, y: false } } };
}

function curve(place, task) {
  const times = task.trials.map((trial) => trial.at);
  const measured = task.trials.map((trial) => trial.seconds);
  const bests = task.trials.map((trial) => trial.best);
  // Points of many times the default's time would leave no room for the others.
  const most = 3 * task.default_seconds;
  const chart = new uPlot({
    ...options(place, 260),
    scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.min(high, most) * 1.08] } },
    axes: [axis("seconds of tuning", (value, step) => value.toFixed(Math.max(0, -Math.floor(Math.log10(step)))), 36), axis("time of a call", seconds, 64)],
    series: [
      {},
      { label: "default", stroke: colour("--before"), width: 2, dash: [6, 4], points: { show: false } },
      { label: "measured", paths: () => null, points: { show: true, size: 7, stroke: colour("--bad"), fill: colour("--bad") } },
      { label: "best so far", stroke: colour("--after"), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
    ],
  }, [times, times.map(() => task.default_seconds), measured, bests], place);
  const texts = task.trials.map((trial, number) =>
    `${times[number].toPrecision(3)} s: ${trial.params} ` +
    (trial.seconds == null ? `failed: ${trial.failure}` : `takes ${seconds(trial.seconds)}`) + `; best so far ${seconds(bests[number])}`);
  return { chart, texts };
}

function roofline(place) {
  const points = data.places.slice().sort((one, other) => one.intensity - other.intensity);
  const units = Object.entries(data.roofline ? data.roofline.flops : {});
  const memories = Object.entries(data.roofline ? data.roofline.bandwidths : {});
  const most = Math.max(...units.map(([, flops]) => flops), 0);
  const rates = (point) => data.series.map(([, key]) => point[key]);
  const [low, high] = decades(
    Math.min(...points.map((point) => point.intensity)) / 2,
    Math.max(...points.map((point) => point.intensity), ...memories.map(([, width]) => most / width), 1) * 2);
  const slowest = Math.min(...points.flatMap(rates), ...memories.map(([, width]) => low * width));
  const tasks = new Map(points.map((point) => [point.intensity, point]));
  const xs = [...new Set([low, ...points.map((point) => point.intensity), ...memories.flatMap(([, width]) => units.map(([, flops]) => flops / width)), high])]
    .filter((x) => x >= low && x <= high).sort((one, other) => one - other);
  const series = [{}], columns = [xs];
  for (const [name, width] of memories) {
    series.push({ label: name, stroke: colour("--before"), width: 1, points: { show: false } });
    columns.push(xs.map((x) => (x * width <= most * 1.0001 ? x * width : null)));
  }
  for (const [name, flops] of units) {
    const start = memories.length ? flops / Math.max(...memories.map(([, width]) => width)) : low;
    series.push({ label: name, stroke: colour("--before"), width: 1, dash: [6, 4], points: { show: false } });
    columns.push(xs.map((x) => (x >= start * 0.9999 ? flops : null)));
  }
  for (const [name, key, ink] of data.series) {
    series.push({ label: name, paths: () => null, points: { show: true, size: 9, stroke: colour(ink), fill: colour(ink) } });
    columns.push(xs.map((x) => (tasks.has(x) ? tasks.get(x)[key] : null)));
  }
  const names = (chart) => {
    const pen = chart.ctx;
    pen.save();
    pen.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    pen.fillStyle = colour("--soft");
    pen.textAlign = "left";
    for (const [name, width] of memories) {
      pen.fillText(name, chart.valToPos(low * 1.15, "x", true), chart.valToPos(low * 1.5 * width, "y", true));
    }
    pen.textAlign = "right";
    // Rates that are close would be written over one another: each stands further to the left.
    units.forEach(([name, flops], number) => {
      pen.fillText(name, chart.valToPos(high * 0.97, "x", true) - 110 * number * devicePixelRatio, chart.valToPos(flops * 1.12, "y", true));
    });
    pen.restore();
  };
  const chart = new uPlot({
    ...options(place, 340),
    scales: {
      x: { time: false, distr: 3, range: [low, high] },
      y: { distr: 3, range: decades(slowest, Math.max(most, ...points.flatMap(rates)) * 1.5) },
    },
    axes: [
      axis("operations a byte", (value) => (isDecade(value) ? `${+value.toPrecision(3)}` : ""), 36),
      axis("operations a second", (value) => (isDecade(value) ? rate(value) : ""), 84),
    ],
    series, hooks: { draw: [names] },
  }, columns, place);
  const order = points.map((point) => xs.indexOf(point.intensity));
  const texts = points.map((point) => `${point.name}: ${+point.intensity.toPrecision(3)} operations a byte, ` +
    data.series.map(([name, key]) => `${rate(point[key])} ${name}`).join(", "));
  return { chart, texts, order, numbers: points.map((point) => point.number) };
}

function draw(place) {
  const former = charts.get(place);
  if (former) former.chart.destroy();
  if (!place.clientWidth) return;
  const made = place.dataset.task === undefined ? roofline(place) : curve(place, data.tasks[place.dataset.task]);
  charts.set(place, { ...made, at: former ? former.at : -1 });
}

function read(place, at) {
  const made = charts.get(place);
  if (!made || !made.texts.length) return;
  made.at = Math.max(0, Math.min(made.texts.length - 1, at));
  const column = made.order ? made.order[made.at] : made.at;
  made.chart.setCursor({ left: made.chart.valToPos(made.chart.data[0][column], "x"), top: 10 });
  document.getElementById(`${place.id}-reading`).textContent = made.texts[made.at];
}

function choose(place) {
  const made = charts.get(place);
  if (!made || !made.numbers || made.at < 0) return;
  place.dispatchEvent(new CustomEvent("chosen", { bubbles: true, detail: made.numbers[made.at] }));
}

for (const place of document.querySelectorAll("div.chart")) {
  place.addEventListener("click", () => choose(place));
  place.addEventListener("keydown", (event) => {
    const made = charts.get(place);
    if (!made) return;
    if (event.key === "Enter") choose(place);
    const moves = { ArrowRight: made.at + 1, ArrowLeft: made.at - 1, Home: 0, End: made.texts.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    read(place, moves[event.key]);
  });
  place.addEventListener("mousemove", () => {
    const made = charts.get(place);
    if (!made || made.chart.cursor.idx == null) return;
    const at = made.order ? made.order.indexOf(made.chart.cursor.idx) : made.chart.cursor.idx;
    if (at < 0) return;
    made.at = at;
    document.getElementById(`${place.id}-reading`).textContent = made.texts[at];
  });
  draw(place);
  new ResizeObserver(() => {
    const made = charts.get(place);
    if (!made || made.chart.width !== place.clientWidth) draw(place);
  }).observe(place);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...charts.keys()].forEach(draw));
// A link to something folded opens it.
const open = () => {
  const place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (place && place.tagName === "DETAILS") { place.open = true; place.scrollIntoView(); }
};
addEventListener("hashchange", open);
open();
