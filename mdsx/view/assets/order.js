/* The order: which samples a batch of a run has, on which rank. */
import { ask, count, counted, el, problem, say } from "./dom.js";
import { dotChart } from "./charts.js";

const NUMBERS = [
  ["seed", "Seed", "0"],
  ["epoch", "Epoch", "0"],
  ["batch", "Batch", "0"],
  ["batch_size", "Batch size of a rank", "32"],
  ["world_size", "World size", "1"],
  ["rank", "Rank", "0"],
  ["lanes", "Lanes", ""],
  ["shuffle_block", "Shuffle block", ""],
];

/* `given` are the fields in the address. */
export async function order(datasets, given, signal) {
  const fields = NUMBERS.map(([name, label, standard]) => {
    const input = el("input", { id: `order-${name}`, name, inputmode: "numeric", autocomplete: "off", value: given.get(name) ?? standard, placeholder: standard === "" ? "the default" : null });
    return el("p", {}, el("label", { for: `order-${name}` }, label), input);
  });
  if (datasets.length > 1) {
    const input = el("input", { id: "order-proportions", name: "proportions", value: given.get("proportions") ?? "", placeholder: "each sample once", autocomplete: "off" });
    fields.push(el("p", {}, el("label", { for: "order-proportions" }, "Proportions"), input));
  }
  const box = (name, label) =>
    el("p", { class: "check" }, el("label", {}, el("input", { type: "checkbox", name, checked: given.get(name) !== "false" }), label));
  const form = el(
    "form",
    { class: "fields card", "aria-label": "The run and the batch" },
    ...fields,
    box("shuffle", "shuffled"),
    box("drop_last", "drop a short last batch"),
    el("p", { class: "check" }, el("button", { class: "primary" }, "Show the batch")),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = `#/order?${asked(form)}`;
  });
  const result = el("div", { "aria-live": "polite" });
  const page = el(
    "section",
    { "aria-labelledby": "title" },
    el("h1", { id: "title" }, "Order"),
    el("p", { class: "soft" }, datasets.length > 1
      ? "The samples of each batch in a run over the mixture of these datasets. The order is computed, so nothing is downloaded."
      : "The samples of each batch in a run, on each rank. The order is computed, so nothing is downloaded."),
    form,
    result,
  );
  try {
    const found = await ask("order", Object.fromEntries(new URLSearchParams(asked(form))), { signal });
    result.append(...answer(found, datasets, form));
    say(`Batch ${found.start / Math.max(1, found.global_batch)}`);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    result.append(problem(error));
  }
  return page;
}

function asked(form) {
  const query = new URLSearchParams();
  for (const input of form.querySelectorAll("input")) {
    if (input.type === "checkbox") query.set(input.name, String(input.checked));
    else if (input.value.trim()) query.set(input.name, input.value.trim());
  }
  return query.toString();
}

function answer(found, datasets, form) {
  const several = datasets.length > 1;
  const query = new URLSearchParams(asked(form));
  const rank = Number(query.get("rank") ?? 0);
  const batch = Number(query.get("batch") ?? 0);
  const to = (name, value, text) => {
    const other = new URLSearchParams(query);
    other.set(name, String(value));
    return el("a", { class: "button", href: `#/order?${other}` }, text);
  };
  const stop = found.start + found.global_batch;
  const summary = el(
    "p",
    {},
    `Batch ${count(batch)} of ${count(found.batches)} has the positions ${count(found.start)} to ${count(stop - 1)} of the epoch's ${count(found.epoch_samples)}, `,
    `with ${counted(found.lanes, "lane")} and blocks of ${counted(found.shuffle_block, "sample")}.`,
  );
  const turn = el(
    "p",
    { class: "turn" },
    batch > 0 ? to("batch", batch - 1, "‹ Previous batch") : null,
    batch + 1 < found.batches ? to("batch", batch + 1, "Next batch ›") : null,
  );
  const ranks = found.ranks.map((each) => {
    const other = new URLSearchParams(query);
    other.set("rank", String(each.rank));
    const text = el("span", { class: "soft" }, `${counted(each.samples, "sample")}, ${counted(each.shards, "shard")}`);
    return el("li", {}, el("a", { href: `#/order?${other}`, "aria-current": each.rank === rank ? "true" : null }, el("strong", {}, `rank ${count(each.rank)}`), text));
  });
  const rows = found.samples.map(([position, dataset, shard, within, sample]) =>
    el(
      "tr",
      {},
      el("td", {}, count(position)),
      several ? el("td", { class: "breaks" }, datasets[dataset].url) : null,
      el("td", {}, count(shard)),
      el("td", {}, count(within)),
      el("td", {}, el("a", { href: `#/${dataset}/samples/${sample}` }, count(sample))),
    ),
  );
  const heads = ["Position", several ? "Dataset" : null, "Shard", "Number in it", "Sample"].filter(Boolean);
  const dots = { x: found.samples.map((_, place) => place), y: found.samples.map((row) => row[2]) };
  return [
    summary,
    turn,
    found.ranks.length > 1 ? el("ul", { class: "ranks" }, ...ranks) : null,
    found.samples.length > 1
      ? el("div", { class: "card" }, el("h2", {}, "Shards of the batch", el("span", { class: "soft" }, "the shard of each sample, in the order of reading")), dotChart("The shard of each sample of the batch", dots))
      : null,
    el(
      "div",
      { class: "card" },
      el("h2", {}, `Samples of rank ${count(rank)}`, el("span", { class: "soft" }, counted(found.all, "sample"))),
      el("div", { class: "wide", tabindex: "0" }, el("table", { class: "numbers" }, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, ...rows))),
      found.all > found.samples.length ? el("p", { class: "note" }, `The first ${count(found.samples.length)} of ${count(found.all)}`) : null,
    ),
  ].filter(Boolean);
}
