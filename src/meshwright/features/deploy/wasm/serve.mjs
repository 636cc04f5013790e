// Runs the model of this folder in Node.js, with arrays from and to pipes.
//
// The arguments are the id of the process that reads the answers, and the sizes in bytes of
// the inputs and then of the outputs, in the order of model.json. A byte says that the model
// is loaded. A call is a byte and the bytes of all inputs; the answer is the bytes of all
// outputs. If the reader ends, this process ends within a second, also during a call.

import { readSync, writeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { Worker } from "node:worker_threads";
import { Model } from "./runner.js";

const get = async (name) => new Response(await readFile(new URL(name, import.meta.url)));

/** The next bytes of the input; the process ends where there are no more. */
function receive(size) {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; ) {
    const count = readSync(0, bytes, at, size - at);
    if (!count) process.exit();
    at += count;
  }
  return bytes;
}

function send(bytes) {
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
}

/** Code of a thread that ends the process when its parent has ended. */
const WATCH = `
  const { workerData } = require("node:worker_threads");
  const isAlive = () => {
    try {
      process.kill(workerData, 0);
      return process.ppid === workerData;
    } catch {
      return false;
    }
  };
  setInterval(() => isAlive() || process.kill(process.pid, "SIGKILL"), 500);
`;

async function serve(sizes) {
  const model = await Model.load(get);
  const { inputs, outputs } = model.about;
  send(new Uint8Array(1));
  for (;;) {
    receive(1);
    const given = inputs.map(({ name }, i) => [name, receive(sizes[i])]);
    const buffers = model.call(Object.fromEntries(given));
    buffers.forEach((buffer, i) => {
      const wanted = sizes[inputs.length + i];
      if (buffer.byteLength !== wanted) {
        throw new Error(`${outputs[i].name} has ${buffer.byteLength} bytes; wanted ${wanted}`);
      }
      send(new Uint8Array(buffer));
    });
  }
}

const [parent, ...sizes] = process.argv.slice(2).map(Number);
new Worker(WATCH, { eval: true, workerData: parent });
try {
  await serve(sizes);
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
