"""What a run has consumed so far, while it goes on."""

from geminorum import Api, Options, run


async def test_the_tokens_so_far_are_those_of_the_answers_so_far(fake_gemini):
    fake_gemini.say("Hello world.")
    async with run("Hi", Options(env=fake_gemini.env), via=Api()) as live:
        assert live.used() is None
        async for _ in live:
            pass
        used = live.used()
    assert used is not None
    assert used.total == live.result.usage.total > 0
