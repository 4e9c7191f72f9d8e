// Loaded before a test file, by `node --import`: starts node's tests with our reporter, and waits until it listens.
//
// The workspace's code is loaded after that: the key has been read, and nobody else can be the reporter. Threads load
// this too, and have no report to make.
if (process.env.FAIRTRIAL_REPORT_FD !== undefined) {
  const { after } = await import("node:test");
  const { begun } = await import("./node_reporter.mjs");
  after(() => {}); // node has no other way to start them
  await begun;
}
