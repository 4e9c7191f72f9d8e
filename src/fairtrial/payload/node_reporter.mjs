// A reporter for `node --test`: sends the ending of each test of the oracle's own files to test_runner.py.
//
// It runs in the process that starts the test files, each of which runs in a process of its own. A file that ends
// before its first test is reported by node as one passed test named after the file: that is none.
import { createHmac } from "node:crypto";
import { readSync, realpathSync, writeSync } from "node:fs";

const fd = Number(process.env.FAIRTRIAL_REPORT_FD);
const ours = new Set(JSON.parse(process.env.FAIRTRIAL_REPORT_FILES).map((path) => realpathSync(path)));
delete process.env.FAIRTRIAL_REPORT_FD;
delete process.env.FAIRTRIAL_REPORT_FILES;

const key = Buffer.alloc(32);
for (let n = 0; n < key.length; ) n += readSync(fd, key, n, key.length - n);
let nLines = 0;

function say(text) {
  const code = createHmac("sha256", key).update(`${nLines} ${text}`).digest("hex");
  nLines += 1;
  writeSync(fd, `${code} ${text}\n`);
}

function isFile(data) {
  return data.nesting === 0 && data.line === 1 && data.column === 1 && data.file.endsWith(data.name);
}

function ending(type, data) {
  if (type === "test:fail") return data.todo === undefined || data.todo === false ? "failed" : "skipped";
  return [data.skip, data.todo].every((it) => it === undefined || it === false) ? "passed" : "skipped";
}

export default async function* report(events) {
  for await (const { type, data } of events) {
    if (type !== "test:pass" && type !== "test:fail") continue;
    if (data.details?.type === "suite" && type === "test:pass") continue;
    if (data.file === undefined || !ours.has(realpathSync(data.file))) continue;
    if (type === "test:pass" && isFile(data)) continue;
    say(ending(type, data));
  }
  say("end");
  yield "";
}
