"""What clients send and get: the bodies of /predict, checked field by field, as nodes that a `Predictor` takes.

Every refusal is a `Refused` with its status and the fields that are wrong: 413 where something is too large, 422 for
everything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from labeldeconv.errors import LabelDeconvError
from labeldeconv.prediction.logits import Mode
from labeldeconv.prediction.numbering import NewNodes, Places
from labeldeconv.prediction.predictor import Alone, Predicted, Predictor
from labeldeconv.serving.limits import Limits


def _whole(text: str) -> str:
    """Refuse halves of characters (lone surrogates), which JSON can say and no tokenizer or file takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("valid Unicode expected, got a lone surrogate") from None
    return text


Text = Annotated[StrictStr, AfterValidator(_whole)]
Id = Annotated[Text, Field(max_length=256)] | StrictInt
Cell = Text | StrictInt | StrictFloat | StrictBool | None
Number = Annotated[float, Field(allow_inf_nan=False)]
FIELD = re.compile(r"(?:nodes|edges)\[\d+\](?:\.\w+(?:\[\d+\])?)?")

MEMBER = re.compile(
    r"str|int|float|bool|none|constrained-str|\[key\]|[\w-]+\[.*\]"
)  # how pydantic names those of a union


class Refused(Exception):
    """A request that is not accepted: a status, and what is wrong with which field."""

    def __init__(self, status: int, errors: Sequence[tuple[str, str]]) -> None:
        super().__init__(errors[0][1])
        self.status = status
        self.errors = [{"field": name, "message": message} for name, message in errors]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewNode(_Strict):
    """A node that the run's graph does not have."""

    text: Text | dict[Text, Cell] | None = Field(None, description="Its text; an object for a run on records.")
    features: list[Number] | None = Field(None, description="In place of a text, for a run on given features.")
    id: Id | None = Field(None, description="An id of its own; 'new-0', 'new-1', ... otherwise.")
    neighbors: list[Id] = Field([], description="Ids whose edges lead to it: nodes of the graph, or new ones.")


class Asked(_Strict):
    """New nodes to predict. All of them join the graph together, and for this request only."""

    nodes: list[NewNode] = Field(min_length=1)
    edges: list[tuple[Id, Id]] = Field([], description="Source and target, each with a new node at one end.")
    edge_features: list[list[Number]] | None = Field(None, description="One row per edge, where the GNN reads them.")
    mode: Mode = Field("exact", description="'fast' leaves the activations of old nodes as they were.")
    alone: Alone = Field("psi", description="What predicts a node that no other reaches.")
    features: StrictBool = Field(False, description="Whether the answer has the encoder's features.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"nodes": [{"text": "amber river", "id": "a", "neighbors": [17, 42]}], "edges": [["a", 3]]}]
        }
    )


class AskedWhy(Asked):
    """New nodes, one of which is explained."""

    node: Id | None = Field(None, description="The id of the node to explain; the first one otherwise.")
    of: Text | None = Field(
        None, description="The class to explain, the predicted one otherwise; in a regression the target, or the first."
    )
    top: Annotated[int, Field(ge=0, le=100)] = Field(10, description="Neighbors to name.")

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"nodes": [{"text": "amber river", "neighbors": [17, 42]}], "top": 5}]}
    )


class PredictedNode(BaseModel):
    """What is predicted of one node."""

    id: str
    prediction: str | list[str] | float | list[float] = Field(
        description="The class, the labels of a multi-label task, or the number of a regression, a list of several, in "
        "the unit of the labels."
    )
    probability: float | None = Field(description="Of the class; null in a multi-label task and in a regression.")
    by: str = Field(description="'gnn', or 'psi' for a node that no other reaches.")
    probabilities: list[float] = Field(description="Calibrated, in the order of class_names; none in a regression.")
    features: list[float] | None = None


class Answer(BaseModel):
    """Predictions in the order of the request's nodes."""

    class_names: list[str] = Field(description="Of the classes; in a regression of the targets, in their order.")
    nodes: list[PredictedNode]


class FoundNode(BaseModel):
    """A node of the run's graph."""

    id: str
    text: str = Field(description="Its beginning.")


class Found(BaseModel):
    """Nodes of the run's graph that match; `complete` is false where the search stopped before the last text."""

    nodes: list[FoundNode]
    complete: bool


class TargetUnit(BaseModel):
    """The numbers of a regression on the train nodes, one per target, in the unit of the labels."""

    mean: list[float]
    std: list[float]


class Described(BaseModel):
    """The run that is served."""

    name: str
    data: str
    method: str
    gnn: str
    task: str = Field(description="'multiclass', 'multilabel' or 'regression'.")
    class_names: list[str]
    targets: TargetUnit | None = Field(description="Of a regression, null otherwise.")
    nodes: int
    edges: int
    attributes: str
    columns: list[str] | None = Field(description="Of a record, for a run on records.")
    features: int | None = Field(description="Numbers per node, for a run on given features.")
    edge_features: int
    limits: dict[str, int | float]


def columns_of(predictor: Predictor) -> list[str] | None:
    """The columns of a run on records; None for texts, sequences and given features."""
    graph = predictor.run.graph
    if graph.attributes != "record" or predictor.reads_features or not graph.num_nodes:
        return None
    return list(json.loads(graph.texts[0]))


def check_size(asked: Asked, limits: Limits) -> None:
    """Refuse, with 413, more than the limits allow."""
    too_much = []
    if len(asked.nodes) > limits.nodes:
        too_much.append(("nodes", f"at most {limits.nodes} nodes expected, got {len(asked.nodes)}"))
    edges = len(asked.edges) + sum(len(node.neighbors) for node in asked.nodes)
    if edges > limits.edges:
        told = f"at most {limits.edges} edges and neighbors expected, got {edges}"
        too_much.append(("edges" if len(asked.edges) > limits.edges else "nodes[].neighbors", told))
    for i, node in enumerate(asked.nodes):
        if (size := _characters(node.text)) > limits.text:
            too_much.append((f"nodes[{i}].text", f"at most {limits.text} characters expected, got {size}"))
    if too_much:
        raise Refused(413, too_much)


def to_new_nodes(asked: Asked, predictor: Predictor, columns: Sequence[str] | None) -> NewNodes:
    """The nodes of a request, numbered; everything wrong is a `Refused` with 422."""
    _check_attributes(asked, predictor, columns)
    pairs: list[tuple[Any, Any]] = []
    fields: list[str] = []
    names = [f"new-{i}" if node.id is None else node.id for i, node in enumerate(asked.nodes)]
    for i, node in enumerate(asked.nodes):
        pairs += [(other, names[i]) for other in node.neighbors]
        fields += [f"nodes[{i}].neighbors[{k}]" for k in range(len(node.neighbors))]
    pairs += asked.edges
    fields += [f"edges[{k}]" for k in range(len(asked.edges))]
    given = predictor.reads_features
    places = Places(
        node=lambda row: f"nodes[{row}].id", edge=lambda row: fields[row], suggests=False
    )  # to suggest an id takes up to a second
    try:
        return predictor.new_nodes(
            None if given else [node.text for node in asked.nodes],
            pairs,
            names,
            np.array([node.features for node in asked.nodes], np.float32) if given else None,
            None if asked.edge_features is None else np.array(asked.edge_features, np.float32),
            places,
        )
    except LabelDeconvError as error:
        raise refusal(error) from None


def node_to_explain(asked: AskedWhy, new: NewNodes) -> str:
    """The id of the node that is asked about, as the numbered nodes have it."""
    node = new.ids[0] if asked.node is None else str(asked.node)
    if node not in new.ids:
        raise Refused(422, [("node", "the id of a node of this request expected")])
    return node


def refusal(error: LabelDeconvError) -> Refused:
    """An error of the input as a refusal: one entry per problem, with the first field that it names."""
    problems = getattr(error, "problems", None) or [str(error)]
    found = [(FIELD.search(problem), problem) for problem in problems]
    return Refused(422, [(match[0] if match else _about(told), told) for match, told in found])


def answered(told: Predicted, features: bool) -> bytes:
    """The body of an answer."""
    single = told.task.kind == "multiclass"
    rows = np.round(told.probabilities.astype(np.float64), 6).tolist()
    nodes = [
        {"id": name, "prediction": kind, "probability": max(row) if single else None, "by": by, "probabilities": row}
        for name, kind, by, row in zip(told.ids, told.classes, told.by, rows, strict=True)
    ]
    if features:
        for node, values in zip(nodes, told.features.astype(np.float64).tolist(), strict=True):
            node["features"] = values
    return json.dumps({"class_names": told.class_names, "nodes": nodes}, ensure_ascii=False).encode()


def invalid_fields(errors: Sequence[Mapping[str, Any]], most: int = 20) -> list[tuple[str, str]]:
    """pydantic's errors as pairs of field and message, a field once: a union has one error per member."""
    found: dict[str, str] = {}
    for error in errors:
        if error["type"] == "json_invalid":
            return [("body", f"no JSON: {error['ctx']['error']} at character {error['loc'][-1]}")]
        name = field_name(error["loc"])
        hint = "; a JSON object with the header 'Content-Type: application/json' expected" if name == "body" else ""
        found.setdefault(name, error["msg"] + hint)
    return list(found.items())[:most]


def field_name(where: Sequence[Any]) -> str:
    """pydantic's ('body', 'nodes', 0, 'text', 'str') as 'nodes[0].text'; the last is the member of a union."""
    name = ""
    for part in where[1:] if where and where[0] in ("body", "query") else where:
        if isinstance(part, int):
            name += f"[{part}]"
        elif not MEMBER.fullmatch(part):
            name += f".{part}" if name else part
    return name or "body"


def _check_attributes(asked: Asked, predictor: Predictor, columns: Sequence[str] | None) -> None:
    """Refuse a text where features are wanted, a record where a text is, and the other way round."""
    wrong: list[tuple[str, str]] = []
    width = predictor.run.features.shape[1] if predictor.reads_features else None
    for i, node in enumerate(asked.nodes):
        if width is not None:
            if node.text is not None:
                wrong.append((f"nodes[{i}].text", "no text expected: the run learned on given features"))
            if node.features is None or len(node.features) != width:
                got = "none" if node.features is None else len(node.features)
                wrong.append((f"nodes[{i}].features", f"{width} numbers expected, got {got}"))
            continue
        if node.features is not None:
            wrong.append((f"nodes[{i}].features", "no features expected: the run learned on texts"))
        if columns is not None:
            if not isinstance(node.text, Mapping) or set(node.text) != set(columns):
                wrong.append((f"nodes[{i}].text", f"an object with the columns {', '.join(columns)} expected"))
        elif not isinstance(node.text, str):
            wrong.append((f"nodes[{i}].text", "a string expected"))
    if predictor.model.gnn.edge_dim:
        named = [i for i, node in enumerate(asked.nodes) if node.neighbors]
        wrong += [(f"nodes[{i}].neighbors", "edges with edge_features expected, as the GNN reads") for i in named]
        if any(len(row) != predictor.model.gnn.edge_dim for row in asked.edge_features or []):
            wrong.append(("edge_features", f"rows of {predictor.model.gnn.edge_dim} numbers expected"))
    elif asked.edge_features is not None:
        wrong.append(("edge_features", "none expected: the run's GNN reads no edge features"))
    if wrong:
        raise Refused(422, wrong)


def _about(message: str) -> str:
    if message.startswith(("explain: no class", "explain: no target")):
        return "of"
    return "edge_features" if "edge features" in message else "nodes"


def _characters(text: str | dict[str, Cell] | None) -> int:
    if isinstance(text, dict):
        return sum(len(name) + len(str(cell)) for name, cell in text.items())
    return len(text or "")
