#!/usr/bin/env python3
"""Prints the licences of all crates that are in the program, with the texts that the crates bring."""

import json
import pathlib
import subprocess

NAMES = ("licen", "copying", "notice", "unlicense")


def metadata(*arguments):
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--manifest-path=host/server/Cargo.toml"]
    return json.loads(subprocess.run([*command, *arguments], check=True, capture_output=True).stdout)


def needed(resolve, root):
    """The ids of the crates that the program is linked with: no tests, no build scripts."""
    nodes = {node["id"]: node for node in resolve["nodes"]}
    found, open_ids = set(), [root]
    while open_ids:
        crate = open_ids.pop()
        if crate in found:
            continue
        found.add(crate)
        for dependency in nodes[crate]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                open_ids.append(dependency["pkg"])
    return found


def texts(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.name.lower().startswith(NAMES):
            yield file.read_text(encoding="utf-8", errors="replace").strip()


def main():
    host = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    machine = next(line.split()[1] for line in host.splitlines() if line.startswith("host: "))
    read = metadata("--filter-platform", machine)
    packages = {package["id"]: package for package in read["packages"]}
    root = next(package["id"] for package in read["packages"] if package["name"] == "cofferdam")
    crates = [packages[crate] for crate in needed(read["resolve"], root) if packages[crate]["source"]]
    users = {}
    print("Cofferdam contains these crates:\n")
    for package in sorted(crates, key=lambda package: (package["name"], package["version"])):
        title = f"{package['name']} {package['version']}"
        print(f"{title}: {package['license'] or 'see its text'}, {package['repository'] or 'no repository'}")
        for text in texts(package):
            users.setdefault(text, []).append(title)
    for text, titles in sorted(users.items(), key=lambda item: item[1]):
        print(f"\n{'=' * 80}\n{', '.join(titles)}\n{'=' * 80}\n\n{text}")


main()
