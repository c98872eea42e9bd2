import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.tools.cli.main import main
from tests.waiting import DEADLINE_S

PRESS_TAB = """
source ./script
COMP_WORDS=($LINE)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p spark-kafka-sink | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, capsys: pytest.CaptureFixture) -> str:
    with pytest.raises(SystemExit, match="0"):
        main(["--print-completion", shell])
    return capsys.readouterr().out


def completions(line: str, folder: Path) -> set[str]:
    environment = {"LINE": line, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", PRESS_TAB],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    return set(done.stdout.split())


def test_bash_completes_commands_flags_choices_and_files(tmp_path, capsys):
    (tmp_path / "script").write_text(script("bash", capsys))
    (tmp_path / "client.properties").touch()
    found = {
        line: completions(f"spark-kafka-sink {line}", tmp_path)
        for line in ("con", "receipts --pa", "transactions co", "check --command-config cl")
    }
    assert list(found.values()) == [{"console-producer"}, {"--path"}, {"commit"}, {"client.properties"}]


def test_the_script_for_zsh_has_commands_flags_and_files(capsys):
    lines = script("zsh", capsys).splitlines()
    assert lines[0] == "#compdef spark-kafka-sink"
    assert "    console-producer:'send the lines of standard input as records'" in lines
    assert any("--command-config[" in line and line.endswith(':FILE:_files"') for line in lines)


def test_without_shtab_it_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit, match="1"):
        main(["--print-completion", "bash"])
    assert "pip install shtab" in capsys.readouterr().err


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--print-completion", "fish"])
    assert "invalid choice: 'fish'" in capsys.readouterr().err
