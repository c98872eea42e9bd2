"""``spark-kafka-sink receipts`` over files."""

import json

from spark_kafka_sink.cli.main import main
from spark_kafka_sink.exactly_once.receipts import WriteReceipt, write_lines

RECEIPTS = [
    WriteReceipt("q", 1, 0, "t", 1, 10, 14, 5, 50, 1000, 1010),
    WriteReceipt("q", 0, 0, "t", 0, 0, 9, 10, 100, 900, 910),
    WriteReceipt("other", 0, 0, "t", 0, 15, 15, 1, 10, 900, 910),
]


def run(capsys, *arguments):
    code = main(["receipts", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_table_by_query_batch_and_partition(capsys, tmp_path):
    write_lines(str(tmp_path), RECEIPTS)
    code, out, _ = run(capsys, "--path", tmp_path)
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["query", "batch", "task", "topic", "partition", "first_offset", "last_offset", "count", "bytes"],
        ["other", "0", "0", "t", "0", "15", "15", "1", "10"],
        ["q", "0", "0", "t", "0", "0", "9", "10", "100"],
        ["q", "1", "0", "t", "1", "10", "14", "5", "50"],
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


def test_what_is_no_receipt_is_said_so(capsys, tmp_path):
    (tmp_path / "x.jsonl").write_text("{}\n")
    code, _, err = run(capsys, "--path", tmp_path)
    assert code == 1
    assert "is no receipt" in err


def test_a_path_that_is_not_there_is_named(capsys, tmp_path):
    code, _, err = run(capsys, "--path", tmp_path / "none")
    assert code == 1
    assert "is not a directory" in err
