"""What the floorplan policy learns, beside random and greedy placement.

    python -m benchmarks floorplan policy_curves

`curve`: training from scratch on small published netlists; means of the first and the last
rounds, the placement of most probable cells, and the best episode, beside random episodes
and two greedy placements; a round is 16 episodes. `transfer`: the shipped policy, which has
seen generated netlists only, against one from scratch, at equal steps. `speed`: environment
steps of two collectors per second, and per CPU second. A case that the results have is not
run again.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.floorplan.generated import generated_chip
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.codesign import floorplan as fp
from meshwright.features.codesign.floorplan.policy.collect import (
    Collector,
    CollectorPool,
    new_policy,
)
from meshwright.features.codesign.floorplan.policy.episodes import Episodes
from meshwright.features.codesign.floorplan.policy.inputs import chip_arrays
from meshwright.features.codesign.floorplan.policy.task import MacroTask, make_task
from tests.features.codesign.floorplan.chips import ARIANE, TILES, TOYS, ariane

UNSEEN = (1000, 1002)
"""Seeds of generated chips that the shipped policy has not seen.

No agent could place the macros of chip 1001 at centres of cells.
"""


def toy(name: str) -> fp.ChipPlacement:
    return fp.frame_of(fp.read(TOYS / name / "netlist.pb.txt"))


CHIPS = {
    "sample_clustered": lambda: toy("sample_clustered"),
    "simple_grouped": lambda: toy("simple_grouped_with_coords_with_blockage"),
    "toy_macro_stdcell": lambda: toy("toy_macro_stdcell"),
    **{f"generated {s}": lambda s=s: generated_chip(s) for s in UNSEEN},
    "macro_tiles_10x10": lambda: fp.start_of(fp.read(TILES)),
}
UNSEEN_CHIPS = (*(f"generated {s}" for s in UNSEEN), "macro_tiles_10x10")


def greedy_pull(task: MacroTask) -> float:
    """Proxy of macros placed, by falling area, at the free cell nearest to their pull."""
    episodes = Episodes(task, 1)
    side = max(task.rows, task.columns)
    while not episodes.is_over:
        away = episodes.maps(side)[0, : task.rows, : task.columns, 1].ravel()
        away = np.where(episodes.free[0], away, np.inf)
        episodes.act(np.array([away.argmin()]))
    return -float(episodes.rewards()[0])


def greedy_cost(task: MacroTask) -> float:
    """Proxy of macros placed, by falling area, at the free cell of least exact proxy.

    Blocks that have no place yet lie at the centre of the canvas.
    """
    frame, canvas = task.frame, task.frame.canvas
    x, y = frame.x.copy(), frame.y.copy()
    moving = np.concatenate([task.room.hard, task.room.soft])
    x[moving], y[moving] = canvas.width / 2, canvas.height / 2
    evaluator = fp.Evaluator(
        frame.netlist, frame.moved(x, y, frame.orientations), task.weights
    )
    episodes = Episodes(task, 1)
    while not episodes.is_over:
        block, costs = int(task.order[episodes.step]), {}
        for cell in np.flatnonzero(episodes.free[0]).tolist():
            row, column = divmod(cell, task.columns)
            place = (column + 0.5) * canvas.cell_width, (row + 0.5) * canvas.cell_height
            costs[cell] = evaluator.move(block, *place)
        best = min(costs, key=costs.__getitem__)
        row, column = divmod(best, task.columns)
        evaluator.move(
            block, (column + 0.5) * canvas.cell_width, (row + 0.5) * canvas.cell_height
        )
        episodes.act(np.array([best]))
    return -float(episodes.rewards()[0])


def figures_of(
    task: MacroTask, trained: fp.PlacerTraining, last: int
) -> dict[str, float]:
    """Proxies along a training, and of the trained policy's most probable cells."""
    collector = Collector(task, chip_arrays(task), 1)
    played = collector.play(trained.policy.params, 0, is_greedy=True)
    rewards = [point.reward for point in trained.curve]
    return {
        "random": -trained.curve[0].random,
        "first_rounds": -float(np.mean(rewards[:2])),
        "last_rounds": -float(np.mean(rewards[-last:])),
        "most_probable": -float(played.rewards[0]),
        "best_episode": -max(point.best for point in trained.curve),
        "steps": trained.curve[-1].steps,
    }


def curves(options: Options, rounds: int) -> None:
    """Train from scratch on each chip."""
    for name, make in CHIPS.items():
        frame = make()
        task = make_task(frame, fp.WEIGHTS)
        for seed in range(options.seeds):
            case = f"{name}, {rounds} rounds, seed {seed}"
            if case in options.stored_part("curve"):
                continue
            trained = fp.train(
                {name: frame}, steps=16 * rounds * len(task.order), seed=seed
            )
            greedy = {"pull": greedy_pull(task), "cost": greedy_cost(task)}
            figures = figures_of(task, trained, 5)
            figures |= {f"greedy_{k}": v for k, v in greedy.items()}
            options.save_case("curve", case, figures)


def transfer(options: Options, rounds: int) -> None:
    """Train the shipped and an untrained policy for equal steps on unseen chips."""
    for name in UNSEEN_CHIPS:
        frame = CHIPS[name]()
        task = make_task(frame, fp.WEIGHTS)
        for seed in range(options.seeds):
            for start in ("shipped", "scratch"):
                case = f"{name}, {start}, seed {seed}"
                if case in options.stored_part("transfer"):
                    continue
                policy = fp.shipped_policy() if start == "shipped" else None
                trained = fp.train(
                    {name: frame},
                    steps=16 * rounds * len(task.order),
                    seed=seed,
                    start=policy,
                )
                options.save_case("transfer", case, figures_of(task, trained, 2))


def speed(options: Options) -> None:
    """Environment steps per second of time and of CPU of two collectors, untrained."""
    chips = {"ariane133": lambda: fp.read_placement(ariane(), ARIANE / "initial.plc")}
    chips["macro_tiles_10x10"] = CHIPS["macro_tiles_10x10"]
    for name, make in chips.items():
        with ThreadPoolExecutor(2) as pool:
            collectors = CollectorPool(make_task(make(), fp.WEIGHTS), 2, pool)
            collectors.play(new_policy(0), (0,))
            begin, cpu = time.monotonic(), time.process_time()
            played = collectors.play(new_policy(0), (1,))
            figures = {
                "steps_per_s": played.num_steps / (time.monotonic() - begin),
                "steps_per_cpu_s": played.num_steps / (time.process_time() - cpu),
            }
        options.save_case("speed", name, figures)


@benchmark(
    option("--parts", nargs="+", default=["speed", "transfer", "curve"]),
    option("--seeds", type=int, default=3),
    option("--rounds", type=int, default=60),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure the parts that were asked for."""
    if "speed" in options.parts:
        speed(options)
    if "transfer" in options.parts:
        transfer(options, 10)
    if "curve" in options.parts:
        curves(options, options.rounds)


if __name__ == "__main__":
    main()
