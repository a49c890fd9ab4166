// On top of plain HTML: local times, clocks that tick, and what changes while one looks.

const $ = (selector, root = document) => [...root.querySelectorAll(selector)];

function localise(root) {
  for (const time of $("time[datetime]:not([title])", root)) {
    time.title = time.textContent;
    time.textContent = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  }
}

// On a phone, the tabs scroll sideways. Not by scrollIntoView, after which Tab would begin there.
function showCurrentTab() {
  const tab = document.querySelector(".top [aria-current]");
  const nav = tab?.closest("nav");
  if (nav) nav.scrollLeft += tab.getBoundingClientRect().right - nav.getBoundingClientRect().right + 40;
}

// As `words.seconds` writes it.
function clock(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const two = (number) => String(number).padStart(2, "0");
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tick() {
  for (const span of $("[data-started]:not([data-ended])")) setText(span, clock(Date.now() - span.dataset.started));
}

// Draws HTML that the server made of a template, in which all text is escaped.
function drawn(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  localise(template.content);
  const element = template.content.firstElementChild;
  // Later: htmx looks only at what is part of the page.
  queueMicrotask(() => window.htmx?.process(element));
  return element;
}

function showFacts(box, facts) {
  for (const place of $("[data-fact]", box)) {
    const name = place.dataset.fact;
    setText(place, name === "status" ? facts.status.replaceAll("_", " ") : facts[name]);
    if (name === "status") place.dataset.status = facts.status;
  }
  for (const span of $("[data-started]", box)) {
    if (!facts.ended) continue;
    span.dataset.ended = facts.ended;
    setText(span, clock(facts.ended - facts.started));
  }
  box.toggleAttribute("data-live", facts.live);
  for (const form of $(".only-live", box)) form.hidden = !facts.live;
  for (const form of $(".only-over", box)) form.hidden = facts.live;
}

// Whoever reads further up is left in peace.
function followingEnd(change) {
  const root = document.documentElement;
  const isAtEnd = root.scrollHeight - root.scrollTop - root.clientHeight < 120;
  change();
  if (isAtEnd) root.scrollTop = root.scrollHeight;
}

// The latest facts of each run, until the next frame: a page that was busy catches up at once.
const waitingRows = new Map();
const MAX_ENDED_ROWS = 200;

function showRows() {
  const list = document.getElementById("runs");
  for (const facts of waitingRows.values()) {
    const row = document.getElementById(`run-${facts.id}`);
    if (row) showFacts(row, facts);
    else if (facts.html && list) addRow(list, facts.html);
  }
  waitingRows.clear();
}

function addRow(list, html) {
  list.prepend(drawn(html));
  for (const empty of $(".empty", list.parentElement)) empty.remove();
  for (const row of $(".run:not([data-live])", list).slice(MAX_ENDED_ROWS)) row.remove();
  const older = document.querySelector(".pager [rel=next]");
  // The next page begins behind the last row that is left.
  if (older) older.search = `?before=${$("[data-started]", list).at(-1).dataset.started}`;
}

const on = {
  rows(rows) {
    if (!waitingRows.size) requestAnimationFrame(showRows);
    for (const facts of rows) waitingRows.set(facts.id, { ...waitingRows.get(facts.id), ...facts });
  },
  run(facts) {
    for (const box of $(`.run-page[data-run="${facts.id}"]`)) showFacts(box, facts);
  },
  piece({ id, html }) {
    followingEnd(() => {
      const before = document.getElementById(id);
      const piece = drawn(html);
      if (!before) return document.getElementById("pieces").append(piece);
      const opened = $("details", before).map((one) => one.open);
      $("details", piece).forEach((one, at) => { one.open ||= opened[at] ?? false; });
      before.replaceWith(piece);
    });
  },
  more({ id, text }) {
    followingEnd(() => document.querySelector(`#${CSS.escape(id)} [data-open]`)?.append(text));
  },
  questions({ count, cards }) {
    for (const place of $("#inbox-count")) { place.hidden = !count; setText(place.querySelector("[data-count]"), String(count)); }
    document.title = document.title.replace(/^(\(\d+\) )?/, count ? `(${count}) ` : "");
    const list = document.getElementById("questions");
    for (const { id, revision, html } of list ? cards : []) {
      const card = document.getElementById(`q-${id}`);
      if (card && Number(card.dataset.revision) >= revision) continue;
      if (card) card.replaceWith(drawn(html));
      else followingEnd(() => list.append(drawn(html)));
    }
  },
  swap(parts) {
    for (const [id, html] of Object.entries(parts)) {
      const place = document.getElementById(id);
      // What somebody is just typing into is theirs.
      if (place && !place.contains(document.activeElement?.closest("input, textarea"))) place.replaceWith(drawn(html));
    }
  },
};

function connect() {
  const address = document.body.dataset.live;
  if (!address) return;
  const banner = Object.assign(document.createElement("p"), { className: "connection", hidden: true });
  banner.setAttribute("role", "status");
  document.body.append(banner);
  const say = (text) => { banner.hidden = !text; setText(banner, text); };
  let source = null;
  let last = null;

  const close = () => { source?.close(); source = null; };
  const open = () => {
    if (source || document.hidden) return;
    const url = new URL(address, location.href);
    if (last) url.searchParams.set("after", last);
    source = new EventSource(url);
    source.onopen = () => say("");
    source.onerror = () => {
      const isOver = source.readyState === EventSource.CLOSED;
      say(isOver ? "This page is out of date: open the link that geminorum web prints." : "The connection is lost; trying again …");
      if (isOver) { close(); setTimeout(open, 2000); }
    };
    source.addEventListener("over", () => { say("geminorum web has ended."); close(); setTimeout(open, 2000); });
    for (const [name, act] of Object.entries(on)) {
      source.addEventListener(name, (event) => { last = event.lastEventId || last; act(JSON.parse(event.data)); });
    }
  };
  // A browser allows six connections to one host: pages that nobody sees give theirs back.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
}

localise(document);
showCurrentTab();
document.addEventListener("htmx:after:swap", () => localise(document));
setInterval(tick, 1000);
connect();
