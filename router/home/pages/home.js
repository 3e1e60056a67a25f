// Keeps the list up to date. Everything works without it, by loading the page again.
"use strict";

const table = document.getElementById("table");
const form = document.getElementById("search");
const text = document.getElementById("search-text");
const live = document.getElementById("live");
const refreshEveryMs = 5000;
let query = location.search;
let asking = null;
let shown = table.innerHTML;

async function show(isNew) {
  if (asking) asking.abort();
  const own = (asking = new AbortController());
  try {
    const response = await fetch("/.sandbox-router/sandboxes" + query, { signal: own.signal, cache: "no-store" });
    // The session has ended, or the page is another's now: what is wanted shows on the whole page.
    if (response.status === 401 || response.status === 403) return location.reload();
    if (!response.ok) return;
    const markup = await response.text();
    if (own.signal.aborted || markup === shown) return;
    // Whoever is about to press something there is not interrupted.
    if (!isNew && table.contains(document.activeElement) && document.activeElement !== table) return;
    shown = markup;
    table.innerHTML = markup;
    live.textContent = "";
  } catch (error) {
    if (error.name !== "AbortError") live.textContent = "The router does not answer.";
  }
}

function search() {
  const wanted = text.value.trim();
  query = wanted ? "?" + new URLSearchParams({ search: wanted }) : "";
  history.replaceState(null, "", "/" + query);
  show(true);
}

let typed;
text.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(search, 250);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typed);
  search();
});
setInterval(() => {
  if (document.visibilityState === "visible") show(false);
}, refreshEveryMs);
// A page that the browser kept may be of a session that has ended.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});
