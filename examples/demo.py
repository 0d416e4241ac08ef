"""Fuzz the operators in this folder as a user would, show what is wrong with them, and replay it.

``make demo`` runs it. It exits with 0 when enough was found, for finding it is what the demo is for.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORPUS = Path("build", "demo-corpus")
REPORT = Path("build", "demo-report.json")

SECONDS = 45
WORKERS = 2

# Fewer would mean that the campaign no longer finds what is planted here.
FEWEST = 8

# Exit codes of gradfuzz: clean, and findings; all others mean that it could not do its work.
CLEAN, FINDINGS = 0, 1


def gradfuzz(*arguments, quiet=False):
    """Run a command of gradfuzz, shown as a person would type it, and give its exit code."""
    print(f"\n$ gradfuzz {' '.join(arguments)}\n", flush=True)
    command = [sys.executable, "-m", "gradfuzz.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL if quiet else None).returncode


def show(findings):
    for i, (target, finding) in enumerate(findings, 1):
        order = f", order {finding['order']}" if finding["order"] else ""
        mode = f", {finding['mode']}" if finding["mode"] else ""
        print(f"\n{i:>2}. {target}: {finding['symptom']}{order}{mode}, {finding['where']}")
        print(f"    got {finding['got']}, want {finding['want']}")
        if finding["explanation"]:
            print(f"    {finding['explanation']}")
        print(f"    replay: gradfuzz replay {finding['path']}")


def main():
    for left in (ROOT / CORPUS, ROOT / REPORT):
        if left.is_dir():
            shutil.rmtree(left)
        left.unlink(missing_ok=True)
    (ROOT / REPORT).parent.mkdir(exist_ok=True)

    code = gradfuzz(
        *("fuzz", "examples/", "--seconds", str(SECONDS), "--workers", str(WORKERS), "--seed", "0"),
        *("--corpus", str(CORPUS), "--report", f"json:{REPORT}"),
        quiet=True,
    )
    if code not in (CLEAN, FINDINGS):
        print(f"the campaign broke: exit code {code}", file=sys.stderr)
        return code
    report = json.loads((ROOT / REPORT).read_text(encoding="utf-8"))
    findings = [(target["name"], finding) for target in report["targets"] for finding in target["findings"]]
    show(findings)

    cases = sum(target["cases"] for target in report["targets"])
    signatures = {finding["signature"] for _, finding in findings}
    print(f"\n{len(signatures)} findings in {len(report['targets'])} functions, {cases} cases.")
    print("Each is saved as a text file; they fail until the functions are mended:")

    code = gradfuzz("replay", str(CORPUS))
    if code != FINDINGS:
        print(f"the replay should fail with exit code {FINDINGS}, and came back with {code}", file=sys.stderr)
        return 2
    if len(signatures) < FEWEST:
        print(f"{len(signatures)} findings are fewer than the {FEWEST} expected", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
