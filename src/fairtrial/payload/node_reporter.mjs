// A reporter for node's tests: sends the ending of each test of the oracle's own files to test_runner.py.
//
// It runs in the process of the tests; node_child.mjs loads it, and has it read its key, before anything else is there.
import { createHmac } from "node:crypto";
import { readSync, realpathSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const fd = Number(process.env.FAIRTRIAL_REPORT_FD);
const ours = new Set(JSON.parse(process.env.FAIRTRIAL_REPORT_FILES).map((path) => realpathSync(path)));
delete process.env.FAIRTRIAL_REPORT_FD;
delete process.env.FAIRTRIAL_REPORT_FILES;

const key = Buffer.alloc(32);
for (let n = 0; n < key.length; ) n += readSync(fd, key, n, key.length - n);
let nLines = 0;

let begin;
export const begun = new Promise((resolve) => {
  begin = resolve;
});
let isFirst = true;
const main = realpathSync(process.argv[1]);
const { cache } = createRequire(main);

function say(text) {
  const code = createHmac("sha256", key).update(`${nLines} ${text}`).digest("hex");
  nLines += 1;
  writeSync(fd, `${code} ${text}\n`);
}

function ending(type, data) {
  if (type === "test:fail") return data.todo === undefined || data.todo === false ? "failed" : "skipped";
  return [data.skip, data.todo].every((it) => it === undefined || it === false) ? "passed" : "skipped";
}

export default async function* report(events) {
  if (!isFirst) throw new Error("there is one report");
  isFirst = false;
  begin();
  for await (const { type, data } of events) {
    if (type !== "test:pass" && type !== "test:fail") continue;
    if (data.details?.type === "suite" && type === "test:pass") continue;
    if (data.file === undefined || !ours.has(realpathSync(data.file))) continue;
    say(ending(type, data));
  }
  // A file that failed, or was never run to its end, has not registered its tests: this throws, or never comes back.
  if (cache[main]?.loaded !== true) await import(pathToFileURL(main));
  say("end");
  yield "";
}
