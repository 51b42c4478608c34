#!/usr/bin/env python3
"""Counts what a whole answer costs: instructions, and misses of a model of the processor's caches.

The program runs under callgrind, so the counts do not depend on how busy the machine is: two runs of one build
differ by about one percent. Only the program's own code is counted, not the kernel's. Needs valgrind.
"""

import argparse
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

# The caches of the model: a core of a current server.
CACHES = ["--I1=32768,8,64", "--D1=49152,12,64", "--LL=2097152,16,64"]
# rustix asks the kernel with prctl(PR_GET_AUXV) for the address of the vDSO, which valgrind hides from programs. The
# copy that is measured asks for something else and gets no answer.
PR_GET_AUXV, PR_NOTHING = b"VXUA", b"WXUA"
PROMPT = "Summarise the incident below and name its likely cause. " + (
    "The service returned errors after the release at noon. " * 17
)
# How long it may take to compile all plugins under valgrind, in seconds.
COMPILE_SECS = 1800


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("program", type=Path, help="a build of the program")
    options.add_argument("--bench", type=Path, default=Path("target/release/cofferdam-bench"))
    options.add_argument("--connections", type=int, nargs="+", default=[16, 64])
    options.add_argument("--requests", type=int, default=500, help="how many are counted")
    options.add_argument("--settings", default="", help="more of cofferdam.toml, such as '[server]\\nrecorder = 0'")
    options.add_argument("--folder", type=Path, default=Path("target/callgrind"))
    run(options.parse_args())


def run(options):
    site = options.folder.absolute() / "site"
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    program = options.folder.absolute() / "program"
    code = options.program.read_bytes()
    if PR_GET_AUXV not in code:
        sys.exit("the program does not ask for the vDSO as expected: it would crash under valgrind")
    program.write_bytes(code.replace(PR_GET_AUXV, PR_NOTHING))
    program.chmod(0o755)
    upstream = subprocess.Popen(
        [options.bench.absolute(), "upstream", "--roots", site / "roots.pem"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        (site / "cofferdam.toml").write_text(config(json.loads(upstream.stdout.readline())["plain"], options.settings))
        with Host(program, site, []) as host:
            key = host.banner["key"]
        compile_all(program, site)
        print("| connections | instructions | misses of I1 | of D1 | of LL: instructions, reads, writes |")
        print("|--:|--:|--:|--:|--:|")
        for connections in options.connections:
            counts = count(program, site, key, connections, options.requests)
            fetched, _, _, i1, d1_read, d1_write, ll, ll_read, ll_write = counts
            row = [connections, fetched, i1, d1_read + d1_write, f"{ll:,} + {ll_read:,} + {ll_write:,}"]
            print("| " + " | ".join(cell if isinstance(cell, str) else f"{cell:,}" for cell in row) + " |", flush=True)
    finally:
        upstream.kill()


def config(port, settings):
    text = settings.replace("\\n", "\n") + "\n[egress]\nallow_plaintext_loopback = true\n"
    for name in ("a", "b"):
        text += (
            f'[[providers]]\nname = "{name}"\nadapter = "openai-responses"\nkey = "env:BENCH_KEY"\n'
            f'base_url = "http://127.0.0.1:{port}/whole/v1"\n'
        )
    endpoints = ", ".join(f'{{ provider = "{name}", model = "m", input = 1.0, output = 2.0 }}' for name in ("a", "b"))
    return text + f'[[models]]\nid = "bench/whole"\nkind = "responses"\nendpoints = [{endpoints}]\n'


class Host:
    """The program while it serves, under a tool or alone. It is ended with the block."""

    def __init__(self, program, site, tool):
        command = [*tool, program, "--json", "--data", site / "data", "--config", site / "cofferdam.toml"]
        # Compiled plugins are kept for the next run: to compile them under valgrind takes minutes.
        environment = dict(os.environ, BENCH_KEY="sk-bench", COFFERDAM_CACHE=str(site.parent / "cache"))
        with open(site / "log", "w") as log:
            self.process = subprocess.Popen(
                [*command, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the program did not start, see {site / 'log'}")
        self.banner = json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            sys.exit("the program did not end")

    def control(self, *words):
        """Tells callgrind something. `callgrind_control` itself ends well even if it reached nothing."""
        told = subprocess.run(["vgdb", f"--pid={self.process.pid}", *words], capture_output=True, text=True)
        if told.returncode != 0:
            sys.exit(f"callgrind was not told {words}: {told.stderr}")


def compile_all(program, site):
    """Compiles the plugins for the processor that valgrind shows, beside nothing that is counted."""
    with Host(program, site, ["valgrind", "--tool=none"]):
        until = time.monotonic() + COMPILE_SECS
        while not all(state.startswith("compiled") or state == "not granted" for state in states(program, site)):
            if time.monotonic() > until:
                sys.exit("the plugins are not compiled")
            time.sleep(1)


def states(program, site):
    command = [program, "--json", "--data", site / "data", "--config", site / "cofferdam.toml", "plugin", "list"]
    listed = subprocess.run(command, check=True, capture_output=True, env=dict(os.environ, BENCH_KEY="sk-bench"))
    return [plugin["state"] for plugin in json.loads(listed.stdout)]


def count(program, site, key, connections, requests):
    out = site / f"callgrind.{connections}"
    tool = ["valgrind", "--tool=callgrind", "--cache-sim=yes", *CACHES, f"--callgrind-out-file={out}"]
    with Host(program, site, [*tool, "--instr-atstart=no"]) as host:
        address = host.banner["listen"]
        load(address, key, connections, 6 * connections)
        host.control("instrumentation", "on")
        load(address, key, connections, 3 * connections)
        host.control("zero")
        load(address, key, connections, requests)
        host.control("instrumentation", "off")
    totals = re.search(r"^totals: (.*)$", out.read_text(), re.MULTILINE).group(1)
    return [int(total) // requests for total in totals.split()]


def load(address, key, connections, requests):
    """Sends this many requests over as many connections, and fails unless all are answered well."""
    name, port = address.split(":")
    body = json.dumps({"model": "bench/whole", "input": PROMPT})
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    left, lock, failed = iter(range(requests)), threading.Lock(), []

    def work():
        connection = http.client.HTTPConnection(name, int(port), timeout=300)
        while True:
            with lock:
                if next(left, None) is None:
                    return
            try:
                connection.request("POST", "/v1/responses", body, headers)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException) as error:
                failed.append(error)
                return
            if answer.status != 200:
                failed.append(text[:200])

    threads = [threading.Thread(target=work) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        sys.exit(f"{len(failed)} requests failed: {failed[0]}")


main()
