// Notes when something is on the screen, and for how long the page could not react.
// All times are milliseconds of the machine's clock.

const noted = { rows: [], questions: {}, clicks: [], longTasks: [], waits: [], longestDrift: 0 };
window.noted = noted;
const now = () => performance.timeOrigin + performance.now();

// What the agent wrote last: its number, and the time of writing.
const lastNumber = (text) => Number([...text.matchAll(/(\d+) \d{19} /g)].at(-1)?.[1] ?? -1);

// A message that is sent while a frame is made arrives after it has been drawn.
function afterPaint(act) {
  requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => { port1.close(); act(now()); };
    port2.postMessage(null);
  });
}

function note(changed, at) {
  for (const place of changed) {
    const element = place.nodeType === Node.ELEMENT_NODE ? place : place.parentElement;
    const row = element?.closest(".run");
    const activity = row?.querySelector("[data-fact=activity]")?.textContent ?? "";
    if (row && lastNumber(activity) >= 0) noted.rows.push([row.dataset.run, lastNumber(activity), at]);
    for (const card of element?.querySelectorAll(".question[data-state=open]") ?? []) {
      noted.questions[card.querySelector(".command").textContent.trim()] ??= at;
    }
  }
}

new MutationObserver((records) => {
  const changed = new Set(records.map((record) => record.target));
  afterPaint((at) => note(changed, at));
}).observe(document, { childList: true, characterData: true, subtree: true });

addEventListener("click", () => noted.clicks.push(now()), { capture: true });

new PerformanceObserver((list) => noted.longTasks.push(...list.getEntries().map((one) => one.duration)))
  .observe({ type: "longtask" });
// From a key to the frame that shows it; what is faster than a frame is not reported.
new PerformanceObserver((list) => noted.waits.push(...list.getEntries().map((one) => one.duration)))
  .observe({ type: "event", durationThreshold: 16 });

const TICK_MS = 20;
let before = performance.now();
setInterval(() => {
  const drift = performance.now() - before - TICK_MS;
  noted.longestDrift = Math.max(noted.longestDrift, drift);
  before = performance.now();
}, TICK_MS);
