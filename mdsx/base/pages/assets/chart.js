/* Charts by uPlot, in the colours of the theme. They follow the width of their place, and the theme. */
"use strict";

/* Return a figure with a chart that `options(axis)` and `data` describe; `axis` is how its axes look. `label` is for those
   who cannot see it. `figure.redraw()` draws it again, and `figure.plot()` is the uPlot of now. */
globalThis.mdsxChart = (label, height, data, options) => {
  const place = document.createElement("figure");
  place.className = "chart";
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  let drawn = null;
  let width = 0;

  place.redraw = () => {
    const wanted = Math.floor(place.clientWidth);
    if (!place.isConnected || !wanted) return;
    width = wanted;
    drawn?.destroy();
    const grid = { stroke: mdsxTheme.color("grid"), width: 1 };
    const axis = {
      stroke: mdsxTheme.color("soft"),
      grid,
      ticks: { ...grid, size: 4 },
      font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
      labelSize: 20,
      labelGap: 2,
      space: 60,
    };
    drawn = new uPlot({ width, height, legend: { show: false }, ...options(axis) }, data, place);
  };
  place.plot = () => drawn;

  new ResizeObserver(() => {
    if (Math.floor(place.clientWidth) !== width) place.redraw();
  }).observe(place);
  const changed = () => {
    if (place.isConnected) place.redraw();
    else document.removeEventListener("themechange", changed);
  };
  document.addEventListener("themechange", changed);
  return place;
};
