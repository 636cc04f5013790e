"""Models in headless Chromium: the same numbers as JAX, and pages that work."""

import functools
import http.server
import shutil
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from benchmarks.deploy.deploy import zoo_model
from tests.features.deploy import programs

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here"),
]

_WAIT_MS = 240_000


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        """Nothing is printed."""


@pytest.fixture
def serve():
    """A function from a folder to its address; servers end with the test."""
    running = []

    def start(folder):
        handler = functools.partial(Quiet, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        # A camera that shows a green picture with a moving disc, and asks nobody.
        camera = [
            "--use-fake-device-for-media-stream",
            "--use-fake-ui-for-media-stream",
        ]
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox", *camera]}
        opened = running.chromium.launch(timeout=_WAIT_MS, **options)
        yield opened
        opened.close()


@pytest.fixture
def page(browser):
    """A page that may reach this machine only; errors in it fail the test."""
    opened = browser.new_page()
    opened.set_default_timeout(_WAIT_MS)
    problems = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.route(
        "**/*",
        lambda route: (
            route.continue_() if "//127.0.0.1:" in route.request.url else route.abort()
        ),
    )
    yield opened
    opened.close()
    assert not problems


def classify(params, image):
    """Scores of four classes, by a convolution and a mean."""
    dims = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(
        image, params["kernel"], (2, 2), "SAME", dimension_numbers=dims
    )
    return jnp.mean(jax.nn.relu(x), (1, 2)) @ params["classes"]


CLASSIFIER = (
    {"kernel": programs.normal(3, 3, 3, 8), "classes": programs.normal(8, 4)},
    np.tanh(programs.normal(1, 16, 16, 3)),
)


def write_picture(path):
    """A picture of 40 x 24 pixels with a gradient."""
    from PIL import Image

    across, down = np.meshgrid(np.linspace(0, 255, 40), np.linspace(0, 255, 24))
    pixels = np.stack([across, down, 255 - across], -1).astype(np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.mark.parametrize("target", ["web", "wasm"])
def test_a_page_classifies_a_picture_as_jax_does(target, tmp_path, serve, page):
    labels = ["disc", "square", "ring", "cross"]
    mw.deploy(classify, CLASSIFIER, to=target, out=tmp_path / "page", labels=labels)
    write_picture(tmp_path / "picture.png")
    page.goto(serve(tmp_path / "page"))
    page.wait_for_function("document.getElementById('status').textContent == 'Ready.'")
    page.set_input_files("#file", str(tmp_path / "picture.png"))
    page.wait_for_function("globalThis.last")
    found = page.evaluate("globalThis.last")
    image = np.array(found["input"], np.float32).reshape(1, 16, 16, 3)
    assert image.min() >= -1
    assert image.max() <= 1
    wanted = np.asarray(jax.jit(classify)(CLASSIFIER[0], image))[0]
    np.testing.assert_allclose(found["scores"], wanted, atol=1e-4)
    best = labels[int(wanted.argmax())]
    assert page.inner_text("#result td.name >> nth=0") == best
    assert page.inner_text("#status").endswith(" ms")


@pytest.mark.parametrize("target", ["web", "wasm"])
def test_a_page_classifies_what_the_camera_sees(target, tmp_path, serve, page):
    mw.deploy(classify, CLASSIFIER, to=target, out=tmp_path / "page")
    page.goto(serve(tmp_path / "page"))
    page.wait_for_function("document.getElementById('status').textContent == 'Ready.'")
    page.click("#camera")
    page.wait_for_function("globalThis.last")
    first = page.evaluate("globalThis.last")
    image = np.array(first["input"], np.float32).reshape(1, 16, 16, 3)
    red, green, blue = image.mean((0, 1, 2))
    assert green > max(red, blue)
    wanted = np.asarray(jax.jit(classify)(CLASSIFIER[0], image))[0]
    np.testing.assert_allclose(first["scores"], wanted, atol=1e-4)
    # The pictures follow each other until the page is left.
    page.evaluate("globalThis.first = globalThis.last.input")
    page.wait_for_function(
        "globalThis.last.input.some((x, i) => x != globalThis.first[i])"
    )
    assert page.inner_text("#status").endswith(" ms")


@pytest.mark.parametrize("target", ["web", "wasm"])
def test_a_page_continues_a_text_as_jax_does(target, tmp_path, serve, page):
    params, _ = programs.ATTENTION
    params = {**params, "table": programs.normal(256, 16)}
    tokens = np.zeros((1, 12), np.int32)
    mw.deploy(programs.attention, (params, tokens), to=target, out=tmp_path / "page")
    page.goto(serve(tmp_path / "page"))
    page.wait_for_function("document.getElementById('status').textContent == 'Ready.'")
    page.fill("#prompt", "hello")
    page.fill("#count", "3")
    page.click("#write")
    page.wait_for_function("globalThis.last && globalThis.last.done")
    made = page.evaluate("globalThis.last.made")
    text = list(b"hello")
    for byte in made:
        padded = np.zeros((1, 12), np.int32)
        padded[0, : len(text)] = text
        scores = np.asarray(jax.jit(programs.attention)(params, padded))
        assert byte == scores[0, len(text) - 1].argmax()
        text.append(byte)
    assert len(made) == 3


def draw(key, x):
    """Random numbers, from the words of a key."""
    return x + jax.random.normal(jax.random.wrap_key_data(key), x.shape)


PROGRAMS = {
    **programs.EVERY,
    "newton": (programs.newton, programs.NEWTON),
    "draw": (draw, (jax.random.key_data(jax.random.key(3)), np.zeros(5, np.float32))),
}
COMPARED = ("mlp", "recurrence", "newton", "indexing", "scatters", "constants", "draw")


@pytest.mark.parametrize("name", COMPARED)
def test_webassembly_computes_what_jax_computes(name, tmp_path, serve, page):
    fn, args = PROGRAMS[name]
    mw.deploy(fn, args, to="wasm", out=tmp_path / "model")
    page.goto(serve(tmp_path / "model") + "model.json")
    given = {}
    for port, leaf in zip(
        page.evaluate("fetch('model.json').then(r => r.json())")["inputs"],
        jax.tree.leaves(args[1:] if name in WITH_PARAMS else args),
        strict=True,
    ):
        given[port["name"]] = np.asarray(leaf).ravel().tolist()
    found = page.evaluate(
        """async (given) => {
            const { Model } = await import('./runner.js');
            const { outputs } = await (await Model.load()).run(given);
            return Object.values(outputs).map((o) => Array.from(o.data));
        }""",
        given,
    )
    wanted = jax.tree.leaves(jax.jit(fn)(*args))
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, np.ravel(expected), rtol=1e-4, atol=1e-5)


WITH_PARAMS = ("mlp", "recurrence")
"""Programs whose first argument is part of the model."""


@pytest.mark.slow
@pytest.mark.parametrize("target", ["web", "wasm"])
@pytest.mark.parametrize("name", ["vit", "gpt"])
def test_a_zoo_program_computes_in_the_browser_what_jax_computes(
    name, target, tmp_path, serve, page
):
    fn, (params, given) = zoo_model(name)
    mw.deploy(fn, (params, given), to=target, out=tmp_path / "model")
    page.goto(serve(tmp_path / "model"))
    page.wait_for_function("document.getElementById('status').textContent == 'Ready.'")
    found = page.evaluate(
        """async (values) => {
            const port = model.about.inputs[0];
            const kind = port.dtype == 'int32' ? Int32Array : Float32Array;
            const given = { [port.name]: kind.from(values) };
            const { outputs } = await model.run(given);
            return Array.from(outputs[model.about.outputs[0].name].data);
        }""",
        np.asarray(given).ravel().tolist(),
    )
    wanted = np.ravel(jax.jit(fn)(params, given))
    error = np.abs(np.array(found) - wanted).max()
    assert error <= 1e-4 * max(1.0, np.abs(wanted).max())
