// Charts of the usage page: each element with `data-chart` gets the cost as bars and the tokens as a line.

const charts = [];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function short(value, unit = "") {
  if (value === 0) return "0";
  if (unit === "$") return value < 0.01 ? `$${value.toFixed(4)}` : `$${value.toLocaleString(undefined, { maximumFractionDigits: 2 })}`;
  return Intl.NumberFormat(undefined, { notation: "compact" }).format(value);
}

function axis(more) {
  const line = { stroke: colour("--line"), width: 1 };
  return { stroke: colour("--dim"), font: "12px system-ui, sans-serif", grid: line, ticks: line, ...more };
}

function options(points, width) {
  const label = (index) => points.days[index] ?? "";
  return {
    width,
    height: Math.min(320, Math.max(200, width / 3)),
    scales: { x: { time: false, range: (_, low, high) => [low - 0.6, high + 0.6] }, usd: { range: (_, low, high) => [0, high || 1] }, tokens: { range: (_, low, high) => [0, high || 1] } },
    axes: [
      axis({ grid: { show: false }, space: 70, incrs: [1, 2, 5, 7, 14, 30, 60, 90, 180, 365], values: (_, splits) => splits.map((at) => label(at).slice(5)) }),
      axis({ scale: "usd", size: 64, values: (_, splits) => splits.map((value) => short(value, "$")) }),
      axis({ scale: "tokens", side: 1, size: 56, grid: { show: false }, values: (_, splits) => splits.map((value) => short(value)) }),
    ],
    series: [
      { label: "Day", value: (_, at) => (at === null ? "" : label(at)) },
      { label: "Cost", scale: "usd", fill: colour("--accent"), stroke: colour("--accent"), width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.7, 48], radius: 0.15 }), value: (_, value) => (value === null ? "" : short(value, "$")) },
      { label: "Tokens", scale: "tokens", stroke: colour("--line-strong"), width: 1.5, dash: [5, 4], points: { show: points.days.length < 2 }, value: (_, value) => (value === null ? "" : value.toLocaleString()) },
    ],
  };
}

function draw(element) {
  const points = JSON.parse(element.dataset.chart);
  element.replaceChildren();
  const data = [points.days.map((_, index) => index), points.usd, points.tokens];
  return new uPlot(options(points, element.clientWidth), data, element);
}

function drawAll() {
  for (const chart of charts.splice(0)) chart.destroy();
  for (const element of document.querySelectorAll("[data-chart]")) charts.push(draw(element));
}

// uPlot asks for the format of the browser's language while it loads, and some languages have none: "en-US@posix".
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en" });
}

await new Promise((resolve, reject) => {
  const script = Object.assign(document.createElement("script"), { src: new URL("uPlot.iife.min.js", import.meta.url), onload: resolve, onerror: reject });
  document.head.append(script);
});
drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) drawAll();
  width = innerWidth;
});
