// Keeps a page up to date: the server sends the parts that have changed, as HTML. Nothing is computed here.
"use strict";

const main = document.querySelector("main");
const connection = document.getElementById("connection");
const news = document.getElementById("news");

function say(text) {
  if (!connection || connection.textContent === text) return;
  connection.textContent = text;
  connection.hidden = text === "";
}

function replace(id, html) {
  const part = document.getElementById(id);
  if (!part) return;
  const scrolled = Array.from(part.querySelectorAll(".wide"), (each) => [each.scrollLeft, each === document.activeElement]);
  part.innerHTML = html;
  part.querySelectorAll(".wide").forEach((each, i) => {
    if (!scrolled[i]) return;
    each.scrollLeft = scrolled[i][0];
    if (scrolled[i][1]) each.focus({ preventScroll: true });
  });
}

async function lost(again) {
  let reason = "The server does not answer. You see the last known state; the page updates when the server is back.";
  try {
    const answer = await fetch(location.href, { method: "GET", headers: { Accept: "text/html" } });
    if (answer.status === 401) reason = "The server was restarted with a new token: open the address it printed.";
    else if (answer.status === 404) reason = "This study no longer exists.";
    else if (answer.ok) reason = "The server is busy. You see the last known state; the page updates as soon as it can.";
  } catch { /* it does not answer */ }
  say(reason);
  setTimeout(again, 2000);
}

let events = null;

function listen() {
  if (document.hidden) return; // a browser opens six connections to a server: hidden pages need none
  events = new EventSource(main.dataset.events);
  events.addEventListener("open", () => say(""));
  events.addEventListener("part", (event) => {
    const part = JSON.parse(event.data);
    replace(part.id, part.html);
  });
  events.addEventListener("news", (event) => { if (news) news.textContent = JSON.parse(event.data); });
  events.addEventListener("end", (event) => {
    events.close();
    main.dataset.events = "";
    say(JSON.parse(event.data));
  });
  events.addEventListener("error", () => {
    events.close();
    if (main.dataset.events) lost(listen);
  });
}

document.addEventListener("visibilitychange", () => {
  if (!main?.dataset.events) return;
  if (document.hidden) events?.close();
  else if (!events || events.readyState === EventSource.CLOSED) listen();
});

const filter = document.getElementById("filter");

function narrow() {
  const wanted = (filter?.value ?? "").toLowerCase();
  main.querySelectorAll("#studies tbody tr").forEach((row) => {
    row.hidden = !row.querySelector("th").textContent.toLowerCase().includes(wanted);
  });
}

filter?.addEventListener("input", narrow);
filter?.form.addEventListener("submit", (event) => event.preventDefault());

async function readAgain() {
  if (document.hidden) return setTimeout(readAgain, 1000);
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("studies");
    const focused = document.activeElement?.getAttribute("href");
    replace("studies", fresh.innerHTML);
    narrow();
    if (focused) main.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    say("");
    setTimeout(readAgain, 1000 * main.dataset.again);
  } catch {
    lost(readAgain);
  }
}

if (main?.dataset.events) listen();
else if (main?.dataset.again) setTimeout(readAgain, 1000 * main.dataset.again);
