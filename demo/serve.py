"""Start TensorBoard on a log directory, wait for the Diagnosis tab, and print its address."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser

STARTUP_S = 60
"""TensorBoard starts within a few seconds. Allow ten times that for a slow machine."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logdir")
    parser.add_argument("--port", type=int, default=6006)
    arguments = parser.parse_args()
    if not is_free(arguments.port):
        raise SystemExit(f"demo: port {arguments.port} is in use; try: make demo PORT={arguments.port + 1}")
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", arguments.logdir]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that TensorBoard stops with this program
    # The recordings of other machines are linked into the log directory.
    environment = {**os.environ, "GPUDIAG_FOLLOW_LINKS": "1"}
    server = subprocess.Popen(
        [*command, "--port", str(arguments.port), "--host", "localhost"], env=environment
    )
    try:
        wait_for_tab(server, arguments.port)
        url = f"http://localhost:{arguments.port}/#gpudiag"
        print(f"\n  The Diagnosis tab: {url}\n  Press Ctrl-C to stop.\n", flush=True)
        if has_display():
            webbrowser.open(url)
        server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.terminate()
        server.wait()


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", port)) != 0


def wait_for_tab(server: subprocess.Popen[bytes], port: int) -> None:
    """Wait until TensorBoard lists the plugin. Exit if it does not."""
    deadline = time.monotonic() + STARTUP_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"demo: TensorBoard exited with status {server.returncode}")
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/data/plugins_listing", timeout=5) as answer:
                if "gpudiag" in json.load(answer):
                    return
                raise SystemExit("demo: TensorBoard is running without the Diagnosis tab; see its log above")
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"demo: TensorBoard did not answer within {STARTUP_S} s")


def has_display() -> bool:
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


if __name__ == "__main__":
    main()
