/* The page: which view is shown is in the address after "#", so that back, forward and reload work. */
import { ask, el, problem, say } from "./dom.js";
import { order } from "./order.js";
import { overview } from "./overview.js";
import { Samples } from "./samples.js";
import { shards } from "./shards.js";

const VIEWS = ["overview", "samples", "shards", "order"];
const TITLES = { overview: "Overview", samples: "Samples", shards: "Shards", order: "Order" };

const main = document.getElementById("main");
const select = document.getElementById("dataset");
const dialog = document.getElementById("keys");
const browsers = new Map(); // dataset -> its Samples
let library = null;
let place = { view: "overview", source: 0, number: 0 };
let loading = null;

function parse() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/");
  if (parts[0] === "order") return { view: "order", source: place.source, number: 0, query: new URLSearchParams(query ?? "") };
  const source = Math.min(Number.parseInt(parts[0], 10) || 0, library.datasets.length - 1);
  const view = VIEWS.includes(parts[1]) ? parts[1] : "overview";
  const number = /^\d{1,15}$/.test(parts[2] ?? "") ? Number(parts[2]) : 0;
  return { view, source, number, query: new URLSearchParams() };
}

function address(view) {
  if (view === "order") return "#/order";
  const known = view === "samples" ? Math.max(browsers.get(place.source)?.current ?? 0, 0) : null;
  return known === null ? `#/${place.source}/${view}` : `#/${place.source}/samples/${known}`;
}

function showTabs() {
  const tabs = VIEWS.map((view) =>
    el("a", { href: address(view), "aria-current": view === place.view ? "page" : null }, TITLES[view]),
  );
  document.getElementById("views").replaceChildren(...tabs);
  select.value = String(place.source);
  document.title = `${TITLES[place.view]} – mdsx view`;
}

async function show() {
  loading?.abort();
  loading = new AbortController();
  const { signal } = loading;
  const before = place;
  place = parse();
  const dataset = library.datasets[place.source];
  showTabs();
  try {
    if (place.view === "samples") {
      if (!browsers.has(place.source)) browsers.set(place.source, new Samples(dataset, place.source));
      const samples = browsers.get(place.source);
      if (!samples.element.isConnected) main.replaceChildren(samples.element);
      await samples.show(place.number);
      showTabs();
      return;
    }
    let made;
    if (place.view === "shards") made = await shards(dataset, place.source, place.number, signal);
    else if (place.view === "order") made = await order(library.datasets, place.query, signal);
    else made = overview(dataset, place.source);
    if (signal.aborted) return;
    main.replaceChildren(made);
    main.querySelector(".marked")?.scrollIntoView({ block: "center" });
    if (before.view !== place.view) {
      window.scrollTo(0, 0);
      say(TITLES[place.view]);
    }
  } catch (error) {
    if (error.name !== "AbortError") main.replaceChildren(problem(error));
  }
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const samples = browsers.get(place.source);
  const typing = event.target.closest("input, select, textarea, dialog");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (place.view === "samples") samples?.stop(false);
    return;
  }
  if (typing) return;
  const step = { ArrowRight: 1, j: 1, ArrowLeft: -1, k: -1, "]": 10, "[": -10 }[event.key];
  if (step !== undefined && place.view === "samples" && samples) {
    if (event.key.startsWith("Arrow") && scrolls(event.target)) return;
    const last = library.datasets[place.source].samples - 1;
    samples.go(Math.min(Math.max(samples.current + step, 0), last));
  } else if (event.key === "g" || event.key === "/") {
    toField(event.key === "g" ? "number" : "search");
  } else if (/^[1-4]$/.test(event.key)) {
    location.hash = address(VIEWS[Number(event.key) - 1]);
  } else if (event.key === "t") {
    document.querySelector("[data-theme-switch]").click();
  } else if (event.key === "?") {
    dialog.showModal();
  } else {
    return;
  }
  event.preventDefault();
}

/* Whether the arrows scroll what has the focus. */
function scrolls(target) {
  const box = target.closest("[tabindex='0']");
  return box !== null && box.scrollWidth > box.clientWidth;
}

async function toField(id) {
  if (place.view !== "samples") {
    location.hash = address("samples");
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  }
  const field = document.getElementById(id);
  field?.focus();
  field?.select();
}

async function start() {
  try {
    library = await ask("overview");
  } catch (error) {
    main.replaceChildren(problem(error));
    return;
  }
  library.datasets.forEach((dataset, number) => select.append(el("option", { value: String(number) }, dataset.url)));
  document.getElementById("dataset-label").hidden = library.datasets.length < 2;
  select.addEventListener("change", () => {
    const view = place.view === "order" ? "overview" : place.view;
    location.hash = `#/${select.value}/${view}`;
  });
  document.getElementById("keys-button").addEventListener("click", () => dialog.showModal());
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  addEventListener("hashchange", show);
  document.addEventListener("keydown", key);
  await show();
}

start();
