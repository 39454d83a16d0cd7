/* Fills the page from its data. A section without data is removed. */
"use strict";

(() => {
  const { report, shown } = JSON.parse(byId("data").textContent);
  const { advice, quality, settings } = report;
  const STATES = { good: "✓", warn: "!", bad: "✗" };
  const SPOKEN = { good: "good: ", warn: "look at this: ", bad: "problem: " };

  function state(name) {
    return el("span", { class: `state ${name}`, role: "img", "aria-label": SPOKEN[name] }, `${STATES[name]} `);
  }

  function finding({ state: name, title, text, todo }) {
    const parts = [el("h3", {}, state(name), title), el("p", {}, text)];
    if (todo) parts.push(el("p", { class: "todo" }, `→ ${todo}`));
    return el("div", {}, ...parts);
  }

  byId("subject").textContent = shown.subject;
  const { headline } = shown;
  byId("headline").className = headline.state;
  byId("headline").append(el("p", { class: "title" }, state(headline.state), headline.title), el("p", {}, headline.text));
  if (headline.todo) byId("headline").append(el("p", { class: "todo" }, `→ ${headline.todo}`));
  byId("findings").append(...shown.findings.map(finding));

  byId("figures").append(...shown.figures.map(({ label, value, note }) => el("div", {},
    el("dt", {}, label), el("dd", { class: "value" }, value), el("dd", { class: "small" }, note))));

  // --- advice
  const { chosen } = advice;
  if (chosen) {
    byId("wanted").textContent = shown.wanted;
    const box = (name, value, now) => el("div", {}, el("div", { class: "name" }, name), el("div", { class: "value" }, value),
      el("div", { class: "now" }, now));
    byId("chosen").append(
      box("cache of each node", bytes(chosen.cache_bytes), `simulated here: ${bytes(settings.cache)}; the dataset: ${bytes(settings.bytes)}`),
      box("lanes", chosen.lanes.toLocaleString("en"), `simulated here: ${settings.lanes?.toLocaleString("en") ?? "none"}`),
      box("block (shuffle_block), in samples", chosen.shuffle_block.toLocaleString("en"),
        `simulated here: ${settings.shuffle_block?.toLocaleString("en") ?? "none"}`));
    if (!chosen.enough) {
      byId("unmet").append(el("p", { class: "bad" }, state("bad"), "No choice reaches the wanted quality. This one comes nearest."));
    }
    const same = chosen.lanes === settings.lanes && chosen.shuffle_block === settings.shuffle_block && chosen.cache_bytes <= settings.cache;
    byId("differs").textContent = same ? "This simulation ran with these lanes and this block, and with enough cache."
      : "All other figures on this page are of the run that was simulated. Run the command to see them for this choice.";
    byId("arguments").append(el("div", { class: "arguments" },
      copyBox("Check it: simulate this choice", shown.chosen.command), copyBox("Use it: train with this choice", shown.chosen.python)));
    byId("reasons").append(...advice.reasons.map((reason) => el("li", {}, reason)));
  } else byId("advice").remove();
  if (chosen && advice.curve.length > 1) curveSection(report, shown);
  else byId("curve").remove();

  // --- quality
  if (shown.quality) {
    const { maps, methods: found } = quality;
    byId("maps").append(...found.map((method) => {
      const name = shown.names[method.method] ?? method.method;
      const held = method.method === "exact" ? "needs the whole dataset" : `holds ${bytes(method.held_bytes)} at a time`;
      const text = `${full(method.distinct)} ${shown.quality.kind} in a batch, correlation ${Number(method.correlation.toPrecision(2))}; ${held}`;
      return el("div", {}, el("h3", {}, name),
        mapChart(`Order map of ${name}: ${text}. Points are in the table below.`, maps[method.method], settings.samples), el("p", {}, text));
    }));
    byId("quality-table").append(table("Quality of the shuffles", shown.quality.heads, shown.quality.rows));
    byId("quality-note").textContent = `Measured on ${shown.quality.sampling}. Correlation: of the position in the epoch and the stored number; 0 is best. `
      + "Distance: how far apart neighbours are stored; 1 is an exact shuffle. Buffer and py1e hold the same bytes as mdsx.";
    const first = maps[found[0].method].positions;
    const every = Math.max(1, Math.floor(first.length / 20));
    const some = first.map((_, place) => place).filter((place) => place % every === 0);
    const rows = some.map((place) => [first[place].toLocaleString("en"),
      ...found.map(({ method }) => maps[method].numbers[place]?.toLocaleString("en") ?? "")]);
    byId("maps-table").append(table("Stored number at some positions", ["position", ...found.map(({ method }) => shown.names[method] ?? method)], rows));
  } else byId("orders").remove();

  // --- over time
  const { series } = report;
  const end = Math.max(0, ...series.map(({ seconds }) => seconds[seconds.length - 1] ?? 0));
  if (end > 0) {
    const grid = Array.from({ length: POINTS + 1 }, (_, place) => (place * end) / POINTS);
    const of = (name, from) => series.map((each) => [`node ${each.node}`, resampled(each.seconds, each[name], from)]);
    const coarse = grid.filter((_, place) => place % (POINTS / COARSE) === 0);
    const downloaded = of("downloaded", grid);
    const cached = of("cached", grid);
    const waited = of("waited", coarse);
    const rate = of("downloaded", coarse).map(([name, values]) => [name, rates(values, coarse)]);
    const lost = waited.map(([name, values]) => [name, rates(values, coarse).map((value) => (value === null ? null : Math.min(Math.max(value, 0), 1)))]);
    const fastest = Math.max(...rate.flatMap(([, values]) => values));
    const link = settings.link && fastest > 0.25 * settings.link ? { value: settings.link, text: "link" } : null;
    const speed = link || !settings.link ? "" : ` The link, ${bytes(settings.link)}/s, is far above what is shown.`;
    const [unit, name] = timeUnit(end);
    byId("time-note").textContent = `${Number((end / unit).toPrecision(3))} ${name} were simulated, of ${series.length === 1 ? "node" : "nodes"} `
      + `${series.map(({ node }) => node).join(", ")}. Drag across a chart to enlarge a part, double-click to see all.`;
    byId("times").append(
      timeChart({
        title: "Downloads: speed", label: "Download speed of each node over time", grid: coarse, lines: rate, level: link,
        look: `Below the link's speed, there is room to spare. At the link for long, training has to wait. Bytes count when their shard is whole, so a short peak may pass the link.${speed}`,
        stepped: true, show: (value) => `${bytes(value)}/s`, most: fastest,
      }),
      timeChart({
        title: "Downloads: in all", label: "Bytes that each node has downloaded, over time", grid, lines: downloaded,
        look: "Lines of all nodes rise alike if the work is shared evenly. Flat parts need no downloads.",
        show: bytes,
      }),
      timeChart({
        title: "Cache", label: "Bytes in each node's cache over time", grid, lines: cached,
        level: { value: settings.cache, text: `limit, ${bytes(settings.cache)}` },
        look: "A cache fills up to its limit, then drops shards that are not needed soon. Far below the limit, a smaller one would do.",
        show: bytes,
      }),
      timeChart({
        title: "Waits", label: "Part of the time that the steps of each node wait for data, over time", grid: coarse, lines: lost,
        look: "The part of the time in which training waits for data. It should be 0 after the first batch.",
        stepped: true, show: percent, most: 0.05,
      }));
  } else byId("time").remove();

  // --- tables
  if (shown.resume) byId("resume-table").append(table("After the change", ["", "", ""], shown.resume, "words"));
  else byId("resume").remove();
  byId("epochs-table").append(table("Nodes and epochs", shown.epochs.heads, shown.epochs.rows));
  byId("settings-table").append(table("Settings", ["setting", "value", "meaning"], shown.settings, "words code"));
  const trust = report.whole.exact
    ? ["Every step of every node was simulated, with the loader's own code for order, prefetch and eviction."]
    : [`${percent(report.whole.share)} of the epoch's steps on all nodes were simulated. The standard error of the bytes is ${percent(report.whole.error)}.`];
  byId("notes-list").append(...[...trust, ...report.notes].map((note) => el("li", {}, note)));
})();
