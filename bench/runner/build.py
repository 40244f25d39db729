"""Builds the drivers: of each folder either the command that runs it, or why there is none."""

import os
import shutil
import subprocess
import sys

from .paths import BENCH, BUILDS, RUST_PROGRAMS, RUST_TARGET


class Missing(Exception):
    pass


def build(folder):
    """The command of a folder's driver; raises Missing with the reason."""
    BUILDS.mkdir(parents=True, exist_ok=True)
    print(f"building bench/{folder}", file=sys.stderr, flush=True)
    return {"rust": rust, "go": go, "java": java, "node": node, "python": python}[folder]()


def rust():
    need("cargo", "Rust 1.88: https://rustup.rs")
    shell(["cargo", "build", "--release", "--locked"], "rust", {"CARGO_TARGET_DIR": str(RUST_TARGET)})
    return [str(RUST_PROGRAMS / "lock-bench")]


def go():
    need("go", "Go 1.26")
    program = BUILDS / "go" / "lock-bench"
    shell(["go", "build", "-o", str(program), "."], "go")
    return [str(program)]


def java():
    need("javac", "a JDK of version 17")
    need("mvn", "Maven")
    output = BUILDS / "java"
    if changed("java", output):
        shell(["mvn", "--batch-mode", "--quiet", "-Dstyle.color=never", "package", f"-Doutput={output}"], "java")
        (output / "built").touch()
    return ["java", "-cp", f"{output}/jars/*", "bench.Driver"]


def node():
    need("node", "Node.js 18")
    need("npm", "npm")
    output = BUILDS / "node"
    if changed("node", output):
        shutil.copytree(BENCH / "node", output, dirs_exist_ok=True)
        shell(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], output)
        (output / "built").touch()
    return ["node", str(output / "driver.js")]


def python():
    output = BUILDS / "python"
    program = output / "bin" / "python"
    if changed("python", output):
        shell([sys.executable, "-m", "venv", str(output)], "python")
        shell([str(program), "-m", "pip", "install", "--quiet", "--requirement", "requirements.txt"], "python")
        (output / "built").touch()
    return [str(program), "-B", str(BENCH / "python" / "driver.py")]


def need(program, what):
    if not shutil.which(program):
        raise Missing(f"needs {what}")


def changed(folder, output):
    """Whether a file is newer than what was built of it."""
    built = output / "built"
    files = [path for path in (BENCH / folder).rglob("*") if path.is_file()]
    return not built.exists() or any(path.stat().st_mtime > built.stat().st_mtime for path in files)


def shell(command, folder, environment=None):
    folder = BENCH / folder
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **(environment or {})}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1800,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"its build failed: {type(error).__name__}") from error
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise Missing(f"its build failed: `{command[0]} {command[1]}` in bench/{folder.name}")
