/* Elements from values. Values are shown as text: nothing here makes HTML of a string. */
"use strict";

const byId = (id) => document.getElementById(id);

/* Return an element. `attributes.class` and others are set; children are elements or texts. */
function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

function table(caption, heads, rows, kind = "") {
  const body = rows.map((row) => el("tr", row.chosen ? { class: "chosen" } : {}, ...row.map((cell) => el("td", {}, cell))));
  const head = el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text))));
  const made = el("table", { class: kind, "aria-label": caption }, head, el("tbody", {}, ...body));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, made);
}

/* Return a box with a text and a button that copies it. */
function copyBox(title, text) {
  const button = el("button", { type: "button", "aria-label": `Copy: ${title}` }, "Copy");
  button.addEventListener("click", async () => {
    const done = await copied(text);
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  const bar = el("div", { class: "bar" }, el("span", {}, title), button);
  const pre = el("pre", { tabindex: "0" });
  if (text.includes("\n")) pre.textContent = text;
  else for (const word of text.split(" ")) pre.append(pre.firstChild ? " " : "", el("span", {}, word)); // breaks between words
  return el("div", { class: "copy" }, bar, pre);
}

/* A page of a file may lack the clipboard: then the older way, with a selection, does it. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { readonly: "", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

// --- numbers

function shortNumber(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  for (const [unit, name] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (size >= unit * 0.9995) return Number((value / unit).toPrecision(3)) + name;
  }
  return String(Number(value.toPrecision(3)));
}

/* Return a short number of samples or shards. */
const shortCount = (value) => shortNumber(value).replace(" G", " bn").replace(" T", "000 bn");
const full = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 1 : 0 });

const bytes = (value) => {
  const short = shortNumber(value);
  return /[kMGT]$/.test(short) ? `${short}B` : `${short} B`;
};

const percent = (value) => `${Number((100 * value).toPrecision(value >= 1 ? 3 : 2))} %`;

/* Return the unit for times up to `most` seconds: [seconds, name]. */
function timeUnit(most) {
  if (most < 2) return [0.001, "ms"];
  if (most < 300) return [1, "s"];
  if (most < 3 * 3600) return [60, "min"];
  return most < 72 * 3600 ? [3600, "hours"] : [86400, "days"];
}
