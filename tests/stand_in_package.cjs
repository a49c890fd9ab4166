"use strict";
// Plays the CLI's npm package where only the life of its processes matters: it starts in a tenth of
// the time. Like the CLI, it begins a session file at its start, also beside one that it resumes,
// waits on stdin for its prompt, and writes prompt and answer to the session. It answers with the
// number of its process or, where STAND_IN_ASKS is set, as the model does.
const fs = require("node:fs");
const path = require("node:path");

function flag(name) {
  const found = process.argv.find((word) => word.startsWith(`--${name}=`));
  return found && found.slice(name.length + 3);
}

const resumed = flag("resume");
const id = resumed || flag("session-id");
const project = path.join(process.env.GEMINI_CLI_HOME, ".gemini", "tmp", "project");
const chats = path.join(project, "chats");
const stamp = new Date().toISOString().slice(0, 16).replace(":", "-");
const begun = path.join(chats, `session-${stamp}-${id.slice(0, 8)}.jsonl`);

// Another that was started ahead for this session may have begun an empty file beside it.
function longestFile() {
  const size = (name) => fs.statSync(path.join(chats, name)).size;
  const found = fs.readdirSync(chats).filter((name) => name.includes(id.slice(0, 8)));
  return found.sort((one, other) => size(other) - size(one))[0];
}

fs.mkdirSync(chats, { recursive: true });
const root = path.join(project, ".project_root");
if (!fs.existsSync(root)) fs.writeFileSync(root, process.cwd());
const older = resumed && longestFile();
const now = new Date().toISOString();
const top = { sessionId: id, projectHash: "x", startTime: now, lastUpdated: now, kind: "main" };
fs.writeFileSync(begun, `${JSON.stringify(top)}\n`);
fs.readdirSync(process.cwd());
const session = older ? path.join(chats, older) : begun;
fs.readFileSync(session);

function record(type, content) {
  const message = { id: String(Math.random()), timestamp: now, type, content };
  fs.appendFileSync(session, `${JSON.stringify(message)}\n`);
}

function say(frame) {
  fs.writeSync(1, `${JSON.stringify({ timestamp: new Date().toISOString(), ...frame })}\n`);
}

async function asked(prompt) {
  const { GOOGLE_GEMINI_BASE_URL: base, GEMINI_API_KEY: key } = process.env;
  const headers = { "x-goog-api-key": key, "Content-Type": "application/json" };
  const body = JSON.stringify({ contents: [{ role: "user", parts: [{ text: prompt }] }] });
  const address = `${base}/v1beta/models/gemini-2.5-flash:generateContent`;
  const response = await fetch(address, { method: "POST", headers, body });
  const { candidates } = await response.json();
  return candidates[0].content.parts.map((part) => part.text).join("");
}

async function answer(prompt) {
  record("user", [{ text: prompt }]);
  say({ type: "init", session_id: id, model: "stand-in" });
  const text = process.env.STAND_IN_ASKS ? await asked(prompt) : `${process.pid}`;
  say({ type: "message", role: "assistant", content: text, delta: true });
  record("gemini", text);
  say({ type: "result", status: "success", stats: {} });
}

// The first that has its prompt and finds this file ends as one that was told to end.
function isToLeave() {
  try {
    fs.unlinkSync(process.env.STAND_IN_LEAVES);
  } catch {
    return false;
  }
  process.exit(0);
}

let prompt = "";
function listen() {
  const { stdin } = process;
  stdin.setEncoding("utf8");
  stdin.on("readable", () => {
    for (let chunk = stdin.read(); chunk !== null; chunk = stdin.read()) prompt += chunk;
  });
  stdin.on("end", () => isToLeave() || answer(prompt));
}

// A test may hold one at its start: the first that finds this file takes it along under the number
// of its process, and goes on once it is gone.
const held = process.env.STAND_IN_HELD;
const taken = `${held}-${process.pid}`;

function start() {
  if (fs.existsSync(taken)) setTimeout(start, 5);
  else listen();
}

try {
  fs.renameSync(held, taken);
} catch {
  // There is none, or another was quicker.
}
start();
