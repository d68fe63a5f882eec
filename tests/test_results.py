"""Experiments of make results: which figures count, and against which bar."""

import sys
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[1] / "results"


@pytest.fixture
def told(monkeypatch):
    """Runs an experiment whose runs are made up, and returns its rows by figure, and its table."""
    monkeypatch.syspath_prepend(str(RESULTS))

    def told_by(name, metrics, **modules):
        module = __import__(name)
        found = {}

        def hand_over(title, note, rows, table=()):
            found.update(rows={row.figure: row for row in rows}, table=table)

        def train_each(settings, recipe="offpolicy"):
            return {
                name: [metrics(recipe, name, seed) | {"seed": seed} for seed in range(5)]
                for name in settings
            }

        for each in (module, *(sys.modules[other] for other in modules.get("beside", ()))):
            monkeypatch.setattr(each, "train_all", train_each)
            monkeypatch.setattr(each, "train_each", train_each, raising=False)
        monkeypatch.setattr(module, "hand_over", hand_over)
        module.main(*modules.get("given", ()))
        return found["rows"], found["table"]

    return told_by


def test_what_is_made_for_stored_rows_is_measured_by_what_it_learns_from_them(told, monkeypatch):
    monkeypatch.syspath_prepend(str(RESULTS))
    import learn_losses
    import learn_offline  # noqa: F401

    monkeypatch.setattr(learn_losses, "speed", lambda loss: 9.0 + len(loss))

    def metrics(recipe, name, seed):
        share = 0.99 if recipe == "offline" or name.split()[0] not in ("cql", "iql") else 0.5
        figures = {"optimum_share": share + 1e-3 * seed, "sharpe_ratio_mean": 2.0}
        figures |= {"growth_share": 0.8}
        return {"figures": figures, "folder": "there"}

    rows, table = told("learn_losses", metrics, beside=["learn_offline"], given=[[]])
    problem = "Garleanu-Pedersen, share of the optimum"
    for loss in ("cql", "iql"):
        assert rows[f"{loss}: {problem}, online"].met is None
        assert rows[f"{loss}: {problem}, online"].value.startswith("0.502")
        assert rows[f"{loss}: {problem}, from stored rows"].met
    assert rows[f"sac: {problem}"].met
    assert f"sac: {problem}, online" not in rows
    at = table[0].index("from stored rows")
    assert {row[0]: bool(row[at]) for row in table[1:] if row[at]} == {"cql": True, "iql": True}
    assert all(len(row) == len(table[0]) for row in table)
    assert table[1][-1] == "12"


def test_one_loss_measured_anew_changes_its_rows_alone(told, monkeypatch):
    monkeypatch.syspath_prepend(str(RESULTS))
    import learn_losses
    import run

    monkeypatch.setattr(learn_losses, "speed", lambda loss: 9.0)
    share = [0.91]

    def metrics(recipe, name, seed):
        figures = {"optimum_share": share[0], "sharpe_ratio_mean": 2.0, "growth_share": 0.8}
        return {"figures": figures, "folder": "there"}

    def printed(given):
        rows, table = told("learn_losses", metrics, beside=["learn_offline"], given=[given])
        rows = [row._asdict() for row in rows.values()]
        stamp = {"seconds": 7.0, "commit": "abc", "processor": f"machine {share[0]}"}
        return {"title": "Losses", "note": "Told.", "rows": rows, "table": table} | stamp

    before = run.section("learn_losses", printed([]))
    share[0] = 0.97
    part = printed(["ddpg"])
    assert {row["figure"].split(":")[0] for row in part["rows"]} == {"ddpg"}
    after = run.renewed(before, "learn_losses:ddpg", part)
    changed = [line for line in after.splitlines() if line not in before.splitlines()]
    assert len(changed) == 4
    assert all("ddpg" in line for line in changed)
    assert sum("0.9700" in line and "| met |" in line for line in changed) == 2
    assert "Anew, ddpg: 7 s at abc, machine 0.97." in changed
    assert len(after.splitlines()) == len(before.splitlines()) + 1
    assert [line for line in after.splitlines() if line.startswith("|---")] == [
        "|---|---|---|---|---|---|---|",
        "|---|---|---|---|",
    ]
    assert run.renewed(after, "learn_losses:ddpg", part) == after


@pytest.mark.parametrize(
    ("gained", "met"),
    [([0.3, 0.2, 0.4, 0.3, 0.3], True), ([0.9, -0.1, 0.3, 0.0, 0.1], False)],
)
def test_to_beat_who_collected_is_for_the_interval_to_lie_above_0(told, gained, met):
    """In the second the mean is above 0, and the interval is not."""

    def metrics(recipe, name, seed):
        sharpe = 1.0 + seed + (gained[seed] if recipe == "offline" else 0.0)
        figures = {"optimum_share": 0.99, "sharpe_ratio_mean": sharpe, "growth": 0.1}
        return {"figures": figures, "folder": "there", "data": {"mean_reward": 0.1}}

    rows, _ = told("learn_offline", metrics)
    for name in ("IQL", "CQL"):
        assert rows[f"market: {name} less who collected"].met is met
    assert rows["market: BC less who collected"].met is None
