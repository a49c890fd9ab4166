"""Sessions of agentcmd and of captured runs leave in every format."""

from test_export import check_all_is_on_the_page, check_every_format

from geminorum.sessions.reading import load


def test_every_saved_session_leaves_in_every_format(fixtures_folder):
    """S3-44, S3-45, B-5: sessions that other projects captured can be exported in every format."""
    captured = fixtures_folder.parent.glob("captures/*/sessions/**/*.json*")
    kept = [*captured, *fixtures_folder.glob("agentcmd/full/*")]
    found = [path for path in kept if path.name != "projects.json"]
    assert len(found) > 15
    for path in found:
        check_every_format(load(path))


def test_what_was_said_thought_and_done_is_on_the_page(fixtures_folder):
    check_all_is_on_the_page(load(next(fixtures_folder.glob("agentcmd/full/*981c87cb*"))))
