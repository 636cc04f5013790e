// Classifies a picture from a file or the camera.

/** Pixels of a picture's middle, in the model's range, as [1, S, S, 3]. */
export function pixelsOf(source, width, height, canvas, about) {
  const [, rows, columns] = about.inputs[0].shape;
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  // The largest part in the middle that has the proportions of the model's input.
  const scale = Math.min(width / columns, height / rows);
  const [across, down] = [scale * columns, scale * rows];
  context.drawImage(
    source, (width - across) / 2, (height - down) / 2, across, down, 0, 0, columns, rows,
  );
  const { data } = context.getImageData(0, 0, columns, rows);
  const [low, high] = about.pixels;
  const found = new Float32Array(rows * columns * 3);
  for (let i = 0; i < rows * columns; i++) {
    for (let c = 0; c < 3; c++) {
      found[3 * i + c] = low + ((high - low) * data[4 * i + c]) / 255;
    }
  }
  return found;
}

/** Whether numbers are probabilities already: none is negative, and their sum is 1. */
function areShares(scores) {
  const total = scores.reduce((a, b) => a + b, 0);
  return Math.abs(total - 1) < 1e-3 && Math.min(...scores) >= 0;
}

/** Probabilities of scores; those that a model returns stay as they are. */
export function softmax(scores) {
  if (areShares(scores)) return Array.from(scores);
  const most = Math.max(...scores);
  const powers = Array.from(scores, (x) => Math.exp(x - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((x) => x / total);
}

const MOST_SHOWN = 5;

export function startImage(model, byId, show) {
  const { about } = model;
  const input = about.inputs[0].name;
  byId("image").hidden = false;

  async function classify(source, width, height) {
    const pixels = pixelsOf(source, width, height, byId("canvas"), about);
    const { outputs, seconds } = await model.run({ [input]: pixels });
    const scores = outputs[about.outputs[0].name].data;
    showClasses(scores);
    show(`${(1000 * seconds).toFixed(1)} ms`);
    globalThis.last = { input: Array.from(pixels), scores: Array.from(scores), seconds };
  }

  function showClasses(scores) {
    const shares = softmax(scores);
    const order = shares.map((_, i) => i).sort((a, b) => shares[b] - shares[a]);
    const table = document.createElement("table");
    for (const i of order.slice(0, MOST_SHOWN)) {
      const row = table.insertRow();
      row.insertCell().textContent = about.labels[i] || `class ${i}`;
      row.insertCell().textContent = `${(100 * shares[i]).toFixed(1)} %`;
      const bar = document.createElement("div");
      bar.className = "bar";
      bar.style.width = `${100 * shares[i]}%`;
      row.insertCell().append(bar);
      row.cells[0].className = "name";
      row.cells[1].className = "number";
    }
    byId("result").replaceChildren(table);
  }

  const failed = (error) => show(`That picture cannot be read: ${error.message}`);

  byId("file").addEventListener("change", async ({ target }) => {
    try {
      const picture = await createImageBitmap(target.files[0]);
      await classify(picture, picture.width, picture.height);
    } catch (error) {
      failed(error);
    }
  });

  byId("camera").addEventListener("click", async () => {
    const video = byId("video");
    try {
      video.srcObject = await navigator.mediaDevices.getUserMedia({ video: true });
      await video.play();
    } catch (error) {
      show(`There is no camera to use: ${error.message}`);
      return;
    }
    const next = async () => {
      await classify(video, video.videoWidth, video.videoHeight);
      requestAnimationFrame(next);
    };
    await next();
  });
}
