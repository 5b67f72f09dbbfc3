// What the pages add where scripts run. Every page works without this file.
"use strict";

// The service tells days and times in the time zone of the browser.
const zone = encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone ?? "");
document.cookie = `openmemory_timezone=${zone}; path=/; max-age=31536000; samesite=strict`;

// Moves of htmx change the address and keep the head, whose links are relative to the first address.
const icon = document.head.querySelector("link[rel=icon]");
icon.href = icon.href;

// A refusal of a form appears in the form, or else at the top of the page; the page itself stays.
document.addEventListener("htmx:before:swap", (event) => {
  const { ctx } = event.detail;
  const status = ctx.response?.raw?.status ?? 200;
  if (status < 400) return;
  if (isLive(ctx.sourceElement)) {
    event.preventDefault();
    connectLater(ctx.sourceElement);
  }
  if (ctx.request.method === "GET") return;
  event.preventDefault();
  const form = ctx.sourceElement.closest("form");
  const slot = form?.querySelector(".refusals") ?? document.getElementById("notices");
  const holder = document.createElement("template");
  holder.innerHTML = ctx.text; // our own escaped fragment
  slot.replaceChildren(holder.content);
  slot.scrollIntoView({ block: "nearest" });
});

// A service that does not answer must not look like a page where nothing happens.
document.addEventListener("htmx:error", ({ detail: { ctx } }) => {
  if (ctx?.response) return;
  if (isLive(ctx?.sourceElement)) connectLater(ctx.sourceElement);
  const words = document.createElement("p");
  words.className = "refusal";
  words.setAttribute("role", "alert");
  words.dataset.away = "";
  words.textContent =
    ctx?.request?.signal?.reason === "timeout"
      ? "The service takes very long to answer. It may still do what you asked: load the page again to see."
      : "The service does not answer. Try again in a moment.";
  document.getElementById("notices").replaceChildren(words);
});
document.addEventListener("htmx:before:response", () => document.querySelector("#notices [data-away]")?.remove());

// A live list that was refused its first connection tries again. The extension does so only after a first one.
const isLive = (element) => Boolean(element?.hasAttribute("hx-sse:connect"));
function connectLater(list) {
  setTimeout(() => {
    if (list.isConnected) htmx.ajax("GET", list.getAttribute("hx-sse:connect"), { source: list });
  }, 10_000);
}

// Notices leave when their time to undo is over.
setInterval(() => {
  for (const notice of document.querySelectorAll(".notice[data-left]")) {
    const left = Number(notice.dataset.left) - 1;
    if (left <= 0) notice.remove();
    else notice.dataset.left = left;
  }
}, 1000);

// Copies the text beside the button; where the browser allows no copying, it selects the text.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy);
  getSelection().selectAllChildren(text);
  if (!navigator.clipboard) return;
  await navigator.clipboard.writeText(text.textContent);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 2000);
});

// The list: the keys, and what is selected.
const found = (selector) => document.querySelector(`#found ${selector}`);
const picks = () => [...document.querySelectorAll("#found input[name=id]")];

function countSelected() {
  const words = found("[data-selected]");
  if (!words) return;
  const number = picks().filter((pick) => pick.checked).length;
  const all = found("input[name=all]");
  words.textContent = all?.checked || !number ? "" : `${number} selected`;
  found("[data-select-page]").checked = number > 0 && number === picks().length;
}

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-select-page]")) for (const pick of picks()) pick.checked = target.checked;
  if (target.closest("#found")) countSelected();
});
document.addEventListener("htmx:after:swap", countSelected);

function move(by) {
  const rows = [...document.querySelectorAll("#found .memory")];
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  rows[here < 0 ? 0 : Math.min(Math.max(here + by, 0), rows.length - 1)]?.querySelector("a.text").focus();
}

const current = () => document.activeElement.closest("#found .memory");
const keys = {
  "/": () => document.querySelector("input[type=search]")?.focus(),
  j: () => move(1),
  k: () => move(-1),
  e: () => {
    const edit = document.querySelector("#edit");
    const link = current()?.querySelector("a.text").href;
    if (edit) edit.open = true;
    if (edit) edit.querySelector("textarea").focus();
    else if (link) location.href = `${link}#edit`;
  },
  x: () => current()?.querySelector("input[name=id]")?.click(),
  u: () => document.querySelector("[data-undo]")?.click(),
  "?": () => document.getElementById("keys")?.showModal(),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable], dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
});

if (location.hash === "#edit") document.addEventListener("DOMContentLoaded", keys.e);

// The slider of days sets the date beside it, and the date sets the slider.
document.addEventListener("input", (event) => {
  const slider = event.target.form?.querySelector("input[data-first]");
  if (!slider) return;
  const first = Date.parse(slider.dataset.first);
  const date = slider.form.elements.at;
  if (event.target === slider) date.value = new Date(first + slider.value * 86400000).toISOString().slice(0, 10);
  else if (event.target === date && date.value) slider.value = (Date.parse(date.value) - first) / 86400000;
  slider.setAttribute("aria-valuetext", date.value);
});
