"use strict";
// Loaded into the CLI ahead of its own code, and behind network_log.cjs: no request to a model leaves
// before geminorum has let it through, and each is followed by a report of what it consumed.
const { createHash, randomUUID } = require("node:crypto");
const { readFileSync } = require("node:fs");
const http = require("node:http");
const nodePath = require("node:path");

const MODEL_REQUEST = /\/models\/([^/:?]+):(?:streamG|g)enerateContent\b/;
const FINGERPRINT_DIGITS = 12;
const ADDRESS = nodePath.join(__dirname, "request_gate.json");
const { port, path, token } = addressOfGate();

// It is taken away at the first request. A thread or a process that starts after that can send none.
function addressOfGate() {
  try {
    return JSON.parse(readFileSync(ADDRESS, "utf8"));
  } catch {
    return { port: 0, path: "/", token: "" };
  }
}

// Not by fetch, which the CLI may have sent through a proxy.
function tell(message, signal) {
  const body = JSON.stringify(message);
  const headers = {
    Authorization: `Bearer ${token}`,
    Connection: "close",
    "Content-Length": Buffer.byteLength(body),
  };
  const options = { host: "127.0.0.1", port, path, method: "POST", headers, agent: false, signal };
  return new Promise((resolve, reject) => {
    const request = http.request(options, (response) => {
      let answer = "";
      response.setEncoding("utf8");
      response.on("data", (text) => (answer += text));
      response.on("error", reject);
      response.on("end", () => {
        if (response.statusCode < 300) resolve(answer && JSON.parse(answer));
        else reject(new Error(`geminorum's gate answered ${response.statusCode}`));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

function fingerprintOf(url, headers) {
  const key = headers.get("x-goog-api-key") ?? new URL(url).searchParams.get("key");
  return key && createHash("sha256").update(key).digest("hex").slice(0, FINGERPRINT_DIGITS);
}

// Reads along with the CLI what an answer says about its tokens.
class Usage {
  constructor(isStream) {
    this.isStream = isStream;
    this.decoder = new TextDecoder();
    this.rest = "";
    this.usage = null;
    this.model = null;
  }

  add(bytes) {
    this.rest += this.decoder.decode(bytes, { stream: true });
    if (!this.isStream) return;
    const lines = this.rest.split(/\r\n|\n|\r/);
    this.rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) this.take(line.slice(5));
  }

  end() {
    const last = this.rest.replace(/^data:/, "");
    if (last) this.take(last);
    return { usage: this.usage, model: this.model };
  }

  take(text) {
    if (!text.includes('"usageMetadata"')) return;
    try {
      const { usageMetadata, modelVersion } = JSON.parse(text);
      this.usage = { ...this.usage, ...usageMetadata };
      if (typeof modelVersion === "string") this.model = modelVersion;
    } catch {
      // Broken off, or nothing of the API's: the CLI will say so.
    }
  }
}

// Its end waits for the report: the CLI may leave as soon as it has its answer.
function readAlong(response, report) {
  const isStream = /event-stream/.test(response.headers.get("content-type") ?? "");
  const usage = new Usage(isStream);
  const reader = response.body.getReader();
  const body = new ReadableStream({
    async pull(controller) {
      let piece;
      try {
        piece = await reader.read();
      } catch (error) {
        await report(usage.end());
        throw error;
      }
      if (piece.done) {
        await report(usage.end());
        controller.close();
      } else {
        usage.add(piece.value);
        controller.enqueue(piece.value);
      }
    },
    async cancel(reason) {
      await report(usage.end());
      await reader.cancel(reason);
    },
  });
  const { status, statusText, headers, url } = response;
  const copy = new Response(body, { status, statusText, headers });
  return Object.defineProperty(copy, "url", { value: url });
}

const realFetch = globalThis.fetch;

async function send(resource, init, id) {
  let told = false;
  // Whoever should hear it may be gone: that is no concern of the CLI's.
  const report = async (facts) => {
    if (told) return;
    told = true;
    await tell({ what: "report", id, ...facts }).catch(() => {});
  };
  let response;
  try {
    response = await realFetch(resource, init);
  } catch (error) {
    await report({ is_refused: error.name !== "AbortError" });
    throw error;
  }
  if (response.ok && response.body) return readAlong(response, report);
  await report({ is_refused: !response.ok });
  return response;
}

globalThis.fetch = async function fetch(resource, init) {
  const url = String(resource?.url ?? resource);
  const found = MODEL_REQUEST.exec(url);
  if (found === null) return realFetch(resource, init);
  const headers = new Headers(init?.headers ?? resource?.headers);
  const ask = {
    what: "ask",
    id: randomUUID(),
    model: decodeURIComponent(found[1]),
    key: fingerprintOf(url, headers),
    size: typeof init?.body === "string" ? Buffer.byteLength(init.body) : 0,
  };
  const answer = await tell(ask, init?.signal ?? resource?.signal ?? undefined);
  if (answer.go) return send(resource, init, ask.id);
  const type = { "Content-Type": "application/json" };
  return new Response(JSON.stringify(answer), { status: 400, headers: type });
};
