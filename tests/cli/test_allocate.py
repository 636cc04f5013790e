"""`meshwright allocate`: offsets out, exit statuses, refusals."""

from pathlib import Path

from typer.testing import CliRunner

from meshwright.cli.main import app

_TABLE = "id,lower,upper,size\nx,0,3,4\ny,2,9,8\nz,5,9,4\n"


def test_offsets_are_written_and_statuses_say_how_it_ended(tmp_path: Path) -> None:
    table, out, page = (tmp_path / n for n in ("b.csv", "placed.csv", "page.html"))
    table.write_text(_TABLE)
    run = CliRunner().invoke
    arguments = ["allocate", str(table), "--capacity"]
    done = run(app, [*arguments, "12", "--out", str(out), "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert out.read_text().startswith("id,lower,upper,size,offset\nx,0,3,4,")
    assert "<svg" in page.read_text()
    assert run(app, [*arguments, "11"]).exit_code == 1
    assert "more than the capacity 7" in str(run(app, [*arguments, "7"]).exception)
    least = run(app, ["allocate", str(table), "--minimize"])
    assert "height    12 bytes" in least.output
    refused = run(app, [*arguments, "12", "--out", str(tmp_path)])
    assert "that is a folder" in str(refused.exception)
    tight = ["allocate", str(table), "--capacity", "12", "--method"]
    assert run(app, [*tight, "guided"]).exit_code == 0
    assert "one of portfolio, guided" in str(run(app, [*tight, "cp"]).exception)
