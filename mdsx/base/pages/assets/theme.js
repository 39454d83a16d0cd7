/* The switch between the themes, and the theme's colours for charts.

   <button type="button" data-theme-switch></button> gets its text here: Theme: system, light or dark.
   A browser remembers the choice. The document gets the event "themechange" when the colours change,
   by the switch or by the system, so that charts are drawn again. */
"use strict";

globalThis.mdsxTheme = (() => {
  const KEY = "mdsx-theme";
  const CHOICES = ["system", "light", "dark"];
  const root = document.documentElement;

  function remembered() {
    try {
      const choice = localStorage.getItem(KEY);
      return CHOICES.includes(choice) ? choice : "system";
    } catch {
      return "system"; // a page of a file may have no storage
    }
  }

  let choice = remembered();

  function show() {
    if (choice === "system") delete root.dataset.theme;
    else root.dataset.theme = choice;
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      button.textContent = `Theme: ${choice}`;
    }
  }

  function set(wanted) {
    choice = CHOICES.includes(wanted) ? wanted : "system";
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // the choice lasts as long as the page
    }
    show();
    document.dispatchEvent(new Event("themechange"));
  }

  function color(name) {
    return getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  }

  show();
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("click", (event) => {
    if (event.target instanceof Element && event.target.closest("[data-theme-switch]")) {
      set(CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length]);
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    document.dispatchEvent(new Event("themechange"));
  });

  /* `color("ink")` is the value of --ink now; `choice()` is "system", "light" or "dark". */
  return { set, color, choice: () => choice };
})();
