"""Writes the recorded files anew."""

from tests.recorded import FILES, RECORDERS

if __name__ == "__main__":
    FILES.mkdir(exist_ok=True)
    for name, record in RECORDERS.items():
        (FILES / name).write_text("\n".join([*record(), ""]))
