/* Shuffle quality against cache: a dot for each pair of lanes and block, one of which is selected. */
"use strict";

/* Return what can be shown of a choice: how it is called, its value, and the wanted value. */
function measures({ wanted, most_repeated: mostRepeated }) {
  return [
    {
      name: "Shards in a batch, compared with an exact shuffle",
      axis: "of an exact shuffle's shards in a batch",
      value: (choice) => choice.distinct_share,
      wanted: () => wanted.distinct, higher: true,
      text: (choice) => `${full(choice.distinct)} shards in a batch, ${percent(choice.distinct_share)} of an exact shuffle's`,
    },
    {
      name: "New shards in each batch, which the batch before lacks",
      axis: "of a batch's shards are new",
      value: (choice) => 1 - choice.repeated,
      wanted: () => 1 - mostRepeated, higher: true,
      text: (choice) => `${percent(1 - choice.repeated)} of a batch's shards are new, not in the batch before`,
    },
    {
      name: "Correlation of reading and storing order (0 is best)",
      axis: "correlation, without sign",
      value: (choice) => Math.abs(choice.correlation),
      wanted: (choice) => choice.most_correlation, higher: false, plain: true,
      text: (choice) => `correlation of reading and storing order ${Number(choice.correlation.toPrecision(2))}`,
    },
  ];
}

const meets = (measure, choice) => measure.higher ? measure.value(choice) >= measure.wanted(choice) - 1e-12
  : measure.value(choice) <= measure.wanted(choice) + 1e-12;

function curveSection({ advice, settings }, { points }) {
  const order = advice.curve.map((_, place) => place).sort((a, b) => advice.curve[a].cache_bytes - advice.curve[b].cache_bytes
    || advice.curve[a].distinct_share - advice.curve[b].distinct_share);
  const choices = order.map((place) => advice.curve[place]);
  const lanes = [...new Set(choices.map((choice) => choice.lanes))].sort((a, b) => a - b);
  const all = measures(advice);
  const chosen = choices.findIndex((choice) => choice.lanes === advice.chosen.lanes
    && choice.shuffle_block === advice.chosen.shuffle_block);
  let measure = all[0];
  let selected = chosen;
  let figure = null;

  const point = byId("point");
  const picker = byId("measure");
  picker.append(...all.map((each, place) => el("option", { value: place }, each.name)));
  point.max = String(choices.length - 1);

  function drawDots(self) {
    const { ctx } = self;
    const scale = devicePixelRatio || 1;
    ctx.save();
    const say = (text, x, y, align) => { // with a border of the ground, to be read over lines
      ctx.textAlign = align;
      ctx.lineJoin = "round";
      ctx.lineWidth = 4 * scale;
      ctx.strokeStyle = mdsxTheme.color("raised");
      ctx.strokeText(text, x, y);
      ctx.fillText(text, x, y);
    };
    const line = (value, axis, text, dash) => {
      const at = self.valToPos(value, axis, true);
      const { left, top, width, height } = self.bbox;
      ctx.beginPath();
      ctx.setLineDash(dash.map((part) => part * scale));
      if (axis === "y") { ctx.moveTo(left, at); ctx.lineTo(left + width, at); }
      else { ctx.moveTo(at, top); ctx.lineTo(at, top + height); }
      ctx.strokeStyle = mdsxTheme.color("ink");
      ctx.lineWidth = 1.2 * scale;
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillStyle = mdsxTheme.color("ink");
      ctx.font = `${12 * scale}px system-ui, sans-serif`;
      if (axis === "y") say(text, left + 6 * scale, at - 6 * scale, "left");
      else {
        const right = at + ctx.measureText(text).width + 8 * scale > left + width;
        say(text, at + (right ? -6 : 6) * scale, top + height - 8 * scale, right ? "right" : "left");
      }
    };
    line(measure.wanted(choices[selected]), "y", "wanted", [6, 4]); // the limit of a correlation depends on how many shards were tried
    const { min, max } = self.scales.x;
    if (settings.cache > min && settings.cache < max) line(settings.cache, "x", "simulated cache", [2, 3]);
    const last = [...choices.keys()].sort((a, b) => (a === chosen) - (b === chosen));
    last.forEach((place) => {
      const choice = choices[place];
      const x = self.valToPos(choice.cache_bytes, "x", true);
      const y = self.valToPos(measure.value(choice), "y", true);
      const color = seriesColor(lanes.indexOf(choice.lanes));
      ctx.beginPath();
      ctx.arc(x, y, 4.5 * scale, 0, 2 * Math.PI);
      ctx.fillStyle = choice.enough ? color : mdsxTheme.color("raised");
      ctx.strokeStyle = color;
      ctx.lineWidth = 2 * scale;
      ctx.fill();
      ctx.stroke();
      if (place === chosen || place === selected) {
        ctx.beginPath();
        ctx.arc(x, y, (place === chosen ? 9 : 12) * scale, 0, 2 * Math.PI);
        ctx.strokeStyle = mdsxTheme.color(place === chosen ? "ink" : "accent");
        ctx.stroke();
      }
      if (place === chosen) {
        ctx.fillStyle = mdsxTheme.color("ink");
        ctx.font = `600 ${12 * scale}px system-ui, sans-serif`;
        const { left, top, width } = self.bbox;
        const align = x > left + width * 0.8 ? "right" : x < left + width * 0.2 ? "left" : "center";
        say("recommended", x, y + (y - top > 40 * scale ? -16 : 26) * scale, align);
      }
    });
    ctx.restore();
  }

  function nearest(self) {
    const { left, top } = self.cursor;
    if (left === null || left < 0) return null;
    let best = null;
    let least = 30 ** 2;
    choices.forEach((choice, place) => {
      const apart = (self.valToPos(choice.cache_bytes, "x") - left) ** 2 + (self.valToPos(measure.value(choice), "y") - top) ** 2;
      if (apart < least) [best, least] = [place, apart];
    });
    return best;
  }

  function draw() {
    const caches = choices.map((choice) => choice.cache_bytes);
    const data = [caches, ...lanes.map((lane) => choices.map((choice) => (choice.lanes === lane ? measure.value(choice) : null)))];
    const wanted = Math.max(...choices.map(measure.wanted));
    figure = chart(`${measure.name}, against the cache of a node. All values are in the table below.`, 360, data, (axis) => ({
      scales: {
        x: { time: false, distr: 3, range: (self, low, high) => [low / 1.25, high * 1.25] },
        y: { range: (self, low, high) => [0, Math.max(high, wanted) * 1.2 || 1] }, // one shard alone has no new ones
      },
      axes: [
        {
          ...axis, size: 34, label: "cache of each node",
          splits: (self) => niceSizes(self.scales.x.min, self.scales.x.max, self.width < 600 ? 4 : 9),
          values: (self, values) => values.map(bytes),
          filter: (self, values) => values,
        },
        { ...axis, size: 52, label: measure.axis, space: 36, values: (self, values) => values.map(measure.plain ? shortNumber : percent) },
      ],
      series: [{}, ...lanes.map((lane, place) => ({ stroke: seriesColor(place), width: 1, alpha: 0.45, spanGaps: true, points: { show: false } }))],
      cursor: { x: false, y: false, points: { show: false }, drag: { x: false, y: false } },
      hooks: {
        draw: [drawDots],
        setCursor: [(self) => {
          const found = nearest(self);
          self.over.style.cursor = found === null ? "default" : "pointer";
          if (found !== null && found !== selected) select(found);
        }],
      },
    }));
    byId("curve-chart").replaceChildren(figure);
    byId("curve-legend").replaceChildren(
      ...legend([
        ...lanes.map((lane, place) => [SERIES[place % SERIES.length], "dot", `${lane.toLocaleString("en")} lanes`]),
        ["ink", "ring", "hollow: misses the wanted quality in at least one measure"],
      ]));
  }

  function select(place) {
    selected = place;
    const choice = choices[place];
    const texts = points[order[place]];
    point.value = String(place);
    point.setAttribute("aria-valuetext",
      `cache ${texts.cache}, ${choice.lanes} lanes, block ${choice.shuffle_block}, ${percent(choice.distinct_share)} of an exact shuffle`);
    const marks = all.map((each) => {
      const good = meets(each, choice);
      const limit = each.wanted(choice);
      const wanted = ` (wanted: ${each.higher ? "at least" : "at most"} ${each.plain ? shortNumber(limit) : percent(limit)})`;
      return el("li", {}, el("span", { class: good ? "good" : "bad" }, good ? "✓ " : "✗ "), each.text(choice), wanted);
    });
    byId("selected").replaceChildren(
      el("p", { class: "title" }, `${bytes(choice.cache_bytes)} cache, ${choice.lanes.toLocaleString("en")} lanes, block of ${choice.shuffle_block.toLocaleString("en")} samples${place === chosen ? " (recommended)" : ""}`),
      el("ul", { class: "marks" }, ...marks),
      el("p", { class: "note" }, `Of the cache, ${bytes(choice.in_use_bytes)} hold shards in use, ${bytes(choice.ahead_bytes)} those that come next.`),
      el("div", { class: "arguments" }, copyBox("Simulate this choice", texts.command), copyBox("Train with this choice", texts.python)));
    for (const [button, to] of jumps) button.setAttribute("aria-pressed", String(to === place));
    figure?.plot()?.redraw(false);
  }

  // those who have less disk, or the simulated one
  const score = (choice) => [choice.enough ? 1 : 0, Math.min(choice.distinct_share / advice.wanted.distinct, 1), -choice.repeated];
  const better = (a, b) => score(a).map((value, place) => value - score(b)[place]).find((apart) => Math.abs(apart) > 1e-9) ?? 0;
  const fitting = [...choices.keys()].filter((place) => choices[place].cache_bytes <= settings.cache);
  const within = fitting.length ? fitting.reduce((best, place) => (better(choices[place], choices[best]) > 0 ? place : best)) : null;
  const jumps = [];
  function jump(text, to) {
    const button = el("button", { type: "button" }, text);
    button.addEventListener("click", () => select(to));
    jumps.push([button, to]);
  }
  jump(`Recommended: ${bytes(choices[chosen].cache_bytes)}`, chosen);
  if (within !== null && within !== chosen && choices[chosen].cache_bytes > settings.cache) {
    jump(`Best with the simulated cache of ${bytes(settings.cache)}: ${percent(choices[within].distinct_share)} of an exact shuffle${choices[within].enough ? "" : ", but not the wanted quality"}`, within);
  }
  byId("jumps").append(...jumps.map(([button]) => button));

  picker.addEventListener("change", () => { measure = all[Number(picker.value)]; draw(); });
  point.addEventListener("input", () => select(Number(point.value)));
  draw();
  select(selected);

  const rows = choices.map((choice, place) => {
    const row = [bytes(choice.cache_bytes), choice.lanes.toLocaleString("en"), choice.shuffle_block.toLocaleString("en"),
      percent(choice.distinct_share), percent(1 - choice.repeated),
      String(Number(choice.correlation.toPrecision(2))), choice.enough ? "yes" : "no"];
    row.chosen = place === chosen;
    return row;
  });
  const heads = ["cache of a node", "lanes", "block", "shards, of exact", "new shards", "correlation", "wanted quality"];
  byId("curve-table").append(table("Choices by cache", heads, rows));
}

/* Return sizes 1, 2 and 5 times powers of 10 from `low` to `high`, at most `most`. */
function niceSizes(low, high, most) {
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      for (const step of steps) {
        const value = step * 10 ** power;
        if (value >= low && value <= high) found.push(value);
      }
    }
    if (found.length <= most || steps.length === 1) return found;
  }
  return [];
}
