"""push to a hub: a small server on this machine takes the place of Hugging Face's."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from labeldeconv import LabelDeconvolution
from labeldeconv.cli.app import app
from labeldeconv.errors import ConfigError
from labeldeconv.sharing.hub import push_run


class Hub(BaseHTTPRequestHandler):
    """The four requests of an upload: make a repository, check the card, ask how to send files, commit them."""

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.path, self.headers.get("Authorization"), body))
        if self.path.startswith("/api/repos/create"):
            answer = {"url": f"{self.server.address}/someone/papers", "name": "someone/papers"}
        elif self.path.startswith("/api/validate-yaml"):
            answer = {"errors": [], "warnings": []}
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            answer = {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]}
        elif "/commit/" in self.path and self.server.refuses:
            return self.answer({"error": "You don't have the rights"}, 403)
        elif "/commit/" in self.path:
            lines = [json.loads(line) for line in body.splitlines() if line.strip()]
            self.server.committed |= {
                line["value"]["path"]: base64.b64decode(line["value"]["content"])
                for line in lines
                if line["key"] == "file"
            }
            commit = f"{self.server.address}/someone/papers/commit/{'0' * 40}"
            answer = {"success": True, "commitUrl": commit, "commitOid": "0" * 40}
        else:
            return self.answer({"error": "unknown"}, 404)
        return self.answer(answer)

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Authorization"), b""))
        self.answer({"id": "someone/papers", "sha": "0" * 40, "siblings": [], "private": True, "tags": []})

    def answer(self, value, code=200):
        held = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(held)))
        self.end_headers()
        self.wfile.write(held)

    def log_message(self, *given):
        pass


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.address = f"http://127.0.0.1:{server.server_port}"
    server.seen, server.committed, server.refuses = [], {}, False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def push(hub, monkeypatch):
    """`labeldeconv push` to the small server: tests are offline by a constant of the library, which is read once."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("NO_PROXY", "*")
    return lambda *words: CliRunner().invoke(app, ["push", *map(str, words)], catch_exceptions=False)


def test_a_run_is_uploaded_as_a_private_repository(hub, push, ld_run, tmp_path):
    done = push(ld_run, "someone/papers", "--license", "mit")
    assert done.exit_code == 0
    assert done.stdout == f"{hub.address}/someone/papers (without the graph: no texts, no labels)\n"
    made = json.loads(next(body for path, _, body in hub.seen if path.startswith("/api/repos/create")))
    assert (made["name"], made["organization"]) == ("papers", "someone")
    assert made.get("private") or made.get("visibility") == "private"
    assert {token for path, token, _ in hub.seen if "/commit/" in path} == {"Bearer hf_secret"}
    assert {"README.md", "labeldeconv.json", "model.safetensors", "1_Pooling/config.json"} <= set(hub.committed)
    assert not [name for name in hub.committed if name.startswith("graph/")]
    for name, content in hub.committed.items():
        (tmp_path / "got" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "got" / name).write_bytes(content)
    model = LabelDeconvolution.from_pretrained(tmp_path / "got")
    assert model.predict_proba(texts=["a river"]).shape == (1, 10)
    assert "from_pretrained('someone/papers')" in hub.committed["README.md"].decode()


def test_public_is_asked_for(hub, push, ld_run):
    push(ld_run, "someone/papers", "--public")
    made = json.loads(next(body for path, _, body in hub.seen if path.startswith("/api/repos/create")))
    assert made.get("private") is False or made.get("visibility") == "public"


def test_a_hub_that_refuses_is_one_message(hub, push, ld_run):
    hub.refuses = True
    with pytest.raises(ConfigError, match=r"someone/papers: cannot be uploaded: .*403") as refused:
        push(ld_run, "someone/papers")
    told = str(refused.value)
    assert "--folder DIR writes the same files without a hub" in told
    assert "\n" not in told
    assert "hf_secret" not in told


def test_offline_and_wrong_names_are_told_before_anything_is_written(ld_run):
    with pytest.raises(ConfigError, match=r"someone/papers: HF_HUB_OFFLINE is set, so that nothing is uploaded"):
        push_run(ld_run, "someone/papers")
    with pytest.raises(ConfigError, match=r"push: USER/NAME expected, got 'papers'; a folder is --folder DIR"):
        push_run(ld_run, "papers")
