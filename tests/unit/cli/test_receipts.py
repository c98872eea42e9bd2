"""``spark-kafka-sink receipts`` over files."""

import dataclasses
import json
import re
import sys

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.exactly_once.receipts import WriteReceipt, write_lines
from spark_kafka_sink.tools.cli import receipts
from spark_kafka_sink.tools.cli.main import main
from spark_kafka_sink.tools.cli.receipt_charts import QueryHistory, heading

RECEIPTS = [
    WriteReceipt("q", 1, 0, "t", 1, 10, 14, 5, 50, 1000, 1010, query_name="orders"),
    WriteReceipt("q", 0, 0, "t", 0, 0, 9, 10, 100, 900, 910),
    WriteReceipt("other", 0, 0, "t", 0, 15, 15, 1, 10, 900, 910),
]


def run(capsys, *arguments):
    code = main(["receipts", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_table_by_query_batch_and_partition(capsys, tmp_path):
    write_lines(str(tmp_path), RECEIPTS)
    code, out, _ = run(capsys, "--path", tmp_path, "--list")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["query", "query_name", "batch", "task", "topic", "partition", "first_offset", "last_offset", "count", "bytes"],
        ["other", "0", "0", "t", "0", "15", "15", "1", "10"],
        ["q", "0", "0", "t", "0", "0", "9", "10", "100"],
        ["q", "orders", "1", "0", "t", "1", "10", "14", "5", "50"],
    ]


def test_json_lines_of_one_query(capsys, tmp_path):
    write_lines(str(tmp_path), RECEIPTS)
    _, out, _ = run(capsys, "--path", tmp_path, "--query", "q", "--json")
    assert [WriteReceipt.parse(line) for line in out.splitlines()] == [RECEIPTS[1], RECEIPTS[0]]


def test_the_same_batch_again_replaces_its_file(tmp_path):
    write_lines(str(tmp_path), RECEIPTS)
    write_lines(str(tmp_path), RECEIPTS[:1])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other-0.jsonl", "q-0.jsonl", "q-1.jsonl"]


def test_fields_of_a_later_release_are_passed_over():
    assert WriteReceipt.parse(json.dumps({**json.loads(RECEIPTS[0].line()), "new": 1})) == RECEIPTS[0]


def test_a_folder_without_a_receipt_is_an_error_that_names_what_is_there(capsys, tmp_path):
    (tmp_path / "x.jsonl").write_text("{}\n")
    code, _, err = run(capsys, "--path", tmp_path)
    assert code == 1
    assert re.search(r"not a receipt: .*x\.jsonl line 1: '\{\}' is not a receipt: it has no field 'query'", err)


def test_receipts_next_to_foreign_records_are_shown_with_a_warning(capsys, tmp_path):
    write_lines(str(tmp_path), RECEIPTS)
    (tmp_path / "x.jsonl").write_text("5\n[]\n")
    code, out, err = run(capsys, "--path", tmp_path, "--json")
    assert (code, len(out.splitlines())) == (0, 3)
    assert "2 records are not receipts, the first:" in err


def test_foreign_records_are_no_error_where_the_chosen_query_has_not_written(capsys, tmp_path):
    write_lines(str(tmp_path), RECEIPTS)
    (tmp_path / "x.jsonl").write_text("5\n")
    code, out, err = run(capsys, "--path", tmp_path, "--query", "none", "--json")
    assert (code, out) == (0, "")
    assert "1 record is not a receipt: " in err


@pytest.mark.parametrize(
    ("field", "value"),
    [("count", "1e999"), ("bytes", "1" + "0" * 400), ("query", r'"\ud800"'), ("first_offset", "true")],
)
def test_a_receipt_of_values_that_no_task_reports_is_foreign(field, value):
    line = json.dumps({**json.loads(RECEIPTS[0].line()), field: "HERE"}).replace('"HERE"', value)
    with pytest.raises(ValueError, match="is not a receipt"):
        WriteReceipt.parse(line)


@pytest.mark.parametrize("value", ["1e999", "NaN", "1" + "0" * 400])
@pytest.mark.parametrize("field", ["requests", "latency_avg_ms", "duration_ms"])
def test_figures_that_no_task_counts_are_foreign(field, value):
    fields = json.loads(dataclasses.replace(RECEIPTS[0], figures=TaskFigures(rows=5)).line())
    fields["figures"][field] = "HERE"
    with pytest.raises(ValueError, match="is not a receipt"):
        WriteReceipt.parse(json.dumps(fields).replace('"HERE"', value))


def test_a_reason_that_is_no_text_is_foreign():
    letters = dataclasses.replace(RECEIPTS[0], figures=TaskFigures(dead_letters=(("\ud800", 1),)))
    with pytest.raises(ValueError, match="is not a receipt"):
        WriteReceipt.parse(letters.line())


def test_a_path_that_is_not_there_is_named(capsys, tmp_path):
    code, _, err = run(capsys, "--path", tmp_path / "none")
    assert code == 1
    assert re.search("receiptsPath .*none cannot be read", err)


def test_a_uri_is_read_as_the_sink_writes_it(capsys, tmp_path):
    write_lines(f"file://{tmp_path}", RECEIPTS)
    _, out, _ = run(capsys, "--path", f"file://{tmp_path}", "--json")
    assert len(out.splitlines()) == 3


NOW = SystemClock().epoch_ms()


def recent(minutes_ago, count, partition=0, **figures):
    ended = NOW - NOW % 60_000 - minutes_ago * 60_000 - 30_000  # not at the edge of a column
    return WriteReceipt(
        "q", 100 - minutes_ago, 0, "t", partition, 0, count - 1, count, 10 * count, ended - 50, ended,
        TaskFigures(rows=count, **figures),
    )  # fmt: skip


@pytest.fixture
def drawn(capsys, tmp_path):
    """What the command draws of receipts: line's name → the rest of it."""

    def draw(receipts, *more):
        write_lines(str(tmp_path), receipts)
        code, out, _ = run(capsys, "--path", tmp_path, *more)
        assert code == 0
        return out

    return draw


@pytest.mark.parametrize("rich", [True, False])
def test_what_a_query_wrote_is_drawn_from_its_first_write_to_its_last(drawn, monkeypatch, rich):
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setenv("COLUMNS", "150")
    out = drawn(
        [
            recent(90, 3000, requests=2, latency_avg_ms=4.0, latency_max_ms=5.0, retries=7, duration_ms=900.0),
            recent(
                1, 1000, 1, requests=2, latency_avg_ms=8.0, latency_max_ms=30.0, dead_letters=(("encode", 2),),
                duration_ms=1500.0, encode_ms=1500.0,
            ),
            recent(60 * 30, 77),
        ],
        "--hours", "2",
    )  # fmt: skip
    heading, *lines = out.splitlines()
    assert re.match(r"query q: 2 batches \(10 to 99\) from 20.* UTC \(1\.48 h\), .* ago; ", heading)
    assert heading.endswith("a column is 1 min")
    shown = {line.split("  ")[0 if rich else 1].strip(): line for line in lines}
    assert re.search(r"█ +▃ +4,000 rows, 0.749\d*/s, at most 50/s", shown["rows/s"])
    assert re.search(r"▄ +█ +6.0 ms, at most 30.0 ms", shown["latency"])
    assert shown["sent again"].rstrip().endswith("7 rows")
    assert shown["dead letters"].rstrip().endswith("2 rows")
    assert shown["tasks"].rstrip().endswith("2, the slowest took 1.5 s")
    assert shown["time of tasks"].rstrip().endswith(" 62 % encoding, 38 % waiting for rows")
    assert re.search(r"█{24} +3,000 rows, 75.0 %", shown["t-0"])
    assert re.search(r" █{8} +1,000 rows, 25.0 %", shown["t-1"])
    assert "1.50" in shown["skew of t"]


def test_incident_a_stream_of_45_seconds_was_one_column_of_a_day(drawn, monkeypatch):
    """A micro-batch a second, 1000 rows each; the charts showed 15 minutes a column."""
    monkeypatch.setenv("COLUMNS", "110")
    now = SystemClock().epoch_ms()  # not NOW: the tests before this one may have taken long
    ended = now - now % 1000 - 3_600_000
    of_stream = [
        WriteReceipt(
            "4f1c", batch, 0, "t", 0, 0, 999, 1000, 10_000, ended - (45 - batch) * 1000, ended - (44 - batch) * 1000,
            query_name="orders",
        )
        for batch in range(45)
    ]  # fmt: skip
    heading, rates, *_ = drawn(of_stream, "--query", "orders").splitlines()
    assert heading.startswith("orders (query 4f1c): 45 batches (0 to 44) from ")
    assert re.search(r"\(45 s\), 1(\.\d+)? h ago; a column is 1 s$", heading)
    assert re.search(r" █{45} +45,000 rows, 1,000/s, at most 1,000/s", rates)


def test_a_long_write_is_spread_over_its_time():
    history = QueryHistory("q", 0, 100_000, 24)
    history.add(WriteReceipt("q", 0, 0, "t", 0, 0, 99, 100, 1000, 0, 10_000, TaskFigures(retries=10)))
    history.add(WriteReceipt("q", 0, 1, "t", 0, 0, 99, 100, 1000, 9_500, 10_000))
    assert history.span_ms == 500
    assert [span.rows for span in history.spans()] == [*[5.0] * 19, 105.0]
    assert sum(span.retries for span in history.spans()) == pytest.approx(10)


@pytest.mark.parametrize(
    ("began", "ended"), [(5, 5), (0, 1), (-(1 << 63), 7), (0, 86_400_000 * 5000), (99, 100), (0, (1 << 63) - 1)]
)
def test_any_times_fit_into_the_columns(began, ended):
    now = 86_400_000 * 5000
    history = QueryHistory("q", 0, now, 24)
    history.add(WriteReceipt("q", 0, 0, "t", 0, 0, 1, 2, 20, began, ended))
    spans = history.spans()
    assert 1 <= len(spans) <= 24
    assert sum(span.rows for span in spans) == pytest.approx(2)
    assert heading(history)


def test_no_write_in_the_last_hours_is_said(drawn):
    assert "No write ended in the last 3 hours" in drawn([recent(60 * 30, 77)], "--hours", "3")


def test_a_query_that_has_no_receipts_is_told_which_queries_have_some(capsys, tmp_path):
    """It said that no write ended in the last 24 hours, whatever --hours was."""
    write_lines(str(tmp_path), RECEIPTS)
    code, _, err = run(capsys, "--path", tmp_path, "--query", "nosuch", "--list")
    assert code == 1
    assert "--query nosuch: no receipt is of this query; there are " in err
    assert RECEIPTS[0].query in err


def test_follow_goes_on_with_new_receipts_until_it_is_interrupted(capsys, tmp_path, monkeypatch):
    write_lines(str(tmp_path), RECEIPTS[:1])
    turns = iter([RECEIPTS[1:2], [], RECEIPTS[2:]])

    def sleep(seconds):
        assert seconds == 5
        try:
            write_lines(str(tmp_path), next(turns))
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(receipts.time, "sleep", sleep)
    code, out, _ = run(capsys, "--path", tmp_path, "--json", "--follow")
    assert code == 130
    assert [WriteReceipt.parse(line) for line in out.splitlines()] == RECEIPTS


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit):
        main(["receipts", "--help"])
    assert "spark-kafka-sink receipts --path s3://bucket/receipts" in capsys.readouterr().out
