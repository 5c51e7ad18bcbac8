"""What a change takes in Kafka."""

from benchmarks.producer import sizes


def test_a_longer_token_makes_no_change_larger(monkeypatch, capsys):
    monkeypatch.setattr(sizes, "_CHANGES", 20)
    sizes.main()

    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines()]
    assert [row[0].strip() for row in rows[2:]] == [
        "40 characters",
        "100 characters",
        "150 characters",
    ]
    assert len({tuple(row[1:3]) for row in rows[2:]}) == 1
