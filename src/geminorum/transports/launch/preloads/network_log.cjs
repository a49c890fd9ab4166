"use strict";
// Loaded into the CLI ahead of its own code: writes down which requests to a model do not get through,
// because the CLI repeats them in silence. A network that works leaves the file empty.
const { appendFileSync } = require("node:fs");
const { subscribe } = require("node:diagnostics_channel");
const path = require("node:path");

const LOG = path.join(__dirname, "network.jsonl");
const CONNECT_WAIT_MS = 3000;
const MODEL_REQUEST = /:(?:streamG|g)enerateContent\b|\/v1internal:/;

const timers = new WeakMap();
const told = new WeakSet();
let inTrouble = false;

function report(state, address, why = "") {
  inTrouble = state !== "answered";
  try {
    appendFileSync(LOG, `${JSON.stringify({ state, address, why })}\n`);
  } catch {
    // The folder is being removed, or the disk is full: the CLI must not fail because of us.
  }
}

// Node's own http has no origin, only the parts of one.
function addressOf(request) {
  if (request.origin !== undefined) return String(request.origin);
  return `${request.protocol}//${request.getHeader("host")}`;
}

function onModelRequests(channel, act) {
  subscribe(channel, (message) => {
    const { request } = message;
    if (MODEL_REQUEST.test(request.path)) act(request, message);
  });
}

function stopWaiting(request) {
  clearTimeout(timers.get(request));
  timers.delete(request);
}

function onCreated(request) {
  const seconds = CONNECT_WAIT_MS / 1000;
  const tell = () => report("waiting", addressOf(request), `no connection after ${seconds} s`);
  timers.set(request, setTimeout(tell, CONNECT_WAIT_MS).unref());
}

function onSent(request) {
  stopWaiting(request);
  if (inTrouble) report("connected", addressOf(request));
}

function onAnswered(request) {
  if (inTrouble) report("answered", addressOf(request));
}

function onFailed(request, { error }) {
  stopWaiting(request);
  told.add(error);
  if (error.name === "AbortError") return; // The turn was cancelled.
  const [first] = error.errors ?? [];
  report("failed", addressOf(request), error.message || first?.message || error.code || error.name);
}

// What fails before there is a request is told by nobody: a port that fetch refuses, an odd scheme.
const realFetch = globalThis.fetch;
globalThis.fetch = async function fetch(resource, ...rest) {
  try {
    return await realFetch(resource, ...rest);
  } catch (error) {
    const url = String(resource?.url ?? resource);
    const cause = error.cause ?? error;
    if (MODEL_REQUEST.test(url) && error.name !== "AbortError" && !told.has(cause)) {
      report("failed", url.split("/").slice(0, 3).join("/"), cause.message || error.message);
    }
    throw error;
  }
};

onModelRequests("undici:request:create", onCreated);
onModelRequests("undici:client:sendHeaders", onSent);
onModelRequests("undici:request:headers", onAnswered);
onModelRequests("undici:request:error", onFailed);
// A login with a Google account goes this way. When it has a connection, nobody says.
onModelRequests("http.client.response.finish", onAnswered);
onModelRequests("http.client.request.error", onFailed);
