/* The charts of samples, shards and orders. */
import "./chart.js"; // mdsxChart
import { count } from "./dom.js";

function chart(label, height, data, options) {
  return mdsxChart(label, height, data, (axis) => ({
    cursor: { y: false, points: { size: 7 }, drag: { x: true, y: false } },
    padding: [10, 12, 0, 0],
    ...options(axis),
  }));
}

function short(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return value.toExponential(1).replace("e+", "e");
  return count(Number(value.toPrecision(6)));
}

const ticks = (self, values) => values.map((value) => (value === null ? "" : short(value)));

function fill(name, share) {
  const color = mdsxTheme.color(name);
  return color + Math.round(share * 255).toString(16).padStart(2, "0");
}

export function lineChart(label, { x, y }) {
  return chart(label, 170, [x, y], (axis) => ({
    scales: { x: { time: false } },
    axes: [{ ...axis, size: 32, values: ticks }, { ...axis, size: 62, values: ticks, space: 30 }],
    series: [
      {},
      {
        stroke: mdsxTheme.color("series-1"),
        width: 1.5,
        fill: fill("series-1", 0.08),
        points: { show: x.length <= 60, size: 5, fill: mdsxTheme.color("series-1") },
      },
    ],
  }));
}

export function histogramChart(label, { edges, counts }) {
  const middles = counts.map((_, place) => (edges[place] + edges[place + 1]) / 2);
  const low = edges[0];
  const high = edges[edges.length - 1];
  return chart(label, 170, [middles, counts], (axis) => ({
    scales: { x: { time: false, range: () => [low, high] }, y: { range: (self, min, max) => [0, max * 1.05 || 1] } },
    axes: [{ ...axis, size: 32, values: ticks }, { ...axis, size: 62, values: ticks, space: 30 }],
    series: [
      {},
      {
        paths: uPlot.paths.bars({ size: [0.92, 80, 1], align: 0 }),
        fill: mdsxTheme.color("series-3"),
        width: 0,
        points: { show: false },
      },
    ],
  }));
}

export function barChart(label, { x, y }, show) {
  return chart(label, 150, [x, y], (axis) => ({
    scales: {
      x: { time: false, range: (self, min, max) => [min - 0.6, max + 0.6] },
      y: { range: (self, min, max) => [0, max * 1.08 || 1] },
    },
    axes: [
      { ...axis, size: 32, values: (self, values) => values.map((value) => (Number.isInteger(value) ? count(value) : "")) },
      { ...axis, size: 66, values: (self, values) => values.map(show), space: 30 },
    ],
    series: [
      {},
      {
        paths: uPlot.paths.bars({ size: [0.85, 40, 1], align: 0 }),
        fill: mdsxTheme.color("series-1"),
        width: 0,
        points: { show: false },
      },
    ],
  }));
}

export function dotChart(label, { x, y }) {
  return chart(label, 170, [x, y], (axis) => ({
    scales: { x: { time: false }, y: { range: (self, min, max) => [Math.max(min - 1, -0.5), max + 1] } },
    axes: [
      { ...axis, size: 32, values: ticks },
      { ...axis, size: 62, values: (self, values) => values.map((v) => (Number.isInteger(v) ? count(v) : "")), space: 30 },
    ],
    series: [
      {},
      {
        paths: () => null,
        stroke: mdsxTheme.color("series-1"),
        points: { show: true, size: x.length > 300 ? 4 : 6, fill: mdsxTheme.color("series-1"), width: 0 },
      },
    ],
  }));
}
