/* Samples: by number, by shard, or by a search in a text column. */
import { address, ask, bytes, count, counted, el, problem, say, shown } from "./dom.js";
import { sizeOf, valueOf } from "./values.js";

const PAGE = 10; // samples in the list
const GO = 20000; // samples that a search looks at before it asks whether to continue
const GO_SECONDS = 15;

/* The view of one dataset's samples. It stays while its samples change, so that a search is kept. */
export class Samples {
  constructor(dataset, number) {
    this.dataset = dataset;
    this.path = `${number}/samples`;
    this.source = number;
    this.current = -1;
    this.page = -1;
    this.loading = null;
    this.search = null;
    this.typed = false;
    this.list = el("nav", { class: "list", "aria-label": "Samples nearby" });
    this.detail = el("article", { class: "detail", "aria-labelledby": "title" });
    this.results = el("div", { class: "results", hidden: true });
    this.element = el(
      "section",
      {},
      this.toolbar(),
      this.results,
      el("div", { class: "split" }, this.detail, this.list),
    );
  }

  toolbar() {
    this.field = el("input", { id: "number", inputmode: "numeric", autocomplete: "off", size: "12" });
    this.previous = el("button", { type: "button", onclick: () => this.go(this.current - 1) }, "‹ Previous");
    this.next = el("button", { type: "button", onclick: () => this.go(this.current + 1) }, "Next ›");
    const jump = el(
      "form",
      { class: "jump", onsubmit: (event) => this.jump(event) },
      el("label", { for: "number" }, "Sample"),
      this.field,
      el("span", { class: "soft" }, `of ${count(this.dataset.samples)}`),
      el("button", {}, "Go"),
    );
    const turn = el("div", { class: "jump" }, this.previous, this.next);
    this.shardField = el("input", { id: "shard", inputmode: "numeric", autocomplete: "off", size: "7" });
    this.shardField.addEventListener("input", () => {
      this.typed = true; // a sample that arrives now does not replace it
    });
    const byShard = el(
      "form",
      { class: "jump", onsubmit: (event) => this.jumpToShard(event) },
      el("label", { for: "shard" }, "Shard"),
      this.shardField,
      el("span", { class: "soft" }, `of ${count(this.dataset.shards)}`),
      el("button", {}, "To its start"),
    );
    const texts = this.dataset.texts;
    this.text = el("input", { id: "search", type: "search", autocomplete: "off", placeholder: "text to find" });
    this.column = el("select", { "aria-label": "Column to search" }, ...texts.map((name) => el("option", { value: name }, name)));
    const find = el(
      "form",
      { class: "jump", role: "search", onsubmit: (event) => this.find(event) },
      el("label", { for: "search" }, "Search in"),
      this.column,
      this.text,
      el("button", {}, "Find"),
    );
    this.message = el("p", { class: "message", role: "alert" });
    return el("div", { class: "toolbar" }, turn, jump, byShard, texts.length ? find : null, this.message);
  }

  go(number) {
    if (number >= 0 && number < this.dataset.samples) location.hash = `#/${this.source}/samples/${number}`;
  }

  jump(event) {
    event.preventDefault();
    const number = this.read(this.field, this.dataset.samples, "sample");
    if (number !== null) this.go(number);
  }

  async jumpToShard(event) {
    event.preventDefault();
    const shard = this.read(this.shardField, this.dataset.shards, "shard");
    this.typed = false;
    if (shard === null) return;
    await shown(this.message, async () => {
      const found = await ask(`${this.source}/shards`, { start: shard, count: 1 });
      if (found.shards[0].samples) this.go(found.shards[0].first);
      else this.message.replaceChildren(`Shard ${count(shard)} has no samples.`);
    });
  }

  read(field, stop, noun) {
    const text = field.value.replace(/[\s,_]/g, "");
    const number = /^\d{1,15}$/.test(text) ? Number(text) : NaN;
    if (number < stop) {
      this.message.replaceChildren();
      return number;
    }
    const range = stop ? `from 0 to ${count(stop - 1)}` : "but there is none";
    this.message.replaceChildren(`Give the number of a ${noun}, ${range}.`);
    return null;
  }

  /* Show a sample and its neighbours. */
  async show(number) {
    if (!this.dataset.samples) {
      this.detail.replaceChildren(el("h1", { id: "title" }, "Samples"), el("p", {}, "The dataset has no samples."));
      return;
    }
    this.loading?.abort();
    const loading = (this.loading = new AbortController());
    this.current = number;
    this.field.value = number;
    this.previous.disabled = number <= 0;
    this.next.disabled = number >= this.dataset.samples - 1;
    const page = Math.floor(number / PAGE);
    if (page !== this.page) {
      this.page = page;
      await shown(this.list, () => this.showList(page, loading.signal));
      if (loading.signal.aborted) {
        this.page = -1;
        return;
      }
    }
    this.mark();
    const title = el("h1", { id: "title" }, `Sample ${count(number)}`);
    const place = el("div", {});
    await shown(place, async () => place.replaceChildren(...(await this.cards(number, loading.signal))));
    if (!loading.signal.aborted) {
      this.detail.replaceChildren(title, place);
      say(`Sample ${number}`);
    }
  }

  async showList(page, signal) {
    const found = await ask(this.path, { start: page * PAGE, count: PAGE }, { signal });
    const rows = found.samples.map((sample) => el("li", {}, this.row(sample)));
    const last = Math.floor((this.dataset.samples - 1) / PAGE);
    const turn = (text, to) => el("button", { type: "button", disabled: to < 0 || to > last, onclick: () => this.go(to * PAGE) }, text);
    const large = found.large ? el("p", { class: "note" }, `Samples have ${bytes(found.large)} each: only the one that you choose is read.`) : null;
    this.list.replaceChildren(
      ...(large ? [large] : []),
      el("ol", { class: "rows" }, ...rows),
      el("p", { class: "turn" }, turn("‹ Ten back", page - 1), turn("Ten on ›", page + 1)),
    );
  }

  row(sample) {
    const link = el("a", { href: `#/${this.source}/samples/${sample.number}`, "data-number": sample.number });
    const lines = sample.error
      ? [el("span", { class: "line bad" }, sample.error)]
      : sample.lines.map(([name, text]) => el("span", { class: "line" }, el("span", { class: "soft" }, `${name} `), text));
    if (sample.picture) {
      const fields = { column: sample.picture };
      const image = el("img", { alt: "", loading: "lazy", src: address(`${this.path}/${sample.number}/picture`, fields) });
      image.addEventListener("error", () => image.remove());
      link.append(image);
    }
    link.append(el("span", { class: "words" }, el("strong", {}, count(sample.number)), ...lines));
    return link;
  }

  mark() {
    for (const link of this.list.querySelectorAll("a")) {
      if (Number(link.dataset.number) === this.current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  async cards(number, signal) {
    const sample = await ask(`${this.path}/${number}`, {}, { signal });
    if (!this.typed) this.shardField.value = sample.shard;
    const cards = sample.columns.map((column) => {
      const where = { path: `${this.path}/${number}`, number, column: column.name, item: null };
      return el(
        "section",
        { class: "card", "aria-label": `Column ${column.name}` },
        el("h2", {}, column.name, el("code", { class: "chip" }, column.type), el("span", { class: "soft" }, sizeOf(column.value))),
        valueOf(column.value, where),
      );
    });
    return [
      el(
        "p",
        { class: "soft" },
        `number ${count(sample.within)} of `,
        el("a", { href: `#/${this.source}/shards/${sample.shard}` }, `shard ${count(sample.shard)}`),
        ", ",
        el("span", { class: "breaks" }, sample.file),
      ),
      ...cards,
    ];
  }

  // --- search

  find(event) {
    event.preventDefault();
    const text = this.text.value;
    if (!text.trim()) {
      this.message.replaceChildren("Give a text to find.");
      return;
    }
    this.message.replaceChildren();
    this.search?.abort.abort();
    this.search = { column: this.column.value, text, next: 0, matches: 0, running: false };
    this.rows = el("ol", { class: "rows matches" });
    this.far = el("p", { class: "far" });
    this.buttons = el("p", { class: "turn" });
    const title = el("h2", {}, "Found: ", el("q", {}, text), ` in ${this.search.column}`);
    this.results.replaceChildren(title, this.far, this.rows, this.buttons);
    this.results.hidden = false;
    this.scan(this.search);
  }

  async scan(search) {
    search.abort = new AbortController();
    search.running = true;
    let failure = null;
    this.note(search);
    const stop = Math.min(search.next + GO, this.dataset.samples);
    const until = performance.now() + GO_SECONDS * 1000;
    try {
      let found = 0;
      while (search.next < stop && performance.now() < until && found < 50) {
        const fields = { column: search.column, text: search.text, start: search.next, stop };
        const piece = await ask(`${this.source}/search`, fields, { signal: search.abort.signal });
        search.next = piece.next;
        search.matches += piece.matches.length;
        found += piece.matches.length;
        this.rows.append(...piece.matches.map((match) => el("li", {}, this.match(match))));
        this.note(search);
      }
    } catch (error) {
      if (error.name !== "AbortError") failure = error;
    } finally {
      search.running = false;
      if (search === this.search) {
        this.note(search);
        if (failure) this.far.append(problem(failure));
      }
    }
  }

  match(match) {
    const words = match.error
      ? [el("span", { class: "bad" }, match.error)]
      : [match.before, el("mark", {}, match.match), match.after];
    return el(
      "a",
      { href: `#/${this.source}/samples/${match.number}`, "data-number": match.number },
      el("span", { class: "words" }, el("strong", {}, count(match.number)), el("span", { class: "line" }, ...words)),
    );
  }

  note(search) {
    const all = this.dataset.samples;
    const state = search.next >= all ? "All" : search.running ? "Looking:" : "Stopped:";
    const far = `${state} ${count(search.next)} of ${counted(all, "sample")} looked at, ${search.matches} found`;
    const bar = el("progress", { max: String(all), value: String(search.next), "aria-label": "How far the search came" });
    this.far.replaceChildren(bar, far);
    const close = el("button", { type: "button", onclick: () => this.stop(true) }, "Close");
    const stop = el("button", { type: "button", onclick: () => this.stop(false) }, "Stop");
    const more = el("button", { type: "button", onclick: () => this.scan(search) }, "Continue");
    this.buttons.replaceChildren(...(search.running ? [stop] : search.next < all ? [more, close] : [close]));
    if (!search.running) say(far);
  }

  /* Stop the search, if there is one; `close` removes what it found. */
  stop(close) {
    if (!this.search) return;
    this.search.abort.abort();
    if (close) {
      this.results.hidden = true;
      this.search = null;
    }
  }
}
