"""Metrics in TensorBoard's event files, Weights & Biases and MLflow: live, replayed from the cache, resumed."""

import json
import sys
import types

import pytest

from labeldeconv import ConfigError, MissingExtra, fit, load_config
from labeldeconv.stages.watch import Watch, heard_by, open_metrics
from tests.samples import interrupt

SETTINGS = {"encoder": "tiny", "gnn__hidden": 8, "gnn__epochs": 4, "train__epochs": 1}


class Memory:
    """A log that keeps what it is given."""

    def __init__(self):
        self.rows = []

    def add(self, values, axis, at):
        self.rows.append((dict(values), axis, at))

    def close(self, error):
        self.rows.append("closed" if error is None else f"closed by {type(error).__name__}")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_become_numbers():
    log = Memory()
    watch = Watch("train", log)
    watch({"step": 3, "epoch": 0, "loss": 0.5, "gamma": [0.4, 0.6]})
    watch({"step": 4, "epoch": 0, "loss": 0.4, "gamma": None})
    Watch("gnn", log)({"stage": 1, "epoch": 2, "loss": 1.0, "val": 0.7})
    assert log.rows == [
        ({"train/loss": 0.5, "train/gamma_0": 0.4, "train/gamma_1": 0.6}, "train/step", 3),
        ({"train/loss": 0.4}, "train/step", 4),
        ({"gnn stage 1/loss": 1.0, "gnn stage 1/val": 0.7}, "gnn stage 1/epoch", 2),
    ]
    Watch("silent")({"step": 1, "loss": 0.1})  # no log: nothing happens


def test_log_is_closed_by_errors(tmp_path, monkeypatch):
    log = Memory()
    monkeypatch.setattr("labeldeconv.stages.watch._TensorBoard", lambda *_: log)
    with pytest.raises(KeyboardInterrupt), open_metrics("tensorboard", tmp_path, "run", {}):
        raise KeyboardInterrupt
    assert log.rows == ["closed by KeyboardInterrupt"]


def test_a_listener_hears_every_number_and_may_end_the_run(tmp_path):
    heard = []

    def listen(name, at, value):
        heard.append((name, at))
        if (name, at) == ("gnn/val", 2):
            raise LookupError

    with heard_by(listen), pytest.raises(LookupError):
        fit("planted:60", method="pne", out=tmp_path / "a", **SETTINGS)
    assert [at for name, at in heard if name == "gnn/val"] == [1, 2]
    fit("planted:60", method="pne", out=tmp_path / "a", **SETTINGS)
    assert heard[-1] == ("gnn/val", 2)  # outside nobody listens


def scalars(folder):
    """Points (step, value) by tag of the event files of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_holds_the_rows_live_and_cached(tmp_path):
    pytest.importorskip("tensorboard", reason="extra 'tensorboard' is not installed")
    run = fit("planted:60", method="ld", out=tmp_path / "a", log="tensorboard", **SETTINGS).run
    live = scalars(run / "tensorboard")
    steps, epochs = lines(run / "steps.jsonl"), lines(run / "epochs.jsonl")
    assert live["train/loss"] == [(row["step"], pytest.approx(row["loss"])) for row in steps]
    assert live["train/gamma_1"] == [(row["step"], pytest.approx(row["gamma"][1])) for row in steps]
    assert live["gnn/val"] == [(row["epoch"], pytest.approx(row["val"])) for row in epochs]
    assert "first gnn/val" in live
    result = json.loads((run / "result.json").read_text())
    assert live["score/test"] == [(0, pytest.approx(result["test"]))]
    again = fit("planted:60", method="ld", out=tmp_path / "a", log="tensorboard", **SETTINGS)
    assert set(again.cached) == set(again.seconds)  # nothing was computed
    assert scalars(run / "tensorboard") == live  # once, not twice


def test_setting_changes_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr("labeldeconv.stages.watch._TensorBoard", lambda *_: Memory())
    fit("planted:60", method="ld", out=tmp_path / "a", **SETTINGS)
    logged = fit("planted:60", method="ld", out=tmp_path / "b", log="tensorboard", **SETTINGS)
    assert set(logged.cached) == set(logged.seconds)  # same keys, so all from the cache


def test_resumed_run_has_every_row_once(tmp_path, monkeypatch):
    log = Memory()
    monkeypatch.setattr("labeldeconv.stages.watch._TensorBoard", lambda *_: log)
    import labeldeconv.training.encoder as loop

    settings = {**SETTINGS, "train__batch_nodes": 8, "train__checkpoint_minutes": 0, "log": "tensorboard"}
    calls = interrupt(monkeypatch, loop, "_step", 3)
    with pytest.raises(KeyboardInterrupt):
        fit("planted:60", method="ld", out=tmp_path / "a", **settings)
    log.rows.clear()
    run = fit("planted:60", method="ld", out=tmp_path / "a", **settings).run
    told = [at for values, axis, at in log.rows[:-1] if axis == "train/step"]
    assert told == [row["step"] for row in lines(run / "steps.jsonl")]
    assert len(calls) > 3


MODULES = [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow")]


@pytest.mark.parametrize(("kind", "module"), MODULES)
def test_missing_package_names_the_extra(kind, module, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"labeldeconv\[{kind}\]"):
        fit("planted:60", method="pne", out=tmp_path / "a", log=kind, **SETTINGS)
    assert not (tmp_path / "a").exists()  # told before anything is computed


def test_other_logs_are_refused():
    with pytest.raises(ConfigError, match="'none', 'tensorboard', 'wandb' or 'mlflow'"):
        load_config(None, {"log": "comet"})


def test_wandb_calls(tmp_path, monkeypatch):
    """Against a stand-in that records: one axis per stage, the settings, finished at the end."""
    calls = []
    run = types.SimpleNamespace(
        define_metric=lambda name, step_metric: calls.append((name, step_metric)),
        log=calls.append,
        finish=lambda: calls.append("finished"),
    )
    fake = types.ModuleType("wandb")
    fake.init = lambda **kwargs: calls.append(kwargs) or run
    monkeypatch.setitem(sys.modules, "wandb", fake)
    fit("planted:60", method="pne", out=tmp_path / "a", log="wandb", **SETTINGS)
    assert calls[0]["project"] == "labeldeconv"
    assert calls[0]["name"] == "a"
    assert calls[0]["config"]["method"] == "pne"
    assert ("gnn/*", "gnn/epoch") in calls
    logged = [c for c in calls if isinstance(c, dict) and "gnn/val" in c]
    assert [c["gnn/epoch"] for c in logged] == [1, 2, 3, 4]
    assert calls[-1] == "finished"


def test_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="extra 'wandb' is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = fit("planted:60", method="pne", out=tmp_path / "a", log="wandb", **SETTINGS).run
    assert list((run / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.filterwarnings("ignore")  # of MLflow's own: SQLAlchemy 2.1 tells it of the next version
class TestMlflow:
    """In a database of its own, for real. It is made once: that takes MLflow seconds."""

    @pytest.fixture(scope="class")
    def address(self, tmp_path_factory):
        pytest.importorskip("mlflow", reason="extra 'mlflow' is not installed")
        pytest.importorskip("alembic", reason="extra 'mlflow' is not installed")
        return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"

    @pytest.fixture
    def client(self, address, monkeypatch):
        from mlflow import MlflowClient

        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
        return MlflowClient(tracking_uri=address)

    def test_a_resumed_run_goes_on_in_its_mlflow_run(self, client, tmp_path, monkeypatch):
        import labeldeconv.training.encoder as loop

        settings = {**SETTINGS, "train__batch_nodes": 8, "train__checkpoint_minutes": 0, "log": "mlflow"}
        interrupt(monkeypatch, loop, "_step", 5)
        with pytest.raises(KeyboardInterrupt):
            fit("planted:60", method="ld", out=tmp_path / "a", **settings)
        experiment = client.get_experiment_by_name("labeldeconv").experiment_id
        (killed,) = client.search_runs([experiment])
        assert killed.info.status == "KILLED"
        assert killed.info.run_name == "a"
        run = fit("planted:60", method="ld", out=tmp_path / "a", **settings).run
        (found,) = client.search_runs([experiment])
        assert (found.info.run_id, found.info.status) == (killed.info.run_id, "FINISHED")

        def history(key):
            return [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, key)]

        steps, epochs = lines(run / "steps.jsonl"), lines(run / "epochs.jsonl")
        assert history("train/loss") == [(row["step"], pytest.approx(row["loss"])) for row in steps]
        assert history("train/gamma_1") == [(row["step"], pytest.approx(row["gamma"][1])) for row in steps]
        assert history("gnn/val") == [(row["epoch"], pytest.approx(row["val"])) for row in epochs]
        result = json.loads((run / "result.json").read_text())
        assert history("score/test") == [(0, pytest.approx(result["test"]))]
        params = found.data.params
        assert (params["train.batch_nodes"], params["gnn.hidden"], params["method"]) == ("8", "8", "ld")
        tags = found.data.tags
        assert (tags["labeldeconv.data"], tags["labeldeconv.gnn"]) == ("planted:60", "gcn")

        fit("planted:60", method="ld", out=tmp_path / "a", **settings)  # finished: all from the cache, nothing twice
        assert len(client.search_runs([experiment])) == 1
        assert len(history("train/loss")) == len(steps)
        fit("planted:60", method="ld", out=tmp_path / "a", **{**settings, "gnn__epochs": 5})  # another run
        assert len(client.search_runs([experiment])) == 2

    def test_an_error_is_told(self, client, tmp_path, monkeypatch):
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")

        def failing():
            with open_metrics("mlflow", tmp_path, "run", {"a": 1}) as log:
                log.add({"train/loss [x]": 0.5}, "train/step", 1)
                raise ValueError("out of order")

        with pytest.raises(ValueError, match="out of order"):
            failing()
        (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
        assert (found.info.status, found.data.metrics) == ("FAILED", {"train/loss _x_": 0.5})
