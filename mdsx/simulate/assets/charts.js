/* The charts of the page. */
"use strict";

const SERIES = ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6"];
const seriesColor = (place) => mdsxTheme.color(SERIES[place % SERIES.length]);

function chart(label, height, data, options) {
  return mdsxChart(label, height, data, (axis) => ({ padding: [12, 14, 0, 4], ...options(axis) }));
}

/* Return a legend's mark: a line, dashed or not, or a dot. */
function mark(name, kind = "line") {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 28 16");
  svg.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS("http://www.w3.org/2000/svg", kind === "line" || kind === "dash" ? "line" : "circle");
  const at = kind === "line" || kind === "dash" ? { x1: 1, y1: 8, x2: 27, y2: 8 } : { cx: 14, cy: 8, r: 5.5 };
  for (const [key, value] of Object.entries(at)) shape.setAttribute(key, value);
  const paint = () => {
    const color = mdsxTheme.color(name);
    shape.setAttribute("stroke", color);
    shape.setAttribute("stroke-width", "2.5");
    shape.setAttribute("fill", kind === "dot" ? color : "none");
    if (kind === "dash") shape.setAttribute("stroke-dasharray", "6 4");
  };
  paint();
  document.addEventListener("themechange", paint);
  svg.append(shape);
  return svg;
}

function legend(entries) {
  return entries.map(([name, kind, text]) => el("span", {}, mark(name, kind), text));
}

/* --- lines over time */

const POINTS = 240;
const COARSE = 60; // for speeds: a shard that comes is not a peak of its own

/* Return cumulative `values` at `grid` seconds, by straight lines between what is known; null after the end. */
function resampled(seconds, values, grid) {
  let at = 0;
  return grid.map((wanted) => {
    while (at < seconds.length - 1 && seconds[at + 1] < wanted) at += 1;
    if (wanted > seconds[seconds.length - 1] + 1e-9) return null;
    if (wanted <= seconds[0] || at === seconds.length - 1) return wanted <= seconds[0] ? values[0] * (seconds[0] ? wanted / seconds[0] : 1) : values[at];
    const part = (wanted - seconds[at]) / (seconds[at + 1] - seconds[at]);
    return values[at] + part * (values[at + 1] - values[at]);
  });
}

/* Return the change of `values` in each step of the grid, for each second. */
function rates(values, grid) {
  return values.map((value, place) => {
    const next = Math.max(place, 1);
    if (values[next] === null || values[next - 1] === null || value === null) return null;
    return (values[next] - values[next - 1]) / (grid[next] - grid[next - 1]);
  });
}

/* Return a titled chart of lines: `lines` are [label, values]; `level` a dashed line {value, text}. */
function timeChart({ title, look, label, grid, lines, level, show, stepped, most }) {
  const [unit, unitName] = timeUnit(grid[grid.length - 1]);
  const x = grid.map((value) => value / unit);
  const data = [x, ...lines.map(([, values]) => values)];
  if (level) data.push(x.map(() => level.value));
  const top = most ?? 0;
  const entries = lines.map(([name], place) => [SERIES[place % SERIES.length], "line", name]);
  if (level) entries.push(["ink", "dash", level.text]);
  const values = lines.map(() => el("span", { "aria-hidden": "true" }));
  const at = el("span", { class: "at", "aria-hidden": "true" });
  const marks = legend(entries);
  values.forEach((value, place) => marks[place].append(value));
  const drawn = chart(label, 230, data, (axis) => ({
    scales: { x: { time: false }, y: { range: (self, low, high) => [0, Math.max(high, top) * 1.06 || 1] } },
    axes: [
      { ...axis, size: 34, label: `time since the start (${unitName})`, values: (self, values) => values.map(shortNumber) },
      { ...axis, size: 66, space: 34, values: (self, values) => values.map(show) },
    ],
    series: [
      {},
      ...lines.map((line, place) => ({ stroke: seriesColor(place), width: 1.6, paths: stepped ? uPlot.paths.stepped({ align: -1 }) : undefined, points: { show: false } })),
      ...(level ? [{ stroke: mdsxTheme.color("ink"), width: 1.2, dash: [6, 4], points: { show: false } }] : []),
    ],
    cursor: { y: false, drag: { x: true, y: false }, points: { size: 7 } },
    hooks: {
      setCursor: [(self) => {
        const place = self.cursor.idx ?? null;
        at.textContent = place === null ? "" : `at ${shortNumber(x[place])} ${unitName}`;
        lines.forEach(([, some], line) => {
          values[line].textContent = place === null ? "" : some[place] === null ? ": ended" : `: ${show(some[place])}`;
        });
      }],
    },
  }));
  const every = Math.max(1, Math.floor(grid.length / 20));
  const some = grid.map((value, place) => place).filter((place) => place % every === 0);
  const rows = some.map((place) => [
    shortNumber(x[place]), ...lines.map(([, values]) => (values[place] === null ? "ended" : show(values[place]))),
  ]);
  const heads = [`time (${unitName})`, ...lines.map(([name]) => name)];
  return el("div", { class: "over-time" },
    el("h3", {}, title), el("p", { class: "lead" }, look), drawn, el("div", { class: "legend" }, ...marks, at),
    el("details", {}, el("summary", {}, "As a table"), table(title, heads, rows)));
}

/* --- the map of an order */

function mapChart(label, { positions, numbers }, samples) {
  const ascending = positions.map((position, place) => [position, numbers[place]]).sort((a, b) => a[0] - b[0]);
  const data = [ascending.map(([position]) => position), ascending.map(([, number]) => number)];
  const axisText = (self, values) => values.map(shortCount);
  return chart(label, 210, data, (axis) => ({
    scales: { x: { time: false, range: () => [0, samples] }, y: { range: () => [0, samples] } },
    axes: [
      { ...axis, size: 32, space: 50, label: "position in the epoch", values: axisText },
      { ...axis, size: 52, space: 34, label: "stored number", values: axisText },
    ],
    series: [
      {},
      { stroke: seriesColor(0), paths: () => null, points: { show: true, size: 2.6, width: 0, fill: seriesColor(0) } },
    ],
    cursor: { show: false },
  }));
}
