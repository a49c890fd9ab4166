"use strict";
// Loaded into a CLI that is started ahead of its prompt. It notes the files and folders that the CLI
// looks at during its start, as they were when it first looked; so geminorum can tell later whether
// another start would find the same. And it takes the first byte of stdin away again: that byte is
// there only to keep the CLI waiting for the rest.
const fs = require("node:fs");
const path = require("node:path");
const { syncBuiltinESMExports } = require("node:module");
const { fileURLToPath } = require("node:url");

const { statSync, writeFileSync, renameSync } = fs;
const RECORD = path.join(__dirname, "start_record.json");
const seen = new Map();
const changed = new Set();
let isStarting = true;
// Two writes this close to each other may leave the same time behind.
const TOO_FRESH_NS = 20000000n;

function spelledOut(file) {
  if (typeof file === "string") return path.resolve(file);
  if (Buffer.isBuffer(file)) return path.resolve(file.toString());
  return file instanceof URL ? fileURLToPath(file) : null;
}

function lookAt(file) {
  const found = statSync(file, { bigint: true, throwIfNoEntry: false });
  if (found === undefined) return { state: null, fresh: false };
  const { dev, ino, mode, uid, gid, size, mtimeNs, ctimeNs } = found;
  const fresh = BigInt(Date.now()) * 1000000n - ctimeNs < TOO_FRESH_NS;
  // As strings: a JavaScript number is too small for nanoseconds.
  return { state: [dev, ino, mode, uid, gid, size, mtimeNs, ctimeNs].map(String), fresh };
}

function note(given, how) {
  const file = isStarting ? spelledOut(given) : null;
  if (file === null) return;
  const known = seen.get(file);
  if (known !== undefined) {
    known.how = known.how > how ? known.how : how;
    return;
  }
  let found = { state: null, fresh: false };
  try {
    found = lookAt(file);
  } catch {
    // What cannot be looked at is as good as missing.
  }
  seen.set(file, { how, ...found });
}

function own(given) {
  const file = isStarting ? spelledOut(given) : null;
  if (file !== null) changed.add(file);
}

// How closely the CLI looked: is it there, and what; what does it hold.
const ENTRY = 0;
const CONTENT = 1;
const LOOKS = {
  access: ENTRY, exists: ENTRY, stat: ENTRY, lstat: ENTRY, realpath: ENTRY, readlink: ENTRY,
  readFile: CONTENT, open: CONTENT, readdir: CONTENT, opendir: CONTENT,
};
const CHANGES = [
  "writeFile", "appendFile", "mkdir", "rename", "unlink", "rm", "rmdir", "copyFile", "symlink",
  "truncate", "utimes", "chmod",
];

function watched(call, before) {
  const wrapper = function (...given) {
    before(...given);
    return call.apply(this, given);
  };
  return Object.assign(wrapper, call);
}

function isForWriting(flags) {
  if (typeof flags === "number") return (flags & 3) !== 0;
  return typeof flags === "string" && /[wa+]/.test(flags);
}

for (const [name, how] of Object.entries(LOOKS)) {
  const before = (file, flags) => (name === "open" && isForWriting(flags) ? own(file) : note(file, how));
  for (const [where, key] of [[fs, name], [fs, `${name}Sync`], [fs.promises, name]]) {
    if (typeof where[key] === "function") where[key] = watched(where[key], before);
  }
}
for (const key of ["realpath", "realpathSync"]) {
  fs[key].native = watched(fs[key].native, (file) => note(file, ENTRY));
}
for (const name of CHANGES) {
  const before = (first, second) => {
    own(first);
    if (name === "rename" || name === "copyFile" || name === "symlink") own(second);
  };
  for (const [where, key] of [[fs, name], [fs, `${name}Sync`], [fs.promises, name]]) {
    if (typeof where[key] === "function") where[key] = watched(where[key], before);
  }
}
syncBuiltinESMExports();

function finish() {
  isStarting = false;
  const looks = [...seen].map(([file, look]) => ({ file, ...look }));
  writeFileSync(`${RECORD}.new`, JSON.stringify({ looks, changed: [...changed] }), { mode: 0o600 });
  renameSync(`${RECORD}.new`, RECORD);
}

const { stdin } = process;
const { read } = stdin;
stdin.read = function (...given) {
  const chunk = read.apply(this, given);
  if (chunk === null) return chunk;
  stdin.read = read;
  finish();
  return chunk.slice(1);
};
