"""The page about a plan: its content, the escaping of names, and its scripts."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import meshwright as mw
from meshwright.app.report.collectives import collectives_by_line
from meshwright.app.report.live_values import live_groups
from meshwright.app.report.markup import TIMES, Tooltips, text
from meshwright.app.report.page import make_page
from meshwright.app.report.roofline import roofline_points
from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.propagate.sub_axes import SUB_AXIS
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.search_result import SearchResult
from zoo import gpt

MESH = {"batch": 4, "model": 2}
VOID = {"line", "link", "meta", "path", "rect", "circle", "wbr"}
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def plan():
    schedule = gpt.schedules["bp+mp+z3"]
    step = mw.partition(gpt.train_step, MESH, schedule, donate_argnums=0)
    return step.plan(*gpt.shapes(replace(gpt.T32, layers=2)))


@pytest.fixture(scope="module")
def placed(plan):
    return plan.on(mw.machine("tpu-v4", chips=8), "iowa")


@pytest.fixture(scope="module")
def page(plan, placed):
    return make_page(placed, [plan.on(mw.machine("h100", chips=8), "iowa")])


class Reader(HTMLParser):
    """Elements with their attributes, the text of each tag, and unclosed elements."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.faults, self.texts = [], [], [], {}
        self.feed(page)
        self.close()
        self.faults += [f"<{tag}> does not close" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes something else, {self.getpos()}")

    def handle_data(self, data):
        tag = self.open[-1] if self.open else ""
        self.texts[tag] = self.texts.get(tag, "") + "\n" + data


def tips_of(page):
    """The tooltip lines of each mark that has some."""
    reader = Reader(page)
    stored = re.search(r'<script type="application/json" id="tips">(.*)</script>', page)
    lines = json.loads(stored[1])
    return [
        [lines[int(n)] for n in attrs["data-tip"].split()]
        for _, attrs in reader.elements
        if "data-tip" in attrs
    ]


# -- content ---------------------------------------------------------------------------


def test_the_page_closes_all_elements_and_loads_nothing(page):
    reader = Reader(page)
    assert reader.faults == []
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)", page)
    for tag, attrs in reader.elements:
        assert tag not in {"img", "iframe", "link", "object"}
        assert not attrs.keys() & {"src", "href", "onload", "onclick", "onerror"}


def test_the_page_has_all_its_parts(page):
    found = {attrs["id"] for _, attrs in Reader(page).elements if "id" in attrs}
    assert found >= {
        "summary", "comparison", "time", "timeline", "memory", "collectives",
        "roofline", "tactics", "shardings",
    }  # fmt: skip


def test_the_page_has_the_figures(page, placed):
    assert "Google TPU v4" in page
    assert f"{100 * placed.mfu:.1f} %" in page
    assert f"{1e3 * placed.step_time_s:.0f} ms" in page
    assert f"{placed.energy_j:.0f} J" in page


def test_the_page_has_name_size_speed_and_what_limits_computation(page, placed):
    reader = Reader(page)
    assert reader.texts["h1"].strip() == "train_step"
    tokens = 48 * 2048 / placed.step_time_s / 1e3
    assert f"{tokens:.3g} k tokens/s" in page
    assert "98,304 tokens a step" in page
    assert "parameters" in reader.texts["h3"]
    assert "limited by matrix unit" in page
    total = sum(placed.figures.compute_bounds.values())
    assert total == pytest.approx(placed.breakdown["compute"])


def test_the_page_of_a_searched_plan_lists_the_candidates(placed):
    mesh = Mesh({"data": 8})
    best = Candidate("auto", mesh, (), 0.5, 2**30, limit_bytes=2**34)
    names = [
        best,
        *(replace(best, name=f"<plan {i}>", step_time_s=i + 1.0) for i in range(20)),
    ]
    search = SearchResult(tuple(names), 2.0**34, 1.0, 0.9, 3.0, 1, 1)
    page = make_page(replace(placed, search=search))
    assert Reader(page).faults == []
    assert "Plans that the search compared" in page
    assert page.index("auto on data=8 won") < page.index('class="cards"')
    assert "&lt;plan 19&gt;" in page
    assert "9 more" in page
    assert 'id="candidates"' not in make_page(placed)


def test_each_fusion_has_a_mark_with_its_line(page, placed):
    tips = tips_of(page)
    lines = "\n".join(line for tip in tips for line in tip)
    assert all(str(f.root.source) in lines for f in placed.estimate.fusions)
    marks = [attrs for _, attrs in Reader(page).elements if "data-name" in attrs]
    assert len(marks) == len(placed.estimate.timeline.spans)


def test_tooltips_of_the_memory_curve_list_the_largest_values(page, placed):
    alive = [tip for tip in tips_of(page) if any("largest:" in line for line in tip)]
    at_peak = [tip for tip in alive if placed.figures.peak_source in tip[0]]
    assert all(" at zoo/" in line for tip in at_peak for line in tip[3:5])


def test_each_tactic_has_its_counts(page, plan):
    titles = {tip[0] for tip in tips_of(page)}
    for step in plan.steps:
        for kind, count in step.counts.items():
            shown = f"{count} {TIMES} {kind.replace('_', '-')}"
            assert (shown in titles) == (count > 0)


def test_inputs_with_the_same_sharding_share_a_picture(page, plan):
    cut = {
        (leaf.shape, leaf.dtype, leaf.spec) for leaf in plan.inputs if any(leaf.spec)
    }
    pictures = [a for _, a in Reader(page).elements if a.get("class") == "cut"]
    assert len(pictures) == len(cut) < len(plan.inputs) / 4
    assert f"blocks.<wbr>*.<wbr>up&nbsp;({TIMES}&nbsp;2)" in page


def test_an_axis_split_into_sub_axes_has_their_colour_and_size():
    def f(x, y):
        return x.reshape(4, 16, 32).sum(1), y * 2

    tactics = [mw.shard({"x": 0, "y": 0}, axis="model")]
    shapes = (jnp.zeros((64, 32)), jnp.zeros((64, 32)))
    plan = mw.partition(f, {"batch": 2, "model": 8}, tactics).plan(*shapes)
    page = make_page(plan.on(mw.machine("tpu-v4", chips=16)))
    assert Reader(page).faults == []
    assert "1/8 per device" in page
    assert SUB_AXIS in "".join(plan.decided.lowered.mesh.axes)


def test_machines_are_compared_only_if_there_are_several(page, placed):
    assert "NVIDIA H100" in page
    assert 'id="comparison"' not in make_page(placed)


def test_a_step_without_collectives_has_a_page_too():
    step = mw.partition(lambda x: jnp.tanh(x) * 2, {"batch": 2}, [])
    placed = step.plan(jnp.zeros((64, 64))).on(mw.machine("tpu-v4", chips=2))
    page = make_page(placed)
    assert Reader(page).faults == []
    assert "The step has no collectives." in page


def test_the_same_plan_makes_the_same_page(placed):
    assert make_page(placed) == make_page(placed)


def test_a_plan_without_a_machine_says_how_to_name_one(plan, placed, tmp_path):
    with pytest.raises(PlanError, match=r"plan\.on\("):
        plan.report(tmp_path / "report.html")
    with pytest.raises(PlanError, match=r"plan\.on\("):
        placed.report(tmp_path / "report.html", others=[plan])
    assert not list(tmp_path.iterdir())


# -- laws ------------------------------------------------------------------------------


@pytest.mark.parametrize("donated", [(), 0])
def test_groups_of_values_add_up_to_the_curve(donated):
    schedule = gpt.schedules["bp+mp+z3"]
    step = mw.partition(gpt.train_step, MESH, schedule, donate_argnums=donated)
    plan = step.plan(*gpt.shapes(gpt.TINY)).on(mw.machine("tpu-v4", chips=8))
    sums = [sum(g.bytes for g in groups) for groups in live_groups(plan, 10**6)]
    curve = plan.estimate.memory.curve
    assert len(sums) == len(curve)
    assert all(s <= there for s, there in zip(sums, curve, strict=True))
    assert sum(sums) >= 0.95 * sum(curve)


def test_a_value_updated_in_place_counts_once():
    def fn(x):
        y = lax.sort(x, dimension=0)
        for _ in range(3):
            y = lax.dynamic_update_slice(y, y[:8], (8, 0))
        return lax.sort(jnp.tanh(y), dimension=0)

    x = jax.ShapeDtypeStruct((4096, 4096), jnp.float32)
    step = mw.partition(fn, {"data": 8}, [mw.shard({"x": 1}, axis="data")])
    plan = step.plan(x).on(mw.machine("tpu-v3", chips=4))
    sums = [sum(g.bytes for g in groups) for groups in live_groups(plan, 10**6)]
    assert all(s <= c for s, c in zip(sums, plan.estimate.memory.curve, strict=True))


def test_seconds_by_line_add_up_to_the_breakdown(placed):
    rows = collectives_by_line(placed)
    for part in ("exposed", "hidden"):
        wanted = sum(s for name, s in placed.breakdown.items() if name.endswith(part))
        assert sum(getattr(r, f"{part}_s") for r in rows) == pytest.approx(wanted)
    assert sum(r.executions for r in rows) == sum(placed.counts.values())


def test_a_collective_moved_out_of_a_loop_counts_as_often_as_it_runs():
    """A TPU reduces the accumulator once behind the loop of five iterations."""

    def step(w, xs):
        return jax.lax.scan(lambda total, x: (total + x.T @ w, None), 0 * w, xs)[0]

    w = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    xs = jax.ShapeDtypeStruct((5, 1024, 1024), jnp.float32)
    tactics = [mw.shard({"xs": 1}, "data"), mw.shard({"w": 0}, "data")]
    plan = mw.partition(step, {"data": 8}, tactics).plan(w, xs).on("tpu-v4")
    parts = plan.breakdown.items()
    wanted = sum(s for name, s in parts if name.endswith(("exposed", "hidden")))
    seconds = sum(row.seconds for row in collectives_by_line(plan))
    assert seconds == pytest.approx(wanted)


def test_roofline_points_add_up_to_the_compute_time_and_stay_below_the_roofs(placed):
    points = roofline_points(placed.estimate)
    assert sum(p.seconds for p in points) == pytest.approx(placed.breakdown["compute"])
    chip = placed.estimate.machine.chip
    assert any(point.num_bytes for point in points)
    for point in points:
        both = chip.half_flops_per_s + chip.vector_flops_per_s  # they run at once
        assert point.rate <= both * (1 + 1e-9)
        assert point.rate <= point.intensity * chip.hbm_bytes_per_s * (1 + 1e-9)


# -- escaping --------------------------------------------------------------------------

HOSTILE = "</script><img src=x onerror=alert(1)> & \"two\" 'one' $title"


@pytest.fixture(scope="module")
def hostile():
    code = "def f(x):\n    y = x[NAME]\n    return (y @ y.T).sum()\n"
    scope = {"NAME": HOSTILE}
    exec(compile(code, f"/{HOSTILE}.py", "exec"), scope)
    tactics = [mw.shard({"**": 0}, axis="batch")]
    step = mw.partition(scope["f"], MESH, tactics)
    plan = step.plan({HOSTILE: jnp.zeros((64, 32))})
    return plan.on(mw.machine("tpu-v5p", chips=8))


def test_names_that_contain_markup_are_escaped(hostile):
    assert any(HOSTILE in leaf.path for leaf in hostile.inputs)
    assert any(HOSTILE in str(u.root.source) for u in hostile.estimate.fusions)
    page = make_page(hostile)
    reader = Reader(page)
    assert reader.faults == []
    assert not any(tag == "img" for tag, _ in reader.elements)
    assert page.count("<script") == page.count("</script") == 2
    assert any(HOSTILE in line for tip in tips_of(page) for line in tip)


@given(st.text())
def test_every_text_survives_in_an_element_an_attribute_and_a_tip(any_text):
    reader = Reader(f'<p title="{text(any_text)}">{text(any_text)}</p>')
    assert reader.elements == [("p", {"title": any_text})]
    assert reader.texts.get("p", "\n") == f"\n{any_text}"
    assert reader.faults == []
    tips = Tooltips()
    tips.add(any_text)
    assert json.loads(tips.to_json()) == ([any_text] if any_text else [])
    assert not set(tips.to_json()) & set("<>&")


def test_a_path_that_is_no_utf_8_can_be_written(placed, tmp_path):
    collective = replace(placed.collectives[0], source="\udcff.py:1")
    odd = replace(placed, collectives=(collective, *placed.collectives[1:]))
    odd.report(tmp_path / "report.html")
    assert "&#56575;.py:1" in (tmp_path / "report.html").read_text("utf-8")


# -- in a browser ----------------------------------------------------------------------

HOVER = """<script>
for (const [name, mark] of [
  ["span", "#timeline rect[data-name]"], ["memory", "#memory rect.hit:nth-of-type(9)"],
]) {
  const target = document.querySelector(mark);
  const seen = document.createElement("pre");
  target.dispatchEvent(new MouseEvent("mousemove", { bubbles: true, clientX: 300 }));
  seen.id = "seen-" + name;
  seen.textContent = tip.hidden ? "nothing" : tip.innerText;
  document.body.append(seen);
}
const before = document.querySelector("#memory .ticks").textContent;
document.querySelector("#timeline").dispatchEvent(
  new WheelEvent("wheel", { deltaY: -1500, clientX: 600, cancelable: true }));
const after = document.querySelector("#memory .ticks").textContent;
document.body.append(Object.assign(document.createElement("pre"),
  { id: "seen-zoom", textContent: before === after ? "nothing" : after }));
</script>"""


def browse(page, path):
    """The elements of the page after its scripts ran, and the messages on the console."""
    path.write_text(page)
    flags = (
        "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000",
        "--enable-logging=stderr", f"--user-data-dir={path.parent / 'profile'}",
    )  # fmt: skip
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, [x for x in done.stderr.splitlines() if "CONSOLE" in x]


def seen(dom, name):
    """Text that the appended script found in a tooltip."""
    return re.search(rf'<pre id="seen-{name}">(.*?)</pre>', dom, re.S)[1]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_shows_the_page_and_its_tooltips(page, tmp_path):
    dom, console = browse(
        page.replace("</body>", HOVER + "</body>"), tmp_path / "a.html"
    )
    assert console == []
    assert '<svg id="timeline"' in dom
    assert '<svg id="memory"' in dom
    assert re.search(r"zoo/\w+\.py:\d+", seen(dom, "span"))
    assert "largest:" in seen(dom, "memory")
    assert re.search(r"zoo/\w+\.py:\d+", seen(dom, "memory"))
    assert "ms" in seen(dom, "zoom")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_runs_no_script_from_a_name(hostile, tmp_path):
    page = make_page(hostile).replace(
        "</body>",
        HOVER.split("const before")[0].replace("rect.hit:nth-of-type(9)", "rect.hit")
        + "</script></body>",
    )
    dom, console = browse(page, tmp_path / "a.html")
    assert console == []
    assert "<img" not in dom
    assert "&lt;/script&gt;&lt;img" in seen(dom, "span")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_errors_on_the_console_are_found(page, tmp_path):
    broken = page.replace("</body>", "<script>nothing.there()</script></body>")
    _, console = browse(broken, tmp_path / "a.html")
    assert any("nothing is not defined" in line for line in console)
