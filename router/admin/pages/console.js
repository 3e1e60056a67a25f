// Keeps the page up to date. Everything works without it, by loading the page again.
"use strict";

const table = document.getElementById("table");
const form = document.getElementById("search");
const text = document.getElementById("search-text");
const live = document.getElementById("live");
const overview = document.getElementById("overview");
const refreshEveryMs = 5000;
let query = location.search;
let asking = null;

function say(words, isStale) {
  if (live.textContent !== words) live.textContent = words;
  document.body.classList.toggle("stale", isStale);
}

async function show(wanted, isNew) {
  if (asking) asking.abort();
  const own = (asking = new AbortController());
  try {
    const response = await fetch("sandboxes" + wanted, { signal: own.signal });
    if (!response.ok) return;
    const markup = await response.text();
    if (own.signal.aborted || table.dataset.shown === markup) return;
    // Whoever reads or is about to press something there is not interrupted.
    if (!isNew && (table.contains(document.activeElement) || !getSelection().isCollapsed)) return;
    table.dataset.shown = markup;
    table.innerHTML = markup;
  } catch (error) {
    if (error.name !== "AbortError") say("The router does not answer.", true);
  }
}

function go(wanted) {
  query = wanted;
  history.replaceState(null, "", wanted || location.pathname);
  form.elements.state.value = new URLSearchParams(wanted).get("state") || "";
  return show(wanted, true);
}

table.addEventListener("click", (event) => {
  const link = event.target.closest("nav a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(new URL(link.href).search).then(() => document.getElementById("sandboxes").focus({ preventScroll: true }));
});

function search() {
  const wanted = new URLSearchParams(new FormData(form));
  for (const [name, value] of [...wanted]) if (!value) wanted.delete(name);
  go("?" + wanted);
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
  if (document.visibilityState === "visible") show(query, false);
}, refreshEveryMs);

let stream = null;
function listen() {
  if (document.visibilityState !== "visible") {
    if (stream) stream.close();
    stream = null;
    return;
  }
  if (stream) return;
  stream = new EventSource("events");
  stream.onopen = () => say("Live.", false);
  stream.addEventListener("overview", (event) => {
    overview.innerHTML = event.data;
  });
  stream.onerror = () => {
    // A refusal ends it: too many pages are open.
    if (stream.readyState === EventSource.CLOSED) say("Not live: load the page again.", true);
    else say("The router does not answer. Trying again.", true);
  };
}
document.addEventListener("visibilitychange", listen);
listen();
