"""The short form of `make load`: agents at once, and the page that is written about them."""

import xml.etree.ElementTree as ET

from load.page import Row, page, picture
from load.subject import Crowd, Figures

from geminorum import Cli, Options, run

FIGURES = Figures(failures=0, wall=1.25, first_p50=0.3, first_p99=1.5, stall=0.02, cpu=0.005)


async def test_every_agent_of_a_crowd_is_counted(stand_in, tmp_path):
    good = stand_in({"type": "init", "session_id": "s"}, {"type": "result", "status": "success"})
    bad = stand_in({"type": "result", "status": "error", "error": {"message": "no"}}, exit=1)
    options = Options(cwd=tmp_path, home=tmp_path)
    transports = iter([good, good, bad])

    async def agent(crowd: Crowd) -> None:
        await crowd.follow(run("Go", options, via=next(transports)))

    figures = await Crowd().measure(agent, 3)
    assert figures.failures == 1
    assert 0 < figures.first_p50 <= figures.first_p99 <= figures.wall


async def test_many_agents_at_once_all_succeed(stand_in, tmp_path):
    via: Cli = stand_in(
        {"type": "init", "session_id": "s"}, {"type": "result", "status": "success"}
    )
    options = Options(cwd=tmp_path, home=tmp_path)
    crowd = Crowd()
    await crowd.measure(lambda crowd: crowd.follow(run("Go", options, via=via)), 12)
    assert crowd.problems == []


def test_the_page_has_a_row_for_each_load_and_names_the_machine():
    rows = [Row("stand-in", 100, FIGURES, 0.01, 2.5), Row("warm", 10, FIGURES, 0.2, 3.0)]
    text = page(rows, "2 cores", "abc1234", 3)
    assert "| 100 | 0 | 1.25 s | 300 ms / 1.50 s | 20 ms | 10 ms (5 ms) | 2.5 MB |" in text
    assert "Measured on 2 cores, at commit abc1234." in text
    assert "headless runs" not in text


def test_the_picture_has_a_line_for_each_curve():
    rows = [Row("stand-in", number, FIGURES, 0.01, 2.5) for number in (1, 10, 100)]
    drawing = ET.fromstring(picture(rows))
    lines = drawing.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    assert all(len(line.attrib["points"].split()) == 3 for line in lines)
