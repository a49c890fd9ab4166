"use strict";
// Loaded into the CLI ahead of its own code: what it reads in a project, because the project or the
// model says so, is a regular file that lies inside of that project.
const fs = require("node:fs");
const path = require("node:path");
const { syncBuiltinESMExports } = require("node:module");
const { fileURLToPath } = require("node:url");

const { readFileSync, statSync } = fs;
const realpathSync = fs.realpathSync.native;
const RULES = path.join(__dirname, "read_guard.json");

function spelledOut(file) {
  if (typeof file === "string") return path.resolve(file);
  if (Buffer.isBuffer(file)) return path.resolve(file.toString());
  return file instanceof URL ? fileURLToPath(file) : null;
}

function contains(folder, file) {
  const way = path.relative(folder, file);
  return way !== ".." && !way.startsWith(`..${path.sep}`) && !path.isAbsolute(way);
}

function refusal(file, why) {
  const error = new Error(`ENOENT: geminorum leaves out '${file}': ${why}`);
  return Object.assign(error, { code: "ENOENT", path: file });
}

let known;

// Read each time: a process that stays gets more projects while it runs. A command that was allowed
// may have broken the file; then what was known before holds.
function currentRules() {
  try {
    const { projects, home, links } = JSON.parse(readFileSync(RULES, "utf8"));
    known = { projects: [...projects], home: [...home], links };
  } catch (error) {
    if (known === undefined) throw error;
  }
  return known;
}

function containing(file, projects) {
  return projects.filter((roots) => roots.some((root) => contains(root, file)));
}

// What stands behind /dev/stdin may be a pipe, which is open but lies in no folder.
function isNameless(file) {
  try {
    realpathSync(file);
    return false;
  } catch {
    return true;
  }
}

// A project has more names than its own: /proc/self/cwd, and whatever links lead to it. So each
// folder on the way counts by what it is, where a link is among them at all.
function projectsOn(file, projects) {
  const around = containing(file, projects);
  if (around.length > 0 || isNameless(file) || realpathSync(file) === file) return around;
  const names = file.split(path.sep);
  for (let length = 2; length <= names.length; length += 1) {
    const met = containing(realpathSync(names.slice(0, length).join(path.sep)), projects);
    if (met.length > 0) return met;
  }
  return [];
}

function check(given) {
  const file = spelledOut(given);
  if (file === null || file === RULES) return;
  const { projects, home, links } = currentRules();
  // Ours, wherever it lies: its links lead to the user's own files.
  if (home.some((folder) => contains(folder, file))) return;
  const found = statSync(file, { throwIfNoEntry: false });
  if (found === undefined) return;
  const around = projectsOn(file, projects);
  if (around.length === 0) return;
  if (!found.isFile() && !found.isDirectory()) throw refusal(file, "it is not a regular file");
  if (links) return;
  const real = realpathSync(file);
  const isInside = around.some((roots) => roots.some((root) => contains(root, real)));
  if (!isInside) throw refusal(file, `it leads outside of the project, to '${real}'`);
}

function guardSync(call) {
  return function (file, ...rest) {
    check(file);
    return call.call(this, file, ...rest);
  };
}

function guardPromise(call) {
  return async function (file, ...rest) {
    check(file);
    return call.call(this, file, ...rest);
  };
}

function guardCallback(call) {
  return function (file, ...rest) {
    try {
      check(file);
    } catch (error) {
      process.nextTick(rest.at(-1), error);
      return;
    }
    call.call(this, file, ...rest);
  };
}

currentRules();
for (const name of ["readFile", "open", "readdir", "opendir"]) {
  fs[name] = guardCallback(fs[name]);
  fs[`${name}Sync`] = guardSync(fs[`${name}Sync`]);
  fs.promises[name] = guardPromise(fs.promises[name]);
}
// Without it, the CLI's own imports would still be the functions of before.
syncBuiltinESMExports();
