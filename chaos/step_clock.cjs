"use strict";
// Loaded into the real CLI: its clock steps by CHAOS_STEP milliseconds after CHAOS_STEP_AFTER.
const RealDate = Date;
const step = Number(process.env.CHAOS_STEP);
const at = RealDate.now() + Number(process.env.CHAOS_STEP_AFTER);

function now() {
  const right = RealDate.now();
  return right < at ? right : right + step;
}

globalThis.Date = new Proxy(RealDate, {
  apply: () => new RealDate(now()).toString(),
  construct: (target, given, made) => Reflect.construct(target, given.length ? given : [now()], made),
  get: (target, name) => (name === "now" ? now : Reflect.get(target, name)),
});
