"""Starts TensorBoard on a log directory, waits until the Diagnosis tab answers, and says where it is."""

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
"""TensorBoard is up within some seconds; a cold disk and a slow machine get ten times that."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logdir")
    parser.add_argument("--port", type=int, default=6006)
    arguments = parser.parse_args()
    if not is_free(arguments.port):
        raise SystemExit(f"demo: port {arguments.port} is taken; try: make demo PORT={arguments.port + 1}")
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", arguments.logdir]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that TensorBoard ends with this program
    server = subprocess.Popen([*command, "--port", str(arguments.port), "--host", "localhost"])
    try:
        wait_for_tab(server, arguments.port)
        url = f"http://localhost:{arguments.port}/#gpudiag"
        print(f"\n  The Diagnosis tab: {url}\n  Ctrl-C ends it.\n", flush=True)
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
    """Returns once TensorBoard lists the plugin; ends the program where it does not."""
    deadline = time.monotonic() + STARTUP_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"demo: TensorBoard ended with status {server.returncode}")
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/data/plugins_listing", timeout=5) as answer:
                if "gpudiag" in json.load(answer):
                    return
                raise SystemExit("demo: TensorBoard runs, but without the Diagnosis tab; see its log above")
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"demo: TensorBoard did not answer within {STARTUP_S} s")


def has_display() -> bool:
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


if __name__ == "__main__":
    main()
