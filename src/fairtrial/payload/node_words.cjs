// Tells test_runner.py which of an oracle's words node takes for its own options, and which are left.
//
//     node --require node_words.cjs WORD...
//
// It is loaded before anything else, and ends the process.
require("node:fs").writeSync(1, JSON.stringify([process.execArgv.slice(2), process.argv.slice(1)]));
process.exit();
