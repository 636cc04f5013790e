// Continues a text byte by byte, with the likeliest byte each time.

const DONE = new TextDecoder("utf-8", { fatal: false });

export function startText(model, byId, show) {
  const { about } = model;
  const [input, output] = [about.inputs[0], about.outputs[0]];
  const length = input.shape[1];
  const vocabulary = output.shape[2];
  byId("text").hidden = false;
  byId("prompt").value = "We the People of the United States, in Order to form a more ";

  /** Scores of the byte after the last one of `bytes`, which the model sees in part. */
  async function scoresAfter(bytes) {
    const seen = bytes.slice(-length);
    const tokens = new Int32Array(length);
    tokens.set(seen);
    const { outputs, seconds } = await model.run({ [input.name]: tokens });
    const first = (seen.length - 1) * vocabulary;
    const scores = outputs[output.name].data.slice(first, first + vocabulary);
    return { scores, seconds, tokens };
  }

  byId("write").addEventListener("click", async () => {
    const prompt = Array.from(new TextEncoder().encode(byId("prompt").value));
    if (!prompt.length) {
      show("Write some text first.");
      return;
    }
    const made = [];
    let total = 0;
    const count = Math.min(256, Math.max(1, Number(byId("count").value) || 1));
    for (let i = 0; i < count; i++) {
      const { scores, seconds, tokens } = await scoresAfter([...prompt, ...made]);
      made.push(scores.indexOf(Math.max(...scores)));
      total += seconds;
      if (i === 0) {
        globalThis.last = { input: Array.from(tokens), scores: Array.from(scores), seconds };
      }
      const shown = document.createElement("pre");
      const own = document.createElement("span");
      own.className = "made";
      own.textContent = DONE.decode(Uint8Array.from(made));
      shown.append(byId("prompt").value, own);
      byId("result").replaceChildren(shown);
      show(`${i + 1} bytes, ${((1000 * total) / (i + 1)).toFixed(1)} ms each`);
    }
    globalThis.last.made = made;
    globalThis.last.done = true;
  });
}
