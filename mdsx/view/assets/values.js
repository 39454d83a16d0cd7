/* A value of a sample as elements. All of its text is set as text. */
import { address, ask, bytes, count, counted, el, problem } from "./dom.js";
import { histogramChart, lineChart } from "./charts.js";

const OPEN = 12; // items of a JSON value up to which it is unfolded

/* `where`: {path of the sample, sample number, column, item or null}. */
export function valueOf(value, where) {
  switch (value.kind) {
    case "null":
      return el("p", { class: "null" }, "null");
    case "number":
      return el("p", { class: "number" }, value.text);
    case "text":
      return textOf(value, where);
    case "json":
      return el("div", { class: "tree" }, node(value.tree, null, true));
    case "image":
      return imageOf(value, where);
    case "audio":
    case "video":
      return playerOf(value, where);
    case "bytes":
      return bytesOf(value);
    case "array":
      return arrayOf(value, where);
    case "list":
      return listOf(value, where);
    default:
      return el("p", {}, "a value of an unknown kind");
  }
}

/* What the head of a value's card says beside its type. */
export function sizeOf(value) {
  switch (value.kind) {
    case "text":
      return counted(value.length, "character");
    case "image":
    case "audio":
    case "video":
      return `${value.media.replace(/^\w+\//, "").toUpperCase()}, ${bytes(value.size)}`;
    case "bytes":
      return bytes(value.size);
    case "array":
      return `${value.dtype} [${value.shape.join(", ")}]`;
    case "list":
      return counted(value.length, "item");
    default:
      return "";
  }
}

function textOf(value, where) {
  if (!value.length) return el("p", { class: "null" }, "empty");
  const text = el("pre", { class: "text", tabindex: "0" }, value.text);
  const place = el("div", {}, text);
  let known = value.text.length;
  if (known < value.length && where.item === null) {
    const more = el("button", { type: "button" });
    const note = () => {
      more.textContent = `Show more (${count(text.textContent.length)} of ${count(value.length)} characters)`;
    };
    more.addEventListener("click", async () => {
      try {
        const next = await ask(`${where.path}/text`, { column: where.column, start: points(text.textContent) });
        text.append(next.text);
        known = points(text.textContent);
        if (known >= value.length || !next.text) more.remove();
        else note();
      } catch (error) {
        more.replaceWith(problem(error));
      }
    });
    note();
    place.append(more);
  }
  return place;
}

/* The server counts code points, JavaScript counts halves of some. */
function points(text) {
  let number = 0;
  for (const _ of text) number += 1;
  return number;
}

function imageOf(value, where) {
  const place = el("div", { class: "picture" }, picture(where, `${where.column} of sample ${where.number}`));
  const hex = hexOf(value, "The first bytes");
  return el("div", {}, place, hex);
}

function playerOf(value, where) {
  const label = `${where.column} of sample ${where.number}`;
  const player = el(value.kind, { controls: "", preload: "metadata", "aria-label": label, src: sourceOf(where) });
  player.addEventListener("error", () => {
    player.replaceWith(el("p", { class: "bad" }, "The browser cannot play this: it may be damaged."));
  });
  return el("div", {}, el("div", { class: "picture" }, player), hexOf(value, "The first bytes"));
}

function sourceOf(where) {
  const fields = where.item === null ? { column: where.column } : { column: where.column, item: where.item };
  return address(`${where.path}/picture`, fields);
}

function picture(where, label) {
  const note = el("figcaption", {}, "loading");
  const image = el("img", { alt: label, src: sourceOf(where) });
  image.addEventListener("load", () => {
    note.textContent = `${count(image.naturalWidth)} × ${count(image.naturalHeight)} pixels`;
    if (image.naturalWidth <= 96 && image.naturalHeight <= 96) image.classList.add("tiny");
  });
  image.addEventListener("error", () => {
    image.remove();
    note.textContent = "The browser cannot show this image: it may be damaged.";
    note.className = "bad";
  });
  return el("figure", {}, image, note);
}

function bytesOf(value) {
  const parts = [];
  if (!value.size) return el("p", { class: "null" }, "empty");
  if (value.text !== undefined) parts.push(el("pre", { class: "text", tabindex: "0" }, value.text));
  parts.push(hexOf(value, value.text === undefined ? null : "As bytes"));
  return el("div", {}, ...parts);
}

function hexOf(value, title) {
  const shown = Math.min(value.size, value.hex.length * 16);
  const rows = value.hex.map(([offset, hex, text]) =>
    el("tr", {}, el("th", { scope: "row" }, offset), el("td", {}, hex), el("td", { class: "ascii" }, text)),
  );
  const table = el("div", { class: "wide", tabindex: "0" }, el("table", { class: "hex" }, el("tbody", {}, ...rows)));
  const more = value.size > shown ? el("p", { class: "note" }, `The first ${shown} of ${count(value.size)} bytes`) : null;
  return title === null ? el("div", {}, table, more) : el("details", {}, el("summary", {}, title), table, more);
}

function arrayOf(value, where) {
  if (value.tokens) {
    const { tokens, ...numbers } = value;
    const folded = el("details", {}, el("summary", {}, "As numbers"));
    folded.addEventListener("toggle", () => folded.append(arrayOf(numbers, where)), { once: true });
    return el("div", {}, tokensOf(tokens), folded);
  }
  const parts = [];
  if (value.pixels) parts.push(el("div", { class: "picture" }, picture(where, `${where.column} as a picture`)));
  const facts = [
    ["shape", value.shape.join(" × ") || "none"],
    ["type", value.dtype],
    ["bytes", bytes(value.bytes)],
    ["min", value.min],
    ["max", value.max],
    ["mean", value.mean],
    ["zeros", value.zeros === undefined ? undefined : count(value.zeros)],
    ["not finite", value.not_finite ? count(value.not_finite) : undefined],
  ].filter(([, text]) => text !== undefined);
  parts.push(
    el("dl", { class: "facts" }, ...facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
  );
  const charts = [];
  if (value.line) {
    const label = `Line through ${counted(value.size, "item")}, from ${value.min} to ${value.max}`;
    charts.push(el("div", {}, el("h4", {}, "Values by place"), lineChart(label, value.line)));
  }
  if (value.histogram && value.size > 1) {
    const label = `Histogram of ${counted(value.size, "item")}, from ${value.min} to ${value.max}`;
    charts.push(el("div", {}, el("h4", {}, "How many items have which value"), histogramChart(label, value.histogram)));
  }
  if (charts.length) parts.push(el("div", { class: "charts" }, ...charts));
  if (value.size) {
    const dots = value.size > value.head.length ? " …" : "";
    parts.push(el("details", {}, el("summary", {}, "The first items"), el("pre", { class: "text" }, value.head.join(" ") + dots)));
  }
  return el("div", {}, ...parts);
}

function tokensOf(tokens) {
  const chips = tokens.pieces.map((piece, place) =>
    el("span", { class: "token", title: `token ${tokens.ids[place]}, place ${place}` }, piece === "" ? "∅" : piece),
  );
  const shown = tokens.ids.length;
  return el(
    "div",
    { class: "decoded" },
    el("h4", {}, "Decoded"),
    el("pre", { class: "text", tabindex: "0" }, tokens.text),
    el("details", {}, el("summary", {}, "Token by token"), el("div", { class: "tokens" }, ...chips)),
    tokens.n > shown ? el("p", { class: "note" }, `The first ${count(shown)} of ${count(tokens.n)} tokens`) : null,
  );
}

function listOf(value, where) {
  const items = value.items.map((item, place) => el("li", {}, valueOf(item, { ...where, item: place })));
  const more = value.length > items.length ? `The first ${count(items.length)} of ${count(value.length)} items` : null;
  return el("div", {}, el("ol", { class: "items", start: "0" }, ...items), more && el("p", { class: "note" }, more));
}

/* A node of a tree of JSON, see trees.py. */
export function node(tree, key, open) {
  const name = key === null ? [] : [el("span", { class: "key" }, key), ": "];
  if (tree.k !== "object" && tree.k !== "array") return el("div", { class: "leaf" }, ...name, leafOf(tree));
  const braces = tree.k === "object" ? ["{", "}"] : ["[", "]"];
  if (!tree.n) return el("div", { class: "leaf" }, ...name, braces.join(""));
  const noun = tree.k === "object" ? "key" : "item";
  const summary = el("summary", {}, ...name, el("span", { class: "soft" }, `${braces[0]} ${counted(tree.n, noun)} ${braces[1]}`));
  const body = el("div", { class: "inner" });
  const made = el("details", {}, summary, body);
  let filled = false;
  const fill = () => {
    if (filled || !made.open) return;
    filled = true;
    const small = tree.items.length <= OPEN;
    tree.items.forEach((item, place) => {
      body.append(tree.k === "object" ? node(item[1], item[0], false) : node(item, String(place), small && key === null));
    });
    const missing = tree.n - tree.items.length;
    if (missing) body.append(el("p", { class: "note" }, `${counted(missing, noun)} more, not shown`));
  };
  made.addEventListener("toggle", fill);
  if (open) {
    made.open = true;
    fill();
  }
  return made;
}

function leafOf(tree) {
  switch (tree.k) {
    case "string": {
      const cut = tree.n > tree.v.length ? `… (${count(tree.n)} characters)` : "";
      return el("span", { class: "string" }, `"${tree.v}"${cut}`);
    }
    case "number":
      return el("span", { class: "digits" }, tree.v);
    case "bytes":
      return el("span", { class: "soft" }, counted(tree.n, "byte"));
    default:
      return el("span", { class: "word" }, tree.k);
  }
}
