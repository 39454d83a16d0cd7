/* Elements, numbers as text, and questions to the server. Whatever a dataset has is shown as text, never as HTML. */

/* el("p", {class: "note", onclick: f}, "text", element, ...) returns an element; null children are left out. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && typeof value === "boolean") made[name] = value;
    else made.setAttribute(name, String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const plain = new Intl.NumberFormat("en-US");

export function count(number) {
  return plain.format(number);
}

export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function bytes(size) {
  let value = size;
  for (const unit of ["B", "kB", "MB", "GB", "TB", "PB"]) {
    if (value < 999.5 || unit === "PB") return unit === "B" ? `${value} B` : `${Number(value.toPrecision(3))} ${unit}`;
    value /= 1000;
  }
  return `${size} B`;
}

export function say(text) {
  document.getElementById("status").textContent = text;
}

let busy = 0;

function working(change) {
  busy += change;
  document.getElementById("progress").hidden = busy === 0;
}

/* Return the answer's JSON. Throw an Error whose message is for people, or an AbortError. */
export async function ask(path, fields = {}, options = {}) {
  working(1);
  try {
    const answer = await fetch(address(path, fields), options);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error ? found.error.message : `status ${answer.status}`);
    return found;
  } catch (error) {
    if (error instanceof TypeError) throw new Error("The server does not answer: has mdsx view ended?");
    throw error;
  } finally {
    working(-1);
  }
}

export function address(path, fields = {}) {
  const query = new URLSearchParams(fields).toString();
  return `api/${path}${query ? `?${query}` : ""}`;
}

export function problem(error) {
  return el("p", { class: "problem", role: "alert" }, error.message ?? String(error));
}

/* Run `work`, which may be aborted, and show its error in `place`. */
export async function shown(place, work) {
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError") place.replaceChildren(problem(error));
  }
}
