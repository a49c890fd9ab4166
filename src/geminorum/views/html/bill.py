"""What a conversation consumed and cost, as the table under it."""

from __future__ import annotations

from collections import defaultdict

from geminorum.cost import PriceBook
from geminorum.events import Tokens, total_of
from geminorum.views.html.prose import escaped
from geminorum.views.transcript import Transcript, money, total

_COLUMNS = ("input", "cached", "output", "thoughts", "tool", "total")


def bill(transcript: Transcript, prices: PriceBook | None) -> str:
    """One row for each model, then the sum; nothing where nothing was told."""
    tokens = transcript.tokens
    if tokens is None or not tokens.total:
        return ""
    costs = _costs(transcript, prices)
    rows = [_row(name, share, costs.get(name, "")) for name, share in _shares(transcript).items()]
    head = "".join(f'<th scope="col">{name}</th>' for name in ("model", *_COLUMNS, "cost"))
    whole = _row("total", tokens, total(transcript.costs(prices)) or "not known")
    return (
        '<section class="bill" aria-labelledby="bill"><h2 id="bill">Tokens and cost</h2>'
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody><tfoot>{whole}</tfoot></table></div>"
        "<p>Cached tokens are part of the input; thoughts are billed as output.</p></section>\n"
    )


def _shares(transcript: Transcript) -> dict[str, Tokens]:
    shares = defaultdict(list)
    for done in transcript.ends:
        for name, tokens in (done.usage.by_model if done.usage else {}).items():
            shares[name].append(tokens)
    return {name: total_of(several) for name, several in shares.items()}


def _costs(transcript: Transcript, prices: PriceBook | None) -> dict[str, str]:
    sums = defaultdict(list)
    for cost in transcript.costs(prices) or ():
        for name, share in cost.by_model.items():
            sums[name].append(share.usd)
    return {name: money(sum(several[1:], several[0])) for name, several in sums.items()}


def _row(name: str, tokens: Tokens, cost: str) -> str:
    cells = "".join(f"<td>{getattr(tokens, column):,}</td>" for column in _COLUMNS)
    return f'<tr><th scope="row">{escaped(name)}</th>{cells}<td>{cost}</td></tr>'
