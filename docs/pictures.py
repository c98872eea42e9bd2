"""`make pictures`: runs commands against a Kafka of its own, and draws what they print into docs/img/terminal-*.svg."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from spark_kafka_sink.testing import LocalKafka

IMAGES = Path(__file__).parent / "img"
_COLUMNS = 84
_WIDEST = 108
_DEADLINE_S = 1200
_BATCHES = 12
_ROWS_PER_SECOND = 2000
_INK = (30, 41, 59)
_COLOURS = [
    _INK,
    (185, 28, 28),
    (21, 128, 61),
    (161, 98, 7),
    (29, 78, 216),
    (126, 34, 206),
    (14, 116, 144),
    (71, 85, 105),
]
_THEME = TerminalTheme((255, 255, 255), _INK, _COLOURS)
_MONO = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace'

# rich's own template loads a font from a server.
_FORMAT = """\
<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: MONO; font-size: {char_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: MONO; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
""".replace("MONO", _MONO)


def main() -> None:
    parser = ArgumentParser(prog="make pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these of {', '.join(PICTURES)}")
    names = parser.parse_args().names or list(PICTURES)
    if unknown := [name for name in names if name not in PICTURES]:
        parser.error(f"no picture is named {', '.join(unknown)}; there are {', '.join(PICTURES)}")
    with tempfile.TemporaryDirectory() as folder, LocalKafka(port=9092) as kafka:
        for name in names:
            PICTURES[name](kafka, Path(folder))


def check(kafka: LocalKafka, _: Path) -> None:
    kafka.create_topic("orders", 4)
    draw("check", "check", "--bootstrap-server", "localhost:9092", "--topic", "orders")


def demo(_: LocalKafka, __: Path) -> None:
    draw("demo", "--broker", "localhost:9092", module="examples.demo")


PICTURES: dict[str, Callable[[LocalKafka, Path], None]] = {
    "check": check,
    "demo": demo,
}


def draw(name: str, *arguments: str, cwd: Path | None = None, module: str = "spark_kafka_sink.tools.cli.main") -> None:
    """What the module prints with these arguments, on a terminal that shows the end of each progress bar."""
    environment = {**os.environ, "COLUMNS": str(_COLUMNS), "FORCE_COLOR": "1", "TTY_INTERACTIVE": "0"}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, env=environment, cwd=cwd, timeout=_DEADLINE_S)
    printed = done.stdout.decode()
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)} failed:\n{printed}{done.stderr.decode()}")
    text = Text.from_ansi(re.sub(r"\x1b\[\?25[lh]\n?", "", printed.partition("```text")[0]).strip("\n"))
    width = min(_WIDEST, max(line.cell_len for line in text.split("\n")))
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=width, file=nowhere, force_terminal=True, color_system="truecolor")
        console.print(text, end="\n\n")
        title = shlex.join(["spark-kafka-sink", *arguments])
        picture = console.export_svg(title=title, theme=_THEME, code_format=_FORMAT, unique_id=name)
    file = IMAGES / f"terminal-{name}.svg"
    file.write_text(re.sub(r"[ \t]+\n", "\n", picture))
    print(file)  # noqa: T201


if __name__ == "__main__":
    main()
