/* The shards of a dataset: sizes, and checks of every byte on demand. */
import { ask, bytes, count, counted, el, problem, say } from "./dom.js";
import { barChart } from "./charts.js";

const PAGE = 50;
const STATES = {
  undamaged: ["good", "✓ undamaged"],
  damaged: ["bad", "✗ damaged"],
  unread: ["warn", "? could not be read"],
};
const known = new Map(); // dataset and shard -> what a check found

export async function shards(dataset, source, first, signal) {
  const start = Math.floor(first / PAGE) * PAGE;
  const found = await ask(`${source}/shards`, { start, count: PAGE }, { signal });
  const about = found.exact ? "" : "about ";
  const rows = found.shards.map((shard) => row(found, source, shard, shard.number === first && first > 0));
  const last = Math.max(0, Math.ceil(found.total / PAGE) - 1);
  const page = start / PAGE;
  const turn = (text, to) =>
    to < 0 || to > last ? null : el("a", { class: "button", href: `#/${source}/shards/${to * PAGE}` }, text);
  const place = el("div", {});
  if (found.total > 1) {
    const sizes = await ask(`${source}/sizes`, {}, { signal });
    const grouped = found.total > sizes.x.length;
    const title = grouped ? "Largest of each group of neighbours" : "Size of each shard";
    place.append(
      el(
        "div",
        { class: "card" },
        el("h2", {}, title, el("span", { class: "soft" }, `${about}uncompressed bytes, by the shard's number`)),
        barChart(`${title}, up to ${bytes(found.most)}`, sizes, bytes),
      ),
    );
  }
  const checkAll = el("button", { type: "button" }, `Check these ${count(found.shards.length)}`);
  checkAll.addEventListener("click", () => checkEach(checkAll, rows));
  const heads = ["Shard", "File", "Samples", "Stored", `Uncompressed`, "Fill", "Checksums"];
  return el(
    "section",
    { "aria-labelledby": "title" },
    el("h1", { id: "title" }, "Shards"),
    el("p", { class: "soft" }, `${counted(found.total, "shard")}. Fill is the size against the largest shard, ${about}${bytes(found.most)}. A check reads the whole shard and every byte of it.`),
    place,
    el("p", { class: "turn" }, found.shards.length ? checkAll : null, turn("‹ Previous", page - 1), turn("Next ›", page + 1), found.total > PAGE ? el("span", { class: "soft" }, `page ${count(page + 1)} of ${count(last + 1)}`) : null),
    found.shards.length
      ? el(
          "table",
          { class: "shards" },
          el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
          el("tbody", {}, ...rows.map((each) => each.element)),
        )
      : el("p", {}, "The dataset has no shards."),
  );
}

function row(found, source, shard, marked) {
  const share = found.most ? shard.raw_size / found.most : 0;
  const state = el("div", { class: "state" });
  const button = el("button", { type: "button" }, "Check");
  const key = `${source}/${shard.number}`;

  function show() {
    const result = known.get(key);
    if (result === undefined) {
      state.replaceChildren(el("span", { class: "soft" }, "not checked"), button);
      return;
    }
    const [kind, text] = STATES[result.state];
    state.replaceChildren(el("span", { class: kind }, text), button);
    button.textContent = "Check again";
    if (result.problems.length) {
      const list = result.problems.map((each) => el("li", {}, `${each.kind}: ${each.message}`));
      const more = result.count - result.problems.length;
      state.append(
        el("details", { open: true }, el("summary", {}, counted(result.count, "problem")), el("ul", { class: "problems" }, ...list), more ? el("p", {}, `${count(more)} more`) : null),
      );
    }
  }

  async function check(signal) {
    button.disabled = true;
    button.textContent = "Checking";
    try {
      const result = await ask(`${source}/shards/${shard.number}/check`, {}, { method: "POST", signal });
      known.set(key, result);
      show();
      say(`Shard ${shard.number}: ${result.state}`);
    } catch (error) {
      if (error.name === "AbortError") show();
      else state.replaceChildren(problem(error), button);
    } finally {
      button.disabled = false;
      if (button.textContent === "Checking") button.textContent = "Check";
    }
  }

  button.addEventListener("click", () => check());
  show();
  const link = shard.samples
    ? el("a", { href: `#/${source}/samples/${shard.first}`, title: "its first sample" }, count(shard.number))
    : count(shard.number);
  const full = el("span", {});
  full.style.width = `${100 * share}%`;
  const bar = el("span", { class: "gauge", "aria-hidden": "true" }, full);
  const cell = (label, ...content) => el("td", { "data-label": label }, ...content);
  return {
    check,
    element: el(
      "tr",
      { class: marked ? "marked" : null },
      el("th", { scope: "row", "data-label": "Shard" }, link),
      cell("File", el("code", { class: "breaks" }, shard.name)),
      cell("Samples", count(shard.samples)),
      cell("Stored", bytes(shard.size)),
      cell("Uncompressed", `${found.exact ? "" : "about "}${bytes(shard.raw_size)}`),
      cell("Fill", el("span", { class: "fill" }, bar, `${Math.round(share * 100)} %`)),
      cell("Checksums", state),
    ),
  };
}

async function checkEach(button, rows) {
  const text = button.textContent;
  const abort = new AbortController();
  const stop = el("button", { type: "button", onclick: () => abort.abort() }, "Stop");
  button.disabled = true;
  button.after(stop);
  for (const [place, each] of rows.entries()) {
    if (abort.signal.aborted || !button.isConnected) break;
    button.textContent = `Checking ${place + 1} of ${rows.length}`;
    await each.check(abort.signal);
  }
  stop.remove();
  button.disabled = false;
  button.textContent = text;
}
