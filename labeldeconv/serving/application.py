"""The application: routes from a run's `Predictor` to HTTP. FastAPI is imported here and nowhere else.

FastAPI reads the annotations of routes, some of which are names of this function only: they are not postponed here.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import labeldeconv
from labeldeconv.errors import ConfigError, LabelDeconvError, MissingExtra
from labeldeconv.prediction.explanation import Explanation
from labeldeconv.prediction.predictor import Predictor
from labeldeconv.serving.batching import Batcher
from labeldeconv.serving.counters import Counters
from labeldeconv.serving.gate import App, Gate, log_line
from labeldeconv.serving.limits import Serving
from labeldeconv.serving.messages import (
    Answer,
    Asked,
    AskedWhy,
    Described,
    Found,
    Refused,
    answered,
    check_size,
    columns_of,
    invalid_fields,
    node_to_explain,
    refusal,
    to_new_nodes,
)
from labeldeconv.serving.node_search import find_nodes, shown
from labeldeconv.theme.shared import theme

PAGES = {  # path: file, type
    "/": ("index.html", "text/html; charset=utf-8"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/theme.css": ("theme.css", "text/css; charset=utf-8"),
    "/theme.js": ("theme.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}
MOST_FOUND = 50


def loaded(run: str | Path, **given: Any) -> Predictor:
    """The predictor of a run that may be served, warm: everything is opened and every kernel compiled."""
    predictor = Predictor.load(run, **given)
    if not predictor.reads_features and predictor.encode.encoder.opens_files:
        raise ConfigError(f"{run}: its encoder opens the files that attributes name, which no client may; not served")
    if not predictor.reads_features:
        graph = predictor.run.graph
        texts = graph.texts[:1] or [""]
        linked = [("new-0", graph.node_id(0))] if graph.num_nodes and not predictor.model.gnn.edge_dim else []
        predictor.predict(texts, linked)
        predictor.predict(texts)
    else:
        predictor.predict(features=predictor.run.features[:1].astype("float32"))
    return predictor


def application(serving: Serving, predictor: Predictor | None = None) -> App:
    """The ASGI application of a server of one process: the routes of a run behind their gate."""
    counters = Counters(serving.counters)
    return Gate(routes(serving, counters, predictor), serving, counters)


def routes(serving: Serving, counters: Counters, predictor: Predictor | None = None) -> Any:
    """What is answered, without asking who asks; without a predictor it loads one before it takes the first request."""
    try:
        from fastapi import FastAPI, Query, Request
        from fastapi.exceptions import RequestValidationError
        from fastapi.responses import JSONResponse, Response
        from starlette.exceptions import HTTPException
    except ImportError:
        raise MissingExtra("labeldeconv serve", "serve") from None

    limits = serving.limits
    held: dict[str, Any] = {}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        """Load, serve, and answer what was taken."""
        start = time.perf_counter()
        own = predictor if predictor is not None else await asyncio.to_thread(loaded, serving.run)
        held["predictor"], held["columns"] = own, columns_of(own)
        held["batcher"] = Batcher(own, limits.batch_tokens, counters.batch)
        # What is loaded stays. To look for garbage there took 0.3 s every 1,200 requests, in which nobody was answered.
        gc.collect()
        gc.freeze()
        log_line(event="ready", run=own.run.name, seconds=round(time.perf_counter() - start, 3))
        yield
        await asyncio.to_thread(held["batcher"].close)
        gc.unfreeze()  # what is left at the end would be told as leaked
        log_line(event="stopped")

    app = FastAPI(
        title="labeldeconv serve",
        version=labeldeconv.__version__,
        description="Classes with probabilities, or numbers, and features of nodes that a run has never seen.",
        docs_url=None,  # FastAPI's own page loads scripts from elsewhere; ours is /docs
        redoc_url=None,
        lifespan=lifespan,
    )

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        """Name the fields that are wrong; what was sent is not sent back."""
        return JSONResponse({"errors": Refused(422, invalid_fields(error.errors())).errors}, 422)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return JSONResponse({"errors": error.errors}, error.status)

    @app.exception_handler(HTTPException)
    async def elsewhere(request: Request, error: HTTPException) -> JSONResponse:
        """A path or method that there is not, or a body that is no JSON."""
        status = 422 if error.status_code == 400 else error.status_code
        told = {"field": "body" if status == 422 else None, "message": str(error.detail)}
        return JSONResponse({"errors": [told]}, status, headers=error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        """An error of the server's own, which the gate writes to the log."""
        told = {"field": None, "message": "an error of the server's own; its log says more"}
        return JSONResponse({"errors": [told]}, 500)

    @app.post("/predict", response_model=Answer, tags=["prediction"])
    async def predict(asked: Asked, request: Request) -> Any:
        """Predict new nodes from their texts and from edges to nodes of the graph and to each other."""
        check_size(asked, limits)
        new = to_new_nodes(asked, held["predictor"], held["columns"])
        try:
            told = await asyncio.wrap_future(held["batcher"].submit(new, asked.mode, asked.alone))
        except LabelDeconvError as error:
            raise refusal(error) from None
        for by in told.by:
            counters.add(f"nodes_{by}")
        request.scope["state"]["log"] = {"nodes": len(told)}
        return Response(answered(told, asked.features), media_type="application/json")

    @app.post("/explain", response_model=Explanation, tags=["prediction"])
    async def explain(asked: AskedWhy, request: Request) -> Any:
        """Say which hop and which neighbours carried the prediction of one of the new nodes."""
        check_size(asked, limits)
        new = to_new_nodes(asked, held["predictor"], held["columns"])
        node = node_to_explain(asked, new)
        try:
            told = await asyncio.to_thread(held["batcher"].explain, node, new, asked.of, asked.top, asked.alone)
        except LabelDeconvError as error:
            raise refusal(error) from None
        request.scope["state"]["log"] = {"nodes": len(new)}
        return JSONResponse(told.to_dict())

    @app.get("/nodes", response_model=Found, tags=["graph"])
    def search(q: str = Query("", max_length=200), limit: int = Query(20, ge=1, le=MOST_FOUND)) -> Any:
        """Nodes of the graph whose id is `q`, or whose texts hold all of its words."""
        known = held["predictor"].known
        found, complete = find_nodes(known, q, limit)
        nodes = [{"id": known.graph.node_id(i), "text": shown(known.graph.texts[i])} for i in found]
        return JSONResponse({"nodes": nodes, "complete": complete})

    @app.get("/run", response_model=Described, tags=["graph"])
    async def described() -> Any:
        """The run that is served, and the limits."""
        own: Predictor = held["predictor"]
        run, graph = own.run, own.run.graph
        return {
            "name": run.name,
            "data": graph.name,
            "method": run.method,
            "gnn": run.gnn,
            "task": own.task.kind,
            "class_names": graph.class_names,
            "targets": run.result["targets"] if own.task.kind == "regression" else None,
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "attributes": "features" if own.reads_features else graph.attributes,
            "columns": held["columns"],
            "features": run.features.shape[1] if own.reads_features else None,
            "edge_features": own.model.gnn.edge_dim,
            "limits": vars(limits),
        }

    @app.get("/health", tags=["operation"])
    async def health() -> dict[str, str]:
        """Whether the process answers at all."""
        return {"status": "ok"}

    @app.get("/ready", tags=["operation"])
    async def ready() -> Any:
        """Whether a prediction would be taken now: 503 where it would not."""
        batcher = held.get("batcher")
        if batcher is None or not batcher.alive:
            return JSONResponse({"status": "not predicting"}, 503)
        if counters.in_flight >= serving.most_at_a_time:
            return JSONResponse({"status": "busy"}, 503)
        return {"status": "ready"}

    @app.get("/metrics", tags=["operation"])
    async def metrics() -> Response:
        """Counters of all workers, in Prometheus' text format."""
        return Response(counters.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    for path, (name, kind) in PAGES.items():
        own = files("labeldeconv.serving") / "page" / name
        body = theme(name).encode() if name.startswith("theme.") else own.read_bytes()
        app.add_api_route(path, _page(body, kind, Response), methods=["GET"], include_in_schema=False)
    return app


def _page(body: bytes, kind: str, response: Any) -> Any:
    """A route that answers with a file of the package."""

    async def page() -> Any:
        return response(body, media_type=kind)

    return page
