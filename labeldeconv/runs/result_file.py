"""What result.json, compare.json and the logs of a run must hold: a run may be somebody else's, or half of it broken.

Only what is read of them is asked for, so that a run of a newer version with more in it can be read too.
"""

from __future__ import annotations

import json
import math
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from labeldeconv.errors import DataError
from labeldeconv.stages.files import is_sealed

M = TypeVar("M", bound=BaseModel)
MOST_TOLD = 5  # problems of one file
LONGEST = 60  # characters of a wrong value that are shown


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not name or "\0" in name:
        raise ValueError("the name of a file inside the run expected")
    return name


def _nan(value: Any) -> Any:
    """null stands for a score that there is none of."""
    return math.nan if value is None else value


Score = Annotated[float, BeforeValidator(_nan)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Amounts = dict[str, Amount]
Inside = Annotated[str, Field(max_length=1000), AfterValidator(_inside)]


class _Held(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Named(_Held):
    name: str


class _Labels(_Held):
    hops: Annotated[int, Field(ge=0, le=1000)] | None


class _Train(_Held):
    psi_norm: str


class _Settings(_Held):
    data: str
    method: str
    setting: str
    seed: Annotated[int, Field(ge=0)]
    encoder: _Named
    gnn: _Named
    labels: _Labels
    train: _Train


class _Run(_Held):
    """result.json."""

    metric: str
    metrics: dict[str, dict[str, float | None]] = {}
    val: Score
    test: Score
    gamma: Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1)] | None
    alpha: Annotated[float, Field(ge=0, le=1)] | None
    seconds: Amounts
    peak_mib: dict[str, Amount | None]
    encoder_nodes: Annotated[int, Field(ge=0)]
    encoder_nodes_by_stage: dict[str, Annotated[int, Field(ge=0)]]
    batch: Amount | None
    subgraph: Amount | None
    settings: _Settings
    files: dict[Inside, Annotated[list[int | str], Field(min_length=2, max_length=2)]]


class _Calibration(_Held):
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Model(_Held):
    """What predicting needs of a graph that was not pushed."""

    task: Literal["multiclass", "multilabel", "regression"]
    class_names: Annotated[list[str], Field(min_length=1)]
    dim: Annotated[int, Field(ge=1)]
    psi_temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None


class _Targets(_Held):
    """The unit of a regression: mean and standard deviation of every target."""

    mean: list[Annotated[float, Field(allow_inf_nan=False)]]
    std: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]]


class _Pushed(_Run):
    """labeldeconv.json of a pushed folder."""

    calibration: _Calibration
    model: _Model
    targets: _Targets | None = None

    @model_validator(mode="after")
    def _in_a_unit(self) -> _Pushed:
        c, unit = len(self.model.class_names), self.targets
        fits = unit is not None and len(unit.mean) == len(unit.std) == c
        if self.model.task == "regression" and not fits:
            raise ValueError(f"targets: mean and std of the {c} targets of the regression expected")
        return self


class _Spread(_Held):
    mean: Score
    std: Score


class _Row(_Held):
    """A row of compare.json."""

    method: str
    gnn: str
    varied: dict[str, Any]
    val: _Spread
    test: _Spread
    tests: Annotated[list[Score], Field(min_length=1)]
    seconds: Amount
    peak_mib: Amount | None
    encoder_passes: Amount
    stages: Amounts
    p_value: float | None
    cells: list[str]


class _Comparison(_Held):
    """compare.json."""

    data: str
    metric: str
    rows: Annotated[list[_Row], Field(min_length=1)]


class _LogRow(_Held):
    """A line of steps.jsonl or epochs.jsonl."""

    epoch: Annotated[int, Field(ge=0)]
    loss: Score
    val: Score = math.nan
    step: Annotated[int, Field(ge=0)] = 0
    gamma: list[float] | None = None


def read_result(path: Path, version: int) -> dict[str, Any]:
    """The values of result.json of this format; a `DataError` says what is missing or wrong in it."""
    held = _of_format(path, version)
    checked = _checked(_Run, held, path)
    return {**held, "val": checked.val, "test": checked.test}


def read_pushed(path: Path, version: int) -> dict[str, Any]:
    """The values of labeldeconv.json of this format: those of result.json, and `model`."""
    held = read_result(path, version)
    _checked(_Pushed, held, path)
    return held


def read_comparison(path: Path, version: int) -> dict[str, Any]:
    """The values of compare.json of this format."""
    held = _of_format(path, version)
    rows = _checked(_Comparison, held, path).rows
    varied = {tuple(row.varied) for row in rows}
    if len(varied) > 1:
        raise DataError(f"{path}: the same varied settings in every row expected, got {sorted(varied)}")
    scores = [row.model_dump(include={"val", "test", "tests"}) for row in rows]
    return {**held, "rows": [{**old, **new} for old, new in zip(held["rows"], scores, strict=True)]}


def read_log(path: Path) -> list[dict[str, Any]]:
    """The rows of a log of JSON lines; none where there is no such file."""
    if not path.is_file():
        return []
    out = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        where = Path(f"{path}, line {number}")
        held = _object(line, where)
        out.append({**held, **_checked(_LogRow, held, where).model_dump(include=set(held))})
    return out


def _of_format(path: Path, version: int) -> dict[str, Any]:
    held = _object(_text(path), path)
    if held.get("format") != version:
        raise DataError(f"{path}: format {version} expected; another version wrote it")
    if "checksum" in held and not is_sealed(held):  # those of older versions have none
        raise DataError(f"{path}: it has another content than when it was written")
    return held


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8: {error}") from None


def _object(text: str, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise DataError(f"{path}: a JSON object expected, got {type(value).__name__}")
    return value


def _checked(model: type[M], held: dict[str, Any], path: Path) -> M:
    try:
        return model.model_validate(held)
    except ValidationError as error:
        found = error.errors()
        told = [_explained(problem) for problem in found[:MOST_TOLD]]
        dots = [f"and {len(found) - MOST_TOLD} more"] if len(found) > MOST_TOLD else []
        raise DataError(f"{path}: {len(found)} wrong; not written by `labeldeconv`, or broken", told + dots) from None


def _explained(problem: Any) -> str:
    name = ".".join(str(part)[:LONGEST] for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    got = "" if problem["type"] == "missing" else f", got {problem['input']!r:.{LONGEST}}"
    return f"{name}: {message[0].lower() + message[1:]}{got}"
