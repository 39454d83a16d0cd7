/* The overview of a dataset: what it is, its columns and its metadata. */
import { bytes, count, counted, el } from "./dom.js";
import { node } from "./values.js";

export function overview(dataset, number) {
  const about = dataset.exact ? "" : "about ";
  const files = dataset.files === null ? "" : ` in ${counted(dataset.files, "file")}`;
  const each = dataset.samples ? dataset.raw_size / dataset.samples : 0;
  const tiles = [
    ["samples", count(dataset.samples), `${about}${bytes(Math.round(each))} each`],
    ["shards", count(dataset.shards), files.trim() || (dataset.shards ? `${about}${bytes(Math.round(dataset.raw_size / dataset.shards))} each` : "")],
    ["stored", bytes(dataset.size), dataset.compression ? `${about}${bytes(dataset.raw_size)} uncompressed` : "not compressed"],
    ["columns", count(dataset.columns.length), ""],
  ];
  const facts = [
    ["Place", el("code", { class: "breaks" }, dataset.url)],
    ["Format", dataset.format],
    ["Compression", dataset.compression ?? "none"],
    ["Verified when read", dataset.checks],
    ["Least that is read", dataset.reads ?? "nothing: it is empty"],
    ["Fingerprint", el("code", { class: "breaks" }, dataset.fingerprint)],
  ];
  if (dataset.snapshots.length) {
    const kept = dataset.snapshots.map((name) => el("li", {}, el("code", { class: "breaks" }, name)));
    facts.push(["Snapshots", el("ul", { class: "plain" }, ...kept)]);
  }
  const rows = dataset.columns.map((column) =>
    el("tr", {}, el("th", { scope: "row" }, column.name), el("td", {}, el("code", {}, column.type))),
  );
  return el(
    "section",
    { "aria-labelledby": "title" },
    el("h1", { id: "title" }, "Overview"),
    el(
      "ul",
      { class: "tiles" },
      ...tiles.map(([name, value, note]) =>
        el("li", {}, el("span", { class: "soft" }, name), el("strong", {}, value), el("span", { class: "soft" }, note)),
      ),
    ),
    el(
      "div",
      { class: "pair" },
      el(
        "div",
        { class: "card" },
        el("h2", {}, "Dataset"),
        el("dl", { class: "facts list" }, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
        el("p", {}, el("a", { href: `#/${number}/samples/0`, class: "button" }, "Look at the samples")),
      ),
      el(
        "div",
        { class: "card" },
        el("h2", {}, "Columns"),
        el(
          "table",
          { class: "columns" },
          el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Name"), el("th", { scope: "col" }, "Type"))),
          el("tbody", {}, ...rows),
        ),
        el("h2", {}, "Metadata"),
        dataset.metadata.n
          ? el("div", { class: "tree" }, node(dataset.metadata, null, true))
          : el("p", { class: "null" }, "none"),
      ),
    ),
  );
}
