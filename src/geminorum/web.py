"""The page of `geminorum web` as an ASGI app, to serve or to mount in a program of your own.

    page = geminorum.web.app(token="…")        # FastAPI: app.mount("/agents", page)

`pip install 'geminorum[web]'` brings what it needs.
"""

from geminorum.apps.web.application import WebApp, app
from geminorum.apps.web.settings import WebSettings

__all__ = ["WebApp", "WebSettings", "app"]
