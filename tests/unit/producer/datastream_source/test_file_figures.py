"""Figures of files: what queries report is added up, and an ended one is not shown."""

from tidegate.producer.datastream_source.file_figures import FileFigures, Progress


def test_counts_add_up_over_queries():
    figures = FileFigures()
    figures.add({"files": 2, "copies": 1})
    figures.add({"files": 3})
    assert figures.counts() == {"files": 5, "copies": 1}


def test_progress_is_that_of_the_queries_that_run():
    figures = FileFigures()
    assert figures.progress() is None
    figures.report("a", Progress(2, 70))
    figures.report("b", Progress(3, 50))
    figures.report("a", Progress(1, 80))
    assert figures.progress() == Progress(4, 50)
    figures.forget("b")
    figures.forget("b")
    assert figures.progress() == Progress(1, 80)
