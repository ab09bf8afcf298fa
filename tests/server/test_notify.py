"""What systemd is told: a datagram for readiness, one for stopping, nothing where nobody asked."""

import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from infinity_v3.server.notify import notify_ready, notify_stopping
from server_process import ServerProcess


class Manager:
    """The receiving side, as systemd has it."""

    def __init__(self, address: str) -> None:
        self.environ = {"NOTIFY_SOCKET": address.replace("\0", "@")}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(10)

    def receive(self) -> dict[str, str]:
        lines = self._socket.recv(4096).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    abstract = f"\0infinity-test-{secrets.token_hex(8)}"
    manager = Manager(abstract if request.param == "abstract" else str(tmp_path / "notify"))
    yield manager
    manager.close()


def test_ready_and_stopping_are_told(manager: Manager) -> None:
    assert notify_ready(manager.environ, "2 models\nready")
    assert manager.receive() == {"READY": "1", "STATUS": "2 models ready"}
    assert notify_stopping(manager.environ, "SIGTERM")
    assert manager.receive() == {"STOPPING": "1", "STATUS": "SIGTERM"}


def test_nobody_asked() -> None:
    assert not notify_ready({}, "ready")
    assert not notify_ready({"NOTIFY_SOCKET": ""}, "ready")


@pytest.mark.parametrize("address", ["/nobody/listens/here", "vsock:2:1234", "relative"])
def test_a_manager_that_cannot_be_told_is_a_warning(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not notify_ready({"NOTIFY_SOCKET": address}, "ready")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert address in record.getMessage()


def test_a_manager_that_does_not_read_does_not_stop_the_server(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    told = [notify_stopping(manager.environ, "x" * 1000) for _ in range(_queue_length() + 1)]
    assert told[0]
    assert not told[-1]
    manager.close()


def _queue_length() -> int:
    return int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 1


def test_a_server_says_that_it_is_ready_and_that_it_stops(
    minilm_artifact: Path, tmp_path: Path
) -> None:
    manager = Manager(str(tmp_path / "notify"))
    with ServerProcess(minilm_artifact, env=manager.environ) as server:
        ready = manager.receive()
        assert ready["READY"] == "1"
        assert server.base_url in ready["STATUS"]
        assert server.stop() == 0
        stopping = manager.receive()
    assert stopping["STOPPING"] == "1"
    assert stopping["STATUS"].startswith("SIGTERM")
    manager.close()
